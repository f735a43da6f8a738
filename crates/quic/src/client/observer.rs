//! Records s2n-quic's events of a client's connection: negotiated parameters, packets of the handshake, counts,
//! round-trip times. Changes nothing.

use super::transport_parameters::TransportParameters;
use s2n_codec::EncoderValue;
use s2n_quic::provider::{
    event::{ConnectionInfo, ConnectionMeta, Subscriber, events},
    tls::Provider,
};
use s2n_quic_core::{
    application::ServerName,
    crypto::tls::{self, Endpoint},
};
use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// Packets of the handshake that are remembered, to bound memory; further ones are not recorded.
const MAX_OBSERVED_PACKETS: usize = 64;
/// Frames of a packet of the handshake that are remembered, to bound memory; further ones are not recorded.
const MAX_OBSERVED_FRAMES: usize = 32;

/// The state of a client's connection, as s2n-quic's events report it.
#[derive(Debug, Clone, Default)]
pub struct ObservedConnection {
    /// Arrival of the first datagram.
    pub first_received: Option<Instant>,
    /// The TLS cipher suite of 1-RTT packets.
    pub cipher_suite: Option<&'static str>,
    /// Key exchange group of TLS.
    pub group: Option<String>,
    /// The application protocol of both ends (ALPN).
    pub protocol: Option<String>,
    /// Transport parameters that this end has sent.
    pub own_parameters: TransportParameters,
    /// Transport parameters of the server; `None` before they arrive.
    pub server_parameters: Option<TransportParameters>,
    /// Packets of the handshake, in order; empty unless the observer was created with `packets`.
    pub packets: Vec<ObservedPacket>,
    /// Packets, bytes and ACK frames so far.
    pub counts: PacketCounts,
    /// Estimate of the round-trip time; `None` before the first packet.
    pub round_trip: Option<RttEstimate>,
    /// The congestion window, in bytes.
    pub congestion_window: u32,
    confirmed: bool,
}

/// Counts of packets, their bytes, and ACK frames in both directions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PacketCounts {
    /// QUIC packets sent, several of which may share a datagram.
    pub packets_sent: u64,
    /// QUIC packets received and decrypted.
    pub packets_received: u64,
    /// Sent packets that were declared lost, without MTU probes.
    pub packets_lost: u64,
    /// Bytes of sent packets, without UDP's and IP's headers.
    pub bytes_sent: u64,
    /// Bytes of received packets, without UDP's and IP's headers.
    pub bytes_received: u64,
    /// ACK frames sent.
    pub acks_sent: u64,
    /// ACK frames received from the server.
    pub acks_received: u64,
}

impl PacketCounts {
    /// Counts since `earlier`.
    pub fn counts_since(&self, earlier: &Self) -> Self {
        Self {
            packets_sent: self.packets_sent.saturating_sub(earlier.packets_sent),
            packets_received: self.packets_received.saturating_sub(earlier.packets_received),
            packets_lost: self.packets_lost.saturating_sub(earlier.packets_lost),
            bytes_sent: self.bytes_sent.saturating_sub(earlier.bytes_sent),
            bytes_received: self.bytes_received.saturating_sub(earlier.bytes_received),
            acks_sent: self.acks_sent.saturating_sub(earlier.acks_sent),
            acks_received: self.acks_received.saturating_sub(earlier.acks_received),
        }
    }
}

/// Round-trip times (RFC 9002 §5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RttEstimate {
    /// RFC 9002's smoothed_rtt.
    pub smoothed: Duration,
    /// RFC 9002's min_rtt.
    pub min: Duration,
    /// RFC 9002's rttvar.
    pub variance: Duration,
}

/// The sender of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PacketDirection {
    /// This end.
    Sent,
    /// The server.
    Received,
}

/// A packet of the handshake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObservedPacket {
    /// The sender.
    pub direction: PacketDirection,
    /// The packet's type and number: `Initial 0`.
    pub name: String,
    /// The packet's frames, as text.
    pub frames: Vec<String>,
}

