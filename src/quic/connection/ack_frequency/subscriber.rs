//! s2n-quic's events of connections whose clients support ACK_FREQUENCY. Beside the beginning and the end these are
//! three: a lost packet, which is rare; the pacing gain, which comes when it changes (`quic::congestion`) and shows
//! slow start; and the state of the path, which comes with each ACK frame that s2n-quic reads and each of its timeouts,
//! and is the only event with the round-trip time and the congestion window.

use super::{AckFrequencyEndpoint, state::AckFrequencyState};
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
    endpoint: AckFrequencyEndpoint,
    on_support: L,
}

impl<L: Fn(u64, &Arc<AckFrequencyState>)> AckFrequencySubscriber<L> {
    /// A subscriber to connections, which reports to `on_support` those whose client supports ACK_FREQUENCY, by
    /// s2n-quic's ID.
    pub(in crate::quic) fn new(endpoint: AckFrequencyEndpoint, on_support: L) -> Self {
        Self { endpoint, on_support }
    }
}

/// One connection's state, which s2n-quic keeps with it.
#[derive(Debug, Default)]
pub(in crate::quic) struct AckFrequencyContext {
    /// `None` if the client does not support ACK_FREQUENCY.
    state: Option<Arc<AckFrequencyState>>,
}

impl<L: Fn(u64, &Arc<AckFrequencyState>) + Send + 'static> Subscriber for AckFrequencySubscriber<L> {
    type ConnectionContext = AckFrequencyContext;

    fn create_connection_context(&mut self, _: &ConnectionMeta, _: &ConnectionInfo<'_>) -> AckFrequencyContext {
        AckFrequencyContext::default()
    }

    /// Comes within the call in which TLS provided the parameters, and before the datagram sender is created.
    fn on_transport_parameters_received(
        &mut self,
        context: &mut AckFrequencyContext,
        meta: &ConnectionMeta,
        _: &TransportParametersReceived<'_>,
    ) {
        if let Some(state) = self.endpoint.accept_support() {
            (self.on_support)(meta.id, &state);
            context.state = Some(state);
        }
    }

    fn on_handshake_status_updated(
        &mut self,
        context: &mut AckFrequencyContext,
        _: &ConnectionMeta,
        event: &HandshakeStatusUpdated,
    ) {
        if let (Some(state), HandshakeStatus::Complete { .. }) = (&context.state, &event.status) {
            state.begin();
        }
    }

    fn on_packet_lost(&mut self, context: &mut AckFrequencyContext, _: &ConnectionMeta, event: &PacketLost<'_>) {
        if let (Some(state), PacketHeader::OneRtt { number, .. }) = (&context.state, &event.packet_header) {
            state.lost(*number, !event.is_mtu_probe);
        }
    }

    fn on_pacing_rate_updated(
        &mut self,
        context: &mut AckFrequencyContext,
        _: &ConnectionMeta,
        event: &PacingRateUpdated,
    ) {
        if let Some(state) = &context.state {
            state.set_slow_start(is_slow_start(event.pacing_gain));
        }
    }

    fn on_recovery_metrics(
        &mut self,
        context: &mut AckFrequencyContext,
        _: &ConnectionMeta,
        event: &RecoveryMetrics<'_>,
    ) {
        if let Some(state) = context.state.as_ref().filter(|_| event.path.is_active) {
            let rtt = round_trip(event.smoothed_rtt, event.latest_rtt);
            state.on_recovery_metrics(event.path.id, rtt, event.min_rtt, event.congestion_window);
        }
    }
}
