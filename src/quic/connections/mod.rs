//! The state that litequic keeps of an endpoint's connections by their packets: an entry each, looked up once a packet,
//! from a connection's beginning to its end.
//!
//! - [`window`]: how far its client lets litequic send on each of its request streams.
//! - [`flight`]: what of its responses is queued, sent and acknowledged.
//! - [`super::conduct`]: how it behaves.
//! - [`super::lost`]: which of its packets were declared lost wrongly.
//! - [`super::ack_merge`], [`super::ack_frequency`]: what it has acknowledged, and how often it is asked to.
//!
//! [`subscriber`] creates and removes the entries, [`super::packets`] passes received packets. Nothing is missed as
//! long as a connection is open: s2n-quic processes no frame that does not pass here first, and closes a connection at
//! a frame that `quic::frame` does not parse.

mod entry;
mod flight;
mod subscriber;
mod window;

pub use window::Window;

use super::{
    ack_frequency::Peer,
    by_id::ById,
    contents::{Contents, Word},
    frame::AckRanges,
    spurious::Spurious,
};
use crate::{
    config::Limits,
    quic::Metrics,
    receive_budget::ReceiveAccount,
    transport::{self, Windows},
};
use entry::Entry;
use s2n_quic_core::{path::Tuple, time::Timestamp};
use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};
use subscriber::EntrySubscriber;
use window::State;

/// The meaning of the two last bits of a stream's ID (RFC 9000 §2.1), and their value for a unidirectional stream of
/// litequic's.
const STREAM_TYPE: u64 = 0x03;
const OWN_UNI: u64 = 0x03;

/// The connections of one endpoint. A lock, because s2n-quic wants its providers `Send`; one thread alone takes it, twice a
/// request and once a packet that has more than data.
#[derive(Debug, Clone)]
pub struct Connections(Arc<Mutex<Table>>);

#[derive(Debug)]
struct Table {
    by_id: ById<Entry>,
    max_streams: usize,
    max_control_frames: u32,
    /// The first packet's time, from which others' is counted.
    began: Option<Timestamp>,
    /// Publishes how many packets were declared lost wrongly, and the connection of the last report.
    spurious: Spurious,
    told: u64,
    metrics: Arc<Metrics>,
}

/// A packet of a connection between its decryption and s2n-quic's own parser.
#[derive(Debug)]
pub(super) struct Received<'a> {
    /// What is in it.
    pub(super) contents: &'a Contents,
    /// The numbers that its only ACK frame acknowledges, as far as it has one and was understood.
    pub(super) ack: Option<AckRanges<'a>>,
    /// Whether an ACK frame without news may be merged into the one that brought it.
    pub(super) merges: bool,
    /// The receive batch that it came in; 0 if there are none.
    pub(super) batch: u64,
    /// Where it came from, and to.
    pub(super) path: &'a Tuple,
    /// When it came, by s2n-quic's clock.
    pub(super) at: Timestamp,
}

/// The fate of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PacketAction {
    /// s2n-quic reads it as it is.
    Pass,
    /// Its ACK frame brings no news.
    Merge,
    /// It belongs to a flood, and is not processed.
    Flood,
}

impl Connections {
    /// For connections with these `limits`. `spurious` is notified of packets that were declared lost wrongly.
    pub(super) fn new(limits: &Limits, spurious: Spurious, metrics: Arc<Metrics>) -> Self {
        let Limits { max_streams, max_control_frames, .. } = *limits;
        let (by_id, max_streams) = (ById::default(), max_streams as usize);
        let (began, told) = (None, 0);
        Self(Arc::new(Mutex::new(Table { by_id, max_streams, max_control_frames, began, spurious, told, metrics })))
    }

    /// Connections that begin now have these `limits`; earlier ones that may have more streams keep their room.
    pub(super) fn allow(&self, limits: &Limits) {
        let mut table = self.lock();
        table.max_streams = table.max_streams.max(limits.max_streams as usize);
        table.max_control_frames = limits.max_control_frames;
    }

