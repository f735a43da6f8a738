//! Reads and writes the requests for `/clients` and `/close`: a list of client connections, and the end of some. Pure;
//! `litequic ctl` and other programs rely on the types of the list.

use super::denial::{DeniedList, DenyOrder};
use super::objects::{Lenient, deserialize_lenient, objects};
use super::qlog::{QlogLines, QlogOrder};
use super::query::{QueryMembers, on_or_off};
use litequic_config::Network;
use litequic_telemetry::clients::{DEFAULT_LIMIT, ListQuery, MAX_LIMIT, Selection};
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use std::{fmt, pin::Pin};

objects! {
    /// The response to `/clients`.
    ClientList {
        /// The first connections of the list.
        clients: Vec<ClientStatus>,
        /// Connections that the query selects.
        selected: Option<u64>,
        /// Open connections of all clients.
        connections: Option<u64>,
        /// Connections during their handshake.
        handshakes: Option<u64>,
        /// Earlier processes of a hot upgrade that drain: their connections are not in the list.
        older_processes: Option<u64>,
    }

    /// A client's connection.
    ClientStatus {
        /// Identifier of the connection among the open ones.
        id: Option<String>,
        /// Address and port of the client.
        client: Option<String>,
        /// HTTP version of the connection.
        protocol: Option<String>,
        /// Local address and port of the connection.
        local: Option<String>,
        /// Index of the worker that serves the connection.
        worker: Option<u64>,
        /// Name in the TLS handshake; null without one.
        server_name: Option<String>,
        /// Version of TLS, or `none`.
        tls: Option<String>,
        /// Key exchange group; null without TLS.
        group: Option<String>,
        /// Whether the handshake resumed a session; null without TLS.
        resumed: Option<bool>,
        /// Subject of the client's certificate; null without one.
        certificate: Option<String>,
        /// Seconds since the connection was accepted.
        age: Option<f64>,
        /// Seconds since the last request ended; null while one is open.
        idle: Option<f64>,
        /// Open requests.
        open: Option<u64>,
        /// Requests since the beginning of the connection.
        requests: Option<u64>,
        /// Bytes sent since the beginning of the connection.
        sent: Option<u64>,
        /// Bytes sent in the last second.
        sent_rate: Option<u64>,
        /// Bytes received since the beginning of the connection.
        received: Option<u64>,
        /// Bytes of memory that the connection uses.
        held: Option<u64>,
        /// Smoothed round-trip time in seconds; null before the first sample.
        rtt: Option<f64>,
        /// Share of sent packets that were lost, from 0 to 1; null over TCP.
        loss: Option<f64>,
        /// Packets sent for each ACK frame received; null over TCP, and before the first.
        packets_per_ack: Option<f64>,
        /// Congestion window in bytes; null before it is known.
        congestion_window: Option<u64>,
        /// Bytes in flight; null before they are known.
        bytes_in_flight: Option<u64>,
    }
}

/// Reply of the workers, or the reason why there is none.
pub type WorkersReply<'a, T> = Pin<Box<dyn Future<Output = Result<T, String>> + Send + 'a>>;

/// Requests of the admin listener to the workers about clients.
pub trait ClientControl: fmt::Debug + Send + Sync {
    /// Lists the connections that `query` selects.
    fn list_clients(&self, query: ListQuery) -> WorkersReply<'_, ClientList>;

    /// Closes connections, and returns their number.
    fn close_clients(&self, order: CloseOrder) -> WorkersReply<'_, u64>;

    /// Denies a network and closes its connections. Returns a description of the changes, or the reason why nothing
    /// changed.
    fn deny_clients(&self, order: DenyOrder) -> WorkersReply<'_, Result<String, String>>;

    /// Allows a network again, and returns a description of the change.
    ///
    /// # Errors
    ///
    /// The reason why nothing changed.
    fn allow_clients(&self, network: Network) -> Result<String, String>;

    /// Lists the denied networks.
    fn list_denied_networks(&self) -> DeniedList;

    /// Logs QUIC connections as qlog. Returns their lines, or the reason why there are none.
    fn log_connections(&self, order: QlogOrder) -> WorkersReply<'_, Result<QlogLines, String>>;
}

/// Order of `POST /close`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CloseOrder {
    /// Connections to close.
    pub selection: Selection,
    /// Whether connections are closed at once; otherwise after their requests have ended.
    pub now: bool,
    /// Confirms that a wide network is meant.
    pub all: bool,
}

