//! Makes room in packets for ACK_FREQUENCY frames, and for a repeated PATH_CHALLENGE, by s2n-quic's datagrams: the one
//! provider that writes whole frames of its own. litequic neither sends nor accepts datagrams.
//!
//! A connection's [`PlaceholderSender`] writes a placeholder into the packet that s2n-quic builds; [`complete_packet`]
//! puts the frame in its place, before the same packet is encrypted.

use super::endpoint_state::{EndpointState, EndpointTable, FrameSlot, PacketId, SlotFrame};
use crate::{
    connection::{AckFrequencyState, SendQueue, UnansweredChallenge, move_before_response},
    wire::placeholder,
};
use s2n_quic::provider::datagram::{
    ConnectionInfo, Endpoint, Packet, PreConnectionInfo, ReceiveContext, Receiver, Sender,
};
use s2n_quic_core::connection::Error;
use std::{sync::Arc, time::Instant};

/// Bytes that stay free behind a placeholder: otherwise its last DATAGRAM frame might be the packet's last, which
/// s2n-quic writes without a length.
const SPARE_BYTES: usize = 8;

/// Creates the senders of placeholders.
pub(super) struct FrameSlotEndpoint(pub(super) Arc<EndpointState>);

impl Endpoint for FrameSlotEndpoint {
    type Sender = PlaceholderSender;
    type Receiver = NoReceiver;

    fn create_connection(&mut self, _: &ConnectionInfo) -> (PlaceholderSender, NoReceiver) {
        let connection = self.0.with_table(|table| {
            let id = table.new.connection.take()?;
            Some((id, Arc::clone(&table.connections.connection_mut(id)?.send_queue)))
        });
        (PlaceholderSender { state: Arc::clone(&self.0), connection }, NoReceiver)
    }

    /// Returns 0: no datagram is accepted, and the transport parameter is not sent (RFC 9221 §3).
    fn max_datagram_frame_size(&self, _: &PreConnectionInfo) -> u64 {
        0
    }
}

/// Writes the placeholders of one connection.
pub(super) struct PlaceholderSender {
    state: Arc<EndpointState>,
    /// s2n-quic's ID of the connection, and its send queue, which knows whether a frame may have to be sent.
    connection: Option<(u64, Arc<SendQueue>)>,
}

impl PlaceholderSender {
    /// Whether the connection should send its PATH_CHALLENGE again now.
    fn is_challenge_due(&self, connection: u64, queue: &SendQueue) -> bool {
        let is_due = |table: &mut EndpointTable| {
            let challenge = table.connections.connection_mut(connection)?.challenge.as_ref()?;
            Some(challenge.is_repeat_due(Instant::now()))
        };
        queue.has_challenge() && self.state.with_table(is_due).unwrap_or_default()
    }
}

impl Sender for PlaceholderSender {
    /// Writes a placeholder. Empty DATAGRAM frames need no permission from the peer, and must not reach it:
    /// [`complete_packet`] replaces them.
    fn on_transmit<P: Packet>(&mut self, packet: &mut P) {
        let &Some((connection, ref queue)) = &self.connection else { return };
        // A challenge is repeated only in a full datagram (RFC 9000 §8.2.1).
        let frame = if self.is_challenge_due(connection, queue) && packet.has_pending_streams() {
            SlotFrame::PathChallenge
        } else if queue.wants_ack_frequency() {
            SlotFrame::AckFrequency
        } else {
            return;
        };
        // A packet has at most one placeholder.
        if packet.remaining_capacity() < placeholder::PLACEHOLDER_LEN + SPARE_BYTES {
            // The next packet has more room.
            return;
        }
        self.state.with_table(|table| table.slot = Some(FrameSlot { connection, frame }));
        self.state.at_hand.set_has_frame();
        // If one of them fails although there is room, the incomplete placeholder is found and removed.
        let _ = (0..placeholder::PLACEHOLDER_DATAGRAMS).try_for_each(|_| packet.write_datagram(&[]));
    }

    fn has_transmission_interest(&self) -> bool {
        self.connection.as_ref().is_some_and(|(_, queue)| queue.wants_ack_frequency())
    }

    fn on_connection_error(&mut self, _: Error) {}
}

