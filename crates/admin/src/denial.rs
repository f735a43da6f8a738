//! Reads and writes the orders of `/deny` and `/allow` and the list of `/denied`: networks whose clients are refused.
//! Pure; `litequic ctl` and other programs rely on the types of the list.

use super::objects::{Lenient, deserialize_lenient, objects};
use super::query::{QueryMembers, on_or_off};
use litequic_config::Network;
use litequic_telemetry::clients::MAX_DENIAL_TIME;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use std::{fmt, time::Duration};

objects! {
    /// The response to `/denied`.
    DeniedList {
        /// Denied networks, the longest denial first.
        denied: Vec<DeniedStatus>,
        /// Number of networks that may be denied at most.
        most: Option<u64>,
    }

    /// A denied network.
    DeniedStatus {
        /// Address and prefix of the network.
        network: Option<String>,
        /// Seconds until the network is allowed again.
        seconds: Option<u64>,
    }
}

/// Order of `POST /deny`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DenyOrder {
    /// Network to deny.
    pub network: Network,
    /// Duration of the denial, in whole seconds.
    pub time: Duration,
    /// Confirms that a wide network is meant.
    pub all: bool,
    /// Permits a network that contains loopback addresses or trusted proxies.
    pub force: bool,
}

impl DenyOrder {
    /// Creates an order, if `network` is not wide or `all` confirms it, and the time is from one second to
    /// [`MAX_DENIAL_TIME`].
    ///
    /// # Errors
    ///
    /// A message with the fault of the order.
    pub fn new(network: Network, time: Duration, all: bool, force: bool) -> Result<Self, String> {
        let time = Duration::from_secs(time.as_secs());
        if time.is_zero() || time > MAX_DENIAL_TIME {
            return Err("the time must be from 1 second to 30 days; for a longer time, set deny of [[routes]] in the \
                 configuration"
                .into());
        }
        if network.is_wide() && !all {
            return Err(format!("{network} includes very many addresses; confirm with --all (over HTTP: all=on)"));
        }
        Ok(Self { network, time, all, force })
    }

    /// Reads the query of `/deny`: `network`, `seconds`, `all`, `force`.
    ///
    /// # Errors
    ///
    /// A message with the fault of the query.
    pub fn from_deny_query(query: &str) -> Result<Self, String> {
        let usage = "network, seconds, all=on, force=on";
        let members = QueryMembers::parse(query, &["network", "seconds", "all", "force"], usage)?;
        let network = members.value("network").map(parse_client_network).transpose()?;
        let seconds = members.value("seconds").map(|value| value.parse().map_err(|_| "seconds is not a number"));
        let seconds = seconds.transpose()?;
        let is_on = |name| Ok::<_, String>(members.on_or_off(name)?.unwrap_or(false));
        let (all, force) = (is_on("all")?, is_on("force")?);
        let network = network.ok_or("the query has no network")?;
        Self::new(network, Duration::from_secs(seconds.ok_or("the query has no seconds")?), all, force)
    }
}

/// Reads a network or a single address.
///
/// # Errors
///
/// A message with the fault of the text.
pub fn parse_client_network(text: &str) -> Result<Network, String> {
    text.parse().map_err(|error: litequic_base::network::NetworkError| match error.nearest {
        Some(nearest) => format!("{text:?}: the network {}: {nearest}?", error.problem),
        None => format!("{text:?} is neither an address nor a network"),
    })
}

/// Reads the query of `/allow`: `network`.
///
/// # Errors
///
/// A message with the fault of the query.
pub(super) fn parse_allow_query(query: &str) -> Result<Network, String> {
    let members = QueryMembers::parse(query, &["network"], "network")?;
    parse_client_network(members.value("network").ok_or("the query has no network")?)
}

/// Formats the order as a query.
impl fmt::Display for DenyOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { network, time, all, force } = self;
        let (all, force) = (on_or_off(*all), on_or_off(*force));
        write!(f, "network={network}&seconds={}&all={all}&force={force}", time.as_secs())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_order_to_deny_names_a_network_and_a_time() {
        let order = DenyOrder {
            network: "192.0.2.0/24".parse().unwrap(),
            time: Duration::from_secs(60),
            all: false,
            force: false,
        };
        let long = "the time must be from 1 second to 30 days; for a longer time, set deny of [[routes]] in the \
                    configuration";
        for (query, expected) in [
            ("network=192.0.2.0/24&seconds=60", Ok(order)),
            ("network=::ffff:192.0.2.0/120&seconds=60", Ok(order)),
            ("network=192.0.2.0%2F24&seconds=60&all=on&force=on", Ok(DenyOrder { all: true, force: true, ..order })),
            ("seconds=60", Err("the query has no network")),
            ("network=192.0.2.1", Err("the query has no seconds")),
            ("network=192.0.2.1&seconds=0", Err(long)),
            ("network=192.0.2.1&seconds=2592001", Err(long)),
            ("network=192.0.2.1&seconds=1h", Err("seconds is not a number")),
            (
                "network=10.0.0.0/8&seconds=1",
                Err("10.0.0.0/8 includes very many addresses; confirm with --all (over HTTP: all=on)"),
            ),
            (
                "network=192.0.2.1/24&seconds=1",
                Err("\"192.0.2.1/24\": the network has bits beyond its prefix: 192.0.2.0/24?"),
            ),
            ("network=192.0.2.1:443&seconds=1", Err("\"192.0.2.1:443\" is neither an address nor a network")),
            ("network=192.0.2.1&seconds=1&force=yes", Err("force is neither on nor off")),
            (
                "network=192.0.2.1&seconds=1&for=1",
                Err("unknown parameter: the query may have network, seconds, all=on, force=on"),
            ),
        ] {
            assert_eq!(DenyOrder::from_deny_query(query), expected.map_err(str::to_owned), "{query}");
        }
        assert_eq!(parse_allow_query("network=192.0.2.0/24"), Ok(order.network));
        assert_eq!(parse_allow_query("").unwrap_err(), "the query has no network");
        assert!(parse_allow_query("network=192.0.2.1&all=on").is_err());
    }

    proptest! {
        #[test]
        fn a_deny_order_survives_formatting_and_parsing(address: std::net::IpAddr, prefix in 0_u8..=128, seconds in 1_u64..2_592_001, force: bool) {
            let network = Network::from_address(address, prefix);
            let order = DenyOrder::new(network, Duration::from_secs(seconds), true, force).unwrap();
            let query = order.to_string();
            let uri = http::Uri::try_from(format!("/deny?{query}"));
            prop_assert!(uri.is_ok(), "{:?}", uri);
            prop_assert_eq!(DenyOrder::from_deny_query(&query), Ok(order));
        }

        #[test]
        fn no_query_makes_it_panic(query in ".{0,60}") {
            let _ = (DenyOrder::from_deny_query(&query), parse_allow_query(&query));
        }
    }
}
