//! Selects rustls' configuration for each handshake over TCP. rustls and tokio-rustls do the rest.

use super::{
    client_certificates::CertificateRequester, resolver::CertificateResolver, server, suites::ALPN_TCP,
    tickets::TicketProtocol,
};
use aws_lc_rs::hkdf::Prk;
use litequic_exchange::CertificateRequest;
use rustls::{Error, ServerConfig};
use std::{net::IpAddr, sync::Arc};

/// Configurations of handshakes over TCP, with the same certificates, authorities and policy as over QUIC. Clones share
/// the key of the session tickets.
#[derive(Clone)]
pub struct TcpTls {
    /// Configuration for clients without a certificate request.
    plain: Arc<ServerConfig>,
    /// Configuration for clients without TLS 1.3, if permitted.
    tls12: Arc<ServerConfig>,
    requester: Arc<CertificateRequester>,
}

impl TcpTls {
    /// Serves the certificates of `resolver`, encrypts tickets by `secret`, and requests certificates from clients by
    /// `policy`.
    ///
    /// # Errors
    ///
    /// The errors of [`super::server_config`].
    pub fn new(
        resolver: Arc<CertificateResolver>,
        key_log: bool,
        secret: &Prk,
        policy: impl Fn(Option<&str>) -> CertificateRequest + Send + Sync + 'static,
    ) -> Result<Self, Error> {
        Ok(Self {
            plain: server::config_with_tickets(Arc::clone(&resolver), key_log, secret, TicketProtocol::Tcp)?,
            tls12: server::tls12_server_config(Arc::clone(&resolver), key_log)?,
            requester: Arc::new(CertificateRequester::for_protocols(ALPN_TCP, resolver, key_log, policy)?),
        })
    }

    /// Returns the certificate request for a client with `server_name` (SNI) at the address `local`, and its
    /// configuration. A client that `is_old` has no TLS 1.3. If it may be asked for a certificate, its configuration
    /// rejects TLS 1.2, which would send the certificate unencrypted.
    pub fn choose_server_config(
        &self,
        server_name: Option<&str>,
        local: IpAddr,
        is_old: bool,
    ) -> (CertificateRequest, Arc<ServerConfig>) {
        let request = if self.requester.has_authorities() {
            self.requester.request_for_name(server_name)
        } else {
            CertificateRequest::None
        };
        let plain = if is_old { &self.tls12 } else { &self.plain };
        let config = self.requester.config_with_request(request).unwrap_or(plain);
        let resolver = server_name.is_none().then(|| self.requester.resolver.resolver_at(local)).flatten();
        let config = match resolver {
            None => Arc::clone(config),
            // A configuration of its own shares its parts, including the ticket key.
            Some(resolver) => {
                let mut config = ServerConfig::clone(config);
                config.cert_resolver = resolver;
                Arc::new(config)
            }
        };
        (request, config)
    }
}

litequic_base::partial_debug!(TcpTls);
