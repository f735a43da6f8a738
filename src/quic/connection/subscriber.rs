//! Creates a connection's entry when it begins, and removes it with s2n-quic's per-connection context; subscribes to
//! its path, its parameters, and the fate of sent packets.

use super::{send_queue::SendQueue, state::Connection, stream::StreamSendState, table::ConnectionTable};
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
pub(in crate::quic) struct EventSubscriber(pub(in crate::quic) ConnectionTable);

/// One connection's state, which s2n-quic keeps with it.
#[derive(Debug)]
pub(in crate::quic) struct ConnectionContext {
    connections: ConnectionTable,
    id: u64,
    send_queue: Arc<SendQueue>,
    /// The stream that was sent on last, of those that `send_queue` tracks.
    last_stream: Option<(u64, Arc<StreamSendState>)>,
    /// The number of the next 1-RTT packet.
    next_number: u64,
}

impl ConnectionContext {
    /// s2n-quic sends on `path` from now on.
    fn set_active_path(&self, path: &Path<'_>) {
        if let Some(connection) = self.connections.lock().by_id.get_mut(&self.id) {
            connection.path = Some(Tuple {
                remote_address: path.remote_addr.clone().into(),
                local_address: path.local_addr.clone().into(),
            });
        }
    }

    /// Packet `number` was never sent.
    #[cold]
    fn skipped(&self, number: u64) {
        if let Some(connection) = self.connections.lock().by_id.get_mut(&self.id) {
            connection.lost.on_skipped(number);
        }
    }
}

impl Drop for ConnectionContext {
    fn drop(&mut self) {
        self.connections.lock().by_id.remove(&self.id);
    }
}

impl Subscriber for EventSubscriber {
    type ConnectionContext = ConnectionContext;

    fn create_connection_context(&mut self, meta: &ConnectionMeta, _: &ConnectionInfo<'_>) -> ConnectionContext {
        let mut table = self.0.lock();
        let connection = Connection::new(table.max_control_frames);
        let send_queue = Arc::clone(&connection.send_queue);
        table.by_id.insert(meta.id, connection);
        drop(table);
        ConnectionContext { connections: self.0.clone(), id: meta.id, send_queue, last_stream: None, next_number: 0 }
    }

    fn on_connection_started(
        &mut self,
        context: &mut ConnectionContext,
        _: &ConnectionMeta,
        event: &ConnectionStarted<'_>,
    ) {
        context.set_active_path(&event.path);
    }

    /// Comes within the handshake, before a stream can be accepted.
    fn on_transport_parameters_received(
        &mut self,
        context: &mut ConnectionContext,
        _: &ConnectionMeta,
        event: &TransportParametersReceived<'_>,
    ) {
        if let Some(connection) = self.0.lock().by_id.get_mut(&context.id) {
            // "Local" is the client, which opens the streams (RFC 9000 §18.2).
            connection.credit.initial = event.transport_parameters.initial_max_stream_data_bidi_local;
        }
    }

    /// Comes once a packet was decrypted that shows the client elsewhere.
    fn on_active_path_updated(
        &mut self,
        context: &mut ConnectionContext,
        _: &ConnectionMeta,
        event: &ActivePathUpdated<'_>,
    ) {
        context.set_active_path(&event.active);
        if let Some(connection) = self.0.lock().by_id.get_mut(&context.id) {
            // Packets that the old path still delivers do not concern the new one.
            connection.lost.clear();
            connection.spurious_losses = 0;
            connection.control_frames.on_migration(event.active.id);
        }
    }

    /// Comes with each frame.
    fn on_frame_sent(&mut self, context: &mut ConnectionContext, _: &ConnectionMeta, event: &FrameSent) {
        if let Frame::Stream { id, offset, len, .. } = event.frame {
            let bytes = len.into();
            context.send_queue.on_sent(&mut context.last_stream, id, bytes, offset.saturating_add(bytes));
        }
        if let PacketHeader::OneRtt { number, .. } = event.packet_header
            && number >= context.next_number
        {
            // s2n-quic leaves out a number now and then: a client that acknowledges it acknowledges what it never
            // received (RFC 9000 §21.4).
            if number > context.next_number {
                context.skipped(number - 1);
            }
            context.next_number = number + 1;
        }
    }

    /// Comes with each ACK frame, once it was processed, and behind each burst of packets.
    fn on_recovery_metrics(
        &mut self,
        context: &mut ConnectionContext,
        _: &ConnectionMeta,
        event: &RecoveryMetrics<'_>,
    ) {
        if event.path.is_active {
            let path = (event.congestion_window, event.smoothed_rtt, event.min_rtt);
            context.send_queue.on_recovery_metrics(path, event.bytes_in_flight, event.pto_count);
        }
    }

    /// Comes a few times a path.
    fn on_ecn_state_changed(&mut self, _: &mut ConnectionContext, _: &ConnectionMeta, event: &EcnStateChanged<'_>) {
        let table = self.0.lock();
        match event.state {
            EcnState::Capable { .. } => table.metrics.ecn_capable.increment(),
            EcnState::Failed { .. } => table.metrics.ecn_failed.increment(),
            _ => {}
        }
    }
}
