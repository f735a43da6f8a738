//! How far a client lets litequic send on each of its request streams (RFC 9000 §4.1). s2n-quic keeps that to itself;
//! litequic needs it to hand over no more (docs/adr/0009-queue-within-the-peers-window.md).
//!
//! What is heard: the client's transport parameter `initial_max_stream_data_bidi_local`, from s2n-quic's event, and its
//! MAX_STREAM_DATA frames, read off each packet between decryption and s2n-quic's own parser. Nothing is missed as
//! long as the connection lives: s2n-quic processes no frame that does not come by here first, and closes a connection
//! at a frame that [`Frames`] does not know.
//!
//! A limit may come before its stream has been accepted, even before the stream. Streams are accepted in the order of
//! their IDs, so an ID from `next` on is one that will be: its limit is kept for then. Below `next` a stream is open
//! or over, and what comes for one that is over means nothing. s2n-quic lets a client open `max_streams` at once and
//! closes the connection beyond, so no honest limit finds the room used up.
//!
//! Beside a connection's windows stands what else is known of its packets: how its client behaves, and what it has
//! acknowledged.

use super::{
    ack_merge::Told,
    batches::Tally,
    by_id::ById,
    conduct::{Conduct, Excess},
    contents::{Contents, Word},
    frame::AckRanges,
};
use crate::{config::Limits, telemetry::WorkerMetrics};
use futures_util::task::AtomicWaker;
use s2n_quic::provider::event::{
    ConnectionInfo, ConnectionMeta, Subscriber,
    events::{ActivePathUpdated, ConnectionStarted, EcnState, EcnStateChanged, Path, TransportParametersReceived},
};
use s2n_quic_core::path::{Handle as _, Tuple};
use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    task::Waker,
    time::Instant,
};

/// IDs of a client's request streams are this far apart (RFC 9000 §2.1), beginning with 0.
const ID_STEP: u64 = 4;

/// The windows of one endpoint's connections. A lock, because s2n-quic wants its providers `Send`; one thread alone
/// takes it, twice a request and once a packet that has more than data.
#[derive(Debug, Clone)]
pub struct Windows(Arc<Mutex<Connections>>);

#[derive(Debug)]
struct Connections {
    by_id: ById<Connection>,
    max_streams: usize,
    max_control_frames: u32,
    metrics: Arc<WorkerMetrics>,
}

/// One connection's windows, from its first packet to its end.
#[derive(Debug)]
struct Connection {
    /// What every request stream begins with.
    initial: u64,
    /// The first request stream that was not accepted yet.
    next: u64,
    open: HashMap<u64, Arc<State>>,
    /// Limits of streams from `next` on.
    ahead: HashMap<u64, u64>,
    conduct: Conduct,
    acks: Tally,
    told: Told,
    /// Where s2n-quic sends to, and from where.
    path: Option<Tuple>,
}

/// What becomes of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// s2n-quic reads it as it is.
    Pass,
    /// Its ACK frame brings no news.
    Merge,
    /// It belongs to a flood, and is better not looked at.
    Flood,
}

#[derive(Debug)]
struct State {
    limit: AtomicU64,
    waker: AtomicWaker,
}

impl Windows {
    /// For connections that are held to `limits`.
    pub(super) fn new(limits: &Limits, metrics: Arc<WorkerMetrics>) -> Self {
        let Limits { max_streams, max_control_frames, .. } = *limits;
        let (by_id, max_streams) = (ById::default(), max_streams as usize);
        Self(Arc::new(Mutex::new(Connections { by_id, max_streams, max_control_frames, metrics })))
    }

    /// Connections that begin now are held to `limits`; earlier ones that may have more streams keep their room.
    pub(super) fn allow(&self, limits: &Limits) {
        let mut connections = self.lock();
        connections.max_streams = connections.max_streams.max(limits.max_streams as usize);
        connections.max_control_frames = limits.max_control_frames;
    }

    /// Tells how the client of a connection, by s2n-quic's ID, behaves.
    pub fn excess(&self, connection: u64) -> Excess {
        let connections = self.lock();
        // A connection that is gone by now sends nothing any more.
        connections.by_id.get(&connection).map(|connection| connection.conduct.excess()).unwrap_or_default()
    }

