//! Room in packets for ACK_FREQUENCY frames, and for a repeated PATH_CHALLENGE, by way of s2n-quic's datagrams: the one
//! provider that writes whole frames of its own. litequic neither sends nor accepts datagrams.

use crate::quic::{
    connection::{AckFrequencyEndpoint, AckFrequencyState, PathChallenges},
    wire::placeholder,
};
use s2n_quic::provider::datagram::{
    ConnectionInfo, Endpoint, Packet, PreConnectionInfo, ReceiveContext, Receiver, Sender,
};
use s2n_quic_core::connection::Error;
use std::{sync::Arc, time::Instant};

/// Bytes that stay free behind a placeholder: without them its last DATAGRAM frame might be the packet's last, which
/// s2n-quic writes without a length.
const SPARE_BYTES: usize = 8;

pub(in crate::quic) struct FrameSlotEndpoint {
    ack_frequency: AckFrequencyEndpoint,
    challenges: PathChallenges,
}

impl FrameSlotEndpoint {
    /// Room for ACK_FREQUENCY and PATH_CHALLENGE frames.
    pub(in crate::quic) fn new(ack_frequency: AckFrequencyEndpoint, challenges: PathChallenges) -> Self {
        Self { ack_frequency, challenges }
    }
}

impl Endpoint for FrameSlotEndpoint {
    type Sender = PlaceholderSender;
    type Receiver = NoReceiver;

    fn create_connection(&mut self, _: &ConnectionInfo) -> (PlaceholderSender, NoReceiver) {
        let Self { ack_frequency, challenges } = self;
        let (state, connection) = (ack_frequency.take_new(), challenges.new_connection());
        let (ack_frequency, challenges) = (ack_frequency.clone(), challenges.clone());
        (PlaceholderSender { state, ack_frequency, connection, challenges }, NoReceiver)
    }

    /// None is accepted: the transport parameter is not sent (RFC 9221 §3).
    fn max_datagram_frame_size(&self, _: &PreConnectionInfo) -> u64 {
        0
    }
}

/// Writes the placeholders of one connection.
pub(in crate::quic) struct PlaceholderSender {
    /// `None` if the client does not support ACK_FREQUENCY: then nothing is requested.
    state: Option<Arc<AckFrequencyState>>,
    ack_frequency: AckFrequencyEndpoint,
    /// s2n-quic's ID of the connection.
    connection: Option<u64>,
    challenges: PathChallenges,
}

impl Sender for PlaceholderSender {
    /// Empty DATAGRAM frames need no permission from the peer, and must not reach it: `quic::endpoint::interceptor`
    /// replaces them before this very packet is encrypted.
    fn on_transmit<P: Packet>(&mut self, packet: &mut P) {
        let state = self.state.as_ref().filter(|state| state.is_wanted());
        let challenged = self.connection.filter(|&connection| self.challenges.is_due(connection, Instant::now));
        // In a full datagram alone (RFC 9000 §8.2.1).
        let challenged = challenged.filter(|_| packet.has_pending_streams());
        let has_room = || packet.remaining_capacity() >= placeholder::LEN + SPARE_BYTES;
        // One a packet.
        match (challenged, state) {
            (Some(connection), _) if has_room() => self.challenges.reserve_slot(connection),
            (None, Some(state)) if has_room() => self.ack_frequency.reserve_slot(state),
            _ => return, // the next has more room
        }
        // Should one fail, for which there is room, the incomplete placeholder is found and removed.
        let _ = (0..placeholder::DATAGRAMS).try_for_each(|_| packet.write_datagram(&[]));
    }

    fn has_transmission_interest(&self) -> bool {
        self.state.as_ref().is_some_and(|state| state.is_wanted())
    }

    fn on_connection_error(&mut self, _: Error) {}
}

pub(in crate::quic) struct NoReceiver;

impl Receiver for NoReceiver {
    fn on_datagram(&mut self, _: &ReceiveContext<'_>, _: &[u8]) {}

    fn on_connection_error(&mut self, _: Error) {}
}
