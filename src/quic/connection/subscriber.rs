//! Creates a connection's entry when it begins, and removes it with s2n-quic's per-connection context; subscribes to
//! its path, its parameters, and the fate of sent packets.

use super::{send_queue::Flight, state::Entry, stream::State, table::Connections};
use s2n_quic::provider::event::{
    ConnectionInfo, ConnectionMeta, Subscriber,
    events::{
        ActivePathUpdated, ConnectionStarted, EcnState, EcnStateChanged, Frame, FrameSent, PacketHeader, Path,
        RecoveryMetrics, TransportParametersReceived,
    },
};
use s2n_quic_core::path::Tuple;
use std::sync::Arc;

/// s2n-quic's events of an endpoint's connections.
#[derive(Debug)]
pub(in crate::quic) struct EntrySubscriber(pub(in crate::quic) Connections);

/// One connection's, which s2n-quic keeps with it.
#[derive(Debug)]
pub(in crate::quic) struct EntryContext {
    connections: Connections,
    connection: u64,
    flight: Arc<Flight>,
    /// The stream that was sent on last, of those that `flight` tracks.
    last: Option<(u64, Arc<State>)>,
    /// The number of the next 1-RTT packet.
    next: u64,
}

impl EntryContext {
    /// s2n-quic sends on `path` from now on.
    fn is_at(&self, path: &Path<'_>) {
        if let Some(entry) = self.connections.lock().by_id.get_mut(&self.connection) {
            entry.path = Some(Tuple {
                remote_address: path.remote_addr.clone().into(),
                local_address: path.local_addr.clone().into(),
            });
        }
    }

    /// Packet `number` was never sent.
    #[cold]
    fn skipped(&self, number: u64) {
        if let Some(entry) = self.connections.lock().by_id.get_mut(&self.connection) {
            entry.lost.skipped(number);
        }
    }
}

impl Drop for EntryContext {
    fn drop(&mut self) {
        self.connections.lock().by_id.remove(&self.connection);
    }
}

impl Subscriber for EntrySubscriber {
    type ConnectionContext = EntryContext;

    fn create_connection_context(&mut self, meta: &ConnectionMeta, _: &ConnectionInfo<'_>) -> EntryContext {
        let mut table = self.0.lock();
        let entry = Entry::new(table.max_control_frames);
        let flight = Arc::clone(&entry.flight);
        table.by_id.insert(meta.id, entry);
        drop(table);
        EntryContext { connections: self.0.clone(), connection: meta.id, flight, last: None, next: 0 }
    }

    fn on_connection_started(&mut self, context: &mut EntryContext, _: &ConnectionMeta, event: &ConnectionStarted<'_>) {
        context.is_at(&event.path);
    }

    /// Comes within the handshake, before a stream can be accepted.
    fn on_transport_parameters_received(
        &mut self,
        context: &mut EntryContext,
        _: &ConnectionMeta,
        event: &TransportParametersReceived<'_>,
    ) {
        if let Some(entry) = self.0.lock().by_id.get_mut(&context.connection) {
            // "Local" is the client, which opens the streams (RFC 9000 §18.2).
            entry.windows.initial = event.transport_parameters.initial_max_stream_data_bidi_local;
        }
    }

    /// Comes once a packet was decrypted that shows the client elsewhere.
    fn on_active_path_updated(
        &mut self,
        context: &mut EntryContext,
        _: &ConnectionMeta,
        event: &ActivePathUpdated<'_>,
    ) {
        context.is_at(&event.active);
        if let Some(entry) = self.0.lock().by_id.get_mut(&context.connection) {
            // Packets that the old path still delivers do not concern the new one.
            entry.lost.forget();
            entry.arrived = 0;
            entry.conduct.moved(event.active.id);
        }
    }

    /// Comes with each frame.
    fn on_frame_sent(&mut self, context: &mut EntryContext, _: &ConnectionMeta, event: &FrameSent) {
        if let Frame::Stream { id, offset, len, .. } = event.frame {
            let bytes = len.into();
            context.flight.sent(&mut context.last, id, bytes, offset.saturating_add(bytes));
        }
        if let PacketHeader::OneRtt { number, .. } = event.packet_header
            && number >= context.next
        {
            // s2n-quic leaves out a number now and then: who acknowledges it acknowledges what it never received (RFC 9000
            // §21.4).
            if number > context.next {
                context.skipped(number - 1);
            }
            context.next = number + 1;
        }
    }

    /// Comes with each ACK frame, once it was processed, and behind each burst of packets.
    fn on_recovery_metrics(&mut self, context: &mut EntryContext, _: &ConnectionMeta, event: &RecoveryMetrics<'_>) {
        if event.path.is_active {
            let path = (event.congestion_window, event.smoothed_rtt, event.min_rtt);
            context.flight.measured(path, event.bytes_in_flight, event.pto_count);
        }
    }

    /// Comes a few times a path.
    fn on_ecn_state_changed(&mut self, _: &mut EntryContext, _: &ConnectionMeta, event: &EcnStateChanged<'_>) {
        let table = self.0.lock();
        match event.state {
            EcnState::Capable { .. } => table.metrics.ecn_capable.increment(),
            EcnState::Failed { .. } => table.metrics.ecn_failed.increment(),
            _ => {}
        }
    }
}
