//! Keeps the connections of an endpoint, with a lookup for each packet. Pure.

use super::{
    by_id::ByConnectionId,
    connection_state::ConnectionState,
    send_queue::{SendQueue, SentStreams},
};
use crate::{
    metrics::QuicMetrics,
    wire::{
        PacketSummary, StreamFrame,
        frame::{AckRanges, NumberRange},
    },
};
use litequic_config::Limits;
use litequic_resources::receive::ReceiveAccount;
use s2n_quic_core::{path::Tuple, time::Timestamp};
use std::{sync::Arc, task::Waker, time::Instant};

/// Bits of a stream's ID for its initiator and direction (RFC 9000 §2.1).
const STREAM_TYPE: u64 = 0x03;
/// Value of [`STREAM_TYPE`] for a unidirectional stream that litequic opened.
const LITEQUIC_UNI: u64 = 0x03;

/// The connections of one endpoint, by s2n-quic's IDs.
#[derive(Debug)]
pub(crate) struct Connections {
    by_id: ByConnectionId<ConnectionState>,
    max_streams: usize,
    max_control_frames: u32,
    /// Time of the first packet, from which times are counted.
    began: Option<Timestamp>,
    metrics: Arc<QuicMetrics>,
}

/// A received packet after decryption and before s2n-quic's own parser.
#[derive(Debug)]
pub(crate) struct ReceivedPacket<'a> {
    /// Summary of the packet's frames.
    pub(crate) summary: &'a PacketSummary,
    /// Packet numbers of the only ACK frame; `None` if there is none, several, or a frame that was not parsed.
    pub(crate) ack: Option<AckRanges<'a>>,
    /// ACK frames without new numbers may be blanked.
    pub(crate) merge_acks: bool,
    /// Number of the receive batch of the packet; 0 without batches.
    pub(crate) batch: u64,
    /// Source and destination address of the packet.
    pub(crate) path: &'a Tuple,
    /// Arrival of the packet, by s2n-quic's clock.
    pub(crate) at: Timestamp,
}

/// Action on a received packet before s2n-quic reads it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PacketAction {
    Forward,
    /// Overwrite the ACK frame, which has no new numbers, with PADDING.
    BlankAck,
    /// Overwrite the whole packet, which belongs to a flood, with PADDING.
    Blank,
}

impl ReceivedPacket<'_> {
    /// Whether the packet changes the state of its connection: most packets of an upload have only data.
    pub(crate) fn concerns_connection(&self) -> bool {
        self.summary.control > 0 || self.summary.acks > 0
    }
}

impl Connections {
    /// An empty table for connections with `limits`.
    pub(crate) fn new(limits: &Limits, metrics: Arc<QuicMetrics>) -> Self {
        let Limits { max_streams, max_control_frames, .. } = *limits;
        let (by_id, max_streams) = (ByConnectionId::default(), max_streams as usize);
        Self { by_id, max_streams, max_control_frames, began: None, metrics }
    }

    /// Sets the `limits` of connections that begin from now on. The bound on early frames never falls: older
    /// connections may have more streams.
    pub(crate) fn set_limits(&mut self, limits: &Limits) {
        self.max_streams = self.max_streams.max(limits.max_streams as usize);
        self.max_control_frames = limits.max_control_frames;
    }

    /// Adds a new connection, whose received bytes `receive_account` counts. Its streams are served by priority if
    /// `is_ordered`.
    pub(crate) fn begin_connection(
        &mut self,
        id: u64,
        receive_account: Option<ReceiveAccount>,
        is_ordered: bool,
    ) -> SentStreams {
        let send_queue = if is_ordered { SendQueue::new_ordered() } else { SendQueue::default() };
        let mut connection = ConnectionState::new(self.max_control_frames, send_queue);
        connection.receive_account = receive_account;
        let sent = SentStreams { send_queue: Arc::clone(&connection.send_queue), last: None };
        self.by_id.insert(id, connection);
        sent
    }

    /// Removes a connection that has ended. The result must not be dropped under a lock.
    #[must_use]
    pub(crate) fn remove_connection(&mut self, id: u64) -> Option<ConnectionState> {
        self.by_id.remove(&id)
    }

