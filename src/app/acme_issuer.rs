//! Obtains and renews the certificates of `[[acme]]`, and answers for other processes that do.

use super::active_state::ActiveState;
use super::issued::{certificate, tables};
use litequic_acme::{Manager, Wiring};
use litequic_config::{Acme, AcmeHost};
use litequic_tls::{self as tls, Trust};
use rustls::ClientConfig;
use std::sync::Arc;

/// The protocol with a CA (RFC 7301 §6).
const ALPN: &[u8] = b"http/1.1";

/// TLS with the directory of `table`.
pub(super) fn trust(table: &Acme) -> Result<ClientConfig, String> {
    let trust = table.ca.clone().map_or(Trust::System, Trust::File);
    let mut config = tls::client_config(&trust, false).map_err(|error| error.to_string())?;
    config.alpn_protocols = vec![ALPN.to_vec()];
    Ok(config)
}

impl ActiveState {
    /// The tables in force whose certificates are obtained.
    fn acme_tables(&self) -> Vec<Acme> {
        tables(&self.config.load(), &self.resolver.store())
    }

    /// Serves the certificate of `host` from the next handshake on.
    fn serve_issued(&self, host: &AcmeHost, pem: &str) -> Result<(), String> {
        let certificate = certificate(host, pem)?;
        let mut issued = self.replacing();
        let is_known = issued.0.get(host).is_some_and(|known| known.is_same_chain(&certificate));
        issued.0.insert(host.clone(), certificate);
        if !is_known {
            let store = issued.compose(&self.resolver.store(), &self.config.load());
            self.resolver.replace(store);
        }
        drop(issued);
        if !is_known {
            self.observe_certificates();
        }
        Ok(())
    }

    /// Obtains and renews certificates, and answers for other processes that do. Does not end.
    pub(super) async fn obtain(self) {
        let (tables, of) = (self.clone(), self.clone());
        let wiring = Wiring {
            tables: Box::new(move || tables.acme_tables()),
            trust: Arc::new(trust),
            serve: Box::new(move |host, pem| of.serve_issued(host, pem)),
        };
        let (answers, board) = (Arc::clone(&self.acme.answers), Arc::clone(&self.acme.board));
        Manager::new(wiring, answers, board, Arc::clone(&self.metrics.acme)).run().await;
    }

    /// Has workers find the answers to validation requests that other processes have put into the folder. Does not end.
    pub(super) async fn answer(self) {
        self.acme.answers.serve(|| self.acme_tables()).await;
    }
}