/// Reads the query members that select connections: `client`, `protocol`.
fn read_selection(members: &QueryMembers<'_>) -> Result<Selection, String> {
    let client = |value: &str| value.parse().map_err(|error| format!("client: {value:?} is {error}"));
    let protocol = |value: &str| Selection::parse_http_version(value).ok_or("protocol is not one of h1, h2 and h3");
    Ok(Selection {
        client: members.value("client").map(client).transpose()?,
        protocol: members.value("protocol").map(protocol).transpose()?,
    })
}

/// Reads the query of `/clients`: `client`, `protocol`, `sort`, `limit`.
///
/// # Errors
///
/// A message with the fault of the query.
pub(super) fn parse_list_query(query: &str) -> Result<ListQuery, String> {
    let usage = "client=ADDRESS_OR_NETWORK, protocol=h1, h2 or h3, sort, limit";
    let members = QueryMembers::parse(query, &["client", "protocol", "sort", "limit"], usage)?;
    let sort = |value: &str| value.parse().map_err(|error| format!("sort is {error}"));
    Ok(ListQuery {
        selection: read_selection(&members)?,
        sort: members.value("sort").map(sort).transpose()?.unwrap_or_default(),
        limit: members.number("limit", &(1..=MAX_LIMIT))?.unwrap_or(DEFAULT_LIMIT),
    })
}

/// Formats a selection as query members.
struct SelectionQuery(Selection);

impl fmt::Display for SelectionQuery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Selection { client, protocol } = self.0;
        if let Some(client) = client {
            write!(f, "client={client}&")?;
        }
        protocol.map_or(Ok(()), |protocol| write!(f, "protocol={protocol}&"))
    }
}

/// Formats `list` as the query of `/clients`.
pub fn format_list_query(list: &ListQuery) -> String {
    format!("{}sort={}&limit={}", SelectionQuery(list.selection), list.sort, list.limit)
}

impl CloseOrder {
    /// Reads the query of `/close`: `client`, `protocol`, `now`, `all`.
    ///
    /// # Errors
    ///
    /// A message with the fault of the query.
    pub fn from_close_query(query: &str) -> Result<Self, String> {
        let usage = "client=ADDRESS_OR_NETWORK, protocol=h1, h2 or h3, now=on, all=on";
        let members = QueryMembers::parse(query, &["client", "protocol", "now", "all"], usage)?;
        let is_on = |name| Ok::<_, String>(members.on_or_off(name)?.unwrap_or(false));
        let order = Self { selection: read_selection(&members)?, now: is_on("now")?, all: is_on("all")? };
        let client = order.selection.client.ok_or("the query has no client=ADDRESS_OR_NETWORK")?;
        if client.is_wide() && !order.all {
            return Err(format!("{client} includes very many addresses; confirm with --all (over HTTP: all=on)"));
        }
        Ok(order)
    }

    /// Describes the result in a line: the number of `closed` connections.
    pub(super) fn describe_closed(&self, closed: u64) -> String {
        let client = self.selection.client.map_or_else(String::new, |client| client.to_string());
        let connections = if closed == 1 { "connection" } else { "connections" };
        match (closed, self.now) {
            (0, _) => format!("no connection of {client} is open\n"),
            (_, true) => format!("closed {closed} {connections} of {client}\n"),
            (1, false) => format!("1 connection of {client} ends once its requests have ended\n"),
            (_, false) => format!("{closed} connections of {client} end once their requests have ended\n"),
        }
    }
}

