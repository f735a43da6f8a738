//! The fate of sent packets, for operators and the laboratory: those that s2n-quic declares lost (RFC 9002 §6.1), of
//! which `connections` finds those that were so wrongly, and round-trip times. Changes nothing.

use crate::quic::{connection::ConnectionTable, metrics::Metrics};
use s2n_quic::provider::event::{
    ConnectionInfo, ConnectionMeta, Subscriber,
    events::{HandshakeStatus, HandshakeStatusUpdated, PacketHeader, PacketLost, RecoveryMetrics},
};
use std::{sync::Arc, time::Duration};

/// Time between two samples of a connection's round-trip time: s2n-quic reports it with each ACK frame, transmission
/// and timeout.
const RTT_SAMPLE_INTERVAL: Duration = Duration::from_millis(50);

/// Subscribes to the fate of an endpoint's packets.
#[derive(Debug)]
pub(super) struct RecoverySubscriber {
    connections: ConnectionTable,
    metrics: Arc<Metrics>,
}

impl RecoverySubscriber {
    /// A subscriber that reports lost packets to `connections`, and counts in `metrics`.
    pub(super) fn new(connections: ConnectionTable, metrics: Arc<Metrics>) -> Self {
        Self { connections, metrics }
    }
}

/// Sampling of one connection's round-trip time.
#[derive(Debug, Default)]
pub(super) struct RttSampling {
    handshake_done: bool,
    /// When the round-trip time was sampled last, in s2n-quic's time.
    sampled: Duration,
}

impl Subscriber for RecoverySubscriber {
    type ConnectionContext = RttSampling;

    fn create_connection_context(&mut self, _: &ConnectionMeta, _: &ConnectionInfo<'_>) -> RttSampling {
        RttSampling::default()
    }

    fn on_handshake_status_updated(
        &mut self,
        sampling: &mut RttSampling,
        _: &ConnectionMeta,
        event: &HandshakeStatusUpdated,
    ) {
        sampling.handshake_done |= matches!(event.status, HandshakeStatus::Complete { .. });
    }

    fn on_packet_lost(&mut self, _: &mut RttSampling, meta: &ConnectionMeta, event: &PacketLost<'_>) {
        let PacketHeader::OneRtt { number, .. } = event.packet_header else { return };
        if event.is_mtu_probe {
            self.metrics.mtu_probes_lost.increment();
        } else {
            self.metrics.packets_lost.increment();
            // A packet with nothing but ACK frames is not reported to a controller.
            if event.bytes_lost > 0 {
                self.connections.lost(meta.id, number);
            }
        }
    }

    fn on_recovery_metrics(&mut self, sampling: &mut RttSampling, meta: &ConnectionMeta, event: &RecoveryMetrics<'_>) {
        let now = meta.timestamp.duration_since_start();
        if now.saturating_sub(sampling.sampled) < RTT_SAMPLE_INTERVAL
            || !sampling.handshake_done
            || !event.path.is_active
        {
            return;
        }
        // An estimate from nothing (RFC 9002 §6.2.2), as on a new path, or from one measurement (§5.3) is none yet.
        if event.smoothed_rtt != event.latest_rtt || event.rtt_variance != event.smoothed_rtt / 2 {
            sampling.sampled = now;
            self.metrics.smoothed_rtt.observe(event.smoothed_rtt);
        }
    }
}
