//! Reads and writes the order of `/qlog`, which logs QUIC connections packet by packet as qlog. This is the only
//! streamed response: lines are sent as they are written, for the time in the query.

use super::query::{QueryMembers, on_or_off};
use bytes::Bytes;
use litequic_telemetry::clients::{Selector, SelectorError};
use std::{fmt, ops::RangeInclusive, time::Duration};
use tokio::sync::mpsc;

/// Lines of qlogs, in pieces. Dropping the receiver ends the logs.
pub type QlogLines = mpsc::Receiver<Bytes>;

/// Order of `POST /qlog`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QlogOrder {
    /// Client whose connections are logged.
    pub client: Selector,
    /// Duration of the log, in whole seconds.
    pub time: Duration,
    /// Number of connections to log at most.
    pub connections: usize,
    /// Whether the next connection is logged, rather than the open ones.
    pub next: bool,
    /// Whether clients' addresses are left out.
    pub anonymous: bool,
}

impl QlogOrder {
    /// Range of a log's duration, in seconds.
    pub const QLOG_SECONDS: RangeInclusive<u64> = 1..=300;
    /// Default duration of a log, in seconds.
    pub const DEFAULT_SECONDS: u64 = 30;
    /// Number of connections at most: as many as a household or an office has.
    pub const MAX_LOGGED_CONNECTIONS: usize = 8;

    /// Creates an order for `client`, with the default duration.
    pub fn for_client(client: Selector) -> Self {
        let time = Duration::from_secs(Self::DEFAULT_SECONDS);
        Self { client, time, connections: Self::MAX_LOGGED_CONNECTIONS, next: false, anonymous: false }
    }

    /// Reads the query of `/qlog`: `client`, `seconds`, `connections`, `next`, `anonymous`.
    ///
    /// # Errors
    ///
    /// A message with the fault of the query.
    pub fn from_qlog_query(query: &str) -> Result<Self, String> {
        let usage = "client=ADDRESS, seconds, connections, next=on, anonymous=on";
        let members = QueryMembers::parse(query, &["client", "seconds", "connections", "next", "anonymous"], usage)?;
        let client = members
            .value("client")
            .map(|value| value.parse().map_err(|error: SelectorError| format!("client: {value:?} is {error}")));
        let client = client.transpose()?;
        let seconds = members.number("seconds", &Self::QLOG_SECONDS)?.unwrap_or(Self::DEFAULT_SECONDS);
        let most = Self::MAX_LOGGED_CONNECTIONS;
        let order = Self {
            time: Duration::from_secs(seconds),
            connections: members.number("connections", &(1..=most))?.unwrap_or(most),
            next: members.on_or_off("next")?.unwrap_or(false),
            anonymous: members.on_or_off("anonymous")?.unwrap_or(false),
            client: client.ok_or("the query has no client=ADDRESS")?,
        };
        match order.client {
            Selector::Network(network) if network.prefix != if network.address.is_ipv4() { 32 } else { 128 } => {
                Err("client is a network: a log is of one address".into())
            }
            _ => Ok(order),
        }
    }
}

/// Formats the order as a query.
impl fmt::Display for QlogOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { client, time, connections, next, anonymous } = self;
        write!(f, "client={client}&seconds={}&connections={connections}", time.as_secs())?;
        write!(f, "&next={}&anonymous={}", on_or_off(*next), on_or_off(*anonymous))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_order_names_an_address_and_a_time() {
        let order = QlogOrder::for_client("192.0.2.1".parse().unwrap());
        let unknown =
            "unknown parameter: the query may have client=ADDRESS, seconds, connections, next=on, anonymous=on";
        for (query, expected) in [
            ("client=192.0.2.1", Ok(order)),
            (
                "client=192.0.2.1&seconds=300&connections=1&next=on&anonymous=on",
                Ok(QlogOrder { time: Duration::from_secs(300), connections: 1, next: true, anonymous: true, ..order }),
            ),
            ("client=192.0.2.1:443", Ok(QlogOrder::for_client("192.0.2.1:443".parse().unwrap()))),
            ("client=0-7", Ok(QlogOrder::for_client("0-7".parse().unwrap()))),
            ("client=192.0.2.0/31", Err("client is a network: a log is of one address")),
            ("", Err("the query has no client=ADDRESS")),
            ("client=192.0.2.1&seconds=0", Err("seconds is not a number from 1 to 300")),
            ("client=192.0.2.1&seconds=301", Err("seconds is not a number from 1 to 300")),
            ("client=192.0.2.1&connections=9", Err("connections is not a number from 1 to 8")),
            ("client=192.0.2.1&next=1", Err("next is neither on nor off")),
            ("client=192.0.2.1&file=x", Err(unknown)),
        ] {
            assert_eq!(QlogOrder::from_qlog_query(query), expected.map_err(str::to_owned), "{query}");
        }
    }

    proptest! {
        #[test]
        fn a_qlog_order_survives_formatting_and_parsing(address: std::net::SocketAddr, seconds in QlogOrder::QLOG_SECONDS, next: bool) {
            let client = address.to_string().parse().unwrap();
            let order = QlogOrder { time: Duration::from_secs(seconds), next, ..QlogOrder::for_client(client) };
            let uri = http::Uri::try_from(format!("/qlog?{order}"));
            prop_assert!(uri.is_ok(), "{:?}", uri);
            prop_assert_eq!(QlogOrder::from_qlog_query(&order.to_string()), Ok(order));
        }
    }
}
