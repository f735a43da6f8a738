//! The QUIC client by hand of the integration tests, and what it needs of them.

use litequic_tls::{ServerTrust, client_config};
use std::{net::SocketAddr, time::Duration};

/// Longer than anything takes.
pub(crate) const DEADLINE: Duration = Duration::from_secs(30);

pub(crate) mod client {
    /// A client's that trusts any certificate.
    pub(crate) fn tls_config(_cert_pem: &str) -> rustls::ClientConfig {
        let mut config = super::client_config(&super::ServerTrust::Insecure).expect("a configuration");
        config.resumption = rustls::client::Resumption::disabled();
        config
    }
}

pub(crate) mod proxy {
    /// A server.
    pub(crate) struct Litequic {
        pub(crate) address: super::SocketAddr,
        pub(crate) cert_pem: String,
    }
}

pub(crate) mod raw {
    /// A QUIC integer (RFC 9000 §16).
    pub(crate) fn varint(value: u64) -> Vec<u8> {
        match value {
            0..0x40 => vec![value.to_be_bytes()[7]],
            0x40..0x4000 => (value | 0x4000).to_be_bytes()[6..].to_vec(),
            0x4000..0x4000_0000 => (value | 0x8000_0000).to_be_bytes()[4..].to_vec(),
            _ => (value | 0xc000_0000_0000_0000).to_be_bytes().to_vec(),
        }
    }
}

#[expect(dead_code, reason = "tests use the rest")]
#[path = "../../../tests/it/support/wire.rs"]
pub(crate) mod wire;
