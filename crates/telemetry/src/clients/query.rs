//! Query of an operator: a selection of the connections, and an order.

use super::list_order::ListOrder;
use super::selector::{ConnectionName, Selector};
use std::net::SocketAddr;

/// Default of a list's maximum number of rows: a screen.
pub const DEFAULT_LIMIT: usize = 50;
/// Largest number of rows of a list: 1 MB of JSON.
pub const MAX_LIMIT: usize = 1_000;

/// Names of HTTP versions, as lists show them, each with the short name of its protocol identifier.
const PROTOCOLS: [(&str, &str); 3] = [("HTTP/3", "h3"), ("HTTP/2", "h2"), ("HTTP/1.1", "h1")];

/// Selection of connections: all, unless a member restricts it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Selection {
    /// Clients, or the one connection, that are selected.
    pub client: Option<Selector>,
    /// Name of the HTTP version.
    pub protocol: Option<&'static str>,
}

/// Query for a list of connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListQuery {
    /// Connections in the list.
    pub selection: Selection,
    /// Value by which the list is sorted, the largest first.
    pub sort: ListOrder,
    /// Maximum number of rows.
    pub limit: usize,
}

impl Default for ListQuery {
    fn default() -> Self {
        Self { selection: Selection::default(), sort: ListOrder::default(), limit: DEFAULT_LIMIT }
    }
}

impl Selection {
    /// Whether the connection `name` of a client at `address` is selected.
    pub fn selects_connection(&self, name: ConnectionName, address: SocketAddr, protocol: &str) -> bool {
        self.client.is_none_or(|client| client.matches_connection(name, address))
            && self.protocol.is_none_or(|wanted| wanted == protocol)
    }

    /// Whether a connection in its handshake, of a client at `address`, is selected: nothing else is known of such a
    /// connection.
    pub fn selects_handshake(&self, name: ConnectionName, address: SocketAddr) -> bool {
        self.protocol.is_none() && self.client.is_some_and(|client| client.matches_connection(name, address))
    }

    /// Parses an HTTP version: its name, or `h3`, `h2` or `h1`. Returns the name.
    pub fn parse_http_version(text: &str) -> Option<&'static str> {
        let is_named = |(name, short): &&(&str, &str)| text.eq_ignore_ascii_case(name) || text == *short;
        PROTOCOLS.iter().find(is_named).map(|(name, _)| *name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_order_has_a_name_and_no_other_text_is_one() {
        for (name, sort) in ListOrder::NAMES {
            assert_eq!((sort.order_name(), name.parse()), (*name, Ok(*sort)));
        }
        let error = "loud".parse::<ListOrder>().unwrap_err();
        assert_eq!(error, "not one of sent-rate, sent, received, open, since, rtt, loss, held");
    }

    #[test]
    fn protocols_have_two_names() {
        for (text, name) in
            [("h3", Some("HTTP/3")), ("HTTP/2", Some("HTTP/2")), ("http/1.1", Some("HTTP/1.1")), ("spdy", None)]
        {
            assert_eq!(Selection::parse_http_version(text), name, "{text}");
        }
    }

    #[test]
    fn all_connections_are_selected_unless_a_client_or_a_protocol_is_named() {
        let (name, client) = (ConnectionName { worker: 0, number: 1 }, "192.0.2.1:5".parse().unwrap());
        let all = Selection::default();
        assert!(all.selects_connection(name, client, "HTTP/3"));
        assert!(!all.selects_handshake(name, client), "it is of no client yet");
        let of_client = Selection { client: Some("192.0.2.0/24".parse().unwrap()), ..all };
        assert!(of_client.selects_connection(name, client, "HTTP/2") && of_client.selects_handshake(name, client));
        let both = Selection { protocol: Some("HTTP/3"), ..of_client };
        assert!(!both.selects_connection(name, client, "HTTP/2") && !both.selects_handshake(name, client));
    }
}