/// Observes one connection. Clones share the recorded state.
#[derive(Debug, Clone, Default)]
pub struct Observer {
    seen: Arc<Mutex<ObservedConnection>>,
    packets: bool,
}

impl Observer {
    /// An observer that also records the frames of the handshake if `packets`.
    pub fn new(packets: bool) -> Self {
        Self { seen: Arc::default(), packets }
    }

    /// State of the connection at present.
    pub fn observed_state(&self) -> ObservedConnection {
        self.lock_observed().clone()
    }

    /// Counts of the connection until now.
    pub fn packet_counts(&self) -> PacketCounts {
        self.lock_observed().counts
    }

    fn lock_observed(&self) -> MutexGuard<'_, ObservedConnection> {
        // No code panics while the state is locked; if it did, the state would still be usable.
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn record_frame(&self, direction: PacketDirection, header: &events::PacketHeader, frame: &events::Frame) {
        let mut seen = self.lock_observed();
        if matches!(frame, events::Frame::Ack { .. }) {
            let acks = match direction {
                PacketDirection::Sent => &mut seen.counts.acks_sent,
                PacketDirection::Received => &mut seen.counts.acks_received,
            };
            *acks += 1;
        }
        if self.packets && !seen.confirmed {
            seen.add_packet_frame(direction, packet_name(header), || frame_text(frame));
        }
    }
}

impl ObservedConnection {
    fn add_packet_frame(&mut self, direction: PacketDirection, name: String, frame: impl FnOnce() -> String) {
        let known = self.packets.len();
        let last = self.packets.last_mut().filter(|packet| packet.direction == direction && packet.name == name);
        let Some(packet) = last else {
            if known < MAX_OBSERVED_PACKETS {
                self.packets.push(ObservedPacket { direction, name, frames: vec![frame()] });
            }
            return;
        };
        if packet.frames.len() < MAX_OBSERVED_FRAMES {
            packet.frames.push(frame());
        }
    }
}

impl Subscriber for Observer {
    type ConnectionContext = ();

