//! Provides a worker's TLS configuration for QUIC, from which sessions begin.

use super::client_certificates::CertificateRequester;
use super::metrics::TlsMetrics;
use super::traffic_secrets::{SecretLog, TrafficSecrets};
use litequic_exchange::CertificateRequest;
use rustls::{
    ServerConfig,
    quic::{ServerConnection, Version},
};
use std::{net::IpAddr, sync::Arc};

/// The server's side of TLS for s2n-quic. Clones share the configuration with the keys of the session tickets; each
/// worker gets one.
///
/// Handshake extensions belong here: a session has the client's encoded transport parameters, including those that
/// s2n-quic does not support, and its verified certificates. It can pass both to the connection's user with
/// `Context::on_tls_context`.
#[derive(Clone)]
pub struct ServerTls {
    /// Configuration for clients without a certificate request.
    plain: Arc<ServerConfig>,
    requester: Option<Arc<CertificateRequester>>,
    metrics: Arc<TlsMetrics>,
}

impl ServerTls {
    /// Serves `config`, which should be from [`super::server_config`]. rustls accepts no QUIC connection with another
    /// TLS version than 1.3, without a cipher suite for QUIC, or with limited early data: every handshake would fail.
    pub fn new(config: Arc<ServerConfig>) -> Self {
        Self { plain: config, requester: None, metrics: Arc::default() }
    }

    /// Requests certificates from clients by `asking`, and selects certificates for clients without a name (SNI) by the
    /// address that they connected to.
    #[must_use]
    pub fn with_certificate_requests(self, asking: CertificateRequester) -> Self {
        Self { requester: Some(Arc::new(asking)), ..self }
    }

    /// Counts in the worker's `metrics`.
    #[must_use]
    pub fn with_metrics(self, metrics: Arc<TlsMetrics>) -> Self {
        Self { metrics, ..self }
    }

    /// Whether the client's server name must be known before the session begins.
    pub(super) fn needs_server_name(&self) -> bool {
        self.requester.as_ref().is_some_and(|asking| asking.has_authorities())
    }

    /// Returns the certificate request for a client with `server_name`.
    pub(super) fn request_for_client(&self, server_name: Option<&str>) -> CertificateRequest {
        self.requester.as_ref().map_or(CertificateRequest::None, |asking| asking.request_for_name(server_name))
    }

    /// Creates a connection for a client at the address `local`; `None` if rustls rejects the configuration.
    pub(super) fn new_tls_connection(
        &self,
        request: CertificateRequest,
        local: IpAddr,
        parameters: Vec<u8>,
        secrets: Arc<TrafficSecrets>,
    ) -> Option<ServerConnection> {
        let asking = self.requester.as_ref().and_then(|asking| asking.config_with_request(request));
        // Each connection needs its own configuration, because rustls passes secrets to the configuration's key log.
        // The parts are shared.
        let mut config = ServerConfig::clone(asking.unwrap_or(&self.plain));
        if let Some(resolver) = self.requester.as_ref().and_then(|asking| asking.resolver.resolver_at(local)) {
            config.cert_resolver = resolver;
        }
        config.key_log = Arc::new(SecretLog { secrets, log: config.key_log });
        let connection = ServerConnection::new(Arc::new(config), Version::V1, parameters);
        connection.inspect_err(|error| tracing::error!(%error, "TLS is misconfigured")).ok()
    }

    pub(super) fn shared_metrics(&self) -> Arc<TlsMetrics> {
        Arc::clone(&self.metrics)
    }
}

litequic_base::partial_debug!(ServerTls);
