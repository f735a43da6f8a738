//! Orders the bytes that a connection's streams hand over (RFC 9218 §10). Pure.
//!
//! Bytes that were handed over are sent in the order of a list of streams: a stream enters the list at its end with its
//! first unsent byte, and leaves it with the last.
//!
//! - s2n-quic sends the list from the front (hence `with_stream_batch_size`). More bytes of a stream that is in the
//!   list are sent at its place, before those of the streams behind it. So a stream that has another behind it which it
//!   must not overtake gets no more before its own bytes have left ([`SendList::Front`]).
//! - h2 sends a frame of each stream in turn. More bytes of any stream slow down all others. So a stream gets no more
//!   as long as one that precedes it is in the list ([`SendList::Turns`]).
//!
//! The next stream is chosen so:
//!
//! - A more urgent stream comes first. Within an urgency those that are not incremental come one after the other, by
//!   their IDs; incremental ones in turn; where there are both, one of either, alternately. As long as the client has
//!   signalled no priority, a stream's first turn is long (128 KiB) and comes before the later turns of
//!   others: most responses end within it, so that they come one after the other, and share the connection with
//!   downloads.
//! - A stream that has waited for [`STARVATION_TIMEOUT`] gets [`TURN_BYTES`] all the same, the one that waits longest
//!   first. Together these starved streams get at most one byte for `STARVED_SHARE_DIVISOR` bytes of others.

use super::Priority;
use std::time::{Duration, Instant};

/// Longest wait of a stream with bytes at hand before it counts as starved.
pub const STARVATION_TIMEOUT: Duration = Duration::from_secs(1);
/// Smallest turn of an incremental stream while others wait, in bytes.
pub const TURN_BYTES: u64 = 16 * 1024;
/// First turn of a stream of a client that has signalled no priority, in bytes: what most responses have.
const FIRST_TURN_BYTES: u64 = 128 * 1024;
/// Starved streams get at most one byte for this number of bytes that the order grants to others.
const STARVED_SHARE_DIVISOR: u64 = 16;
/// Largest credit of starved streams, in bytes.
const MAX_STARVED_CREDIT: u64 = 4 * TURN_BYTES;

/// The way in which the transport sends the streams of its list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SendList {
    /// All bytes of the first stream, then those of the second (s2n-quic).
    Front,
    /// A frame of each stream in turn (h2).
    Turns,
}

/// The order of one connection's streams, each with a handle.
#[derive(Debug)]
pub struct PriorityOrder<T> {
    list: SendList,
    /// Sorted by ID.
    streams: Vec<OrderedStream<T>>,
    /// Number of streams that wait for a turn.
    pub waiting: usize,
    /// Counts turns and places in the list.
    clock: u64,
    /// A bit for each urgency whose last turn was that of an incremental stream.
    last_incremental: u8,
    /// Bytes that starved streams may still get.
    starved_credit: u64,
    /// Whether a stream had another priority than [`Priority::UNSIGNALLED`]. A client that signals just this one for
    /// all its requests counts as one that signals none.
    has_signal: bool,
}

#[derive(Debug)]
struct OrderedStream<T> {
    id: u64,
    handle: T,
    priority: Priority,
    /// Bytes at hand; 0 if the stream does not wait.
    ready: u64,
    /// Start of the wait.
    waiting_since: Option<Instant>,
    /// Time of the last turn, by the order's clock; 0 in the first turn.
    last_turn: u64,
    /// Bytes granted so far.
    granted: u64,
    /// Place in the list; 0 if no byte of the stream is unsent.
    place: u64,
    /// The stream has had a turn and may come back for another: since then it has not waited, left, or sent all its
    /// bytes.
    has_turn: bool,
}

/// The result of asking for the next stream.
#[derive(Debug, PartialEq, Eq)]
pub enum NextTurn<T> {
    /// A stream hands over `bytes` and stops waiting.
    Grant {
        /// The stream's handle.
        stream: T,
        /// Number of the bytes at hand that the stream may hand over.
        bytes: u64,
        /// Whether the stream was starved.
        is_starved_turn: bool,
    },
    /// No stream gets a turn before this number of bytes is free.
    Free(u64),
    /// No stream waits, or each must wait until another has sent its bytes.
    Blocked,
}