    fn create_connection_context(&mut self, _: &ConnectionMeta, _: &ConnectionInfo<'_>) {}

    fn on_application_protocol_information(
        &mut self,
        _: &mut (),
        _: &ConnectionMeta,
        event: &events::ApplicationProtocolInformation<'_>,
    ) {
        self.lock_observed().protocol = Some(String::from_utf8_lossy(event.chosen_application_protocol).into_owned());
    }

    fn on_key_exchange_group(&mut self, _: &mut (), _: &ConnectionMeta, event: &events::KeyExchangeGroup<'_>) {
        self.lock_observed().group = Some(event.chosen_group_name.to_owned());
    }

    fn on_key_update(&mut self, _: &mut (), _: &ConnectionMeta, event: &events::KeyUpdate) {
        if matches!(event.key_type, events::KeyType::OneRtt { .. }) {
            self.lock_observed().cipher_suite = Some(cipher_suite_name(&event.cipher_suite));
        }
    }

    fn on_transport_parameters_received(
        &mut self,
        _: &mut (),
        _: &ConnectionMeta,
        event: &events::TransportParametersReceived<'_>,
    ) {
        self.lock_observed().server_parameters = Some(TransportParameters::from_event(&event.transport_parameters));
    }

    fn on_handshake_status_updated(&mut self, _: &mut (), _: &ConnectionMeta, event: &events::HandshakeStatusUpdated) {
        if matches!(event.status, events::HandshakeStatus::Confirmed { .. }) {
            self.lock_observed().confirmed = true;
        }
    }

    fn on_datagram_received(&mut self, _: &mut (), _: &ConnectionMeta, _: &events::DatagramReceived) {
        let mut seen = self.lock_observed();
        if seen.first_received.is_none() {
            seen.first_received = Some(Instant::now());
        }
    }

    fn on_packet_sent(&mut self, _: &mut (), _: &ConnectionMeta, event: &events::PacketSent) {
        let counts = &mut self.lock_observed().counts;
        counts.packets_sent += 1;
        counts.bytes_sent += event.packet_len as u64;
    }

    fn on_packet_received(&mut self, _: &mut (), _: &ConnectionMeta, event: &events::PacketReceived) {
        let counts = &mut self.lock_observed().counts;
        counts.packets_received += 1;
        counts.bytes_received += event.packet_len as u64;
    }

    fn on_packet_lost(&mut self, _: &mut (), _: &ConnectionMeta, event: &events::PacketLost<'_>) {
        if !event.is_mtu_probe {
            self.lock_observed().counts.packets_lost += 1;
        }
    }

    fn on_frame_sent(&mut self, _: &mut (), _: &ConnectionMeta, event: &events::FrameSent) {
        self.record_frame(PacketDirection::Sent, &event.packet_header, &event.frame);
    }

    fn on_frame_received(&mut self, _: &mut (), _: &ConnectionMeta, event: &events::FrameReceived<'_>) {
        self.record_frame(PacketDirection::Received, &event.packet_header, &event.frame);
    }

    fn on_recovery_metrics(&mut self, _: &mut (), _: &ConnectionMeta, event: &events::RecoveryMetrics<'_>) {
        let mut seen = self.lock_observed();
        seen.congestion_window = event.congestion_window;
        // Before the first packet the round-trip time is a guess (RFC 9002 §6.2.2).
        if seen.first_received.is_some() {
            let (smoothed, min, variance) = (event.smoothed_rtt, event.min_rtt, event.rtt_variance);
            seen.round_trip = Some(RttEstimate { smoothed, min, variance });
        }
    }
}

/// TLS provider that passes this end's transport parameters to an observer; s2n-quic has no event for them.
pub(super) struct ObservedTls<T> {
    tls: T,
    observer: Observer,
}

impl<T> ObservedTls<T> {
    pub(super) fn new(tls: T, observer: Observer) -> Self {
        Self { tls, observer }
    }
}

impl<T: Provider> Provider for ObservedTls<T> {
    type Server = T::Server;
    type Client = ObservedTls<T::Client>;
    type Error = T::Error;

    fn start_server(self) -> Result<T::Server, T::Error> {
        self.tls.start_server()
    }

    fn start_client(self) -> Result<Self::Client, T::Error> {
        Ok(ObservedTls { tls: self.tls.start_client()?, observer: self.observer })
    }
}

impl<E: Endpoint> Endpoint for ObservedTls<E> {
    type Session = E::Session;

    fn new_server_session<P: EncoderValue>(&mut self, parameters: &P, info: tls::ConnectionInfo) -> E::Session {
        self.tls.new_server_session(parameters, info)
    }

    fn new_client_session<P: EncoderValue>(&mut self, parameters: &P, name: ServerName) -> E::Session {
        self.observer.lock_observed().own_parameters = TransportParameters::from_encoded(&parameters.encode_to_vec());
        self.tls.new_client_session(parameters, name)
    }

    fn max_tag_length(&self) -> usize {
        self.tls.max_tag_length()
    }
}

const fn cipher_suite_name(suite: &events::CipherSuite) -> &'static str {
    match suite {
        events::CipherSuite::TLS_AES_128_GCM_SHA256 { .. } => "TLS_AES_128_GCM_SHA256",
        events::CipherSuite::TLS_AES_256_GCM_SHA384 { .. } => "TLS_AES_256_GCM_SHA384",
        events::CipherSuite::TLS_CHACHA20_POLY1305_SHA256 { .. } => "TLS_CHACHA20_POLY1305_SHA256",
        _ => "an unknown cipher suite",
    }
}

fn packet_name(header: &events::PacketHeader) -> String {
    match header {
        events::PacketHeader::Initial { number, .. } => format!("Initial {number}"),
        events::PacketHeader::Handshake { number, .. } => format!("Handshake {number}"),
        events::PacketHeader::ZeroRtt { number, .. } => format!("0-RTT {number}"),
        events::PacketHeader::OneRtt { number, .. } => format!("1-RTT {number}"),
        events::PacketHeader::Retry { .. } => "Retry".into(),
        events::PacketHeader::VersionNegotiation { .. } => "Version Negotiation".into(),
        _ => "another packet".into(),
    }
}

