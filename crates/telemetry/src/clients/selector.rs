//! Selects connections for an operator: of an address, of a network, or one by its name.

use litequic_base::network::Network;
use std::{
    fmt,
    net::{IpAddr, SocketAddr},
    str::FromStr,
};

/// Name of an open connection: no other open connection of the process has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionName {
    /// Index of the worker.
    pub worker: usize,
    /// Number of the connection in the worker's registry.
    pub number: u64,
}

/// Selector of connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Selector {
    /// The connection of a client's address and port.
    Address(SocketAddr),
    /// The connections of a client's address, or of all addresses of a network.
    Network(Network),
    /// One connection.
    Connection(ConnectionName),
}

/// Error of parsing a selector.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SelectorError(String);

impl Selector {
    /// Whether the connection `name` of a client at `address` is selected.
    pub fn matches_connection(&self, name: ConnectionName, address: SocketAddr) -> bool {
        match self {
            Self::Address(client) => client.port() == address.port() && client.ip() == address.ip().to_canonical(),
            Self::Network(network) => network.contains_address(address.ip()),
            Self::Connection(connection) => *connection == name,
        }
    }

    /// Whether the operator has to confirm the selection, as it is a network larger than an IPv4 /16 or an IPv6 /32,
    /// the usual allocation of a network operator.
    pub const fn is_wide(&self) -> bool {
        match self {
            Self::Network(network) => network.is_wide(),
            Self::Address(_) | Self::Connection(_) => false,
        }
    }
}

impl fmt::Display for ConnectionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.worker, self.number)
    }
}

impl FromStr for ConnectionName {
    type Err = SelectorError;

    fn from_str(text: &str) -> Result<Self, SelectorError> {
        let number = |digits: &str| {
            let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
            is_number.then(|| digits.parse::<u64>().ok()).flatten()
        };
        let name = text.split_once('-').and_then(|(worker, connection)| {
            let worker = usize::try_from(number(worker)?).ok()?;
            Some(Self { worker, number: number(connection)? })
        });
        name.ok_or_else(|| SelectorError("not a connection's ID, such as 0-17".into()))
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => address.fmt(f),
            Self::Network(Network { address: IpAddr::V4(address), prefix: 32 }) => address.fmt(f),
            Self::Network(Network { address: IpAddr::V6(address), prefix: 128 }) => address.fmt(f),
            Self::Network(network) => network.fmt(f),
            Self::Connection(name) => name.fmt(f),
        }
    }
}

impl FromStr for Selector {
    type Err = SelectorError;

    fn from_str(text: &str) -> Result<Self, SelectorError> {
        if let Ok(name) = text.parse() {
            return Ok(Self::Connection(name));
        }
        if let Ok(address) = text.parse::<SocketAddr>() {
            return Ok(Self::Address(SocketAddr::new(address.ip().to_canonical(), address.port())));
        }
        match text.parse() {
            Ok(network) => Ok(Self::Network(network)),
            Err(error) => Err(SelectorError(match error.nearest {
                Some(nearest) => format!("the network {}: {nearest}?", error.problem),
                None => "neither an address, ADDRESS:PORT, a network nor a connection's ID".into(),
            })),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_selector_is_an_address_a_network_or_a_name() {
        let name = ConnectionName { worker: 1, number: 7 };
        for (text, shown, client, selected) in [
            ("192.0.2.1", "192.0.2.1", "192.0.2.1:50", true),
            ("192.0.2.1", "192.0.2.1", "192.0.2.2:50", false),
            ("192.0.2.1", "192.0.2.1", "[::ffff:192.0.2.1]:50", true),
            ("::ffff:192.0.2.1", "192.0.2.1", "192.0.2.1:50", true),
            ("192.0.2.1:50", "192.0.2.1:50", "192.0.2.1:50", true),
            ("192.0.2.1:50", "192.0.2.1:50", "192.0.2.1:51", false),
            ("[::ffff:192.0.2.1]:50", "192.0.2.1:50", "[::ffff:192.0.2.1]:50", true),
            ("192.0.2.0/24", "192.0.2.0/24", "192.0.2.200:1", true),
            ("2001:db8::/32", "2001:db8::/32", "[2001:db8:1::1]:1", true),
            ("2001:db8::1", "2001:db8::1", "[2001:db8::1]:1", true),
            ("[2001:db8::1]:443", "[2001:db8::1]:443", "[2001:db8::1]:443", true),
            ("2001:db8::/32", "2001:db8::/32", "192.0.2.1:1", false),
            ("1-7", "1-7", "192.0.2.1:1", true),
            ("0-7", "0-7", "192.0.2.1:1", false),
        ] {
            let selector: Selector = text.parse().unwrap();
            assert_eq!(selector.to_string(), shown);
            assert_eq!(selector.matches_connection(name, client.parse().unwrap()), selected, "{text} {client}");
        }
        for (text, error) in [
            ("192.0.2.1/24", "the network has bits beyond its prefix: 192.0.2.0/24?"),
            ("localhost", "neither an address, ADDRESS:PORT, a network nor a connection's ID"),
            ("", "neither an address, ADDRESS:PORT, a network nor a connection's ID"),
            ("1-", "neither an address, ADDRESS:PORT, a network nor a connection's ID"),
            ("+1-2", "neither an address, ADDRESS:PORT, a network nor a connection's ID"),
        ] {
            assert_eq!(text.parse::<Selector>().unwrap_err().to_string(), error, "{text}");
        }
    }

    #[test]
    fn networks_that_hold_many_clients_are_wide() {
        for (text, wide) in [
            ("10.0.0.0/8", true),
            ("10.0.0.0/15", true),
            ("10.0.0.0/16", false),
            ("2001::/16", true),
            ("2001:db8::/31", true),
            ("2001:db8::/32", false),
            ("0-1", false),
            ("10.0.0.1:1", false),
        ] {
            assert_eq!(text.parse::<Selector>().unwrap().is_wide(), wide, "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_selector_panics_and_displayed_ones_are_read_back(text in "[0-9a-f:./\\[\\]-]{0,24}") {
            if let Ok(selector) = text.parse::<Selector>() {
                prop_assert_eq!(selector.to_string().parse::<Selector>(), Ok(selector));
            }
        }
    }
}
