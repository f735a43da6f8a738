//! Handles s2n-quic's events. One subscriber gets all events of an endpoint, and each event calls litequic's parts in
//! the order that is written here: the order is behaviour.
//!
//! s2n-quic keeps a [`ConnectionContext`] with each connection, and passes it with each of the connection's events.

use super::{
    admission::client_ip,
    connection_slot::ConnectionSlot,
    endpoint_state::{ChallengePacket, EndpointState, EndpointTable, PacketId},
    rtt_sampling::RttSampling,
    wakes,
};
use crate::{
    congestion::{PathFeedbacks, current_rtt},
    connection::{AckFrequencyState, ConnectionState, SentStreams, ValidatedAddresses, datagram_client},
    qlog::{LogOrder, recovery_metrics},
};
use litequic_config::AckFrequency;
use litequic_resources::receive::WindowGrant;
use litequic_telemetry::clients::TransportReport;
use s2n_quic::{
    connection::Handle,
    provider::event::{
        ConnectionInfo, ConnectionMeta, Subscriber,
        events::{
            ActivePathUpdated, ConnectionClosed, ConnectionStarted, EcnState, EcnStateChanged, EndpointMeta, Frame,
            FrameSent, HandshakeStatus, HandshakeStatusUpdated, PacketHeader, PacketLost, Path, PathChallengeStatus,
            PathChallengeUpdated, PathCreated, PlatformEventLoopWakeup, RecoveryMetrics, RxStreamProgress,
            ServerNameInformation, TransportParametersReceived,
        },
    },
};
use s2n_quic_core::{
    packet::number::{PacketNumber, PacketNumberSpace},
    path::Tuple,
    varint::VarInt,
};
use std::{net::SocketAddr, sync::Arc};

/// Subscribes to the events of one endpoint.
#[derive(Debug)]
pub(super) struct EventSubscriber {
    pub(super) state: Arc<EndpointState>,
    pub(super) ack_frequency: AckFrequency,
}

/// State of one connection that only its events use. When the connection ends, its entry in the table is removed first;
/// then the fields are dropped in this order, the slot last: another connection may take the slot from then on.
#[derive(Debug)]
pub(super) struct ConnectionContext {
    state: Arc<EndpointState>,
    id: u64,
    /// s2n-quic's number of the active path.
    active_path: u64,
    paths: PathFeedbacks,
    sent: SentStreams,
    next_packet_number: u64,
    packets_lost: u64,
    supports_ack_frequency: bool,
    rtt_sampling: RttSampling,
    grant: Option<WindowGrant>,
    addresses: ValidatedAddresses,
    slot: ConnectionSlot,
}

/// Last validated address of the client of `connection`; `None` if the connection is gone.
pub fn client_address(connection: &Handle) -> Option<SocketAddr> {
    // s2n-quic finds its subscriber's context by the type.
    connection.query_event_context(|context: &ConnectionContext| context.addresses.current).ok().flatten()
}

/// State of the active path of `connection`; `None` if the connection is gone.
pub fn transport_report(connection: &Handle) -> Option<TransportReport> {
    connection.query_event_context(ConnectionContext::path_transport).ok()
}

/// Logs the open `connection` of `worker` by `order`, unless it is logged already, or the order is used up.
pub fn log_open_connection(connection: &Handle, order: &Arc<LogOrder>, worker: usize) {
    // An error means that the connection is gone.
    let _ = connection.query_event_context(|context: &ConnectionContext| {
        context.state.add_open_log(context.id, order, worker);
    });
}

impl ConnectionContext {
    /// State of the active path. Packets of the application data space are counted.
    fn path_transport(&self) -> TransportReport {
        let acks = self.state.with_table(|table| Some(table.connections.connection_mut(self.id)?.acks.acks));
        TransportReport {
            packets_sent: Some(self.next_packet_number),
            packets_lost: Some(self.packets_lost),
            acks,
            ..self.sent.send_queue.queue_report()
        }
    }

    /// Applies `change` to the connection's entry.
    fn change_connection(&self, change: impl FnOnce(&mut ConnectionState)) {
        self.state.with_table(|table| table.connections.connection_mut(self.id).map(change));
    }

    fn set_active_path(&mut self, path: &Path<'_>) {
        self.active_path = path.id;
        let feedback = self.paths.get(path.id);
        self.change_connection(|connection| {
            connection.path = Some(path_tuple(path));
            connection.feedback = feedback;
        });
    }

