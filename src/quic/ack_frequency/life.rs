//! What s2n-quic's events tell of connections whose clients can be asked. Beside the beginning and the end these are two:
//! a lost packet, which is rare, and what is known of the path, which comes with each ACK frame that s2n-quic reads
//! and each of its timeouts, and is the one place where it says the round-trip time and the congestion window.

use super::{AckFrequencies, peer::Peer};
use s2n_quic::provider::event::{
    ConnectionInfo, ConnectionMeta, Subscriber,
    events::{
        HandshakeStatus, HandshakeStatusUpdated, PacketHeader, PacketLost, RecoveryMetrics, TransportParametersReceived,
    },
};
use std::sync::Arc;

#[derive(Debug)]
pub(in super::super) struct Life(pub(super) AckFrequencies);

/// One connection's. Dropped with it.
#[derive(Debug)]
pub(in super::super) struct Entry {
    frequencies: AckFrequencies,
    connection: u64,
    /// `None` if its client has not offered.
    peer: Option<Arc<Peer>>,
}

impl Drop for Entry {
    fn drop(&mut self) {
        if self.peer.is_some() {
            self.frequencies.forget(self.connection);
        }
    }
}

impl Subscriber for Life {
    type ConnectionContext = Entry;

    fn create_connection_context(&mut self, meta: &ConnectionMeta, _: &ConnectionInfo<'_>) -> Entry {
        Entry { frequencies: self.0.clone(), connection: meta.id, peer: None }
    }

    /// Within the call in which TLS showed the offer, and before the datagram sender is made.
    fn on_transport_parameters_received(
        &mut self,
        entry: &mut Entry,
        _: &ConnectionMeta,
        _: &TransportParametersReceived<'_>,
    ) {
        entry.peer = self.0.welcome(entry.connection);
    }

    fn on_handshake_status_updated(&mut self, entry: &mut Entry, _: &ConnectionMeta, event: &HandshakeStatusUpdated) {
        if let (Some(peer), HandshakeStatus::Complete { .. }) = (&entry.peer, &event.status) {
            peer.begin();
        }
    }

    fn on_packet_lost(&mut self, entry: &mut Entry, _: &ConnectionMeta, event: &PacketLost<'_>) {
        if let (Some(peer), PacketHeader::OneRtt { number, .. }) = (&entry.peer, &event.packet_header) {
            peer.lost(*number);
        }
    }

    fn on_recovery_metrics(&mut self, entry: &mut Entry, _: &ConnectionMeta, event: &RecoveryMetrics<'_>) {
        if let Some(peer) = entry.peer.as_ref().filter(|_| event.path.is_active) {
            peer.measured(event.smoothed_rtt, event.congestion_window);
        }
    }
}
