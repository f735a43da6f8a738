//! Makes packet protection keys (RFC 9001 §5) from the secrets of a handshake.
//!
//! rustls' packet keys seal one contiguous slice: stream data, which s2n-quic holds by reference, would first have to
//! be copied behind the frames, a tenth of a large download's CPU time. s2n-quic-crypto's keys seal it in place. They
//! are made of the traffic secrets (RFC 8446 §7.1), which rustls exposes only to a [`KeyLog`].

use aws_lc_rs::{
    aead::{AES_128_GCM, AES_256_GCM, Algorithm, CHACHA20_POLY1305},
    hkdf::{HKDF_SHA256, HKDF_SHA384, Prk},
};
use parking_lot::Mutex;
use rustls::KeyLog;
use s2n_quic_core::crypto::tls::CipherSuite;
use s2n_quic_crypto::{
    SecretPair,
    handshake::{HandshakeHeaderKey, HandshakeKey},
    one_rtt::{OneRttHeaderKey, OneRttKey},
};
use std::sync::Arc;

/// Bytes of secrets with SHA-384, which one cipher suite has; the others have SHA-256.
const SHA384_LEN: usize = 48;

/// Labels of the secrets of which keys are made, in the names of the key log format (RFC 8446 §7.1).
const LABELS: [&str; 4] = [
    "CLIENT_HANDSHAKE_TRAFFIC_SECRET",
    "SERVER_HANDSHAKE_TRAFFIC_SECRET",
    "CLIENT_TRAFFIC_SECRET_0",
    "SERVER_TRAFFIC_SECRET_0",
];

/// Traffic secrets of one connection from rustls, of which keys are made, in the order of [`LABELS`].
#[derive(Default)]
pub(super) struct TrafficSecrets(Mutex<[Option<Prk>; LABELS.len()]>);

impl TrafficSecrets {
    /// Takes the server's keys at the level Handshake, after rustls has reached this level.
    pub(super) fn handshake_keys(&self, suite: CipherSuite) -> Option<(HandshakeKey, HandshakeHeaderKey)> {
        let [client, server, ..] = &mut *self.0.lock();
        HandshakeKey::new_server(aead_algorithm(suite)?, take_pair(client, server)?)
    }

    /// Takes the server's 1-RTT keys, after rustls has reached this level.
    pub(super) fn one_rtt_keys(&self, suite: CipherSuite) -> Option<(OneRttKey, OneRttHeaderKey)> {
        let [.., client, server] = &mut *self.0.lock();
        OneRttKey::new_server(aead_algorithm(suite)?, take_pair(client, server)?)
    }
}

fn take_pair(client: &mut Option<Prk>, server: &mut Option<Prk>) -> Option<SecretPair> {
    Some(SecretPair { server: server.take()?, client: client.take()? })
}

/// Passes a connection's secrets to [`TrafficSecrets`] and to the configured key log.
#[derive(Debug)]
pub(super) struct SecretLog {
    /// Secrets of which the connection's keys are made.
    pub(super) secrets: Arc<TrafficSecrets>,
    /// The configured key log.
    pub(super) log: Arc<dyn KeyLog>,
}

impl KeyLog for SecretLog {
    fn log(&self, label: &str, client_random: &[u8], secret: &[u8]) {
        let hash = if secret.len() == SHA384_LEN { HKDF_SHA384 } else { HKDF_SHA256 };
        for (known, slot) in LABELS.iter().zip(&mut *self.secrets.0.lock()) {
            if *known == label {
                *slot = Some(Prk::new_less_safe(hash, secret));
            }
        }
        if self.log.will_log(label) {
            self.log.log(label, client_random, secret);
        }
    }

    fn will_log(&self, label: &str) -> bool {
        LABELS.contains(&label) || self.log.will_log(label)
    }
}

litequic_base::partial_debug!(TrafficSecrets);

/// Returns the AEAD algorithm of a cipher suite.
fn aead_algorithm(suite: CipherSuite) -> Option<&'static Algorithm> {
    match suite {
        CipherSuite::TLS_AES_128_GCM_SHA256 => Some(&AES_128_GCM),
        CipherSuite::TLS_AES_256_GCM_SHA384 => Some(&AES_256_GCM),
        CipherSuite::TLS_CHACHA20_POLY1305_SHA256 => Some(&CHACHA20_POLY1305),
        _ => None,
    }
}

/// Converts a cipher suite of rustls to s2n-quic's type.
pub(super) fn to_s2n_suite(suite: rustls::CipherSuite) -> CipherSuite {
    match suite {
        rustls::CipherSuite::TLS13_AES_128_GCM_SHA256 => CipherSuite::TLS_AES_128_GCM_SHA256,
        rustls::CipherSuite::TLS13_AES_256_GCM_SHA384 => CipherSuite::TLS_AES_256_GCM_SHA384,
        rustls::CipherSuite::TLS13_CHACHA20_POLY1305_SHA256 => CipherSuite::TLS_CHACHA20_POLY1305_SHA256,
        _ => CipherSuite::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::NoKeyLog;
    use s2n_quic_core::crypto::tls::CipherSuite::TLS_AES_128_GCM_SHA256;

    const LABELS: [&str; 4] = [
        "CLIENT_HANDSHAKE_TRAFFIC_SECRET",
        "SERVER_HANDSHAKE_TRAFFIC_SECRET",
        "CLIENT_TRAFFIC_SECRET_0",
        "SERVER_TRAFFIC_SECRET_0",
    ];

    fn secret_log() -> (Arc<TrafficSecrets>, SecretLog) {
        let secrets = Arc::<TrafficSecrets>::default();
        (Arc::clone(&secrets), SecretLog { secrets, log: Arc::new(NoKeyLog) })
    }

    #[test]
    fn keys_are_made_once_and_from_both_sides_secrets() {
        let (secrets, log) = secret_log();
        for (count, label) in LABELS.into_iter().enumerate() {
            let ready = (secrets.handshake_keys(TLS_AES_128_GCM_SHA256), secrets.one_rtt_keys(TLS_AES_128_GCM_SHA256));
            assert_eq!((ready.0.is_some(), ready.1.is_some()), (count == 2, false), "before {label}");
            log.log(label, b"", &[7; 32]);
        }
        assert!(secrets.one_rtt_keys(TLS_AES_128_GCM_SHA256).is_some());
        assert!(secrets.one_rtt_keys(TLS_AES_128_GCM_SHA256).is_none(), "twice");
    }

    #[test]
    fn no_other_secret_is_wanted_and_none_is_shown() {
        let (secrets, log) = secret_log();
        assert!(LABELS.iter().all(|label| log.will_log(label)));
        assert!(!log.will_log("EXPORTER_SECRET"));
        log.log("EXPORTER_SECRET", b"", &[7; 32]);
        assert!(secrets.one_rtt_keys(TLS_AES_128_GCM_SHA256).is_none());
        assert_eq!(format!("{secrets:?}"), "TrafficSecrets { .. }");
    }

    #[test]
    fn a_suite_without_a_name_has_no_keys() {
        let (secrets, log) = secret_log();
        LABELS.iter().for_each(|label| log.log(label, b"", &[7; 32]));
        assert!(secrets.handshake_keys(CipherSuite::Unknown).is_none());
    }
}