    /// The window of a request stream that was just accepted on a connection, both by s2n-quic's IDs. To be called in
    /// the order of accepting, and for every stream.
    pub fn open(&self, connection: u64, stream: u64) -> Window {
        let mut connections = self.lock();
        let state = connections.by_id.get_mut(&connection).map(|windows| windows.open(stream));
        // A connection that is gone by now sends nothing any more.
        let state = state.unwrap_or_else(|| State::new(0));
        drop(connections);
        Window { windows: self.clone(), connection, stream, state }
    }

    /// What s2n-quic is told of connections.
    pub(super) fn subscriber(&self) -> Life {
        Life(self.clone())
    }

    /// Hears what is in a packet of a connection: `contents`, and what it acknowledges if that may be merged. It came in
    /// `batch`, on `path`.
    pub(super) fn judge(
        &self,
        connection: u64,
        contents: &Contents,
        ack: Option<AckRanges<'_>>,
        batch: u64,
        path: &Tuple,
        now: impl FnOnce() -> Instant,
    ) -> Verdict {
        if contents.control == 0 && contents.acks == 0 {
            // Most packets of an upload have data and nothing else: no lock for them.
            return Verdict::Pass;
        }
        let mut connections = self.lock();
        let Connections { by_id, max_streams, metrics, .. } = &mut *connections;
        let Some(connection) = by_id.get_mut(&connection) else { return Verdict::Pass };
        if contents.control > 0 && !connection.conduct.admit(contents.control, now()) {
            return Verdict::Flood;
        }
        for word in &contents.words {
            connection.hear(*word, *max_streams);
        }
        if contents.acks > 0 {
            metrics.ack_frames_received.add(contents.acks.into());
            if connection.acks.count(contents.acks, batch) {
                metrics.ack_batches.increment();
            }
        }
        if ack.is_some_and(|ack| connection.knows(ack, path)) { Verdict::Merge } else { Verdict::Pass }
    }

    fn lock(&self) -> MutexGuard<'_, Connections> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Connection {
    fn new(max_control_frames: u32) -> Self {
        let (open, ahead) = (HashMap::new(), HashMap::new());
        let (conduct, acks, told) = (Conduct::new(max_control_frames), Tally::default(), Told::default());
        Self { initial: 0, next: 0, open, ahead, conduct, acks, told, path: None }
    }

    fn open(&mut self, stream: u64) -> Arc<State> {
        self.next = self.next.max(stream.saturating_add(ID_STEP));
        let ahead = self.ahead.remove(&stream).unwrap_or_default();
        let state = State::new(self.initial.max(ahead));
        self.open.insert(stream, Arc::clone(&state));
        state
    }

    fn hear(&mut self, word: Word, max_ahead: usize) {
        match word {
            Word::MaxStreamData { stream, limit } => self.raise(stream, limit, max_ahead),
            Word::StopSending(stream) => {
                if let Some(state) = self.open.get(&stream) {
                    state.waker.wake();
                }
            }
        }
    }

    /// Whether s2n-quic would do nothing on an ACK frame that came on `path`. From now on it knows what the frame says.
    ///
    /// That is the case if it has been told of each packet before, as a reading of s2n-quic-transport 0.91 shows
    /// (`recovery::Manager::process_acks`): it looks for packets that were not acknowledged yet, and finds none. RTT, loss
    /// detection, congestion control and the probe timer are left alone without one; so are ECN counts, which RFC 9000
    /// §13.4.2.1 has validated only with a larger number than any before. Told means processed: every packet comes by
    /// here immediately before s2n-quic processes its frames, and a frame that it refuses, as one that acknowledges a
    /// number that was never sent, ends the connection and all that is remembered of it.
    ///
    /// But any ACK frame moves the connection to the address that it comes from (RFC 9000 §9.2), and PADDING does not. So
    /// only those from where the connection is may go.
    fn knows(&mut self, ack: AckRanges<'_>, path: &Tuple) -> bool {
        !self.told.is_news(ack) && self.path.is_some_and(|own| own.unmapped_eq(path))
    }

