//! Intercepts each 1-RTT packet between s2n-quic's decryption and its own parser: counts it, passes its contents to
//! `connection::table`, and writes PADDING over what s2n-quic need not read: ACK frames that bring no news, and
//! floods. Has s2n-quic close the connection for violations that s2n-quic does not detect. Intercepts each sent packet
//! before it is encrypted, for `connection::ack_frequency` and `path_challenge` to put their frames in.

use super::{close::PendingClose, handshake::HandshakePacket};
use crate::quic::{
    connection::{AckFrequencyEndpoint, ConnectionTable, PacketAction, PathChallenges, ReceivedPacket},
    io::{Moderation, ReceiveBatchNumber},
    metrics::Metrics,
    wire::{BlockedFrames, PacketSummary, frame::kind},
};
use s2n_codec::encoder::scatter;
use s2n_quic_core::{
    event::api::Subject,
    inet::SocketAddress,
    packet::{
        interceptor::{DecoderBufferMut, Interceptor, Packet},
        number::PacketNumberSpace,
    },
    path::{LocalAddress, RemoteAddress, Tuple},
    time::Timestamp,
};
use std::{sync::Arc, time::Instant};

/// Type of a frame of one byte for which s2n-quic must close the connection: HANDSHAKE_DONE, which no client may send
/// (RFC 9000 §19.20).
const CLOSING_FRAME: u8 = {
    assert!(kind::HANDSHAKE_DONE < 0x40);
    let [.., byte] = kind::HANDSHAKE_DONE.to_be_bytes();
    byte
};

/// Intercepts the packets of one endpoint.
#[derive(Debug)]
pub(super) struct PacketInterceptor {
    connections: ConnectionTable,
    receive_batch: ReceiveBatchNumber,
    /// Whether ACK frames without news are merged into the one that brought it.
    merge_acks: bool,
    ack_frequency: AckFrequencyEndpoint,
    path_challenges: PathChallenges,
    handshake_packet: HandshakePacket,
    pending_close: PendingClose,
    moderation: Moderation,
    metrics: Arc<Metrics>,
    /// Addresses of the datagram at hand.
    path: Tuple,
    /// Summary of the packet at hand.
    summary: PacketSummary,
}

impl PacketInterceptor {
    /// An interceptor of packets of `connections`, received in batches that `receive_batch` numbers, at times that
    /// `moderation` decides. `ack_frequency` and `path_challenges` put frames into packets that leave.
    pub(super) fn new(
        connections: ConnectionTable,
        (receive_batch, moderation): (ReceiveBatchNumber, Moderation),
        merge_acks: bool,
        (ack_frequency, path_challenges): (AckFrequencyEndpoint, PathChallenges),
        handshake_packet: HandshakePacket,
        pending_close: PendingClose,
        metrics: Arc<Metrics>,
    ) -> Self {
        let path =
            Tuple { remote_address: SocketAddress::default().into(), local_address: SocketAddress::default().into() };
        let summary = PacketSummary::default();
        Self {
            connections,
            receive_batch,
            merge_acks,
            ack_frequency,
            path_challenges,
            handshake_packet,
            pending_close,
            moderation,
            metrics,
            path,
            summary,
        }
    }

    /// Reads a packet of `connection`, by s2n-quic's ID, that came at `at`, and blanks what s2n-quic need not read.
    fn receive(&mut self, connection: u64, at: Timestamp, payload: &mut [u8]) {
        self.metrics.packets_received.increment();
        self.summary.read(payload);
        if let (Some(error), Some(first)) = (self.summary.violation, payload.first_mut()) {
            tracing::debug!(connection, %error, "a client violates QUIC");
            self.pending_close.raise(error);
            // s2n-quic must close the connection of a client that sends it (RFC 9000 §19.20), and reads no further.
            *first = CLOSING_FRAME;
            return;
        }
        if self.summary.is_latency_critical {
            self.moderation.urgent();
        }
        self.count_blocked();
        let batch = self.receive_batch.number();
        // I/O that has no batches has no newest in one.
        let merge_acks = self.merge_acks && batch > 0;
        let (place, ack) = self.summary.sole_ack(payload).unzip();
        let packet = ReceivedPacket { summary: &self.summary, ack, merge_acks, batch, path: &self.path, at };
        match self.connections.process_packet(connection, packet, Instant::now) {
            PacketAction::Forward => {}
            PacketAction::BlankAck => {
                if let Some(ack) = place.and_then(|place| payload.get_mut(place)) {
                    ack.fill(0);
                    self.metrics.ack_frames_merged.increment();
                }
            }
            // The connection is about to be closed: until then PADDING, which costs s2n-quic next to nothing.
            PacketAction::Blank => payload.fill(0),
        }
    }
}

impl PacketInterceptor {
    /// Counts limits that block the client.
    fn count_blocked(&self) {
        let blocked = self.summary.blocked;
        if blocked == BlockedFrames::default() {
            return;
        }
        self.metrics.limit_streams.add(blocked.streams.into());
        self.metrics.limit_connection_receive_buffer.add(blocked.data.into());
        self.metrics.limit_stream_receive_buffer.add(blocked.stream_data.into());
    }
}

impl Interceptor for PacketInterceptor {
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
        let Subject::Connection { id, .. } = subject else { return payload };
        if packet.number.space() != PacketNumberSpace::ApplicationData {
            self.handshake_packet.set(*id);
            self.moderation.urgent();
            return payload;
        }
        let payload = payload.into_less_safe_slice();
        self.receive(*id, packet.timestamp, payload);
        DecoderBufferMut::new(payload)
    }

    fn intercept_tx_payload(&mut self, subject: &Subject, packet: &Packet, payload: &mut scatter::Buffer<'_>) {
        if packet.number.space() == PacketNumberSpace::ApplicationData {
            self.metrics.packets_sent.increment();
            // Without the end of a stream's data, which may be elsewhere yet.
            let (payload, _) = payload.inner_mut();
            let (number, payload) = (packet.number.as_u64(), payload.as_mut_slice());
            if let Subject::Connection { id, .. } = subject {
                self.path_challenges.transmit(*id, number, payload, Instant::now);
            }
            self.ack_frequency.transmit(number, payload);
        }
    }
}