    /// Applies `change` to the ACK frequency, if the client supports that.
    fn change_ack_frequency(&self, change: impl FnOnce(&mut AckFrequencyState)) {
        if self.supports_ack_frequency {
            self.change_connection(|connection| {
                connection.change_ack_frequency(change);
            });
        }
    }

    /// Addresses of a path's client and of litequic, for a log.
    fn logged_ends(&self, path: &Path<'_>) -> (SocketAddr, SocketAddr) {
        (self.addresses.path_client((&path.remote_addr).into()), (&path.local_addr).into())
    }

    /// Records that packet number `number` was skipped: never sent.
    #[cold]
    fn record_skipped(&self, number: u64) {
        self.change_connection(|connection| connection.lost.on_skipped(number));
    }
}

/// Addresses of both ends of a path.
fn path_tuple(path: &Path<'_>) -> Tuple {
    Tuple { remote_address: path.remote_addr.clone().into(), local_address: path.local_addr.clone().into() }
}

/// Packet number and space of a header, for a log; `None` for a packet without a number.
fn logged_event_packet(header: &PacketHeader) -> Option<PacketNumber> {
    let (space, number) = match *header {
        PacketHeader::Initial { number, .. } => (PacketNumberSpace::Initial, number),
        PacketHeader::Handshake { number, .. } => (PacketNumberSpace::Handshake, number),
        PacketHeader::OneRtt { number, .. } => (PacketNumberSpace::ApplicationData, number),
        _ => return None,
    };
    Some(space.new_packet_number(VarInt::new(number).ok()?))
}

impl Drop for ConnectionContext {
    fn drop(&mut self) {
        // The connection is dropped after the lock is released.
        let removed = self.state.with_table(|table| table.connections.remove_connection(self.id));
        drop(removed);
        self.state.end_log(self.id);
    }
}

impl Subscriber for EventSubscriber {
    type ConnectionContext = ConnectionContext;

    fn create_connection_context(&mut self, meta: &ConnectionMeta, _: &ConnectionInfo<'_>) -> ConnectionContext {
        let slot = ConnectionSlot::open_slot(&self.state.metrics);
        let (sent, grant) = self.state.with_table(|table| {
            let (grant, is_ordered) = (table.new.grant.take(), table.new.is_ordered);
            (
                table.connections.begin_connection(
                    meta.id,
                    grant.as_ref().map(|grant| grant.account.clone()),
                    is_ordered,
                ),
                grant,
            )
        });
        ConnectionContext {
            state: Arc::clone(&self.state),
            id: meta.id,
            active_path: 0,
            paths: PathFeedbacks::default(),
            sent,
            next_packet_number: 0,
            packets_lost: 0,
            supports_ack_frequency: false,
            rtt_sampling: RttSampling::default(),
            grant,
            addresses: ValidatedAddresses::default(),
            slot,
        }
    }

    /// The address of a new connection counts as validated: a client without litequic's packets cannot complete the
    /// handshake, and no request comes before.
    fn on_connection_started(
        &mut self,
        context: &mut ConnectionContext,
        _: &ConnectionMeta,
        event: &ConnectionStarted<'_>,
    ) {
        let client = &event.path.remote_addr;
        let slots = self.state.admission.take_client_slots(client_ip(client));
        context.slot.attach_slots(slots, datagram_client(client.into()));
        context.addresses.on_path_created(client.into());
        context.addresses.on_validated(client.into(), true);
        context.paths.bind_feedback(event.path.id, self.state.with_table(|table| table.new.feedback.take()));
        context.set_active_path(&event.path);
        self.state.log_new_connection(context.id, context.logged_ends(&event.path));
    }

    /// Called before a packet of the path is authenticated, after its controller was created.
    fn on_path_created(&mut self, context: &mut ConnectionContext, _: &ConnectionMeta, event: &PathCreated<'_>) {
        context.paths.bind_feedback(event.new.id, self.state.with_table(|table| table.new.feedback.take()));
        context.addresses.on_path_created((&event.new.remote_addr).into());
    }

    fn on_server_name_information(
        &mut self,
        context: &mut ConnectionContext,
        _: &ConnectionMeta,
        event: &ServerNameInformation<'_>,
    ) {
        if tracing::enabled!(tracing::Level::DEBUG) {
            context.slot.set_server_name(event.chosen_server_name);
        }
    }

