//! Obtains and renews the certificates of `[[acme]]`, and answers validation requests on behalf of other processes.

use super::acme_certificates::{parse_issued_certificate, tables_to_obtain};
use super::active_state::ActiveState;
use litequic_acme::{AcmeClient, AcmeHooks};
use litequic_config::{Acme, AcmeHost};
use litequic_tls::{self as tls, ServerTrust};
use rustls::ClientConfig;
use std::sync::Arc;

/// Protocol with a CA (RFC 7301 §6).
const CA_ALPN: &[u8] = b"http/1.1";

/// TLS configuration for the ACME directory of `table`.
pub(super) fn directory_tls(table: &Acme) -> Result<ClientConfig, String> {
    let trust = table.ca.clone().map_or(ServerTrust::System, ServerTrust::File);
    let mut config = tls::client_config(&trust).map_err(|error| error.to_string())?;
    config.alpn_protocols = vec![CA_ALPN.to_vec()];
    Ok(config)
}

impl ActiveState {
    /// ACME tables in force whose certificates are obtained.
    fn acme_tables(&self) -> Vec<Acme> {
        tables_to_obtain(&self.config.load(), &self.resolver.current_store())
    }

    /// Serves the certificate of `host` from the next handshake on.
    fn serve_issued(&self, host: &AcmeHost, pem: &str) -> Result<(), String> {
        let certificate = parse_issued_certificate(host, pem)?;
        let mut issued = self.replacing.lock();
        let is_known = issued.0.get(host).is_some_and(|known| known.is_same_chain(&certificate));
        issued.0.insert(host.clone(), certificate);
        if !is_known {
            let store = issued.compose_store(&self.resolver.current_store(), &self.config.load());
            self.resolver.replace_store(store);
        }
        drop(issued);
        if !is_known {
            self.observe_certificates();
        }
        Ok(())
    }

    /// Obtains and renews certificates, and answers validation requests for other processes. Does not end.
    pub(super) async fn obtain_certificates(self) {
        let (tables, of) = (self.clone(), self.clone());
        let wiring = AcmeHooks {
            tables: Box::new(move || tables.acme_tables()),
            trust: Arc::new(directory_tls),
            serve: Arc::new(move |host, pem| of.serve_issued(host, pem)),
        };
        let (answers, board) = (Arc::clone(&self.acme.answers), Arc::clone(&self.acme.board));
        AcmeClient::new(wiring, answers, board, Arc::clone(&self.metrics.acme)).run_renewals().await;
    }

    /// Serves the answers to validation requests that other processes have put into the folder. Does not end.
    pub(super) async fn serve_acme_answers(self) {
        self.acme.answers.read_folders_on_request(|| self.acme_tables()).await;
    }
}