/// Formats the order as a query.
impl fmt::Display for CloseOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}now={}&all={}", SelectionQuery(self.selection), on_or_off(self.now), on_or_off(self.all))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use litequic_telemetry::clients::ListOrder;
    use proptest::prelude::*;

    fn selection(client: &str, protocol: Option<&'static str>) -> Selection {
        Selection { client: Some(client.parse().unwrap()), protocol }
    }

    #[test]
    fn a_query_says_which_connections_and_in_which_order() {
        let of = |client, protocol, sort, limit| Ok(ListQuery { selection: selection(client, protocol), sort, limit });
        for (query, expected) in [
            ("", Ok(ListQuery::default())),
            ("client=192.0.2.0/24&sort=rtt&limit=3", of("192.0.2.0/24", None, ListOrder::Rtt, 3)),
            ("client=192.0.2.0%2F24", of("192.0.2.0/24", None, ListOrder::SentRate, 50)),
            ("client=%5B2001:db8::1%5d:5&protocol=h3", of("[2001:db8::1]:5", Some("HTTP/3"), ListOrder::SentRate, 50)),
            ("sort=loud", Err("sort is not one of sent-rate, sent, received, open, since, rtt, loss, held")),
            ("limit=0", Err("limit is not a number from 1 to 1000")),
            ("limit=1001", Err("limit is not a number from 1 to 1000")),
            ("protocol=spdy", Err("protocol is not one of h1, h2 and h3")),
            ("client=%", Err("the value of client is not UTF-8")),
            ("client=a", Err("client: \"a\" is neither an address, ADDRESS:PORT, a network nor a connection's ID")),
            (
                "colour=red",
                Err(
                    "unknown parameter: the query may have client=ADDRESS_OR_NETWORK, protocol=h1, h2 or h3, sort, limit",
                ),
            ),
        ] {
            assert_eq!(parse_list_query(query), expected.map_err(str::to_owned), "{query}");
        }
    }

    #[test]
    fn an_order_to_close_names_a_client_and_confirms_a_wide_network() {
        let order = CloseOrder { selection: selection("192.0.2.1", None), now: false, all: false };
        for (query, expected) in [
            ("client=192.0.2.1", Ok(order)),
            ("client=192.0.2.1&now=on", Ok(CloseOrder { now: true, ..order })),
            (
                "client=10.0.0.0/8&all=on",
                Ok(CloseOrder { selection: selection("10.0.0.0/8", None), all: true, ..order }),
            ),
            (
                "client=10.0.0.0/8",
                Err("10.0.0.0/8 includes very many addresses; confirm with --all (over HTTP: all=on)"),
            ),
            ("", Err("the query has no client=ADDRESS_OR_NETWORK")),
            ("now=on", Err("the query has no client=ADDRESS_OR_NETWORK")),
            ("client=192.0.2.1&now=1", Err("now is neither on nor off")),
            (
                "client=192.0.2.1&soon=on",
                Err(
                    "unknown parameter: the query may have client=ADDRESS_OR_NETWORK, protocol=h1, h2 or h3, now=on, all=on",
                ),
            ),
        ] {
            assert_eq!(CloseOrder::from_close_query(query), expected.map_err(str::to_owned), "{query}");
        }
        for (closed, now, line) in [
            (0, true, "no connection of 192.0.2.1 is open\n"),
            (1, true, "closed 1 connection of 192.0.2.1\n"),
            (2, true, "closed 2 connections of 192.0.2.1\n"),
            (1, false, "1 connection of 192.0.2.1 ends once its requests have ended\n"),
            (2, false, "2 connections of 192.0.2.1 end once their requests have ended\n"),
        ] {
            assert_eq!(CloseOrder { now, ..order }.describe_closed(closed), line);
        }
    }

    proptest! {
        #[test]
        fn a_close_order_survives_formatting_and_parsing(
            client in prop::option::of(prop_oneof![
                any::<std::net::IpAddr>().prop_map(|address| address.to_canonical().to_string()),
                any::<std::net::SocketAddr>().prop_map(|address| address.to_string()),
                any::<(u16, u64)>().prop_map(|(worker, number)| format!("{worker}-{number}")),
            ]),
            (_, sort) in prop::sample::select(ListOrder::NAMES),
            limit in 1..=MAX_LIMIT,
            now: bool,
        ) {
            let client = client.map(|client| client.parse().unwrap());
            let list = ListQuery { selection: Selection { client, protocol: Some("HTTP/1.1") }, sort, limit };
            let query = format_list_query(&list);
            let uri = http::Uri::try_from(format!("/clients?{query}"));
            prop_assert!(uri.is_ok(), "{:?}", uri);
            prop_assert_eq!(parse_list_query(&query), Ok(list));
            if client.is_some() {
                let order = CloseOrder { selection: list.selection, now, all: true };
                prop_assert_eq!(CloseOrder::from_close_query(&order.to_string()), Ok(order));
            }
        }

        #[test]
        fn no_query_makes_it_panic(query in ".{0,60}") {
            let _ = (parse_list_query(&query), CloseOrder::from_close_query(&query));
        }
    }
}
