//! Keeps the state that several of an endpoint's providers use.
//!
//! s2n-quic has eleven providers for an endpoint, calls them one after the other on the worker's thread, and mostly
//! does not name the connection. State that one provider uses is that provider's field; state that two use is in
//! [`EndpointState`]; nothing else is shared. The state must be `Send`, because s2n-quic's providers are; only one
//! thread uses it.
//!
//! The order of s2n-quic's calls determines the current connection (`call_order_tests` tests it):
//!
//! | call | provider | writes | takes or reads |
//! |---|---|---|---|
//! | a datagram with a long header | | | |
//! | `intercept_rx_datagram` | interceptor | `at_hand`: whether it goes to an issued ID; `retry_ids`: the ID | |
//! | `validate_token`, if it has one | address token | | `retry_ids`: the datagram's |
//! | `on_connection_attempt`, if it has none | limits | | `at_hand`: the same |
//! | … and for a Retry `generate` of an ID | ids | `retry_ids`: the ID | |
//! | … then `generate_retry_token` | address token | | the same |
//! | `generate` of an ID, then of its stateless reset token | ids | `retry_ids`: the ID | takes it |
//! | `on_connection` | limits | `new.grant` | |
//! | `create_connection_context` | events | the connection's entry | `new.grant` |
//! | `new_congestion_controller` | controllers | `new.feedback` | |
//! | `on_connection_started` | events | the entry's path | `new.feedback` |
//! | `intercept_rx_payload`, Initial or Handshake | interceptor | `at_hand`: the connection | |
//! | TLS is polled | tls | | the same |
//! | … which has the 1-RTT keys | tls | `new.support`, for the time of the call | |
//! | … `on_transport_parameters_received` | events | `new.connection` | `new.support` |
//! | … `create_connection` | frame slot | | `new.connection` |
//! | a datagram from another address | | | |
//! | the path is compared with known ones | socket | begins a check of `NetworkPath` | |
//! | `new_congestion_controller`, before the packet is authenticated | controllers | `new.feedback` | |
//! | `on_path_created` | events | | `new.feedback` |
//! | `intercept_rx_payload`, 1-RTT | interceptor | ends that check; `close_error`, if the packet violates QUIC | |
//! | `on_active_path_updated` | events | the entry's path | |
//! | a packet that leaves | | | |
//! | `on_transmit`, `on_frame_sent` | frame slot, events | `slot`, `challenge_packet`; `at_hand`: there is one | |
//! | `intercept_tx_payload` | interceptor | | the same |
//! | a connection that s2n-quic closes | | | |
//! | `format_early_transport_error`, then `format_transport_error` | close | | `close_error`: read, then taken |
//!
//! The table has one lock. Nothing that may run other code is dropped or woken under it: values taken out of the table
//! are dropped, and tasks are woken, once [`EndpointState::with_table`] has returned.

use super::{admission::Admission, connection_logs::ConnectionLogs};
use crate::{
    congestion::PathFeedback,
    connection::{AckFrequencySupport, Connections},
    identity::retry_ids::SharedRetryIds,
    io::Moderation,
    metrics::QuicMetrics,
};
use litequic_base::relaxed_cell::RelaxedCell;
use litequic_config::LiveConfig;
use litequic_resources::receive::WindowGrant;
use parking_lot::Mutex;
use s2n_quic_core::transport;
use std::sync::Arc;

/// The state of one endpoint.
#[derive(Debug)]
pub struct EndpointState {
    pub(super) config: LiveConfig,
    pub(super) metrics: Arc<QuicMetrics>,
    pub(super) moderation: Moderation,
    pub(super) admission: Admission,
    pub(super) at_hand: PacketAtHand,
    /// Connection IDs of the datagram at hand, and of the Retry or connection that is created, which
    /// `quic::identity` uses.
    pub(super) retry_ids: SharedRetryIds,
    table: Mutex<EndpointTable>,
}

/// State of the datagram and the packet that s2n-quic processes, as numbers: no packet needs the lock for them.
#[derive(Debug, Default)]
pub(super) struct PacketAtHand {
    to_issued_id: RelaxedCell,
    handshake_connection: RelaxedCell,
    has_frame: RelaxedCell,
    logs: RelaxedCell,
}

/// State behind the endpoint's lock.
#[derive(Debug)]
pub(super) struct EndpointTable {
    pub(super) connections: Connections,
    /// Values of the connection that begins, from one provider to the next that s2n-quic calls.
    pub(super) new: NewConnection,
    /// Error with which litequic closes the current connection. s2n-quic has no call that closes with a transport
    /// error: the interceptor makes the current packet one for which s2n-quic must close. s2n-quic requests the
    /// CONNECTION_CLOSE within the same call, before it processes another packet.
    pub(super) close_error: Option<transport::Error>,
    /// Placeholder in the packet that is being built: from the datagram sender to the interceptor.
    pub(super) slot: Option<FrameSlot>,
    /// Packet into which s2n-quic has put a PATH_CHALLENGE: from its event to the interceptor.
    pub(super) challenge_packet: Option<ChallengePacket>,
    pub(super) logs: ConnectionLogs,
}

/// A placeholder frame in a packet that leaves, which a frame of litequic's replaces. `connection` is s2n-quic's number
/// of the connection.
#[derive(Debug, Clone, Copy)]
pub(super) struct FrameSlot {
    pub(super) connection: u64,
    /// Frame that replaces the placeholder.
    pub(super) frame: SlotFrame,
}

/// A packet in the application data space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PacketId {
    /// The connection, by s2n-quic's ID.
    pub(super) connection: u64,
    pub(super) number: u64,
}