/// Completes `packet`, which was built with a placeholder or a challenge of s2n-quic's: a challenge in the unencrypted
/// `payload` is remembered and put first, and a frame replaces the placeholder. No placeholder is left, even on
/// failure. `now` is the packet's time.
#[cold]
pub(super) fn complete_packet(
    state: &EndpointState,
    packet: PacketId,
    payload: &mut [u8],
    now: impl FnOnce() -> Instant,
) {
    let now = now();
    let misplaced = state.with_table(|table| {
        let (challenge_packet, slot) = (table.challenge_packet.take(), table.slot.take());
        let sent = challenge_packet
            .filter(|of| of.packet == packet)
            .and_then(|of| UnansweredChallenge::from_payload(payload, now, of.probes));
        let is_sent = sent.is_some();
        if let Some(sent) = sent {
            move_before_response(payload);
            if let Some(connection) = table.connections.connection_mut(packet.connection) {
                connection.record_sent_challenge(sent);
            }
        }
        let FrameSlot { connection: owner, frame } = slot?;
        let own = table.connections.connection_mut(owner).filter(|_| owner == packet.connection);
        let is_placed = match (frame, own) {
            // One challenge a packet is enough.
            (SlotFrame::PathChallenge, _) if is_sent => {
                placeholder::replace_placeholder(payload, None);
                true
            }
            (SlotFrame::PathChallenge, own) => {
                let repeated = own.and_then(|own| own.challenge.as_mut()).map(|challenge| challenge.repeat_frame(now));
                let is_placed = placeholder::replace_placeholder(payload, repeated);
                if is_placed {
                    state.metrics.path_challenges_repeated.increment();
                } else if let Some(owner) = table.connections.connection_mut(owner) {
                    // Another attempt would fail in the same way.
                    owner.set_challenge(None);
                }
                is_placed
            }
            (SlotFrame::AckFrequency, own) => {
                let write = |ack_frequency: &mut AckFrequencyState| ack_frequency.write_frame(packet.number, payload);
                own.and_then(|own| own.change_ack_frequency(write))
                    .unwrap_or_else(|| placeholder::replace_placeholder(payload, None))
            }
        };
        (!is_placed).then_some(frame)
    });
    if let Some(frame) = misplaced {
        tracing::error!(packet = packet.number, ?frame, "the placeholder of a frame was not found in its packet");
    }
}

pub(super) struct NoReceiver;

impl Receiver for NoReceiver {
    fn on_datagram(&mut self, _: &ReceiveContext<'_>, _: &[u8]) {}

    fn on_connection_error(&mut self, _: Error) {}
}

#[cfg(test)]
mod tests {
    use super::{super::endpoint_state::ChallengePacket, *};
    use crate::{
        connection::{AckFrequencySupport, ConnectionState, DraftVersion},
        wire::{frame::FrameIter, placeholder::PLACEHOLDER_BYTES},
    };
    use litequic_config::AckFrequency;
    use proptest::{collection::vec, prelude::*, sample::select};
    use s2n_codec::EncoderValue;
    use s2n_quic::provider::datagram::WriteError;
    use s2n_quic_core::frame::Datagram;
    use std::{task::Waker, time::Duration};

    /// A PATH_CHALLENGE, the repeated frame, and data that looks like a placeholder.
    const CHALLENGE: [u8; 9] = [0x1a, 1, 2, 3, 4, 5, 6, 7, 8];
    const REPEATED: [u8; placeholder::PLACEHOLDER_LEN] = [0x1a, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 0, 0, 0, 0];
    const DATA: [u8; 5] = [0x01, 0x08, 0, 0x31, 0];
    const INTERVAL: Duration = Duration::from_secs(1);

    /// A packet as s2n-quic builds it, of at most `capacity` bytes.
    struct Built {
        payload: Vec<u8>,
        capacity: usize,
    }

    impl Packet for Built {
        fn remaining_capacity(&self) -> usize {
            (self.capacity - self.payload.len()).saturating_sub(3)
        }

        fn write_datagram(&mut self, data: &[u8]) -> Result<(), WriteError> {
            let rest = self.capacity - self.payload.len();
            let frame = Datagram { is_last_frame: rest == 1 + data.len(), data };
            if frame.encoding_size() > rest {
                return Err(WriteError::ExceedsPacketCapacity);
            }
            self.payload.extend(frame.encode_to_vec());
            Ok(())
        }

        fn write_datagram_vectored(&mut self, _: &[&[u8]]) -> Result<(), WriteError> {
            Err(WriteError::ExceedsPacketCapacity)
        }

        fn has_pending_streams(&self) -> bool {
            true
        }

        fn datagrams_prioritized(&self) -> bool {
            false
        }
    }

    /// An endpoint with connections 7 and 8.
    fn endpoint() -> Arc<EndpointState> {
        let state = EndpointState::for_tests();
        state.with_table(|table| {
            [7, 8].into_iter().for_each(|id| drop(table.connections.begin_connection(id, None, false)));
        });
        state
    }

