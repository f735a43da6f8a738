//! Intercepts s2n-quic's received and sent packets.
//!
//! - Each datagram is dropped if no honest client sends such a one (`amplification`). One of an unsupported version
//!   becomes one to which s2n-quic responds with Version Negotiation.
//! - Each received 1-RTT packet, between s2n-quic's decryption and its own parser, is counted and passed to the
//!   connection's entry. PADDING replaces bytes that s2n-quic need not read: ACK frames without new numbers, and
//!   floods. s2n-quic closes the connection for violations that s2n-quic does not detect itself.
//! - Each sent packet gets litequic's frames from `frame_slot`, before it is encrypted.

use super::{
    admission::MAX_RESPONSES_PER_SECOND,
    amplification::admits_datagram_size,
    endpoint_state::{EndpointState, PacketId},
    frame_slot,
};
use crate::{
    connection::{PacketAction, ReceivedPacket},
    identity::connection_id::OwnIds,
    wire::{BlockedFrames, InvariantHeader, PacketSummary, convert_to_initial, frame::kind},
};
use litequic_base::token_bucket::SharedTokenBucket;
use litequic_net::datagram::end_migration_check;
use s2n_codec::encoder::scatter;
use s2n_quic_core::{
    event::api::Subject,
    inet::SocketAddress,
    packet::{
        interceptor::{Datagram, DecoderBufferMut, Interceptor, Packet},
        number::PacketNumberSpace,
    },
    path::{LocalAddress, RemoteAddress, Tuple},
    time::Timestamp,
};
use std::{sync::Arc, task::Waker, time::Instant};

/// Type of a frame of one byte for which s2n-quic must close the connection: HANDSHAKE_DONE, which no client may send
/// (RFC 9000 §19.20).
const CLOSING_FRAME: u8 = {
    assert!(kind::HANDSHAKE_DONE < 0x40);
    let [.., byte] = kind::HANDSHAKE_DONE.to_be_bytes();
    byte
};

/// Intercepts the datagrams and packets of one endpoint.
#[derive(Debug)]
pub(super) struct PacketInterceptor {
    state: Arc<EndpointState>,
    ids: OwnIds,
    /// ACK frames without new numbers are blanked.
    merge_acks: bool,
    negotiations: SharedTokenBucket,
    /// Addresses of the datagram at hand.
    path: Tuple,
    /// Summary of the packet at hand.
    summary: PacketSummary,
    /// Tasks that the packet at hand wakes.
    woken: Vec<Waker>,
    /// Action on the last received packet.
    action: PacketAction,
}

impl PacketInterceptor {
    /// An interceptor for an endpoint that issues `ids`.
    pub(super) fn new(state: Arc<EndpointState>, ids: OwnIds, merge_acks: bool) -> Self {
        let unknown = SocketAddress::default();
        Self {
            state,
            ids,
            merge_acks,
            negotiations: SharedTokenBucket::new(MAX_RESPONSES_PER_SECOND),
            path: Tuple { remote_address: unknown.into(), local_address: unknown.into() },
            summary: PacketSummary::default(),
            woken: Vec::new(),
            action: PacketAction::Forward,
        }
    }

    /// Whether s2n-quic is to process a datagram, which may be changed for it.
    fn admit_datagram(&self, datagram: &mut [u8]) -> bool {
        let Some(header) = InvariantHeader::parse_long_header(datagram) else { return true };
        if let Some(len) = header.unsupported_version_len() {
            return self.request_negotiation(datagram, len);
        }
        let to_issued_id = self.ids.contains_own_id(header.destination);
        self.state.at_hand.set_to_issued_id(to_issued_id);
        self.state.retry_ids.lock().record_addressed(header.destination);
        admits_datagram_size(datagram.len(), to_issued_id)
    }

    /// Makes s2n-quic respond with Version Negotiation to a datagram of an unsupported version, with a header of
    /// `header_len` bytes. `false` if it is too small for an Initial (RFC 9000 §5.2.2), or responses are at their
    /// limit.
    #[cold]
    fn request_negotiation(&self, datagram: &mut [u8], header_len: usize) -> bool {
        if !admits_datagram_size(datagram.len(), false) {
            return false;
        }
        let is_admitted = self.negotiations.try_take_token(Instant::now());
        if is_admitted {
            convert_to_initial(datagram, header_len);
        } else {
            self.state.metrics.limit_refusals.increment();
        }
        is_admitted
    }

