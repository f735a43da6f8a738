//! Decides the start of a connection: whether its attempt is accepted, its transport parameters, and the grant of its
//! receive window.

use super::{
    admission::{client_ip, limit_network},
    endpoint_state::EndpointState,
};
use crate::connection::datagram_client;
use litequic_config::{Config, Limits};
use litequic_resources::receive::ReceiveBudget;
use s2n_quic::provider::{
    endpoint_limits::{self, ConnectionAttempt, Outcome},
    limits as connection,
};
use s2n_quic_core::{connection::limits::ValidationError, path::remote_port_blocked};
use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

/// Unidirectional streams that a client may open: control, QPACK encoder and decoder (RFC 9114 §6.2), and a few of
/// unknown types, by which clients exercise extensibility (§9).
const MAX_UNI_STREAMS: u64 = 16;
/// Bytes of a unidirectional stream: SETTINGS and PRIORITY_UPDATE are small.
const UNI_STREAM_WINDOW: u64 = 64 * 1024;
/// Packets of one stream that s2n-quic sends before the next stream with data, if streams are served by priority: the
/// largest value. The handed-over bytes keep the order of the list (docs/adr/0053-priorities.md).
const ORDERED_BATCH_PACKETS: u8 = u8::MAX;
/// Packets of one stream that s2n-quic sends before the next, if streams are not served by priority.
const UNORDERED_BATCH_PACKETS: u8 = 1;
/// Longest delay of an acknowledgement while the worker runs. Clients are told a longer one: [`tls`](super::tls).
///
/// s2n-quic acknowledges every tenth packet (no setting changes that), a gap at once, and everything else after this
/// delay. Its timers have a granularity of 1 ms: a packet that arrives more than 1 ms after the first unacknowledged
/// one has both acknowledged. So 2 ms is every second packet of an upload at 10 Mbit/s, as RFC 9000 §13.2.2 wants,
/// every fourth at 20 Mbit/s, and every tenth from 100 Mbit/s on. With s2n-quic's 25 ms, ten packets in a buffer that
/// has room for eight are a sender's whole window. An upload at more than 100 Mbit/s pays nothing: ACK frames are sent
/// once a whole batch of datagrams was received, and such a batch holds ten packets. A request whose response takes
/// longer than this is acknowledged by a packet of its own.
const SERVER_MAX_ACK_DELAY: Duration = Duration::from_millis(2);

/// s2n-quic's hook for Initials without a token.
#[derive(Debug)]
pub(super) struct ConnectionAttemptLimiter(pub(super) Arc<EndpointState>);

impl endpoint_limits::Limiter for ConnectionAttemptLimiter {
    fn on_connection_attempt(&mut self, attempt: &ConnectionAttempt<'_>) -> Outcome {
        // From these ports only reflected attacks come (DNS, NTP, …), as in s2n-quic's own limiter.
        if remote_port_blocked(datagram_client(SocketAddr::from(&attempt.remote_address)).port()) {
            return Outcome::drop();
        }
        // No client has one of litequic's IDs by chance, only with a token, or from a process that is gone.
        if self.0.at_hand.is_to_issued_id() {
            return Outcome::drop();
        }
        self.0.admission.decide_attempt(client_ip(&attempt.remote_address), false)
    }
}

/// Limiter that gives each connection the transport parameters of the current configuration.
pub(super) struct TransportLimits {
    state: Arc<EndpointState>,
    receive: ReceiveBudget,
    /// Parameters of the last connection.
    last: connection::Limits,
}

impl TransportLimits {
    /// Limits of connections whose windows `receive` grants.
    pub(super) fn new(state: Arc<EndpointState>, receive: ReceiveBudget) -> Result<Self, ValidationError> {
        let now = state.config.load();
        let last = transport_limits(&now, now.limits.connection_receive_buffer.into(), false)?;
        drop(now);
        Ok(Self { state, receive, last })
    }

    /// Grants the receive window of a new connection, and returns its bytes. The client is in `network`, or a source of
    /// its own.
    fn grant_connection_window(&self, limits: &Limits, network: Option<(IpAddr, u8)>) -> u64 {
        let window = limits.receive_window(self.receive.used_receive_bytes());
        if window < limits.connection_receive_buffer.into() {
            self.state.metrics.limit_receive_buffer.increment();
        }
        let grant = self.receive.grant_window(window, network);
        // The grant of an attempt that did not become a connection is returned.
        let unused = self.state.with_table(|table| table.new.grant.replace(grant));
        drop(unused);
        window
    }
}

impl connection::Limiter for TransportLimits {
    fn on_connection(&mut self, info: &connection::ConnectionInfo<'_>) -> connection::Limits {
        let now = self.state.config.load();
        // A checked configuration has only values that QUIC can express; otherwise the former values stay.
        let address = client_ip(&info.remote_address);
        let window = self.grant_connection_window(&now.limits, limit_network(&now, address));
        let is_ordered = now.orders_responses(address);
        if let Ok(limits) = transport_limits(&now, window, is_ordered) {
            self.last = limits;
            self.state.with_table(|table| {
                table.new.is_ordered = is_ordered;
                table.connections.set_limits(&now.limits);
            });
        }
        self.last
    }
}

/// Transport parameters (RFC 9000 §18.2) and s2n-quic's other bounds for a connection with a receive window of `window`
/// bytes, whose streams are served by priority if `is_ordered`. No keep-alive: an idle connection may end.
fn transport_limits(config: &Config, window: u64, is_ordered: bool) -> Result<connection::Limits, ValidationError> {
    let Config { limits, timeouts, listen, .. } = config;
    connection::Limits::new()
        .with_max_idle_timeout(timeouts.idle)?
        .with_max_ack_delay(SERVER_MAX_ACK_DELAY)?
        .with_max_handshake_duration(timeouts.handshake)?
        .with_max_open_remote_bidirectional_streams(limits.max_streams.into())?
        .with_max_open_remote_unidirectional_streams(MAX_UNI_STREAMS)?
        .with_data_window(window)?
        .with_bidirectional_remote_data_window(limits.stream_receive_window(window))?
        .with_unidirectional_data_window(UNI_STREAM_WINDOW)?
        .with_max_send_buffer_size(limits.stream_send_buffer)?
        .with_stream_batch_size(if is_ordered { ORDERED_BATCH_PACKETS } else { UNORDERED_BATCH_PACKETS })?
        .with_active_connection_migration(listen.migration)
}
