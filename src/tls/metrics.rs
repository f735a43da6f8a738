//! A worker's metrics of TLS on QUIC; those of TLS on TCP are in `tcp`.

use crate::telemetry::{CLIENT_CERTIFICATES_REFUSED, Counter, HANDSHAKES, metrics};

metrics! {
    /// A worker's own: it alone writes. Aligned so that two workers never share a cache line.
    #[repr(align(128))]
    pub struct Metrics {
        Counter(HANDSHAKES) {
            handshakes_quic_full [transport: "quic", kind: "full"],
            handshakes_quic_resumed [transport: "quic", kind: "resumed"] "By a ticket: cheaper for both.",
        }
        Counter(CLIENT_CERTIFICATES_REFUSED) {
            client_certificates_missing [reason: "missing"]
                "Handshakes that ended because the client had no certificate where one is required.",
            client_certificates_invalid [reason: "invalid"]
                "Handshakes that ended because the client's certificate was invalid, or was longer than 16 KiB with \
                    those that came with it; the log has why, at `debug`.",
        }
    }
}