    /// Reads a packet of `connection`, by s2n-quic's ID, that arrived at `at`, and blanks the bytes that s2n-quic need
    /// not read.
    fn process_payload(&mut self, connection: u64, at: Timestamp, payload: &mut [u8]) {
        self.state.metrics.packets_received.increment();
        self.summary.summarize_packet(payload);
        if let (Some(error), Some(first)) = (self.summary.violation, payload.first_mut()) {
            tracing::debug!(connection, %error, "a client violates QUIC");
            self.state.with_table(|table| table.close_error = Some(error));
            // s2n-quic must close the connection of a client that sends this frame (RFC 9000 §19.20), and reads no
            // further.
            *first = CLOSING_FRAME;
            return;
        }
        if self.summary.is_latency_critical {
            self.state.moderation.count_urgent();
        }
        if self.summary.opens_request {
            self.state.moderation.count_opening();
        }
        self.count_blocked();
        let batch = self.state.moderation.current_batch();
        // Without batches no packet is the newest of one.
        let merge_acks = self.merge_acks && batch > 0;
        let (place, ack) = self.summary.sole_ack(payload).unzip();
        let packet = ReceivedPacket { summary: &self.summary, ack, merge_acks, batch, path: &self.path, at };
        let action = if packet.concerns_connection() {
            let woken = &mut self.woken;
            self.state.with_table(|table| table.connections.process_packet(connection, packet, woken, Instant::now))
        } else {
            PacketAction::Forward
        };
        self.woken.drain(..).for_each(Waker::wake);
        self.action = action;
        match action {
            PacketAction::Forward => {}
            PacketAction::BlankAck => {
                if let Some(ack) = place.and_then(|place| payload.get_mut(place)) {
                    ack.fill(0);
                    self.state.metrics.ack_frames_merged.increment();
                }
            }
            // The connection will be closed: until then s2n-quic gets PADDING, which costs next to nothing.
            PacketAction::Blank => payload.fill(0),
        }
    }

    /// Counts frames by which the client reports that limits block it.
    fn count_blocked(&self) {
        let blocked = self.summary.blocked;
        if blocked == BlockedFrames::default() {
            return;
        }
        self.state.metrics.limit_streams.increment_by(blocked.streams.into());
        self.state.metrics.limit_connection_receive_buffer.increment_by(blocked.data.into());
        self.state.metrics.limit_stream_receive_buffer.increment_by(blocked.stream_data.into());
    }
}

impl Interceptor for PacketInterceptor {
    fn intercept_rx_datagram<'a>(
        &mut self,
        _: &Subject,
        _: &Datagram<'_>,
        payload: DecoderBufferMut<'a>,
    ) -> DecoderBufferMut<'a> {
        let datagram = payload.into_less_safe_slice();
        // s2n-quic drops an empty datagram.
        let datagram = if self.admit_datagram(datagram) { datagram } else { &mut [] };
        DecoderBufferMut::new(datagram)
    }

    fn intercept_rx_remote_address(&mut self, _: &Subject, address: &mut RemoteAddress) {
        self.path.remote_address = *address;
    }

    fn intercept_rx_local_address(&mut self, _: &Subject, address: &mut LocalAddress) {
        self.path.local_address = *address;
    }

    fn intercept_rx_payload<'a>(
        &mut self,
        subject: &Subject,
        packet: &Packet,
        payload: DecoderBufferMut<'a>,
    ) -> DecoderBufferMut<'a> {
        end_migration_check();
        let Subject::Connection { id, .. } = subject else { return payload };
        if self.state.at_hand.has_logs() {
            return self.intercept_logged(*id, packet, payload);
        }
        self.intercept_packet(*id, packet, payload)
    }

    fn intercept_tx_payload(&mut self, subject: &Subject, packet: &Packet, payload: &mut scatter::Buffer<'_>) {
        if packet.number.space() == PacketNumberSpace::ApplicationData {
            self.state.metrics.packets_sent.increment();
            if self.state.at_hand.take_has_frame()
                && let Subject::Connection { id, .. } = subject
            {
                // The end of a stream's data is left out: it may still be elsewhere.
                let (payload, _) = payload.inner_mut();
                let packet = PacketId { connection: *id, number: packet.number.as_u64() };
                frame_slot::complete_packet(&self.state, packet, payload.as_mut_slice(), Instant::now);
            }
        }
        if self.state.at_hand.has_logs()
            && let Subject::Connection { id, .. } = subject
        {
            self.log_leaving_packet(*id, packet, payload);
        }
    }
}