/// Formats a frame by its name in RFC 9000 §19, with the values that distinguish it from others of its type.
fn frame_text(frame: &events::Frame) -> String {
    use events::Frame;
    match frame {
        Frame::Padding { len, .. } => format!("PADDING {len}"),
        Frame::Ping { .. } => "PING".into(),
        Frame::Ack { largest_acknowledged, .. } => format!("ACK {largest_acknowledged}"),
        Frame::ResetStream { id, error_code, .. } => format!("RESET_STREAM {id} ({error_code:#x})"),
        Frame::StopSending { id, error_code, .. } => format!("STOP_SENDING {id} ({error_code:#x})"),
        Frame::Crypto { offset, len, .. } => format!("CRYPTO {offset}+{len}"),
        Frame::NewToken { .. } => "NEW_TOKEN".into(),
        Frame::Stream { id, offset, len, is_fin, .. } => {
            format!("STREAM {id} {offset}+{len}{}", if *is_fin { " FIN" } else { "" })
        }
        Frame::MaxData { value, .. } => format!("MAX_DATA {value}"),
        Frame::MaxStreamData { id, value, .. } => format!("MAX_STREAM_DATA {id} {value}"),
        Frame::MaxStreams { value, .. } => format!("MAX_STREAMS {value}"),
        Frame::DataBlocked { data_limit, .. } => format!("DATA_BLOCKED {data_limit}"),
        Frame::StreamDataBlocked { stream_id, stream_data_limit, .. } => {
            format!("STREAM_DATA_BLOCKED {stream_id} {stream_data_limit}")
        }
        Frame::StreamsBlocked { stream_limit, .. } => format!("STREAMS_BLOCKED {stream_limit}"),
        Frame::NewConnectionId { sequence_number, .. } => format!("NEW_CONNECTION_ID {sequence_number}"),
        Frame::RetireConnectionId { .. } => "RETIRE_CONNECTION_ID".into(),
        Frame::PathChallenge { .. } => "PATH_CHALLENGE".into(),
        Frame::PathResponse { .. } => "PATH_RESPONSE".into(),
        Frame::ConnectionClose { .. } => "CONNECTION_CLOSE".into(),
        Frame::HandshakeDone { .. } => "HANDSHAKE_DONE".into(),
        Frame::Datagram { len, .. } => format!("DATAGRAM {len}"),
        _ => "an extension frame".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recorded_frames_are_grouped_by_packet_and_bounded() {
        let mut seen = ObservedConnection::default();
        for direction in [PacketDirection::Sent, PacketDirection::Received] {
            for _ in 0..2 * MAX_OBSERVED_FRAMES {
                seen.add_packet_frame(direction, "Initial 0".into(), || "PING".into());
            }
        }
        assert_eq!(seen.packets.iter().map(|packet| packet.frames.len()).collect::<Vec<_>>(), [MAX_OBSERVED_FRAMES; 2]);
        for number in 0..2 * MAX_OBSERVED_PACKETS {
            seen.add_packet_frame(PacketDirection::Sent, format!("Handshake {number}"), || "PING".into());
        }
        assert_eq!(seen.packets.len(), MAX_OBSERVED_PACKETS);
    }

    #[test]
    fn counts_of_a_request_are_those_since_it_began() {
        let earlier = PacketCounts { packets_sent: 3, acks_sent: 1, ..PacketCounts::default() };
        let later = PacketCounts { packets_sent: 10, packets_received: 4, acks_sent: 3, ..PacketCounts::default() };
        let expected = PacketCounts { packets_sent: 7, packets_received: 4, acks_sent: 2, ..PacketCounts::default() };
        assert_eq!(later.counts_since(&earlier), expected);
        assert_eq!(earlier.counts_since(&later), PacketCounts::default());
    }
}