    /// Called within the call in which TLS provides the parameters, before the datagram sender is created and before a
    /// stream can be accepted.
    fn on_transport_parameters_received(
        &mut self,
        context: &mut ConnectionContext,
        meta: &ConnectionMeta,
        event: &TransportParametersReceived<'_>,
    ) {
        let Self { state, ack_frequency } = self;
        let supports_ack_frequency = state.with_table(|table| {
            table.new.connection = Some(meta.id);
            let support = table.new.support.take().filter(|_| *ack_frequency != AckFrequency::Off);
            let connection = table.connections.connection_mut(meta.id)?;
            // The client opens the streams, so that "local" is the client (RFC 9000 §18.2).
            connection.ack_delay_exponent = event.transport_parameters.ack_delay_exponent;
            connection.credit.initial = event.transport_parameters.initial_max_stream_data_bidi_local;
            let (metrics, moderation) = (Arc::clone(&state.metrics), state.moderation.clone());
            connection.ack_frequency =
                Some(Box::new(AckFrequencyState::new(support?, *ack_frequency, metrics, moderation)));
            Some(())
        });
        context.supports_ack_frequency = supports_ack_frequency.is_some();
    }

    fn on_handshake_status_updated(
        &mut self,
        context: &mut ConnectionContext,
        _: &ConnectionMeta,
        event: &HandshakeStatusUpdated,
    ) {
        if !matches!(event.status, HandshakeStatus::Complete { .. }) {
            return;
        }
        context.slot.on_handshake_done();
        context.change_ack_frequency(AckFrequencyState::begin_requests);
        context.rtt_sampling.handshake_done = true;
    }

    /// Called once a packet was decrypted that arrived from another address of the client.
    fn on_active_path_updated(
        &mut self,
        context: &mut ConnectionContext,
        meta: &ConnectionMeta,
        event: &ActivePathUpdated<'_>,
    ) {
        context.addresses.on_activated((&event.active.remote_addr).into());
        context.set_active_path(&event.active);
        if let Some(log) = self.state.connection_log(context.id) {
            let (client, local) = context.logged_ends(&event.active);
            log.log_tuple(event.active.id, client, local);
        }
        let woken = self.state.with_table(|table| {
            let connection = table.connections.connection_mut(meta.id)?;
            connection.activate_challenge(event.active.id);
            // Packets that the old path still delivers do not concern the new one.
            connection.lost.clear();
            connection.control_frames.on_migration(event.active.id)
        });
        if let Some(waker) = woken {
            waker.wake();
        }
    }

    fn on_path_challenge_updated(
        &mut self,
        context: &mut ConnectionContext,
        _: &ConnectionMeta,
        event: &PathChallengeUpdated<'_>,
    ) {
        if matches!(event.path_challenge_status, PathChallengeStatus::Validated { .. }) {
            context.addresses.on_validated((&event.path.remote_addr).into(), event.path.is_active);
        }
        // The challenge got its response, or was given up.
        let path = event.path.id;
        context.change_connection(|connection| connection.end_challenge(path, path == context.active_path));
    }

    /// Called for each frame.
    fn on_frame_sent(&mut self, context: &mut ConnectionContext, meta: &ConnectionMeta, event: &FrameSent) {
        if let Frame::Stream { id, offset, len, .. } = event.frame {
            let ConnectionContext { sent, state, id: connection, .. } = context;
            let find = |table: &mut EndpointTable| {
                table.connections.connection_mut(*connection)?.credit.open.get(&id).cloned()
            };
            let range = offset..offset.saturating_add(len.into());
            sent.send_queue.record_stream_sent(&mut sent.last, id, range, || state.with_table(find));
        }
        let PacketHeader::OneRtt { number, .. } = event.packet_header else { return };
        if number >= context.next_packet_number {
            // s2n-quic skips a number now and then: a client that acknowledges it acknowledges a packet that was never
            // sent (RFC 9000 §21.4).
            if number > context.next_packet_number {
                context.record_skipped(number - 1);
            }
            context.next_packet_number = number + 1;
        }
        if let Frame::PathChallenge { .. } = event.frame {
            let probes = (event.path_id != context.active_path).then_some(event.path_id);
            let challenge_packet = ChallengePacket { packet: PacketId { connection: meta.id, number }, probes };
            self.state.with_table(|table| table.challenge_packet = Some(challenge_packet));
            self.state.at_hand.set_has_frame();
        }
    }

