//! s2n-quic's events of connections whose clients support ACK_FREQUENCY. Beside the beginning and the end these are
//! three: a lost packet, which is rare; the pacing gain, which comes when it changes (`quic::congestion`) and shows
//! slow start; and the state of the path, which comes with each ACK frame that s2n-quic reads and each of its timeouts,
//! and is the only event with the round-trip time and the congestion window.

use super::{AckFrequencies, state::Peer};
use crate::quic::congestion::{is_slow_start, round_trip};
use s2n_quic::provider::event::{
    ConnectionInfo, ConnectionMeta, Subscriber,
    events::{
        HandshakeStatus, HandshakeStatusUpdated, PacingRateUpdated, PacketHeader, PacketLost, RecoveryMetrics,
        TransportParametersReceived,
    },
};
use std::sync::Arc;

#[derive(Debug)]
pub(in crate::quic) struct AckFrequencySubscriber<L> {
    frequencies: AckFrequencies,
    listens: L,
}

impl<L: Fn(u64, &Arc<Peer>)> AckFrequencySubscriber<L> {
    /// The subscriber to connections; `listens` is told which of them, by s2n-quic's ID, have a client that supports
    /// it.
    pub(in crate::quic) fn new(frequencies: AckFrequencies, listens: L) -> Self {
        Self { frequencies, listens }
    }
}

/// One connection's, which s2n-quic keeps with it.
#[derive(Debug, Default)]
pub(in crate::quic) struct PeerContext {
    /// `None` if its client does not support it.
    peer: Option<Arc<Peer>>,
}

impl<L: Fn(u64, &Arc<Peer>) + Send + 'static> Subscriber for AckFrequencySubscriber<L> {
    type ConnectionContext = PeerContext;

    fn create_connection_context(&mut self, _: &ConnectionMeta, _: &ConnectionInfo<'_>) -> PeerContext {
        PeerContext::default()
    }

    /// Within the call in which TLS provided the offer, and before the datagram sender is created.
    fn on_transport_parameters_received(
        &mut self,
        context: &mut PeerContext,
        meta: &ConnectionMeta,
        _: &TransportParametersReceived<'_>,
    ) {
        if let Some(peer) = self.frequencies.welcome() {
            (self.listens)(meta.id, &peer);
            context.peer = Some(peer);
        }
    }

    fn on_handshake_status_updated(
        &mut self,
        context: &mut PeerContext,
        _: &ConnectionMeta,
        event: &HandshakeStatusUpdated,
    ) {
        if let (Some(peer), HandshakeStatus::Complete { .. }) = (&context.peer, &event.status) {
            peer.begin();
        }
    }

    fn on_packet_lost(&mut self, context: &mut PeerContext, _: &ConnectionMeta, event: &PacketLost<'_>) {
        if let (Some(peer), PacketHeader::OneRtt { number, .. }) = (&context.peer, &event.packet_header) {
            peer.lost(*number, !event.is_mtu_probe);
        }
    }

    fn on_pacing_rate_updated(&mut self, context: &mut PeerContext, _: &ConnectionMeta, event: &PacingRateUpdated) {
        if let Some(peer) = &context.peer {
            peer.grows(is_slow_start(event.pacing_gain));
        }
    }

    fn on_recovery_metrics(&mut self, context: &mut PeerContext, _: &ConnectionMeta, event: &RecoveryMetrics<'_>) {
        if let Some(peer) = context.peer.as_ref().filter(|_| event.path.is_active) {
            let rtt = round_trip(event.smoothed_rtt, event.latest_rtt);
            peer.measured(event.path.id, rtt, event.min_rtt, event.congestion_window);
        }
    }
}
