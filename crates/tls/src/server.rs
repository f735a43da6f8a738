//! Configures the server's side of TLS, for all workers together.

use super::resolver::CertificateResolver;
use super::suites::{ALPN_TCP, tls12_suites, tls13_provider};
use super::tickets::{SessionTickets, TicketProtocol};
use aws_lc_rs::hkdf::Prk;
use litequic_config::TlsVersion;
use rustls::{
    KeyLogFile, ServerConfig,
    server::{NoServerSessionStorage, WebPkiClientVerifier, danger::ClientCertVerifier},
    version::{TLS12, TLS13},
};
use std::sync::Arc;

/// Number of session tickets after a handshake. A client may use each ticket once (RFC 8446 appendix C.4), and gets as
/// many again. Two, because browsers sometimes open two connections to a host at once, before new tickets arrive.
const TICKETS_PER_HANDSHAKE: usize = 2;

/// Configures TLS 1.3 for HTTP/3 with the certificates of `resolver`.
///
/// A client may resume its session in every process with the same `secret`: the server's state is in the ticket,
/// encrypted by `SessionTickets`. A ticket that cannot be decrypted leads to a full handshake. There is no early data,
/// because it can be replayed. With `key_log` the secrets are written to the file in `SSLKEYLOGFILE`, whose readers can
/// decrypt the traffic.
///
/// # Errors
///
/// rustls rejects the cipher suites, which no input causes.
pub fn server_config(
    resolver: Arc<CertificateResolver>,
    key_log: bool,
    secret: &Prk,
) -> Result<Arc<ServerConfig>, rustls::Error> {
    config_with_tickets(resolver, key_log, secret, TicketProtocol::Quic)
}

/// Configures TLS over TCP for clients without TLS 1.3. Both versions are listed, so that rustls sets the sentinel in
/// the server's random by which a client detects that an attacker removed TLS 1.3 from its ClientHello (RFC 8446
/// §4.1.3). Without tickets: the key of a ticket decrypts the recorded traffic of its session.
///
/// # Errors
///
/// rustls rejects the cipher suites, which no input causes.
pub(super) fn tls12_server_config(
    resolver: Arc<CertificateResolver>,
    key_log: bool,
) -> Result<Arc<ServerConfig>, rustls::Error> {
    let verifier = WebPkiClientVerifier::no_client_auth();
    let mut config = build_server_config(TlsVersion::Tls12, resolver, verifier, key_log, ALPN_TCP)?;
    config.require_ems = true;
    Ok(Arc::new(config))
}

/// Configures TLS 1.3 with tickets. Each protocol has a ticket key of its own, so that no session can be resumed in the
/// other.
///
/// # Errors
///
/// rustls rejects the cipher suites, which no input causes.
pub(super) fn config_with_tickets(
    resolver: Arc<CertificateResolver>,
    key_log: bool,
    secret: &Prk,
    protocol: TicketProtocol,
) -> Result<Arc<ServerConfig>, rustls::Error> {
    let (verifier, protocols) = (WebPkiClientVerifier::no_client_auth(), protocol.alpn_protocols());
    let mut config = build_server_config(TlsVersion::Tls13, resolver, verifier, key_log, protocols)?;
    config.ticketer = Arc::new(SessionTickets::new(secret.clone(), protocol));
    config.send_tls13_tickets = TICKETS_PER_HANDSHAKE;
    config.max_tls13_tickets = TICKETS_PER_HANDSHAKE; // a client that asks for fewer (RFC 9149) gets fewer
    Ok(Arc::new(config))
}

