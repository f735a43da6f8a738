//! Reports of open connections.

use super::{list_order::ListOrder, selector::ConnectionName};
use litequic_exchange::{Client, ClientTls};
use s2n_quic::connection::Handle;
use std::{net::SocketAddr, sync::Arc, time::Duration};

/// Open connection of a client, as its front end reports it.
pub trait OpenConnection {
    /// Address of the client; an IPv4-mapped IPv6 address as IPv4.
    fn remote_address(&self) -> SocketAddr;

    /// Name of the HTTP version.
    fn http_version(&self) -> &'static str;

    /// State of the path, as the transport reports it.
    fn path_report(&self) -> TransportReport;

    /// Constant properties of the connection, and its number of requests.
    fn describe_connection(&self) -> ConnectionDescription;

    /// Handle of a connection over QUIC; `None` over TCP.
    fn quic_handle(&self) -> Option<&Handle> {
        None
    }
}

/// State of a connection's path, as its transport reports it. A value that is unknown, or that the transport does not
/// have, is `None`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TransportReport {
    /// Smoothed round-trip time.
    pub rtt: Option<Duration>,
    /// Number of packets sent.
    pub packets_sent: Option<u64>,
    /// Number of packets that were declared lost.
    pub packets_lost: Option<u64>,
    /// Number of ACK frames received.
    pub acks: Option<u64>,
    /// Congestion window in bytes.
    pub congestion_window: Option<u64>,
    /// Bytes in flight.
    pub bytes_in_flight: Option<u64>,
}

/// Description of a connection by its front end, beside its client and its path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectionDescription {
    /// Local address of the connection.
    pub local: SocketAddr,
    /// Server name in the TLS handshake (SNI).
    pub server_name: Option<Arc<str>>,
    /// Version of TLS.
    pub tls: &'static str,
    /// Key exchange group of the handshake.
    pub group: Option<&'static str>,
    /// Whether the handshake resumed a session.
    pub resumed: Option<bool>,
    /// Certificate of the client, as `Client-Cert` encodes it (RFC 9440).
    pub certificate: Option<String>,
    /// Number of requests so far.
    pub requests: u64,
}

impl ConnectionDescription {
    /// Describes the connection of `client`, which has had `requests` so far.
    pub fn of_client(client: &Client, requests: u64) -> Self {
        let Client { local, server_name, identity, .. } = client;
        Self {
            local: *local,
            server_name: server_name.clone(),
            tls: identity.tls.tls_version_name(),
            group: identity.group_name(),
            resumed: (identity.tls != ClientTls::Plain).then_some(identity.resumed),
            certificate: identity.certificate.as_ref().map(|certificate| certificate.leaf.clone()),
            requests,
        }
    }
}

/// Row of a list of connections.
#[derive(Debug, Clone)]
pub struct ClientReport {
    /// Name of the connection.
    pub name: ConnectionName,
    /// Address of the client.
    pub address: SocketAddr,
    /// Name of the HTTP version.
    pub protocol: &'static str,
    /// Time since the connection began.
    pub age: Duration,
    /// Time without an open request; `None` while one is open.
    pub idle: Option<Duration>,
    /// Number of open requests.
    pub open: u32,
    /// Number of bytes sent by HTTP, without the overhead of TLS and packets.
    pub sent: u64,
    /// Recent rate of sent bytes, in bytes a second.
    pub sent_rate: u64,
    /// Number of bytes received by HTTP.
    pub received: u64,
    /// Memory of the connection in bytes.
    pub held: u64,
    /// State of the path, by the transport.
    pub transport: TransportReport,
    /// Description by the front end.
    pub description: ConnectionDescription,
}

impl TransportReport {
    /// Number of packets that were declared lost, for each million sent.
    pub fn lost_per_million(&self) -> Option<u64> {
        let (lost, sent) = (self.packets_lost?, self.packets_sent.filter(|sent| *sent > 0)?);
        lost.saturating_mul(1_000_000).checked_div(sent)
    }

    /// Value for the order `sort`, if that is one of the transport; 0 if it is unknown.
    pub fn transport_sort_value(&self, sort: ListOrder) -> u64 {
        match sort {
            ListOrder::Rtt => self.rtt.map_or(0, |rtt| u64::try_from(rtt.as_micros()).unwrap_or(u64::MAX)),
            ListOrder::Loss => self.lost_per_million().unwrap_or(0),
            _ => 0,
        }
    }
}

impl ListOrder {
    /// Value of a connection by this order.
    pub fn report_sort_value(self, report: &ClientReport) -> u64 {
        match self {
            Self::SentRate => report.sent_rate,
            Self::Sent => report.sent,
            Self::Received => report.received,
            Self::Open => report.open.into(),
            Self::Since => u64::try_from(report.age.as_millis()).unwrap_or(u64::MAX),
            Self::Rtt | Self::Loss => report.transport.transport_sort_value(self),
            Self::Held => report.held,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loss_is_a_part_of_the_packets_that_were_sent() {
        let report = |sent, lost| TransportReport { packets_sent: sent, packets_lost: lost, ..Default::default() };
        assert_eq!(report(Some(2_000), Some(4)).lost_per_million(), Some(2_000));
        assert_eq!(report(Some(0), Some(0)).lost_per_million(), None);
        assert_eq!(report(None, Some(1)).lost_per_million(), None);
        assert_eq!(report(Some(10), Some(1)).transport_sort_value(ListOrder::Loss), 100_000);
        assert_eq!(report(Some(10), Some(1)).transport_sort_value(ListOrder::Held), 0);
    }
}