    /// The sender of connection 7, after a handshake in which its client sent `support`.
    fn sender(
        state: &Arc<EndpointState>,
        mode: AckFrequency,
        support: Option<AckFrequencySupport>,
    ) -> PlaceholderSender {
        state.with_table(|table| {
            let connection = table.connections.connection_mut(7).unwrap();
            if let Some(support) = support {
                let (metrics, moderation) = (Arc::clone(&state.metrics), state.moderation.clone());
                connection.ack_frequency = Some(Box::new(AckFrequencyState::new(support, mode, metrics, moderation)));
            }
            connection.change_ack_frequency(AckFrequencyState::begin_requests);
            table.new.connection = Some(7);
        });
        let info = ConnectionInfo::new(0, Waker::noop().clone());
        FrameSlotEndpoint(Arc::clone(state)).create_connection(&info).0
    }

    fn packet_id(connection: u64, number: u64) -> PacketId {
        PacketId { connection, number }
    }

    fn support() -> Option<AckFrequencySupport> {
        let (min_ack_delay, max_ack_delay) = (Duration::from_millis(1), Duration::from_millis(25));
        Some(AckFrequencySupport { draft: DraftVersion::AckFrequency12, min_ack_delay, max_ack_delay })
    }

    proptest! {
        #[test]
        fn no_packet_leaves_with_a_datagram_frame_and_one_request_leaves(
            before in vec(select(vec![vec![0x02, 9, 0, 0, 2], vec![0x1e], vec![0x11, 4, 9]]), 0..6),
            behind in select(vec![vec![], vec![0x0a, 0, 2, 0x31, 0], vec![0x08, 0, 0x31, 0], vec![0, 0]]),
            rooms in vec(0..40usize, 1..20),
        ) {
            let state = endpoint();
            let mut sender = sender(&state, AckFrequency::Fixed(10), support());
            let mut asked = 0;
            for (number, room) in rooms.iter().enumerate() {
                let payload = before.concat();
                let mut packet = Built { capacity: payload.len() + room, payload };
                let wanted = sender.has_transmission_interest();
                sender.on_transmit(&mut packet);
                packet.payload.extend(&behind);
                if state.at_hand.take_has_frame() {
                    complete_packet(&state, packet_id(7, number as u64), &mut packet.payload, Instant::now);
                }
                let kinds: Vec<u64> = FrameIter::new(&packet.payload).map(|frame| frame.kind).collect();
                prop_assert!(!kinds.iter().any(|kind| matches!(kind, 0x30 | 0x31)), "{:x?}", packet.payload);
                let asks = kinds.iter().filter(|&&kind| kind == 0xaf).count();
                prop_assert!(asks == 0 || wanted);
                asked += asks;
            }
            prop_assert_eq!(asked, usize::from(rooms.iter().any(|&room| room >= placeholder::PLACEHOLDER_LEN + 8 + 3)));
            prop_assert_eq!(state.metrics.ack_frequency_misplaced.get(), 0);
        }
    }

    #[test]
    fn nothing_is_requested_of_a_client_without_support() {
        for (mode, support) in [(AckFrequency::Fixed(10), None), (AckFrequency::Adaptive, support())] {
            let mut sender = sender(&endpoint(), mode, support);
            let mut packet = Built { payload: Vec::new(), capacity: 1200 };
            sender.on_transmit(&mut packet);
            assert!(packet.payload.is_empty() && !sender.has_transmission_interest(), "{mode}");
        }
    }

    /// s2n-quic puts a challenge into `packet`, but announces `announced`.
    fn write(state: &EndpointState, packet: PacketId, announced: PacketId, now: Instant) {
        state.with_table(|table| table.challenge_packet = Some(ChallengePacket { packet: announced, probes: None }));
        let mut payload = [&[0x01][..], &CHALLENGE, &DATA].concat();
        let before = payload.clone();
        complete_packet(state, packet, &mut payload, || now);
        assert_eq!(payload, before);
    }

    /// The frame that replaces a placeholder of connection 7 in a packet of `connection`.
    fn place(state: &EndpointState, connection: u64, now: Instant) -> Vec<u8> {
        state.with_table(|table| table.slot = Some(FrameSlot { connection: 7, frame: SlotFrame::PathChallenge }));
        let mut payload = [&[0x01][..], &PLACEHOLDER_BYTES, &DATA].concat();
        complete_packet(state, packet_id(connection, 9), &mut payload, || now);
        assert!(payload.starts_with(&[1]) && payload.ends_with(&DATA));
        payload[1..=placeholder::PLACEHOLDER_LEN].to_vec()
    }

    fn is_due(state: &EndpointState, connection: u64, now: Instant) -> bool {
        let challenge = |table: &mut EndpointTable| {
            Some(table.connections.connection_mut(connection)?.challenge.as_ref()?.is_repeat_due(now))
        };
        state.with_table(challenge).unwrap_or_default()
    }

