//! The QUIC client by hand of the integration tests, and what it needs of them.

use litequic_tls::{ServerTrust, client_config};
use std::{net::SocketAddr, time::Duration};

/// Longer than anything takes.
pub(crate) const DEADLINE: Duration = Duration::from_secs(30);

/// The output of `what`, which must come in time.
pub(crate) async fn within<T>(what: &str, output: impl Future<Output = T>) -> T {
    tokio::time::timeout(DEADLINE, output).await.unwrap_or_else(|_| panic!("no {what} in time"))
}

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
    pub(crate) use litequic_testkit::varint::{decode as read_varint, encode as varint};
}

pub(crate) mod prelude {
    pub(crate) use super::{DEADLINE, proxy::Litequic, within};
    pub(crate) use std::{
        net::{Ipv4Addr, SocketAddr},
        sync::Arc,
        time::Duration,
    };
    pub(crate) use tokio::time::timeout;
}

#[expect(dead_code, reason = "tests use the rest")]
#[path = "../../../tests/it/support/initial.rs"]
pub(crate) mod initial;
#[expect(dead_code, reason = "tests use the rest")]
#[path = "../../../tests/it/support/wire.rs"]
pub(crate) mod wire;