    /// The bytes received on a connection, by s2n-quic's ID, are accounted in `account`.
    pub(super) fn receives(&self, connection: u64, account: ReceiveAccount) {
        if let Some(entry) = self.lock().by_id.get_mut(&connection) {
            entry.received = Some(account);
        }
    }

    /// The client of a connection, by s2n-quic's ID, supports ACK_FREQUENCY frames, and `peer` sends requests to it.
    pub(super) fn listens(&self, connection: u64, peer: &Arc<Peer>) {
        if let Some(entry) = self.lock().by_id.get_mut(&connection) {
            entry.peer = Some(Arc::clone(peer));
        }
    }

    /// Packet `number` of a connection, by s2n-quic's ID, was declared lost.
    pub(super) fn lost(&self, connection: u64, number: u64) {
        if let Some(entry) = self.lock().by_id.get_mut(&connection) {
            entry.lost.add(number);
        }
    }

    /// The subscriber for s2n-quic.
    pub(super) fn subscriber(&self) -> EntrySubscriber {
        EntrySubscriber(self.clone())
    }

    /// Processes a packet of a connection, and returns its fate. `now` is its time by the machine's clock.
    pub(super) fn inspect(&self, connection: u64, packet: Received<'_>, now: impl FnOnce() -> Instant) -> PacketAction {
        let Received { contents, ack, merges, batch, path, at } = packet;
        if contents.control == 0 && contents.acks == 0 {
            // Most packets of an upload have data and nothing else: no lock for them.
            return PacketAction::Pass;
        }
        let mut table = self.lock();
        let Table { by_id, max_streams, began, spurious, told, metrics, .. } = &mut *table;
        let unheard = spurious.take();
        if unheard > 0
            && let Some(entry) = by_id.get_mut(told)
        {
            entry.arrived = unheard;
        }
        let Some(entry) = by_id.get_mut(&connection) else { return PacketAction::Pass };
        if contents.control > 0 && !entry.conduct.admit(contents.control, now()) {
            return PacketAction::Flood;
        }
        for word in &contents.words {
            match word {
                Word::StopSending(stream) if stream & STREAM_TYPE == OWN_UNI => entry.conduct.stopped(),
                _ => entry.windows.hear(*word, *max_streams),
            }
        }
        if contents.acks == 0 {
            return PacketAction::Pass;
        }
        metrics.ack_frames_received.add(contents.acks.into());
        let first = entry.acks.count(contents.acks, batch);
        if first {
            metrics.ack_batches.increment();
        }
        if let Some(ranges) = &ack {
            let arrived = entry.lost.acknowledge(ranges);
            metrics.spurious_losses.add(arrived);
            entry.arrived = entry.arrived.saturating_add(u32::try_from(arrived).unwrap_or(u32::MAX));
        }
        if entry.arrived > 0 {
            spurious.tell(std::mem::take(&mut entry.arrived));
            *told = connection;
        }
        if let Some(peer) = &entry.peer {
            let since = at.saturating_duration_since(*began.get_or_insert(at));
            peer.received(since, entry.acks, first, ack.as_ref());
        }
        if merges && ack.is_some_and(|ack| entry.knows(ack, path)) { PacketAction::Merge } else { PacketAction::Pass }
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Windows for Connections {
    fn open(&self, connection: u64, stream: u64) -> Box<dyn transport::Window> {
        let open = |entry: &mut Entry| (entry.windows.open(stream), Arc::clone(&entry.flight));
        let opened = self.lock().by_id.get_mut(&connection).map(open);
        // A connection that is gone by now sends nothing any more.
        let (state, flight) = opened.unwrap_or_else(|| (State::new(0), Arc::default()));
        Box::new(Window::new(self.clone(), (connection, stream), state, flight))
    }

    fn account(&self, connection: u64) -> Option<ReceiveAccount> {
        self.lock().by_id.get(&connection)?.received.clone()
    }

    fn excess(&self, connection: u64) -> Box<dyn transport::Excess> {
        let table = self.lock();
        // A connection that is gone by now sends nothing any more.
        Box::new(table.by_id.get(&connection).map(|entry| entry.conduct.excess()).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{quic::batches::Tally, transport::Notice};
    use futures_util::task::{ArcWake, waker};
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

    /// What becomes of a packet of batch `batch` from `port`, received `now`.
    fn inspect(connections: &Connections, payload: &[u8], (batch, port): (u64, u16), now: Instant) -> PacketAction {
        inspect_of(connections, CONNECTION, payload, (batch, port), now)
    }

    fn inspect_of(
        connections: &Connections,
        connection: u64,
        payload: &[u8],
        (batch, port): (u64, u16),
        now: Instant,
    ) -> PacketAction {
        let mut contents = Contents::default();
        contents.read(payload);
        let ack = contents.sole_ack(payload).map(|(_, ranges)| ranges);
        let (path, at) = (path(port), NoopClock.get_time());
        let packet = Received { contents: &contents, ack, merges: true, batch, path: &path, at };
        connections.inspect(connection, packet, || now)
    }

    #[test]
    fn a_packet_declared_lost_and_acknowledged_was_so_wrongly_once() {
        let connections = connections();
        let acknowledges_1_to_9 = [0x02, 9, 0, 0, 8];
        let wrongly = || connections.lock().metrics.spurious_losses.get();
        for (connection, number) in [(CONNECTION, 3), (CONNECTION, 30), (CONNECTION + 1, 3)] {
            connections.lost(connection, number);
        }
        for connection in [CONNECTION + 1, CONNECTION, CONNECTION] {
            let now = Instant::now();
            assert_eq!(inspect_of(&connections, connection, &acknowledges_1_to_9, (0, 1), now), PacketAction::Pass);
            assert_eq!(wrongly(), u64::from(connection == CONNECTION));
        }
    }

    #[test]
    fn a_controller_hears_of_packets_that_arrived_with_the_next_frame_that_s2n_quic_tells_it_of() {
        let connections = connections();
        let spurious = connections.lock().spurious.clone();
        let other = CONNECTION + 1;
        connections.lock().by_id.insert(other, Entry::new(1_000));
        let hears = |connection, ack: &[u8]| {
            inspect_of(&connections, connection, ack, (0, 1), Instant::now());
        };
        (3..6).for_each(|number| connections.lost(CONNECTION, number));
        hears(CONNECTION, &[0x02, 4, 0, 0, 3]);
        // Nothing else was acknowledged: no controller took it.
        hears(other, &[0x02, 9, 0, 0, 8]);
        assert_eq!(spurious.take(), 0, "another connection's packets");
        hears(CONNECTION, &[0x02, 9, 0, 0, 8]);
        assert_eq!(spurious.take(), 3);
        hears(CONNECTION, &[0x02, 10, 0, 0, 9]);
        assert_eq!(spurious.take(), 0);
    }

    fn path(port: u16) -> Tuple {
        let address = |port| SocketAddress::from(std::net::SocketAddr::from(([127, 0, 0, 1], port)));
        Tuple { remote_address: address(port).into(), local_address: address(443).into() }
    }

    /// Has `windows` read a packet of the connection.
    fn read(connections: &Connections, connection: u64, payload: &[u8]) {
        assert_eq!(inspect_of(connections, connection, payload, (1, 1), Instant::now()), PacketAction::Pass);
    }

    fn connections() -> Connections {
        let connections = Connections::new(&limits(3), Spurious::default(), Arc::default());
        connections.lock().by_id.insert(CONNECTION, entry(10));
        connections
    }

    fn entry(initial: u64) -> Entry {
        let mut entry = Entry::new(100);
        entry.windows.initial = initial;
        entry
    }

    fn max_stream_data(stream: u8, limit: u8) -> Vec<u8> {
        vec![0x11, stream, limit]
    }

    #[test]
    fn a_reload_makes_room_for_more_streams_and_takes_none_away() {
        let connections = connections();
        connections.allow(&limits(4));
        connections.allow(&limits(1));
        // Not opened yet, in whatever order.
        for stream in [12, 8, 4, 0, 16] {
            read(&connections, CONNECTION, &max_stream_data(stream, 20));
        }
        let limits = [0, 4, 8, 12, 16].map(|stream| connections.open(CONNECTION, stream).limit());
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
    fn a_stream_begins_with_what_the_handshake_said_and_rises_with_frames_in_any_order() {
        let connections = connections();
        let window = connections.open(CONNECTION, 0);
        assert_eq!(window.limit(), 10);
        read(&connections, CONNECTION, &max_stream_data(0, 30));
        read(&connections, CONNECTION, &max_stream_data(0, 20));
        read(&connections, CONNECTION, &max_stream_data(4, 40));
        read(&connections, CONNECTION + 1, &max_stream_data(0, 50));
        assert_eq!(window.limit(), 30);
    }

    #[test]
    fn a_limit_that_comes_before_its_stream_is_kept_for_it() {
        let connections = connections();
        read(
            &connections,
            CONNECTION,
            &[max_stream_data(4, 40), max_stream_data(4, 30), max_stream_data(0, 5)].concat(),
        );
        assert_eq!(connections.open(CONNECTION, 0).limit(), 10);
        assert_eq!(connections.open(CONNECTION, 4).limit(), 40);
        assert!(connections.lock().by_id[&CONNECTION].windows.ahead.is_empty());
    }

    #[test]
    fn what_is_remembered_is_bounded_whatever_a_client_sends() {
        let connections = connections();
        drop(connections.open(CONNECTION, 4)); // 0 and 4 are over
        for stream in 0..60 {
            read(&connections, CONNECTION, &max_stream_data(stream, 50));
        }
        assert!(connections.lock().by_id[&CONNECTION].windows.open.is_empty());
        let mut ahead: Vec<u64> = connections.lock().by_id[&CONNECTION].windows.ahead.keys().copied().collect();
        ahead.sort_unstable();
        assert_eq!(ahead, [8, 12, 16]);
    }

    #[test]
    fn a_waiting_task_is_woken_by_a_higher_limit_and_by_stop_sending() {
        let connections = connections();
        let window = connections.open(CONNECTION, 0);
        let count = Arc::<Count>::default();
        for (woken, frame) in
            [max_stream_data(0, 20), vec![0x05, 0, 1], vec![0x01], vec![0x05, 4, 1]].iter().enumerate()
        {
            window.register(&waker(Arc::clone(&count)));
            read(&connections, CONNECTION, frame);
            assert_eq!(count.0.load(Ordering::Relaxed), (woken + 1).min(2));
        }
    }

    #[test]
    fn a_connections_task_learns_that_a_stream_of_litequics_own_was_stopped() {
        let connections = connections();
        let excess = connections.excess(CONNECTION);
        let count = Arc::<Count>::default();
        let waker = waker(Arc::clone(&count));
        let cx = &mut Context::from_waker(&waker);
        for (stream, is_own) in [(0, false), (3, true), (4, false), (7, true)] {
            assert!(excess.poll(cx).is_pending());
            read(&connections, CONNECTION, &[0x05, stream, 1]);
            assert_eq!(excess.poll(cx).is_ready(), is_own, "{stream}");
        }
        assert_eq!(count.0.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn a_stream_of_a_connection_that_is_gone_may_send_nothing() {
        assert_eq!(connections().open(CONNECTION + 1, 0).limit(), 0);
    }

    #[test]
    fn a_packet_beyond_the_limit_is_not_processed_and_reported_to_the_connections_task() {
        let connections = connections();
        let window = connections.open(CONNECTION, 0);
        let excess = connections.excess(CONNECTION);
        let count = Arc::<Count>::default();
        let waker = waker(Arc::clone(&count));
        let cx = &mut Context::from_waker(&waker);
        let now = Instant::now();
        let read = |payload: &[u8], now| inspect(&connections, payload, (1, 1), now);
        // A hundred a second, ten seconds' worth at once.
        assert_eq!(read(&[0x01; 999], now), PacketAction::Pass);
        assert_eq!(read(&max_stream_data(0, 20), now), PacketAction::Pass);
        assert!(excess.poll(cx).is_pending());
        assert_eq!(read(&max_stream_data(0, 30), now), PacketAction::Flood);
        assert_eq!((window.limit(), count.0.load(Ordering::Relaxed)), (20, 1));
        assert_eq!(excess.poll(cx), Poll::Ready(Notice::Flood));
        // However long it is quiet.
        assert_eq!(read(&[0x01], now + Duration::from_secs(60)), PacketAction::Flood);
        assert_eq!(read(&[0x02, 9, 0, 0, 2], now), PacketAction::Pass);
        // Another connection is another's.
        assert_eq!(inspect_of(&connections, CONNECTION + 1, &[0x01], (1, 1), now), PacketAction::Pass);
        assert!(connections.excess(CONNECTION + 1).poll(cx).is_pending());
    }

    #[test]
    fn an_acknowledgement_without_news_is_merged_if_it_comes_from_where_the_connection_is() {
        let connections = connections();
        let now = Instant::now();
        let ack = |largest| [0x02, largest, 0, 0, largest];
        let (here, elsewhere) = ((1, 1), (1, 2));
        assert_eq!(inspect(&connections, &ack(8), here, now), PacketAction::Pass);
        assert_eq!(inspect(&connections, &ack(8), here, now), PacketAction::Pass, "no path yet");
        connections.lock().by_id.get_mut(&CONNECTION).unwrap().path = Some(path(1));
        assert_eq!(inspect(&connections, &ack(9), here, now), PacketAction::Pass, "news");
        assert_eq!(inspect(&connections, &ack(8), here, now), PacketAction::Merge);
        assert_eq!(inspect(&connections, &ack(8), elsewhere, now), PacketAction::Pass, "moves the connection");
        assert_eq!(inspect(&connections, &ack(10), elsewhere, now), PacketAction::Pass);
        assert_eq!(inspect(&connections, &ack(10), here, now), PacketAction::Merge, "was told, wherever from");
        assert_eq!(inspect(&connections, &ack(9).repeat(2), here, now), PacketAction::Pass, "more than a packet needs");
        assert_eq!(inspect_of(&connections, CONNECTION + 1, &ack(8), here, now), PacketAction::Pass, "unknown");
    }

    #[test]
    fn acknowledgements_are_counted_by_connection_and_batch() {
        let connections = connections();
        connections.lock().by_id.insert(CONNECTION + 1, Entry::new(100));
        let now = Instant::now();
        let ack = [0x02, 9, 0, 0, 9];
        for (connection, batch, payload) in [
            (CONNECTION, 1, &ack[..]),
            (CONNECTION, 1, &ack),
            (CONNECTION + 1, 1, &ack),
            (CONNECTION, 2, &[0x01]),
            (CONNECTION, 3, &ack.repeat(3)),
        ] {
            inspect_of(&connections, connection, payload, (batch, 1), now);
        }
        let table = connections.lock();
        let tally = |connection| {
            let Tally { acks, ack_batches, .. } = table.by_id[&connection].acks;
            (acks, ack_batches)
        };
        assert_eq!((tally(CONNECTION), tally(CONNECTION + 1)), ((5, 2), (1, 1)));
        let metrics = &table.metrics;
        assert_eq!((metrics.ack_frames_received.get(), metrics.ack_batches.get()), (6, 3));
    }
}
