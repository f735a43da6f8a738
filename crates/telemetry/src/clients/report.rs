//! What is reported of an open connection.

use super::{list_order::ListOrder, selector::ConnectionName};
use s2n_quic::connection::Handle;
use std::{net::SocketAddr, sync::Arc, time::Duration};

/// An open connection of a client, as its front end knows it.
pub trait OpenConnection {
    /// The client's address; an IPv4-mapped IPv6 address as IPv4.
    fn remote_address(&self) -> SocketAddr;

    /// The name of the HTTP version.
    fn http_version(&self) -> &'static str;

    /// What the transport knows of the path.
    fn path_report(&self) -> TransportReport;

    /// What does not change, and what is counted by requests.
    fn describe_connection(&self) -> ConnectionDescription;

    /// The handle of a connection over QUIC; `None` over TCP.
    fn quic_handle(&self) -> Option<&Handle> {
        None
    }
}

/// What a transport knows of a connection's path. Values that are unknown, or that the transport does not have, are
/// `None`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TransportReport {
    /// Smoothed round-trip time.
    pub rtt: Option<Duration>,
    /// Packets sent.
    pub packets_sent: Option<u64>,
    /// Packets that were declared lost.
    pub packets_lost: Option<u64>,
    /// ACK frames received.
    pub acks: Option<u64>,
    /// Congestion window in bytes.
    pub congestion_window: Option<u64>,
    /// Bytes in flight.
    pub bytes_in_flight: Option<u64>,
}

/// What a front end knows of a connection beside its client and its path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectionDescription {
    /// The local address of the connection.
    pub local: SocketAddr,
    /// The name in the TLS handshake.
    pub server_name: Option<Arc<str>>,
    /// The version of TLS.
    pub tls: &'static str,
    /// The key exchange group of the handshake.
    pub group: Option<&'static str>,
    /// Whether the handshake resumed a session.
    pub resumed: Option<bool>,
    /// The certificate that the client has shown, as `Client-Cert` has it (RFC 9440).
    pub certificate: Option<String>,
    /// Requests so far.
    pub requests: u64,
}

/// A row of a list.
#[derive(Debug, Clone)]
pub struct ClientReport {
    /// The connection's name.
    pub name: ConnectionName,
    /// The client's address.
    pub address: SocketAddr,
    /// The name of the HTTP version.
    pub protocol: &'static str,
    /// For how long it is open.
    pub age: Duration,
    /// For how long no request is open on it; `None` while one is.
    pub idle: Option<Duration>,
    /// Open requests.
    pub open: u32,
    /// Bytes sent, as HTTP knows them: without TLS and packets.
    pub sent: u64,
    /// Bytes of these a second, lately.
    pub sent_rate: u64,
    /// Bytes received.
    pub received: u64,
    /// Bytes of memory that the connection holds.
    pub held: u64,
    /// The transport's part.
    pub transport: TransportReport,
    /// The front end's part.
    pub description: ConnectionDescription,
}

impl TransportReport {
    /// Packets that were declared lost, of a million that were sent.
    pub fn lost_per_million(&self) -> Option<u64> {
        let (lost, sent) = (self.packets_lost?, self.packets_sent.filter(|sent| *sent > 0)?);
        lost.saturating_mul(1_000_000).checked_div(sent)
    }

    /// The value for `sort`, if it is one of a transport; 0 where it is unknown.
    pub fn transport_sort_value(&self, sort: ListOrder) -> u64 {
        match sort {
            ListOrder::Rtt => self.rtt.map_or(0, |rtt| u64::try_from(rtt.as_micros()).unwrap_or(u64::MAX)),
            ListOrder::Loss => self.lost_per_million().unwrap_or(0),
            _ => 0,
        }
    }
}

impl ListOrder {
    /// The value of a connection.
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