    /// The client said that litequic may send `limit` bytes in all.
    fn raise(&mut self, stream: u64, limit: u64, max_ahead: usize) {
        if let Some(state) = self.open.get(&stream) {
            // What does not raise a limit means nothing (RFC 9000 §4.1): packets arrive in any order.
            state.limit.fetch_max(limit, Ordering::Relaxed);
            state.waker.wake();
        } else if stream >= self.next && stream.is_multiple_of(ID_STEP) {
            if let Some(ahead) = self.ahead.get_mut(&stream) {
                *ahead = limit.max(*ahead);
            } else if self.ahead.len() < max_ahead {
                self.ahead.insert(stream, limit);
            }
        }
    }
}

impl State {
    fn new(limit: u64) -> Arc<Self> {
        Arc::new(Self { limit: AtomicU64::new(limit), waker: AtomicWaker::new() })
    }
}

/// One request stream's window. Dropped at the stream's end.
#[derive(Debug)]
pub struct Window {
    windows: Windows,
    connection: u64,
    stream: u64,
    state: Arc<State>,
}

impl Window {
    /// Bytes that may be sent on the stream in all. It only rises.
    pub fn limit(&self) -> u64 {
        self.state.limit.load(Ordering::Relaxed)
    }

    /// Wakes `waker` once, when the limit has risen or the client has asked to send no more: to be looked at after.
    /// The last one registered counts.
    pub fn register(&self, waker: &Waker) {
        self.state.waker.register(waker);
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        if let Some(connection) = self.windows.lock().by_id.get_mut(&self.connection) {
            connection.open.remove(&self.stream);
        }
    }
}

/// Makes room for a connection when it begins, and forgets it with s2n-quic's per-connection context.
#[derive(Debug)]
pub(super) struct Life(Windows);

/// One connection's entry.
#[derive(Debug)]
pub(super) struct Entry {
    windows: Windows,
    connection: u64,
}

impl Entry {
    /// s2n-quic sends on `path` from now on.
    fn is_at(&self, path: &Path<'_>) {
        if let Some(connection) = self.windows.lock().by_id.get_mut(&self.connection) {
            connection.path = Some(Tuple {
                remote_address: path.remote_addr.clone().into(),
                local_address: path.local_addr.clone().into(),
            });
        }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.windows.lock().by_id.remove(&self.connection);
    }
}

impl Subscriber for Life {
    type ConnectionContext = Entry;

    fn create_connection_context(&mut self, meta: &ConnectionMeta, _: &ConnectionInfo<'_>) -> Entry {
        let mut connections = self.0.lock();
        let connection = Connection::new(connections.max_control_frames);
        connections.by_id.insert(meta.id, connection);
        drop(connections);
        Entry { windows: self.0.clone(), connection: meta.id }
    }

    fn on_connection_started(&mut self, entry: &mut Entry, _: &ConnectionMeta, event: &ConnectionStarted<'_>) {
        entry.is_at(&event.path);
    }

    /// Comes within the handshake, before a stream can be accepted.
    fn on_transport_parameters_received(
        &mut self,
        entry: &mut Entry,
        _: &ConnectionMeta,
        event: &TransportParametersReceived<'_>,
    ) {
        if let Some(connection) = self.0.lock().by_id.get_mut(&entry.connection) {
            // "Local" is the client, which opens the streams (RFC 9000 §18.2).
            connection.initial = event.transport_parameters.initial_max_stream_data_bidi_local;
        }
    }

    /// Comes once a packet was decrypted that shows the client elsewhere.
    fn on_active_path_updated(&mut self, entry: &mut Entry, _: &ConnectionMeta, event: &ActivePathUpdated<'_>) {
        entry.is_at(&event.active);
        if let Some(connection) = self.0.lock().by_id.get(&entry.connection) {
            connection.conduct.moved(event.active.id);
        }
    }

