//! The server's side of TLS: one configuration that all workers share, so that a session ticket issued by one is good
//! on every other.

use super::{ALPN_H3, CertificateResolver, provider};
use rustls::{
    KeyLogFile, ServerConfig,
    crypto::aws_lc_rs::Ticketer,
    server::{NoServerSessionStorage, ProducesTickets},
    version::TLS13,
};
use std::sync::Arc;

/// The key of the session tickets. Outlives a reload, so that tickets do.
#[derive(Debug, Clone)]
pub struct Tickets(Arc<dyn ProducesTickets>);

impl Tickets {
    /// A random key, renewed every six hours; the one before stays good for decryption.
    ///
    /// # Errors
    ///
    /// When the system has no randomness.
    pub fn random() -> Result<Self, rustls::Error> {
        Ticketer::new().map(Self)
    }
}

/// TLS 1.3 for HTTP/3 with what `resolver` serves.
///
/// Sessions are resumed by tickets alone: nothing is kept for a client. No early data, which s2n-quic does not take.
/// With `key_log` the secrets go to the file that `SSLKEYLOGFILE` names: whoever reads it reads the traffic.
///
/// # Errors
///
/// When rustls finds the cipher suites unfit, which no input causes.
pub fn server_config(
    resolver: Arc<CertificateResolver>,
    tickets: &Tickets,
    key_log: bool,
) -> Result<Arc<ServerConfig>, rustls::Error> {
    let mut config = ServerConfig::builder_with_provider(Arc::new(provider()))
        .with_protocol_versions(&[&TLS13])?
        .with_no_client_auth()
        .with_cert_resolver(resolver);
    config.alpn_protocols = vec![ALPN_H3.to_vec()];
    config.ticketer = Arc::clone(&tickets.0);
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.max_early_data_size = 0;
    // With AES in hardware AES-128-GCM is the cheapest for us; without, a client that lacks it too knows best.
    config.ignore_client_order = has_aes();
    if key_log {
        config.key_log = Arc::new(KeyLogFile::new());
    }
    Ok(Arc::new(config))
}

/// Whether this CPU computes AES in hardware.
fn has_aes() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::arch::is_x86_feature_detected!("aes");
    #[cfg(target_arch = "aarch64")]
    return std::arch::is_aarch64_feature_detected!("aes");
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    return false;
}