/// A packet that holds a PATH_CHALLENGE.
#[derive(Debug, Clone, Copy)]
pub(super) struct ChallengePacket {
    pub(super) packet: PacketId,
    /// The path that the challenge probes, on which s2n-quic does not send yet.
    pub(super) probes: Option<u64>,
}

/// Frames that placeholders make room for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SlotFrame {
    /// Request for an ACK frequency.
    AckFrequency,
    /// Unanswered challenge, sent again.
    PathChallenge,
}

/// Values of the connection that begins.
#[derive(Debug, Default)]
pub(super) struct NewConnection {
    /// Grant of the receive window: from the request for the connection's limits to the creation of its context.
    pub(super) grant: Option<WindowGrant>,
    /// Streams are served by priority: set and read with `grant`.
    pub(super) is_ordered: bool,
    /// Feedback of the path whose controller was created last: from then to the event of the started connection, or of
    /// the created path.
    pub(super) feedback: Option<Arc<PathFeedback>>,
    /// The client's support of ACK_FREQUENCY: from the 1-RTT keys to the event of the transport parameters.
    pub(super) support: Option<AckFrequencySupport>,
    /// s2n-quic's ID of the connection: from the event of the transport parameters to the creation of its datagram
    /// sender.
    pub(super) connection: Option<u64>,
}

impl EndpointState {
    /// State of an endpoint without connections.
    pub(super) fn new(
        config: LiveConfig,
        metrics: Arc<QuicMetrics>,
        moderation: Moderation,
        admission: Admission,
        connections: Connections,
    ) -> Arc<Self> {
        let table = Mutex::new(EndpointTable {
            connections,
            new: NewConnection::default(),
            close_error: None,
            slot: None,
            challenge_packet: None,
            logs: ConnectionLogs::default(),
        });
        let (at_hand, retry_ids) = (PacketAtHand::default(), SharedRetryIds::default());
        Arc::new(Self { config, metrics, moderation, admission, at_hand, retry_ids, table })
    }

    /// Calls `access` with the table, under the lock. `access` must neither drop nor wake anything that may run other
    /// code.
    pub(super) fn with_table<T>(&self, access: impl FnOnce(&mut EndpointTable) -> T) -> T {
        access(&mut self.table.lock())
    }
}

impl PacketAtHand {
    /// Sets whether the datagram at hand goes to an ID like those that litequic issues. Written by the interceptor for
    /// each datagram with a long header.
    pub(super) fn set_to_issued_id(&self, to_issued_id: bool) {
        self.to_issued_id.set(to_issued_id.into());
    }

    /// Whether the datagram at hand goes to an ID like those that litequic issues. Read for a connection attempt, whose
    /// header is long. A client's first Initial must not: otherwise small datagrams would count as those of a client
    /// that has received litequic's packets.
    pub(super) fn is_to_issued_id(&self) -> bool {
        self.to_issued_id.get() > 0
    }

    /// Sets the connection, by s2n-quic's ID, whose Initial or Handshake packet is processed. Written by the
    /// interceptor for each of these packets, before its frames are processed. s2n-quic polls TLS after that, unless it
    /// rejects a frame.
    pub(super) fn set_handshake_connection(&self, connection: u64) {
        // The value 0 means no connection.
        self.handshake_connection.set(connection.wrapping_add(1));
    }

    /// Takes the connection for whose packet s2n-quic polls TLS; `None` if a wakeup is the reason.
    pub(super) fn take_handshake_connection(&self) -> Option<u64> {
        self.handshake_connection.take_value().checked_sub(1)
    }

    /// Records that the packet that is being built holds a placeholder or a challenge of s2n-quic's. Written by the
    /// datagram sender and by the event of a sent challenge.
    pub(super) fn set_has_frame(&self) {
        self.has_frame.set(1);
    }

    /// Takes whether the packet that was built holds a placeholder or a challenge. Read by the interceptor for each
    /// packet that leaves.
    pub(super) fn take_has_frame(&self) -> bool {
        self.has_frame.get() > 0 && self.has_frame.take_value() > 0
    }

    /// Sets the number of logs and waiting orders.
    pub(super) fn set_logs(&self, count: u64) {
        self.logs.set(count);
    }

    /// Whether a connection is logged, or an order waits for one. Read for each packet.
    pub(super) fn has_logs(&self) -> bool {
        self.logs.get() > 0
    }
}

#[cfg(test)]
impl EndpointState {
    /// An endpoint with the default limits.
    pub(super) fn for_tests() -> Arc<Self> {
        let origin = "http://origin".parse().unwrap();
        let config = litequic_config::Config::with_defaults(([127, 0, 0, 1], 0).into(), origin, "".into(), "".into())
            .into_live();
        let metrics = Arc::<QuicMetrics>::default();
        let admission = Admission::new(Arc::clone(&config), Arc::clone(&metrics), <_>::default(), <_>::default());
        Self::with_admission(config, metrics, admission)
    }

    /// An endpoint that decides on connection attempts by `admission`.
    pub(super) fn with_admission(config: LiveConfig, metrics: Arc<QuicMetrics>, admission: Admission) -> Arc<Self> {
        let limits = config.load().limits;
        let connections = Connections::new(&limits, Arc::clone(&metrics));
        let moderation = Moderation::new(false, Arc::clone(&metrics));
        Self::new(config, metrics, moderation, admission, connections)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_connection_of_a_handshake_packet_is_taken_once() {
        let at_hand = PacketAtHand::default();
        assert_eq!(at_hand.take_handshake_connection(), None);
        for connection in [0, 7] {
            at_hand.set_handshake_connection(connection);
            assert_eq!(at_hand.take_handshake_connection(), Some(connection));
            assert_eq!(at_hand.take_handshake_connection(), None);
        }
    }
}