    /// Comes a few times a path.
    fn on_ecn_state_changed(&mut self, _: &mut Entry, _: &ConnectionMeta, event: &EcnStateChanged<'_>) {
        let connections = self.0.lock();
        match event.state {
            EcnState::Capable { .. } => connections.metrics.ecn_capable.increment(),
            EcnState::Failed { .. } => connections.metrics.ecn_failed.increment(),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quic::Notice;
    use futures_util::task::{ArcWake, waker};
    use s2n_quic_core::inet::SocketAddress;
    use std::{
        sync::atomic::AtomicUsize,
        task::{Context, Poll},
        time::Duration,
    };

    const CONNECTION: u64 = 7;

    fn limits(max_streams: u32) -> Limits {
        Limits { max_streams, ..Limits::default() }
    }

    /// What becomes of a packet of batch `batch` from `port`, received `now`.
    fn judge(windows: &Windows, payload: &[u8], (batch, port): (u64, u16), now: Instant) -> Verdict {
        judge_of(windows, CONNECTION, payload, (batch, port), now)
    }

    fn judge_of(
        windows: &Windows,
        connection: u64,
        payload: &[u8],
        (batch, port): (u64, u16),
        now: Instant,
    ) -> Verdict {
        let mut contents = Contents::default();
        contents.read(payload);
        let ack = contents.sole_ack(payload).map(|(_, ranges)| ranges);
        windows.judge(connection, &contents, ack, batch, &path(port), || now)
    }

    fn path(port: u16) -> Tuple {
        let address = |port| SocketAddress::from(std::net::SocketAddr::from(([127, 0, 0, 1], port)));
        Tuple { remote_address: address(port).into(), local_address: address(443).into() }
    }

    /// Has `windows` read a packet of the connection.
    fn read(windows: &Windows, connection: u64, payload: &[u8]) {
        assert_eq!(judge_of(windows, connection, payload, (1, 1), Instant::now()), Verdict::Pass);
    }

    fn windows() -> Windows {
        let windows = Windows::new(&limits(3), Arc::default());
        windows.lock().by_id.insert(CONNECTION, Connection { initial: 10, ..Connection::new(100) });
        windows
    }

    fn max_stream_data(stream: u8, limit: u8) -> Vec<u8> {
        vec![0x11, stream, limit]
    }

    #[test]
    fn a_reload_makes_room_for_more_streams_and_takes_none_away() {
        let windows = windows();
        windows.allow(&limits(4));
        windows.allow(&limits(1));
        // Not opened yet, in whatever order.
        for stream in [12, 8, 4, 0, 16] {
            read(&windows, CONNECTION, &max_stream_data(stream, 20));
        }
        let limits = [0, 4, 8, 12, 16].map(|stream| windows.open(CONNECTION, stream).limit());
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
        let windows = windows();
        let window = windows.open(CONNECTION, 0);
        assert_eq!(window.limit(), 10);
        read(&windows, CONNECTION, &max_stream_data(0, 30));
        read(&windows, CONNECTION, &max_stream_data(0, 20));
        read(&windows, CONNECTION, &max_stream_data(4, 40));
        read(&windows, CONNECTION + 1, &max_stream_data(0, 50));
        assert_eq!(window.limit(), 30);
    }

    #[test]
    fn a_limit_that_comes_before_its_stream_is_kept_for_it() {
        let windows = windows();
        read(&windows, CONNECTION, &[max_stream_data(4, 40), max_stream_data(4, 30), max_stream_data(0, 5)].concat());
        assert_eq!(windows.open(CONNECTION, 0).limit(), 10);
        assert_eq!(windows.open(CONNECTION, 4).limit(), 40);
        assert!(windows.lock().by_id[&CONNECTION].ahead.is_empty());
    }

    #[test]
    fn what_is_remembered_is_bounded_whatever_a_client_sends() {
        let windows = windows();
        drop(windows.open(CONNECTION, 4)); // 0 and 4 are over
        for stream in 0..60 {
            read(&windows, CONNECTION, &max_stream_data(stream, 50));
        }
        assert!(windows.lock().by_id[&CONNECTION].open.is_empty());
        let mut ahead: Vec<u64> = windows.lock().by_id[&CONNECTION].ahead.keys().copied().collect();
        ahead.sort_unstable();
        assert_eq!(ahead, [8, 12, 16]);
    }

    #[test]
    fn whoever_waits_is_woken_by_a_higher_limit_and_by_stop_sending() {
        let windows = windows();
        let window = windows.open(CONNECTION, 0);
        let count = Arc::<Count>::default();
        for (woken, frame) in
            [max_stream_data(0, 20), vec![0x05, 0, 1], vec![0x01], vec![0x05, 4, 1]].iter().enumerate()
        {
            window.register(&waker(Arc::clone(&count)));
            read(&windows, CONNECTION, frame);
            assert_eq!(count.0.load(Ordering::Relaxed), (woken + 1).min(2));
        }
    }

    #[test]
    fn a_stream_of_a_connection_that_is_gone_may_send_nothing() {
        assert_eq!(windows().open(CONNECTION + 1, 0).limit(), 0);
    }

    #[test]
    fn a_packet_beyond_the_limit_is_not_looked_at_and_tells_whoever_serves_the_connection() {
        let windows = windows();
        let window = windows.open(CONNECTION, 0);
        let excess = windows.excess(CONNECTION);
        let count = Arc::<Count>::default();
        let waker = waker(Arc::clone(&count));
        let cx = &mut Context::from_waker(&waker);
        let now = Instant::now();
        let read = |payload: &[u8], now| judge(&windows, payload, (1, 1), now);
        // A hundred a second, ten seconds' worth at once.
        assert_eq!(read(&[0x01; 999], now), Verdict::Pass);
        assert_eq!(read(&max_stream_data(0, 20), now), Verdict::Pass);
        assert!(excess.poll(cx).is_pending());
        assert_eq!(read(&max_stream_data(0, 30), now), Verdict::Flood);
        assert_eq!((window.limit(), count.0.load(Ordering::Relaxed)), (20, 1));
        assert_eq!(excess.poll(cx), Poll::Ready(Notice::Flood));
        // However long it is quiet.
        assert_eq!(read(&[0x01], now + Duration::from_secs(60)), Verdict::Flood);
        assert_eq!(read(&[0x02, 9, 0, 0, 2], now), Verdict::Pass);
        // Another connection is another's.
        assert_eq!(judge_of(&windows, CONNECTION + 1, &[0x01], (1, 1), now), Verdict::Pass);
        assert!(windows.excess(CONNECTION + 1).poll(cx).is_pending());
    }

    #[test]
    fn an_acknowledgement_without_news_is_merged_if_it_comes_from_where_the_connection_is() {
        let windows = windows();
        let now = Instant::now();
        let ack = |largest| [0x02, largest, 0, 0, largest];
        let (here, elsewhere) = ((1, 1), (1, 2));
        assert_eq!(judge(&windows, &ack(8), here, now), Verdict::Pass);
        assert_eq!(judge(&windows, &ack(8), here, now), Verdict::Pass, "nobody has said where it is");
        windows.lock().by_id.get_mut(&CONNECTION).unwrap().path = Some(path(1));
        assert_eq!(judge(&windows, &ack(9), here, now), Verdict::Pass, "news");
        assert_eq!(judge(&windows, &ack(8), here, now), Verdict::Merge);
        assert_eq!(judge(&windows, &ack(8), elsewhere, now), Verdict::Pass, "moves the connection");
        assert_eq!(judge(&windows, &ack(10), elsewhere, now), Verdict::Pass);
        assert_eq!(judge(&windows, &ack(10), here, now), Verdict::Merge, "was told, wherever from");
        assert_eq!(judge(&windows, &ack(9).repeat(2), here, now), Verdict::Pass, "more than a packet needs");
        assert_eq!(judge_of(&windows, CONNECTION + 1, &ack(8), here, now), Verdict::Pass, "nobody knows it");
    }

    #[test]
    fn acknowledgements_are_counted_by_connection_and_batch() {
        let windows = windows();
        windows.lock().by_id.insert(CONNECTION + 1, Connection::new(100));
        let now = Instant::now();
        let ack = [0x02, 9, 0, 0, 9];
        for (connection, batch, payload) in [
            (CONNECTION, 1, &ack[..]),
            (CONNECTION, 1, &ack),
            (CONNECTION + 1, 1, &ack),
            (CONNECTION, 2, &[0x01]),
            (CONNECTION, 3, &ack.repeat(3)),
        ] {
            judge_of(&windows, connection, payload, (batch, 1), now);
        }
        let connections = windows.lock();
        let tally = |connection| {
            let Tally { acks, ack_batches, .. } = connections.by_id[&connection].acks;
            (acks, ack_batches)
        };
        assert_eq!((tally(CONNECTION), tally(CONNECTION + 1)), ((5, 2), (1, 1)));
        let metrics = &connections.metrics;
        assert_eq!((metrics.ack_frames_received.get(), metrics.ack_batches.get()), (6, 3));
    }
}