    /// Applies `change` to connection 7.
    fn change(state: &EndpointState, change: impl FnOnce(&mut ConnectionState)) {
        state.with_table(|table| change(table.connections.connection_mut(7).unwrap()));
    }

    /// Whether a connection has an unanswered challenge.
    fn has_challenge(state: &EndpointState) -> bool {
        state.with_table(|table| {
            [7, 8].iter().any(|id| table.connections.connection_mut(*id).unwrap().send_queue.has_challenge())
        })
    }

    #[test]
    fn a_challenge_is_repeated_until_it_is_answered() {
        let (state, start) = (endpoint(), Instant::now());
        let after = |millis| start + Duration::from_millis(millis);
        assert!(!has_challenge(&state));
        write(&state, packet_id(7, 3), packet_id(7, 3), start);
        write(&state, packet_id(7, 4), packet_id(7, 4), after(100));
        assert!(
            !is_due(&state, 7, after(1_099)) && is_due(&state, 7, after(1_100)) && !is_due(&state, 8, after(1_100))
        );
        assert_eq!(place(&state, 7, after(1_200)), REPEATED);
        assert!(!is_due(&state, 7, after(2_199)) && is_due(&state, 7, after(2_200)));
        assert!(has_challenge(&state));
        (0..2).for_each(|_| change(&state, |connection| connection.set_challenge(None)));
        assert!(!is_due(&state, 7, after(9_000)) && !has_challenge(&state));
        assert_eq!(state.metrics.path_challenges_repeated.get(), 1);
    }

    #[test]
    fn no_placeholder_is_left_in_any_state() {
        let (state, start) = (endpoint(), Instant::now());
        assert_eq!(place(&state, 7, start), [0; placeholder::PLACEHOLDER_LEN], "of nothing");
        write(&state, packet_id(7, 3), packet_id(7, 3), start);
        state.with_table(|table| {
            table.challenge_packet = Some(ChallengePacket { packet: packet_id(7, 9), probes: None });
        });
        assert_eq!(place(&state, 8, start), [0; placeholder::PLACEHOLDER_LEN], "of another connection");
        let mut payload = [&PLACEHOLDER_BYTES[..], &CHALLENGE].concat();
        state.with_table(|table| {
            table.slot = Some(FrameSlot { connection: 7, frame: SlotFrame::PathChallenge });
            table.challenge_packet = Some(ChallengePacket { packet: packet_id(7, 10), probes: None });
        });
        complete_packet(&state, packet_id(7, 10), &mut payload, || start);
        assert_eq!(payload, [&[0; placeholder::PLACEHOLDER_LEN][..], &CHALLENGE].concat(), "beside s2n-quic's own");
        assert!(is_due(&state, 7, start + INTERVAL));
    }

    /// Chromium probes its new path before it migrates.
    #[test]
    fn a_probe_without_a_response_is_repeated_on_the_active_path() {
        let (state, start) = (endpoint(), Instant::now());
        let probe = |path: u64, number: u64| {
            state.with_table(|table| {
                table.challenge_packet = Some(ChallengePacket { packet: packet_id(7, number), probes: Some(path) });
            });
            complete_packet(&state, packet_id(7, number), &mut CHALLENGE.to_vec(), || start);
        };
        let activate = |path| change(&state, |connection| connection.activate_challenge(path));
        probe(1, 3);
        assert!(!is_due(&state, 7, start + INTERVAL));
        activate(1);
        assert!(is_due(&state, 7, start + INTERVAL));
        probe(0, 4);
        assert!(is_due(&state, 7, start + INTERVAL), "the challenge of the path in use counts");
        change(&state, |connection| connection.end_challenge(0, false));
        assert!(has_challenge(&state), "the other path's ended");
        change(&state, |connection| connection.end_challenge(1, true));
        assert!(!has_challenge(&state));
        probe(2, 5);
        activate(3);
        assert!(!is_due(&state, 7, start + INTERVAL) && !has_challenge(&state));
    }

    #[test]
    fn a_challenge_without_its_placeholder_is_not_repeated() {
        let (state, start) = (endpoint(), Instant::now());
        write(&state, packet_id(7, 3), packet_id(7, 3), start);
        state.with_table(|table| table.slot = Some(FrameSlot { connection: 7, frame: SlotFrame::PathChallenge }));
        complete_packet(&state, packet_id(7, 4), &mut [0x01, 0x01], || start + INTERVAL);
        assert!(!is_due(&state, 7, start + 9 * INTERVAL) && !has_challenge(&state));
    }

    #[test]
    fn a_challenge_in_another_packet_is_not_remembered() {
        let (state, start) = (endpoint(), Instant::now());
        for packet in [packet_id(7, 4), packet_id(8, 3)] {
            write(&state, packet, packet_id(7, 3), start);
            assert!(!has_challenge(&state));
        }
    }
}