impl PacketInterceptor {
    /// Reads a packet of connection `id`.
    fn intercept_packet<'a>(
        &mut self,
        id: u64,
        packet: &Packet,
        payload: DecoderBufferMut<'a>,
    ) -> DecoderBufferMut<'a> {
        if packet.number.space() != PacketNumberSpace::ApplicationData {
            self.state.at_hand.set_handshake_connection(id);
            self.state.moderation.count_urgent();
            self.state.moderation.count_opening();
            return payload;
        }
        let payload = payload.into_less_safe_slice();
        self.process_payload(id, packet.timestamp, payload);
        DecoderBufferMut::new(payload)
    }

    /// Reads a packet of connection `id`. If the connection has a log, logs the received packet and the action on it.
    #[cold]
    fn intercept_logged<'a>(
        &mut self,
        id: u64,
        packet: &Packet,
        payload: DecoderBufferMut<'a>,
    ) -> DecoderBufferMut<'a> {
        let Some(log) = self.state.connection_log(id) else { return self.intercept_packet(id, packet, payload) };
        let payload = payload.into_less_safe_slice();
        log.log_received(packet.number, payload, self.state.moderation.current_batch());
        let bytes = payload.len();
        self.action = PacketAction::Forward;
        let payload = self.intercept_packet(id, packet, DecoderBufferMut::new(payload));
        match self.action {
            PacketAction::BlankAck => log.log_ack_merged(packet.number),
            PacketAction::Blank => log.log_dropped(packet.number, bytes),
            PacketAction::Forward => {}
        }
        payload
    }

    /// Logs a packet of connection `id` that leaves, if the connection has a log.
    #[cold]
    fn log_leaving_packet(&self, id: u64, packet: &Packet, payload: &mut scatter::Buffer<'_>) {
        let Some(log) = self.state.connection_log(id) else { return };
        let (written, rest) = payload.inner_mut();
        let mut whole = written.as_mut_slice().to_vec();
        whole.extend(rest.iter().flat_map(|rest| rest.iter()));
        let bursts = self
            .state
            .with_table(|table| Some(table.connections.connection_mut(id)?.feedback.as_ref()?.bursts()))
            .unwrap_or_default();
        log.log_packet_sent(packet.number, &whole, bursts);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::{IdScheme, connection_id::WorkerIndex};

    fn interceptor() -> PacketInterceptor {
        let scheme = IdScheme::new(None, None, None).unwrap();
        let ids = OwnIds::new(&scheme, 9, Arc::default(), WorkerIndex(1), 4);
        PacketInterceptor::new(EndpointState::for_tests(), ids, false)
    }

    #[test]
    fn small_datagrams_go_to_ids_that_litequic_issued() {
        let interceptor = interceptor();
        let datagram = |first: u8, id: &[u8], len: usize| {
            let mut datagram = [&[first, 0, 0, 0, 1, u8::try_from(id.len()).unwrap()], id].concat();
            datagram.resize(len, 0);
            datagram
        };
        let issued = [&[0xef, 9, 1][..], &[7; 13]].concat();
        let table = [
            ("a full Initial", datagram(0xc0, &[1; 8], 1200), true, false),
            ("a small Initial", datagram(0xc0, &[1; 8], 1199), false, false),
            ("a small Handshake to its own ID", datagram(0xe0, &[1; 8], 60), false, false),
            ("a small Handshake to ours", datagram(0xe0, &issued, 60), true, true),
            ("a full Initial to ours", datagram(0xc0, &issued, 1200), true, true),
            ("to another worker's", datagram(0xe0, &[&[0xef, 9, 2][..], &[7; 13]].concat(), 60), false, false),
            ("to one of another length", datagram(0xe0, &issued[..15], 60), false, false),
        ];
        for (what, mut datagram, admitted, is_own) in table {
            assert_eq!(
                (interceptor.admit_datagram(&mut datagram), interceptor.state.at_hand.is_to_issued_id()),
                (admitted, is_own),
                "{what}"
            );
        }
        let others = [("short", vec![0x40; 30]), ("nothing", vec![]), ("half a header", vec![0xc0; 7])];
        for (what, mut datagram) in others {
            assert!(interceptor.admit_datagram(&mut datagram), "{what} is not for here to judge");
        }
    }

    #[test]
    fn full_datagrams_of_unsupported_versions_get_responses_up_to_a_rate() {
        let interceptor = interceptor();
        let datagram = |first: u8, len: usize| {
            let mut datagram = [&[first][..], &0x6b33_43cf_u32.to_be_bytes(), &[3, 7, 7, 7, 1, 9]].concat();
            datagram.resize(len, 0x55);
            datagram
        };
        for first in [0x80, 0xc0, 0xd0, 0xe5, 0xff] {
            let mut full = datagram(first, 1200);
            assert!(interceptor.admit_datagram(&mut full));
            assert_eq!(full, [&[0xc0], &datagram(first, 1200)[1..11], &[0, 0], &[0x55; 1187]].concat());
            let mut small = datagram(first, 1199);
            assert!(!interceptor.admit_datagram(&mut small));
            assert_eq!(small, datagram(first, 1199));
        }
        // On a slow machine a second's worth is there again before it is used up.
        let mut attempts = 0..MAX_RESPONSES_PER_SECOND * 64;
        assert!(attempts.any(|_| !interceptor.admit_datagram(&mut datagram(0xd0, 1200))));
        assert!(interceptor.state.metrics.limit_refusals.get() > 0);
        assert!(!interceptor.admit_datagram(&mut datagram(0xd0, 1199)));
    }
}