    fn on_packet_lost(&mut self, context: &mut ConnectionContext, _: &ConnectionMeta, event: &PacketLost<'_>) {
        if let (Some(log), Some(packet)) =
            (self.state.connection_log(context.id), logged_event_packet(&event.packet_header))
        {
            log.log_lost(packet, event.is_mtu_probe);
        }
        let PacketHeader::OneRtt { number, .. } = event.packet_header else { return };
        if event.is_mtu_probe {
            self.state.metrics.mtu_probes_lost.increment();
        } else {
            self.state.metrics.packets_lost.increment();
            context.packets_lost += 1;
        }
        context.change_connection(|connection| {
            connection.change_ack_frequency(|ack_frequency| ack_frequency.on_lost_packet(number, !event.is_mtu_probe));
            // A packet with only ACK frames is not reported to a controller, and another path's packets do not concern
            // this one's.
            if !event.is_mtu_probe && event.bytes_lost > 0 && event.path.is_active {
                connection.lost.add_lost(number);
                if let Some(feedback) = &connection.feedback {
                    feedback.report_lost_number(number);
                }
            }
        });
    }

    /// Called after each processed ACK frame, and after each burst of packets. No other event has the round-trip time
    /// and the congestion window.
    fn on_recovery_metrics(
        &mut self,
        context: &mut ConnectionContext,
        meta: &ConnectionMeta,
        event: &RecoveryMetrics<'_>,
    ) {
        if !event.path.is_active {
            return;
        }
        if let Some(log) = self.state.connection_log(context.id) {
            let feedback = context.paths.get(event.path.id);
            log.log_recovery(recovery_metrics(event), feedback.is_some_and(|feedback| feedback.is_slow_start()));
        }
        let queue = &context.sent.send_queue;
        queue.on_recovery_metrics(
            event.congestion_window,
            event.smoothed_rtt,
            event.min_rtt,
            event.bytes_in_flight,
            event.pto_count,
        );
        if context.supports_ack_frequency || queue.has_waiting_streams() {
            let rtt = current_rtt(event.smoothed_rtt, event.latest_rtt);
            let due = self.state.with_table(|table| {
                let connection = table.connections.connection_mut(meta.id)?;
                connection.change_ack_frequency(|ack_frequency| {
                    ack_frequency.on_recovery_metrics(event.path.id, rtt, event.min_rtt, event.congestion_window);
                });
                Some(queue.due_streams(&connection.credit.open))
            });
            due.iter().flatten().for_each(|stream| queue.wake_stream(stream));
        }
        if context.rtt_sampling.is_sample_due(meta.timestamp.duration_since_start(), event) {
            self.state.metrics.smoothed_rtt.observe_time(event.smoothed_rtt);
        }
    }

    /// Called a few times for each path.
    fn on_ecn_state_changed(&mut self, _: &mut ConnectionContext, _: &ConnectionMeta, event: &EcnStateChanged<'_>) {
        match event.state {
            EcnState::Capable { .. } => self.state.metrics.ecn_capable.increment(),
            EcnState::Failed { .. } => self.state.metrics.ecn_failed.increment(),
            _ => {}
        }
    }

    /// Accounts the bytes by which a packet raises the connection's flow control: at the ends of its streams, received
    /// or reset.
    fn on_rx_stream_progress(&mut self, context: &mut ConnectionContext, _: &ConnectionMeta, event: &RxStreamProgress) {
        if let Some(grant) = &mut context.grant {
            grant.account.on_received(event.bytes as u64);
        }
    }

    fn on_connection_closed(&mut self, context: &mut ConnectionContext, _: &ConnectionMeta, event: &ConnectionClosed) {
        context.slot.count_close(&event.error);
        if let Some(log) = self.state.connection_log(context.id) {
            log.log_closed(&event.error);
        }
    }

    /// Called in each turn of the endpoint's task.
    fn on_platform_event_loop_wakeup(&mut self, _: &EndpointMeta, turn: &PlatformEventLoopWakeup) {
        if turn.timeout_expired {
            self.state.moderation.count_expired_timer();
        }
        if let Some(cause) = wakes::wake_cause(turn) {
            self.state.metrics.wake.note_cause(cause);
        }
    }
}