impl<T: Clone> PriorityOrder<T> {
    /// Creates an order without streams, for a transport that sends in the order `list`.
    pub const fn new(list: SendList) -> Self {
        Self {
            list,
            streams: Vec::new(),
            waiting: 0,
            clock: 1,
            last_incremental: 0,
            starved_credit: 0,
            has_signal: false,
        }
    }

    /// Adds a stream. One that `is_sending` has handed over bytes while it was alone, and is in front of all others.
    pub fn add_stream(&mut self, id: u64, handle: T, priority: Priority, is_sending: bool) {
        self.has_signal |= priority != Priority::UNSIGNALLED;
        let place = u64::from(is_sending);
        let stream = OrderedStream {
            id,
            handle,
            priority,
            ready: 0,
            waiting_since: None,
            last_turn: 0,
            granted: 0,
            place,
            has_turn: false,
        };
        // A new stream mostly has the largest ID.
        let index = self.streams.partition_point(|other| other.id < id);
        self.streams.insert(index, stream);
    }

    /// Removes a stream. Returns its handle, which must not be dropped under a lock.
    pub fn remove_stream(&mut self, id: u64) -> Option<T> {
        self.stop_waiting(id);
        let index = self.stream_index(id)?;
        Some(self.streams.remove(index).handle)
    }

    /// Changes the priority of a stream.
    pub fn change_priority(&mut self, id: u64, priority: Priority) {
        self.has_signal |= priority != Priority::UNSIGNALLED;
        if let Some(stream) = self.find_stream(id) {
            stream.priority = priority;
        }
    }

    /// Changes the urgency of a stream.
    pub fn change_urgency(&mut self, id: u64, urgency: u8) {
        self.has_signal |= urgency != Priority::UNSIGNALLED.urgency;
        if let Some(stream) = self.find_stream(id) {
            stream.priority.urgency = urgency;
        }
    }

    /// Has a stream wait for a turn, with `ready` bytes at hand.
    pub fn wait_for_turn(&mut self, id: u64, ready: u64, now: impl FnOnce() -> Instant) {
        let Some(stream) = self.find_stream(id) else { return };
        let waited = std::mem::replace(&mut stream.ready, ready) > 0;
        stream.has_turn = false;
        if !waited && ready > 0 {
            stream.waiting_since = Some(now());
            self.waiting += 1;
        }
    }

    /// Ends the wait of a stream.
    pub fn stop_waiting(&mut self, id: u64) {
        let Some(stream) = self.find_stream(id) else { return };
        (stream.waiting_since, stream.has_turn) = (None, false);
        if std::mem::take(&mut stream.ready) > 0 {
            self.waiting -= 1;
        }
    }

    /// Adds a stream to the list: it has handed over bytes, and none of its earlier bytes are unsent.
    pub fn enter_send_list(&mut self, id: u64) {
        self.clock += 1;
        let place = self.clock;
        if let Some(stream) = self.find_stream(id) {
            stream.place = place;
        }
    }

    /// Removes a stream from the list: all its bytes were sent.
    pub fn leave_send_list(&mut self, id: u64) {
        if let Some(stream) = self.find_stream(id) {
            (stream.place, stream.has_turn) = (0, false);
        }
    }

    /// Empties the list: its bytes are not sent before the client extends its windows, so that no stream waits for
    /// them.
    pub fn clear_send_list(&mut self) {
        for stream in &mut self.streams {
            (stream.place, stream.has_turn) = (0, false);
        }
    }

    /// Whether a stream may hand over more bytes without overtaking a stream that precedes it.
    pub fn may_send_more(&self, id: u64) -> bool {
        self.stream_index(id).and_then(|index| self.streams.get(index)).is_none_or(|stream| self.overtakes_none(stream))
    }

