//! Metrics of TLS on QUIC, per worker; those of TLS on TCP are in `litequic-tcp`.

use litequic_telemetry::{CLIENT_CERTIFICATES_REFUSED, Counter, HANDSHAKE_GROUPS, HANDSHAKES, metrics};
use rustls::NamedGroup;
use std::sync::atomic::AtomicU64;

metrics! {
    /// Metrics of one worker, which alone writes them. Aligned so that two workers never share a cache line.
    #[repr(align(128))]
    pub struct TlsMetrics {
        Counter(HANDSHAKES) {
            handshakes_quic_full [transport: "quic", kind: "full"],
            handshakes_quic_resumed [transport: "quic", kind: "resumed"] "The client resumed a session by a ticket, \
                                                                          which costs both sides less CPU time.",
        }
        Counter(HANDSHAKE_GROUPS) {
            groups_quic_x25519mlkem768 [transport: "quic", group: "x25519mlkem768"]
                "The hybrid of X25519 and ML-KEM-768: traffic that is recorded today stays secret from quantum computers.",
            groups_quic_x25519 [transport: "quic", group: "x25519"],
            groups_quic_secp256r1 [transport: "quic", group: "secp256r1"],
            groups_quic_secp384r1 [transport: "quic", group: "secp384r1"],
        }
        Counter(CLIENT_CERTIFICATES_REFUSED) {
            client_certificates_missing [reason: "missing"]
                "The client had no certificate where one is required.",
            client_certificates_invalid [reason: "invalid"]
                "The client's certificate was invalid, or its chain was longer than 16 KiB; the log has the reason at \
                 level `debug`.",
        }
    }
}

metrics! {
    /// Metrics of certificates that have not been issued yet. All workers count here, but only for handshakes that end.
    pub struct CertificateMisses {
        AtomicU64(
            "handshakes_without_certificate",
            "Handshakes that ended because no certificate has been obtained for the client's host yet."
        ) {
            misses "The host is one of `[[acme]]`, and its certificate has not been issued yet.",
        }
    }
}

impl TlsMetrics {
    /// Counts a completed handshake by its key exchange group.
    pub fn count_group(&self, group: Option<NamedGroup>) {
        match group {
            Some(NamedGroup::X25519MLKEM768) => self.groups_quic_x25519mlkem768.increment(),
            Some(NamedGroup::X25519) => self.groups_quic_x25519.increment(),
            Some(NamedGroup::secp256r1) => self.groups_quic_secp256r1.increment(),
            Some(NamedGroup::secp384r1) => self.groups_quic_secp384r1.increment(),
            _ => {}
        }
    }
}