    /// State of a connection; `None` if it has ended.
    pub(crate) fn connection_mut(&mut self, id: u64) -> Option<&mut ConnectionState> {
        self.by_id.get_mut(&id)
    }

    /// Processes a packet of a connection, and returns the action on it. `now` reads the machine's clock. Adds tasks to
    /// wake to `woken`.
    pub(crate) fn process_packet(
        &mut self,
        id: u64,
        packet: ReceivedPacket<'_>,
        woken: &mut Vec<Waker>,
        now: impl FnOnce() -> Instant,
    ) -> PacketAction {
        let ReceivedPacket { summary, ack, merge_acks, batch, path, at } = packet;
        let Self { by_id, max_streams, began, metrics, .. } = self;
        let Some(connection) = by_id.get_mut(&id) else { return PacketAction::Forward };
        if summary.control > 0 && !connection.control_frames.admit_frames(summary.control, now(), woken) {
            return PacketAction::Blank;
        }
        for frame in &summary.stream_frames {
            match frame {
                StreamFrame::StopSending(stream) if stream & STREAM_TYPE == LITEQUIC_UNI => {
                    woken.extend(connection.control_frames.on_critical_stream_stopped());
                }
                _ => woken.extend(connection.credit.on_stream_frame(*frame, *max_streams)),
            }
        }
        if summary.acks == 0 {
            return PacketAction::Forward;
        }
        metrics.ack_frames_received.increment_by(summary.acks.into());
        let first = connection.acks.count_frames(summary.acks, batch);
        if first {
            metrics.ack_batches.increment();
        }
        if let Some(ranges) = &ack {
            let spurious_losses = connection.lost.acknowledge(ranges);
            if !spurious_losses.is_empty() {
                metrics.spurious_losses.increment_by(spurious_losses.iter().copied().map(NumberRange::count).sum());
                if let Some(feedback) = &connection.feedback {
                    feedback.report_arrived(&spurious_losses);
                }
            }
        }
        if connection.ack_frequency.is_some() {
            let since = at.saturating_duration_since(*began.get_or_insert(at));
            let acks = connection.acks;
            connection.change_ack_frequency(|state| state.on_acks_received(since, acks, first, ack.as_ref()));
        }
        if merge_acks && ack.is_some_and(|ack| connection.is_redundant_ack(ack, path)) {
            PacketAction::BlankAck
        } else {
            PacketAction::Forward
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{congestion::PathFeedback, connection::StreamSendState, io::AckCounts};
    use futures_util::task::{ArcWake, waker};
    use litequic_resources::transport::{Alert, ConnectionAlerts as _};
    use s2n_quic_core::{
        inet::SocketAddress,
        time::{Clock as _, NoopClock},
    };
    use std::{
        sync::atomic::{AtomicUsize, Ordering},
        task::{Context, Poll},
        time::Duration,
    };

    const CONNECTION: u64 = 7;

    fn limits(max_streams: u32) -> Limits {
        Limits { max_streams, ..Limits::default() }
    }

    /// Processes a packet of batch `batch` from `port`, received `now`.
    fn process(connections: &mut Connections, payload: &[u8], batch: u64, port: u16, now: Instant) -> PacketAction {
        process_of(connections, CONNECTION, payload, batch, port, now)
    }

    fn process_of(
        connections: &mut Connections,
        id: u64,
        payload: &[u8],
        batch: u64,
        port: u16,
        now: Instant,
    ) -> PacketAction {
        let mut summary = PacketSummary::default();
        summary.summarize_packet(payload);
        let ack = summary.sole_ack(payload).map(|(_, ranges)| ranges);
        let (path, at) = (path(port), NoopClock.get_time());
        let packet = ReceivedPacket { summary: &summary, ack, merge_acks: true, batch, path: &path, at };
        let mut woken = Vec::new();
        let action = connections.process_packet(id, packet, &mut woken, || now);
        woken.into_iter().for_each(Waker::wake);
        action
    }

    #[test]
    fn an_acknowledged_lost_packet_counts_as_spurious_once() {
        let mut connections = connections();
        let acknowledges_1_to_9 = [0x02, 9, 0, 0, 8];
        let metrics = Arc::clone(&connections.metrics);
        let wrongly = || metrics.spurious_losses.get();
        for (id, number) in [(CONNECTION, 3), (CONNECTION, 30), (CONNECTION + 1, 3)] {
            if let Some(connection) = connections.connection_mut(id) {
                connection.lost.add_lost(number);
            }
        }
        for id in [CONNECTION + 1, CONNECTION, CONNECTION] {
            let now = Instant::now();
            assert_eq!(process_of(&mut connections, id, &acknowledges_1_to_9, 0, 1, now), PacketAction::Forward);
            assert_eq!(wrongly(), u64::from(id == CONNECTION));
        }
    }

    #[test]
    fn each_controller_gets_the_spurious_losses_of_its_own_path() {
        let mut connections = connections();
        let other = CONNECTION + 1;
        connections.by_id.insert(other, ConnectionState::new(1_000, SendQueue::default()));
        let [own, others] = [CONNECTION, other].map(|id| {
            let feedback = Arc::<PathFeedback>::default();
            let connection = connections.connection_mut(id).unwrap();
            connection.feedback = Some(Arc::clone(&feedback));
            (3..6).for_each(|number| connection.lost.add_lost(number));
            feedback
        });
        let hears = |connections: &mut Connections, id, ack: &[u8]| {
            process_of(connections, id, ack, 0, 1, Instant::now());
        };
        // Nothing else is acknowledged: no controller takes the report.
        hears(&mut connections, CONNECTION, &[0x02, 4, 0, 0, 3]);
        hears(&mut connections, other, &[0x02, 9, 0, 0, 8]);
        assert_eq!(others.take_arrived(), [NumberRange { low: 3, high: 5 }]);
        hears(&mut connections, CONNECTION, &[0x02, 9, 0, 0, 8]);
        hears(&mut connections, other, &[0x02, 10, 0, 0, 9]);
        assert_eq!(own.take_arrived(), [NumberRange { low: 3, high: 4 }, NumberRange { low: 5, high: 5 }]);
        assert_eq!(others.take_arrived(), []);
        hears(&mut connections, CONNECTION, &[0x02, 10, 0, 0, 9]);
        assert_eq!(own.take_arrived(), []);
    }

    fn path(port: u16) -> Tuple {
        let address = |port| SocketAddress::from(std::net::SocketAddr::from(([127, 0, 0, 1], port)));
        Tuple { remote_address: address(port).into(), local_address: address(443).into() }
    }

    /// Processes a packet of the connection, which must be forwarded.
    fn read(connections: &mut Connections, id: u64, payload: &[u8]) {
        assert_eq!(process_of(connections, id, payload, 1, 1, Instant::now()), PacketAction::Forward);
    }

    fn connections() -> Connections {
        let mut connections = Connections::new(&limits(3), Arc::default());
        connections.by_id.insert(CONNECTION, connection(10));
        connections
    }

    fn connection(initial: u64) -> ConnectionState {
        let mut connection = ConnectionState::new(100, SendQueue::default());
        connection.credit.initial = initial;
        connection
    }

    /// Accepts a stream, and returns its state.
    fn open(connections: &mut Connections, stream: u64) -> Arc<StreamSendState> {
        connections.connection_mut(CONNECTION).unwrap().credit.open_stream_credit(stream)
    }

    fn limit(stream: &StreamSendState) -> u64 {
        stream.limit.load(Ordering::Relaxed)
    }

    fn max_stream_data(stream: u8, limit: u8) -> Vec<u8> {
        vec![0x11, stream, limit]
    }

    #[test]
    fn a_reload_never_lowers_the_bound_of_early_streams() {
        let mut connections = connections();
        connections.set_limits(&limits(4));
        connections.set_limits(&limits(1));
        // The streams are not opened yet, and the order does not matter.
        for stream in [12, 8, 4, 0, 16] {
            read(&mut connections, CONNECTION, &max_stream_data(stream, 20));
        }
        let limits = [0, 4, 8, 12, 16].map(|stream| limit(&open(&mut connections, stream)));
        assert_eq!(limits, [20, 20, 20, 20, 10]);
    }

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl ArcWake for Count {
        fn wake_by_ref(count: &Arc<Self>) {
            count.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_limit_begins_with_the_transport_parameter_and_only_rises() {
        let mut connections = connections();
        let window = open(&mut connections, 0);
        assert_eq!(limit(&window), 10);
        read(&mut connections, CONNECTION, &max_stream_data(0, 30));
        read(&mut connections, CONNECTION, &max_stream_data(0, 20));
        read(&mut connections, CONNECTION, &max_stream_data(4, 40));
        read(&mut connections, CONNECTION + 1, &max_stream_data(0, 50));
        assert_eq!(limit(&window), 30);
    }

    #[test]
    fn a_limit_before_its_stream_is_remembered() {
        let mut connections = connections();
        read(
            &mut connections,
            CONNECTION,
            &[max_stream_data(4, 40), max_stream_data(4, 30), max_stream_data(0, 5)].concat(),
        );
        assert_eq!(limit(&open(&mut connections, 0)), 10);
        assert_eq!(limit(&open(&mut connections, 4)), 40);
        assert!(connections.by_id[&CONNECTION].credit.early.is_empty());
    }

    #[test]
    fn early_limits_are_bounded() {
        let mut connections = connections();
        open(&mut connections, 4);
        connections.connection_mut(CONNECTION).unwrap().credit.open.clear(); // Streams 0 and 4 have ended.
        for stream in 0..60 {
            read(&mut connections, CONNECTION, &max_stream_data(stream, 50));
        }
        assert!(connections.by_id[&CONNECTION].credit.open.is_empty());
        let mut early: Vec<u64> = connections.by_id[&CONNECTION].credit.early.keys().copied().collect();
        early.sort_unstable();
        assert_eq!(early, [8, 12, 16]);
    }

    #[test]
    fn a_higher_limit_and_stop_sending_wake_a_waiting_task() {
        let mut connections = connections();
        let window = open(&mut connections, 0);
        let count = Arc::<Count>::default();
        for (woken, frame) in
            [max_stream_data(0, 20), vec![0x05, 0, 1], vec![0x01], vec![0x05, 4, 1]].iter().enumerate()
        {
            window.waker.register(&waker(Arc::clone(&count)));
            read(&mut connections, CONNECTION, frame);
            assert_eq!(count.0.load(Ordering::Relaxed), (woken + 1).min(2));
        }
    }

    #[test]
    fn stop_sending_counts_before_and_after_a_stream_is_accepted() {
        let mut connections = connections();
        let first = open(&mut connections, 0);
        for payload in [&[0x05, 0, 1][..], &[0x05, 8, 1], &max_stream_data(8, 40)] {
            read(&mut connections, CONNECTION, payload);
        }
        let [second, third] = [4, 8].map(|stream| open(&mut connections, stream));
        let is_stopped = |stream: &Arc<StreamSendState>| stream.stopped.load(Ordering::Relaxed);
        assert_eq!([&first, &second, &third].map(is_stopped), [true, false, true]);
        assert_eq!(limit(&third), 40);
    }

    #[test]
    fn a_connections_task_is_alerted_of_a_stopped_stream_of_litequics() {
        let mut connections = connections();
        let alerts = connections.by_id[&CONNECTION].control_frames.alert_handle();
        let count = Arc::<Count>::default();
        let waker = waker(Arc::clone(&count));
        let cx = &mut Context::from_waker(&waker);
        for (stream, is_own) in [(0, false), (3, true), (4, false), (7, true)] {
            assert!(alerts.poll_alert(cx).is_pending());
            read(&mut connections, CONNECTION, &[0x05, stream, 1]);
            assert_eq!(alerts.poll_alert(cx).is_ready(), is_own, "{stream}");
        }
        assert_eq!(count.0.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn a_packet_above_the_limit_is_blanked_and_raises_an_alert() {
        let mut connections = connections();
        let window = open(&mut connections, 0);
        let alerts = connections.by_id[&CONNECTION].control_frames.alert_handle();
        let count = Arc::<Count>::default();
        let waker = waker(Arc::clone(&count));
        let cx = &mut Context::from_waker(&waker);
        let now = Instant::now();
        let mut read = |payload: &[u8], now| process(&mut connections, payload, 1, 1, now);
        // The limit is a hundred frames a second, and those of ten seconds at once.
        assert_eq!(read(&[0x01; 999], now), PacketAction::Forward);
        assert_eq!(read(&max_stream_data(0, 20), now), PacketAction::Forward);
        assert!(alerts.poll_alert(cx).is_pending());
        assert_eq!(read(&max_stream_data(0, 30), now), PacketAction::Blank);
        assert_eq!((limit(&window), count.0.load(Ordering::Relaxed)), (20, 1));
        assert_eq!(alerts.poll_alert(cx), Poll::Ready(Alert::Flood));
        // A long silence changes nothing.
        assert_eq!(read(&[0x01], now + Duration::from_secs(60)), PacketAction::Blank);
        assert_eq!(read(&[0x02, 9, 0, 0, 2], now), PacketAction::Forward);
        // Another connection has a limit of its own.
        assert_eq!(process_of(&mut connections, CONNECTION + 1, &[0x01], 1, 1, now), PacketAction::Forward);
    }

    #[test]
    fn an_ack_without_news_is_merged_on_the_active_path() {
        let mut connections = connections();
        let now = Instant::now();
        let ack = |largest| [0x02, largest, 0, 0, largest];
        let (here, elsewhere) = (1, 2);
        assert_eq!(process(&mut connections, &ack(8), 1, here, now), PacketAction::Forward);
        assert_eq!(process(&mut connections, &ack(8), 1, here, now), PacketAction::Forward, "no path yet");
        connections.by_id.get_mut(&CONNECTION).unwrap().path = Some(path(1));
        assert_eq!(process(&mut connections, &ack(9), 1, here, now), PacketAction::Forward, "news");
        assert_eq!(process(&mut connections, &ack(8), 1, here, now), PacketAction::BlankAck);
        assert_eq!(
            process(&mut connections, &ack(8), 1, elsewhere, now),
            PacketAction::Forward,
            "moves the connection"
        );
        assert_eq!(process(&mut connections, &ack(10), 1, elsewhere, now), PacketAction::Forward);
        assert_eq!(
            process(&mut connections, &ack(10), 1, here, now),
            PacketAction::BlankAck,
            "was told, wherever from"
        );
        assert_eq!(
            process(&mut connections, &ack(9).repeat(2), 1, here, now),
            PacketAction::Forward,
            "more than a packet needs"
        );
        assert_eq!(
            process_of(&mut connections, CONNECTION + 1, &ack(8), 1, here, now),
            PacketAction::Forward,
            "unknown"
        );
    }

    #[test]
    fn acknowledgements_are_counted_by_connection_and_batch() {
        let mut connections = connections();
        connections.by_id.insert(CONNECTION + 1, ConnectionState::new(100, SendQueue::default()));
        let now = Instant::now();
        let ack = [0x02, 9, 0, 0, 9];
        for (id, batch, payload) in [
            (CONNECTION, 1, &ack[..]),
            (CONNECTION, 1, &ack),
            (CONNECTION + 1, 1, &ack),
            (CONNECTION, 2, &[0x01]),
            (CONNECTION, 3, &ack.repeat(3)),
        ] {
            process_of(&mut connections, id, payload, batch, 1, now);
        }
        let table = &connections;
        let counts = |id| {
            let AckCounts { acks, ack_batches, .. } = table.by_id[&id].acks;
            (acks, ack_batches)
        };
        assert_eq!((counts(CONNECTION), counts(CONNECTION + 1)), ((5, 2), (1, 1)));
        let metrics = &table.metrics;
        assert_eq!((metrics.ack_frames_received.get(), metrics.ack_batches.get()), (6, 3));
    }
}