/// Configures TLS of version `min` or later, without tickets. Clients' certificates are verified by `verifier`.
///
/// # Errors
///
/// rustls rejects the cipher suites, which no input causes.
pub(super) fn build_server_config(
    min: TlsVersion,
    resolver: Arc<CertificateResolver>,
    verifier: Arc<dyn ClientCertVerifier>,
    key_log: bool,
    protocols: &[&[u8]],
) -> Result<ServerConfig, rustls::Error> {
    let mut provider = tls13_provider();
    let versions: &[_] = match min {
        TlsVersion::Tls13 => &[&TLS13],
        TlsVersion::Tls12 => {
            provider.cipher_suites.extend(tls12_suites());
            &[&TLS13, &TLS12]
        }
    };
    let mut config = ServerConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(versions)?
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(resolver);
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    config.max_early_data_size = 0;
    // AES-128-GCM in hardware is the cheapest cipher; without hardware the client's preference counts.
    config.ignore_client_order = has_aes_hardware();
    if key_log {
        config.key_log = Arc::new(KeyLogFile::new());
    }
    Ok(config)
}

/// Whether this CPU computes AES in hardware.
fn has_aes_hardware() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::arch::is_x86_feature_detected!("aes");
    #[cfg(target_arch = "aarch64")]
    return std::arch::is_aarch64_feature_detected!("aes");
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    return false;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CertificateStore, SelfSigned, ServerTrust, client_config, make_self_signed, tickets};
    use rustls::{CipherSuite, ClientConfig, ClientConnection, ServerConnection, pki_types::ServerName};
    use std::io::Write;

    fn server(made: &SelfSigned) -> Arc<ServerConfig> {
        let store = CertificateStore::new(made.to_loaded_certificate().unwrap(), []);
        server_config(CertificateResolver::new(store), false, &tickets::secret(1)).unwrap()
    }

    /// Performs a handshake in memory, with the data after it.
    fn shake(
        server: &Arc<ServerConfig>,
        client: &Arc<ClientConfig>,
        name: &'static str,
    ) -> Result<ClientConnection, rustls::Error> {
        let mut server = ServerConnection::new(Arc::clone(server))?;
        let mut client = ClientConnection::new(Arc::clone(client), ServerName::try_from(name).unwrap())?;
        for _ in 0..4 {
            let mut bytes = Vec::new();
            while client.wants_write() {
                client.write_tls(&mut bytes).unwrap();
            }
            server.read_tls(&mut bytes.as_slice()).unwrap();
            server.process_new_packets()?;
            let mut bytes = Vec::new();
            while server.wants_write() {
                server.write_tls(&mut bytes).unwrap();
            }
            client.read_tls(&mut bytes.as_slice()).unwrap();
            client.process_new_packets()?;
        }
        Ok(client)
    }

    fn trusting(pem: &str) -> Arc<ClientConfig> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(pem.as_bytes()).unwrap();
        Arc::new(client_config(&ServerTrust::File(file.path().into())).unwrap())
    }

    #[test]
    fn a_client_that_trusts_the_certificate_agrees_on_h3() {
        let made = make_self_signed(["localhost"]).unwrap();
        let server = server(&made);
        let client = shake(&server, &trusting(&made.cert_pem), "localhost").unwrap();
        assert_eq!(client.alpn_protocol(), Some(&b"h3"[..]));
        assert_eq!(client.negotiated_cipher_suite().unwrap().suite(), CipherSuite::TLS13_AES_128_GCM_SHA256);
        assert_eq!(client.tls13_tickets_received(), 2);
    }

    #[test]
    fn only_an_insecure_client_accepts_a_stranger() {
        let server = server(&make_self_signed(["localhost"]).unwrap());
        let stranger = make_self_signed(["localhost"]).unwrap();
        assert!(shake(&server, &trusting(&stranger.cert_pem), "localhost").is_err());
        let insecure = Arc::new(client_config(&ServerTrust::Insecure).unwrap());
        assert!(shake(&server, &insecure, "elsewhere.test").is_ok());
    }

    #[test]
    fn a_file_without_certificates_is_named() {
        let missing = client_config(&ServerTrust::File("/nonexistent/ca.pem".into())).unwrap_err();
        assert!(missing.to_string().contains("/nonexistent/ca.pem"), "{missing}");
        let empty = tempfile::NamedTempFile::new().unwrap();
        let error = client_config(&ServerTrust::File(empty.path().into())).unwrap_err();
        assert!(error.to_string().contains("contains no usable certificate"), "{error}");
    }
}