    /// Returns the next stream to hand over bytes. `horizon` bytes may be handed over and not sent, of which `free` are
    /// free. To be called again until no turn is granted.
    pub fn next_turn(&mut self, free: u64, horizon: u64, now: impl FnOnce() -> Instant) -> NextTurn<T> {
        if self.waiting == 0 {
            return NextTurn::Blocked;
        }
        let (id, most, is_rest) = match self.find_starved_stream(free, now) {
            Some(id) => (id, TURN_BYTES, true),
            None => match self.find_first_stream(horizon) {
                Some((id, most)) => (id, most, false),
                None => return NextTurn::Blocked,
            },
        };
        let (clock, first_turn) = (self.clock + 1, self.first_turn());
        let Some(stream) = self.find_stream(id) else { return NextTurn::Blocked };
        let most = stream.ready.min(most);
        // Small pieces cost as much as large ones.
        let least = most.min(horizon / 2).max(1);
        if free < least {
            return NextTurn::Free(least);
        }
        let bytes = most.min(free);
        (stream.ready, stream.waiting_since, stream.has_turn) = (0, None, true);
        stream.granted = stream.granted.saturating_add(bytes);
        if stream.granted >= first_turn {
            stream.last_turn = clock;
        }
        let (handle, priority) = (stream.handle.clone(), stream.priority);
        self.clock = clock;
        self.waiting -= 1;
        if is_rest {
            self.starved_credit = self.starved_credit.saturating_sub(bytes);
        } else {
            let bit = 1 << priority.urgency;
            let others = self.last_incremental & !bit;
            self.last_incremental = if priority.incremental { others | bit } else { others };
            self.starved_credit =
                self.starved_credit.saturating_add(bytes / STARVED_SHARE_DIVISOR).min(MAX_STARVED_CREDIT);
        }
        NextTurn::Grant { stream: handle, bytes, is_starved_turn: is_rest }
    }

    /// Returns the stream that has waited longest, if it is starved and there is credit for its turn.
    fn find_starved_stream(&self, free: u64, now: impl FnOnce() -> Instant) -> Option<u64> {
        // A stream that is alone needs no credit.
        if self.waiting < 2 || self.starved_credit < TURN_BYTES {
            return None;
        }
        let now = now();
        let has_waited =
            |stream: &&OrderedStream<T>| stream.waiting_since.is_some_and(|since| now - since >= STARVATION_TIMEOUT);
        let oldest = self.streams.iter().filter(has_waited).min_by_key(|stream| stream.waiting_since)?;
        if !self.overtakes_none(oldest) || free < oldest.ready.min(TURN_BYTES) {
            return None;
        }
        Some(oldest.id)
    }

    /// Returns the first of the waiting streams, and the bytes of its turn.
    fn find_first_stream(&self, horizon: u64) -> Option<(u64, u64)> {
        let waiting = || self.streams.iter().filter(|stream| stream.ready > 0);
        let urgency = waiting().map(|stream| stream.priority.urgency).min()?;
        let of = |incremental| waiting().filter(move |stream| stream.priority == Priority { urgency, incremental });
        // Streams that are not incremental go one after the other, by their IDs.
        let whole = of(false).next();
        // The streams that an incremental one must not overtake are the same for all of them.
        let incremental = of(true).filter(|stream| self.overtakes_none(stream)).min_by_key(|stream| stream.last_turn);
        let whole = whole.filter(|stream| self.overtakes_none(stream));
        let stream = match (whole, incremental) {
            (Some(whole), Some(incremental)) => {
                if self.last_incremental & 1 << urgency > 0 {
                    whole
                } else {
                    incremental
                }
            }
            (whole, incremental) => whole.or(incremental)?,
        };
        // A stream that had its turn just now is likely to have more bytes.
        let competes = self.streams.iter().any(|other| {
            other.id != stream.id
                && (other.ready > 0 || other.has_turn)
                && other.priority.urgency == urgency
                && (other.priority.incremental || stream.priority.incremental)
        });
        let turn = self.first_turn().saturating_sub(stream.granted).max(TURN_BYTES).max(horizon / 4);
        Some((stream.id, if competes { turn } else { stream.ready }))
    }

    /// Bytes of a stream's first turn.
    fn first_turn(&self) -> u64 {
        if self.has_signal { 0 } else { FIRST_TURN_BYTES }
    }

    /// Whether more bytes of `stream` overtake no stream of the list that precedes it.
    fn overtakes_none(&self, stream: &OrderedStream<T>) -> bool {
        match self.list {
            SendList::Front => {
                stream.place == 0
                    || !self.streams.iter().any(|other| {
                        other.place > stream.place && !stream.priority.precedes(stream.id, other.priority, other.id)
                    })
            }
            SendList::Turns => !self.streams.iter().any(|other| {
                other.place > 0
                    && other.id != stream.id
                    && other.priority.precedes(other.id, stream.priority, stream.id)
            }),
        }
    }

    fn stream_index(&self, id: u64) -> Option<usize> {
        self.streams.binary_search_by_key(&id, |stream| stream.id).ok()
    }

    fn find_stream(&mut self, id: u64) -> Option<&mut OrderedStream<T>> {
        let index = self.stream_index(id)?;
        self.streams.get_mut(index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, HashMap};

    const HORIZON: u64 = 32 * 1024;
    /// Bytes of a frame of a transport that sends streams in turn.
    const FRAME: u64 = 5_000;

    /// A connection whose transport sends in the order of a list, as s2n-quic and h2 do.
    struct Connection {
        sends: SendList,
        order: PriorityOrder<u64>,
        now: Instant,
        streams: BTreeMap<u64, Sending>,
        /// Streams with unsent bytes, in the order of sending.
        list: Vec<u64>,
        /// Each turn's stream and bytes, and whether the stream was starved.
        turns: Vec<(u64, u64, bool)>,
        /// The last result of `PriorityOrder::next_turn`.
        last: NextTurn<u64>,
        /// By the IDs of a stream and of one that precedes it: bytes of the first that were sent while the second had
        /// unsent bytes, since the second last had none at hand.
        overtaken: HashMap<(u64, u64), u64>,
        /// Whether starved streams get bytes, which overtake.
        has_rest: bool,
        /// Whether streams are polled only after all grants, as tasks are.
        is_late: bool,
    }

    #[derive(Debug, Clone, Copy)]
    struct Sending {
        priority: Priority,
        ready: u64,
        unsent: u64,
    }

    impl Connection {
        fn new() -> Self {
            Self::with(SendList::Front)
        }

        fn with(sends: SendList) -> Self {
            Self {
                sends,
                order: PriorityOrder::new(sends),
                now: Instant::now(),
                streams: BTreeMap::new(),
                list: Vec::new(),
                turns: Vec::new(),
                last: NextTurn::Blocked,
                overtaken: HashMap::new(),
                has_rest: false,
                is_late: false,
            }
        }

        fn has(&mut self, id: u64, (urgency, incremental): (u8, bool), bytes: u64) {
            let priority = Priority { urgency, incremental };
            let order = &mut self.order;
            let stream = self.streams.entry(id).or_insert_with(|| {
                order.add_stream(id, id, priority, false);
                Sending { priority, ready: 0, unsent: 0 }
            });
            if stream.ready == 0 {
                self.overtaken.retain(|(_, other), _| *other != id);
            }
            stream.ready += bytes;
            self.order.wait_for_turn(id, stream.ready, || self.now);
        }

        fn changes(&mut self, id: u64, priority: Priority) {
            if let Some(stream) = self.streams.get_mut(&id) {
                stream.priority = priority;
                self.order.change_priority(id, priority);
                self.overtaken.retain(|(one, other), _| ![one, other].contains(&&id));
            }
        }

        fn ends(&mut self, id: u64) {
            if self.streams.remove(&id).is_some() {
                self.list.retain(|listed| *listed != id);
                assert_eq!(self.order.remove_stream(id), Some(id));
                self.overtaken.retain(|(one, other), _| ![one, other].contains(&&id));
            }
        }

        fn unsent(&self) -> u64 {
            self.streams.values().map(|stream| stream.unsent).sum()
        }

        /// Hands over all granted bytes: after each grant or, if streams are late, after all grants.
        fn hands_over(&mut self) {
            loop {
                let mut granted = Vec::new();
                loop {
                    let free = HORIZON - self.unsent() - granted.iter().map(|(_, bytes)| bytes).sum::<u64>();
                    let waiting: Vec<u64> =
                        self.waiting().filter(|id| granted.iter().all(|(other, _)| other != id)).collect();
                    let last = self.order.next_turn(free, HORIZON, || self.now);
                    let NextTurn::Grant { stream: id, bytes, is_starved_turn: is_rest } = last else {
                        self.last = last;
                        break;
                    };
                    assert!(waiting.contains(&id) && bytes > 0 && bytes <= free);
                    if !is_rest {
                        for other in waiting {
                            let (of, than) = (self.streams[&other].priority, self.streams[&id].priority);
                            assert!(!of.precedes(other, than, id), "{id} was granted before {other}");
                        }
                    }
                    self.turns.push((id, bytes, is_rest));
                    granted.push((id, bytes));
                    if !self.is_late {
                        break;
                    }
                }
                if granted.is_empty() {
                    return;
                }
                for (id, bytes) in granted {
                    let stream = self.streams.get_mut(&id).unwrap();
                    stream.ready -= bytes;
                    if stream.unsent == 0 {
                        self.list.push(id);
                        self.order.enter_send_list(id);
                    }
                    stream.unsent += bytes;
                    if stream.ready > 0 {
                        self.order.wait_for_turn(id, stream.ready, || self.now);
                    }
                }
            }
        }

        fn waiting(&self) -> impl Iterator<Item = u64> {
            self.streams.iter().filter(|(_, stream)| stream.ready > 0).map(|(id, _)| *id)
        }

        fn sends(&mut self, mut bytes: u64) {
            while bytes > 0 && !self.list.is_empty() {
                let id = self.list[0];
                let most = if self.sends == SendList::Turns { FRAME } else { u64::MAX };
                let sent = bytes.min(self.streams[&id].unsent).min(most);
                bytes -= sent;
                let priority = self.streams[&id].priority;
                for (other, state) in &self.streams {
                    let overtaken = self.overtaken.entry((id, *other)).or_default();
                    if state.ready + state.unsent == 0 || !state.priority.precedes(*other, priority, id) {
                        *overtaken = 0;
                    } else {
                        *overtaken += sent;
                        // Streams that get grants together enter the list together when they are polled.
                        let most = if self.is_late { 2 * HORIZON } else { HORIZON };
                        assert!(self.has_rest || *overtaken <= most, "{id} overtook {other} by {overtaken} bytes");
                    }
                }
                let stream = self.streams.get_mut(&id).unwrap();
                stream.unsent -= sent;
                if self.sends == SendList::Turns {
                    self.list.rotate_left(1);
                }
                if stream.unsent == 0 {
                    self.list.retain(|listed| *listed != id);
                    self.order.leave_send_list(id);
                    for ((_, other), overtaken) in &mut self.overtaken {
                        if *other == id && stream.ready == 0 {
                            *overtaken = 0;
                        }
                    }
                }
            }
        }

        /// Sends all bytes at hand, and returns the streams in the order of their turns.
        fn sends_all(&mut self) -> Vec<u64> {
            self.hands_over();
            while !self.list.is_empty() {
                self.sends(1_000);
                self.hands_over();
            }
            assert_eq!(self.waiting().count(), 0, "{:?}", self.last);
            let mut order: Vec<u64> = self.turns.iter().map(|(id, ..)| *id).collect();
            order.dedup();
            order
        }
    }

    #[test]
    fn more_urgent_streams_come_first_then_earlier_requests() {
        let mut connection = Connection::new();
        // The first stream fills the horizon, so that all others wait.
        connection.has(0, (0, false), HORIZON);
        connection.hands_over();
        for (id, priority) in [(4, (5, false)), (8, (1, true)), (12, (1, false)), (16, (5, false)), (20, (0, false))] {
            connection.has(id, priority, 2 * TURN_BYTES);
        }
        let order = connection.sends_all();
        assert_eq!(order, [0, 20, 8, 12, 8, 12, 4, 16], "8 and 12 alternate");
    }

    #[test]
    fn incremental_streams_take_turns_of_sixteen_kibibytes() {
        let mut connection = Connection::new();
        for id in [0, 4, 8] {
            connection.has(id, (4, true), 3 * TURN_BYTES);
        }
        assert_eq!(connection.sends_all(), [0, 4, 8, 0, 4, 8, 0, 4, 8]);
        assert!(connection.turns.iter().all(|(_, bytes, _)| *bytes == TURN_BYTES), "{:?}", connection.turns);
    }

    #[test]
    fn without_a_signal_responses_come_one_after_the_other_before_downloads() {
        let mut connection = Connection::new();
        let page = FIRST_TURN_BYTES - 1;
        for (id, bytes) in [(0, 2 * FIRST_TURN_BYTES), (4, 3 * FIRST_TURN_BYTES), (8, page), (12, page)] {
            connection.has(id, (3, true), bytes);
        }
        let order = connection.sends_all();
        assert_eq!(order[..6], [0, 4, 8, 12, 0, 4]);
        assert!(order[6..].windows(2).all(|turns| turns[0] != turns[1]) && !order[6..].contains(&8), "{order:?}");
        connection.has(16, (3, true), page);
        connection.has(20, (4, false), 1);
        connection.has(24, (3, true), page);
        assert_eq!(connection.sends_all()[order.len()..][..3], [16, 24, 16], "the client signals priorities");
    }

    #[test]
    fn incremental_streams_polled_after_all_grants_get_equal_shares() {
        for sends in [SendList::Front, SendList::Turns] {
            let mut connection = Connection { is_late: true, ..Connection::with(sends) };
            for id in [0, 4, 8] {
                connection.has(id, (4, true), 100 * TURN_BYTES);
            }
            let mut most = 0;
            while connection.turns.len() < 100 {
                // All bytes are sent at once, as if the socket always had room.
                connection.hands_over();
                connection.sends(HORIZON);
                let of = |id| connection.turns.iter().filter(|turn| turn.0 == id).map(|turn| turn.1).sum::<u64>();
                let bytes = [of(0), of(4), of(8)];
                most = most.max(bytes.iter().max().unwrap() - bytes.iter().min().unwrap());
            }
            assert!(most <= TURN_BYTES, "{most} bytes more for one of them");
        }
    }

    #[test]
    fn a_late_urgent_stream_waits_only_for_handed_over_bytes() {
        let mut connection = Connection::new();
        connection.has(0, (5, false), 10 * HORIZON);
        connection.hands_over();
        assert_eq!(connection.unsent(), HORIZON);
        connection.sends(8_000);
        connection.has(4, (1, false), 3_000);
        connection.hands_over();
        // The first stream has room, but its bytes would overtake the urgent ones.
        assert_eq!((connection.streams[&4].unsent, connection.list.as_slice()), (3_000, &[0, 4][..]));
        connection.sends(HORIZON - 8_000);
        assert_eq!(connection.list, [4]);
        connection.hands_over();
        assert_eq!(connection.list, [4, 0], "behind it there is room");
    }

    #[test]
    fn a_stream_that_leaves_blocks_no_other() {
        let mut connection = Connection::new();
        connection.has(0, (3, false), HORIZON);
        connection.hands_over();
        connection.has(4, (0, false), TURN_BYTES);
        connection.has(8, (7, false), TURN_BYTES);
        connection.order.stop_waiting(4);
        connection.streams.get_mut(&4).unwrap().ready = 0;
        connection.sends(HORIZON);
        connection.hands_over();
        assert_eq!(connection.list, [8]);
        connection.has(4, (0, false), TURN_BYTES);
        assert_eq!(connection.sends_all(), [0, 8, 4]);
    }

    #[test]
    fn starved_streams_get_at_most_a_sixteenth_oldest_first() {
        let mut connection = Connection { has_rest: true, ..Connection::new() };
        let begun = connection.now;
        connection.has(0, (0, false), 1 << 30);
        connection.has(4, (7, true), 1 << 30);
        connection.now += Duration::from_millis(500);
        connection.has(8, (6, false), 1 << 30);
        let rest = |connection: &Connection| {
            let of = |id| connection.turns.iter().filter(|turn| turn.2 && turn.0 == id).map(|turn| turn.1).sum::<u64>();
            (of(4), of(8))
        };
        let run = |connection: &mut Connection, bytes: u64| {
            for _ in 0..bytes / 1_000 {
                connection.hands_over();
                connection.sends(1_000);
            }
        };
        connection.now = begun + Duration::from_millis(900);
        run(&mut connection, 2_000_000);
        assert_eq!(rest(&connection), (0, 0), "none has waited for long enough");
        connection.now = begun + Duration::from_millis(1_100);
        run(&mut connection, 2_000_000);
        assert_eq!(rest(&connection), (TURN_BYTES, 0), "it waits anew");
        for _ in 0..100 {
            connection.now += STARVATION_TIMEOUT;
            run(&mut connection, 100_000);
        }
        let total: u64 = connection.turns.iter().map(|turn| turn.1).sum();
        let (first, second) = rest(&connection);
        assert!(first.abs_diff(second) <= 2 * TURN_BYTES, "{first} {second}");
        assert!(
            first + second > total / 50 && first + second <= total / STARVED_SHARE_DIVISOR,
            "{first} {second} {total}"
        );
    }

    #[derive(Debug, Clone)]
    enum Step {
        Has(u64, u8, bool, u64),
        Sends(u64),
        Changes(u64, u8, bool),
        Ends(u64),
        Waits(u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        let id = || (0_u64..8).prop_map(|id| 4 * id);
        prop_oneof![
            4 => (id(), 0_u8..8, any::<bool>(), 1_u64..100_000).prop_map(|(a, b, c, d)| Step::Has(a, b, c, d)),
            8 => (1_u64..20_000).prop_map(Step::Sends),
            1 => (id(), 0_u8..8, any::<bool>()).prop_map(|(a, b, c)| Step::Changes(a, b, c)),
            1 => id().prop_map(Step::Ends),
        ]
    }

    proptest! {
        /// Each grant and each sent byte checks that the right stream is granted, and that none overtakes by more than
        /// the horizon.
        #[test]
        fn no_stream_overtakes_or_waits_while_the_horizon_has_room(
            steps in prop::collection::vec(step(), 0..200),
            list in prop_oneof![Just(SendList::Front), Just(SendList::Turns)],
            is_late in any::<bool>(),
        ) {
            let mut connection = Connection { is_late, ..Connection::with(list) };
            for step in steps {
                match step {
                    Step::Has(id, urgency, incremental, bytes) => connection.has(id, (urgency, incremental), bytes),
                    Step::Sends(bytes) => connection.sends(bytes),
                    Step::Changes(id, urgency, incremental) => {
                        connection.changes(id, Priority { urgency, incremental });
                    }
                    Step::Ends(id) => connection.ends(id),
                    Step::Waits(_) => {}
                }
                connection.hands_over();
                let waiting = connection.waiting().count();
                prop_assert_eq!(waiting, connection.order.waiting);
                let free = HORIZON - connection.unsent();
                match connection.last {
                    NextTurn::Free(bytes) => prop_assert!(waiting > 0 && free < bytes && bytes <= HORIZON / 2),
                    // Otherwise no event would come that grants the next stream a turn.
                    _ => prop_assert!(waiting == 0 || connection.unsent() > 0),
                }
            }
            connection.sends_all();
        }

        #[test]
        fn starved_streams_never_get_more_than_a_sixteenth(
            steps in prop::collection::vec(prop_oneof![3 => step(), 1 => (0_u64..3_000).prop_map(Step::Waits)], 0..200),
            list in prop_oneof![Just(SendList::Front), Just(SendList::Turns)],
        ) {
            let mut connection = Connection { has_rest: true, is_late: true, ..Connection::with(list) };
            for step in steps {
                match step {
                    Step::Has(id, urgency, incremental, bytes) => connection.has(id, (urgency, incremental), bytes),
                    Step::Waits(milliseconds) => connection.now += Duration::from_millis(milliseconds),
                    Step::Sends(bytes) => connection.sends(bytes),
                    Step::Changes(..) | Step::Ends(_) => {}
                }
                connection.hands_over();
                let rest: u64 = connection.turns.iter().filter(|turn| turn.2).map(|turn| turn.1).sum();
                let total: u64 = connection.turns.iter().map(|turn| turn.1).sum();
                prop_assert!(rest <= total / STARVED_SHARE_DIVISOR);
            }
        }
    }
}
