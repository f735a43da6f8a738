//! The bytes of responses that the streams of a connection, or of a worker, share, and what each leases of them.

use std::{cell::Cell, rc::Rc};

/// What a stream may hold however much the others hold: one packet train.
pub const TRAIN: u64 = TRAIN_BYTES as u64;
/// Bytes of [`TRAIN`], as lengths of slices are counted.
pub const TRAIN_BYTES: usize = 16 * 1024;
/// What a stream may have unacknowledged even where the budgets have nothing left: a packet's worth, so that no number
/// of clients that do not read keeps another from being served. It is on top of the budgets.
const PACKET: u64 = 1_200;
/// What a stream may hold before anything was acknowledged: more than QUIC sends in its first round trips.
pub const INITIAL: u64 = 128 * 1024;
/// Trains that a connection keeps at most: more streams than that send nothing at once.
const CONNECTION_TRAINS: u64 = 128;
/// Trains that a worker keeps, of which it has more only if they are no more than a quarter of its budget.
const WORKER_TRAINS: u64 = 1024;

/// A part of a budget.
#[derive(Debug)]
struct Part {
    limit: Cell<u64>,
    used: Cell<u64>,
}

impl Part {
    fn new(limit: u64) -> Self {
        Self { limit: Cell::new(limit), used: Cell::new(0) }
    }

    fn left(&self) -> u64 {
        self.limit.get().saturating_sub(self.used.get())
    }

    /// How many bytes more a stream may take that has `own` of it: until it has `share` times what is then left.
    fn allows(&self, own: u64, share: u64) -> u64 {
        self.left().saturating_mul(share).saturating_sub(own) / (share + 1)
    }

    /// A stream that had `before` of it now has `after`.
    fn account(&self, before: u64, after: u64) {
        self.used.set((self.used.get() + after).saturating_sub(before));
    }
}

/// Bytes that the streams of a connection, or of a worker, share.
#[derive(Debug)]
pub struct Budget {
    /// Bytes for first trains.
    trains: Part,
    /// Bytes for first shares, beyond their first trains.
    first: Part,
    /// Bytes for what streams hold beyond first shares.
    grown: Part,
    /// What a stream may have of a part, as a multiple of what is left of it.
    share: u64,
    split: fn(u64) -> Split,
}

/// A budget's parts, in bytes.
#[derive(Debug, Clone, Copy)]
struct Split {
    trains: u64,
    first: u64,
    grown: u64,
}

impl Budget {
    /// The budget of one connection, whose streams are one client's: a stream alone gets nearly all but a train for
    /// each other.
    pub fn for_connection(limit: u64) -> Rc<Self> {
        Self::new(limit, 16, |limit| {
            let (trains, first) = ((limit / 2).min(CONNECTION_TRAINS * TRAIN), limit / 8);
            Split { trains, first, grown: limit - trains - first }
        })
    }

    /// The budget of one worker: a stream alone gets half of what is beyond first shares.
    pub fn for_worker(limit: u64) -> Rc<Self> {
        Self::new(limit, 1, |limit| {
            let (trains, first) = ((limit / 2).min(WORKER_TRAINS * TRAIN).max(limit / 4), limit / 4);
            Split { trains, first, grown: limit - trains - first }
        })
    }

    fn new(limit: u64, share: u64, split: fn(u64) -> Split) -> Rc<Self> {
        let Split { trains, first, grown } = split(limit);
        let (trains, first, grown) = (Part::new(trains), Part::new(first), Part::new(grown));
        Rc::new(Self { trains, first, grown, share, split })
    }

    /// Sets the limit to `limit` bytes. What is leased beyond it stays so until it is given back.
    pub fn resize(&self, limit: u64) {
        let Split { trains, first, grown } = (self.split)(limit);
        self.trains.limit.set(trains);
        self.first.limit.set(first);
        self.grown.limit.set(grown);
    }

    /// Bytes leased now.
    pub fn used(&self) -> u64 {
        self.trains.used.get() + self.first.used.get() + self.grown.used.get()
    }

    /// A stream that held `before` now holds `after`.
    fn account(&self, before: Held, after: Held) {
        self.trains.account(before.train, after.train);
        self.first.account(before.first, after.first);
        self.grown.account(before.grown, after.grown);
    }
}

/// Bytes that a stream holds, by the parts of the budgets that they are of.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Held {
    train: u64,
    first: u64,
    grown: u64,
}

impl Held {
    fn total(self) -> u64 {
        self.train + self.first + self.grown
    }

    /// Cut to `bytes`: what came last goes first.
    fn cut(self, bytes: u64) -> Self {
        let train = self.train.min(bytes);
        let first = self.first.min(bytes - train);
        Self { train, first, grown: self.grown.min(bytes - train - first) }
    }
}

/// What one stream holds of its connection's and its worker's budget. Gives it back when dropped.
#[derive(Debug)]
pub struct BufferLease {
    connection: Rc<Budget>,
    worker: Rc<Budget>,
    /// The most that this stream ever holds.
    limit: u64,
    held: Held,
    /// Bytes beyond which acknowledged ones allow as many more than the first share: those of before the last pause.
    proven_from: u64,
    /// Bytes that its connection's client has taken within a round trip.
    window: u64,
    /// A budget allowed less than was asked for, the last time.
    denied: bool,
}

const _: () = assert!(size_of::<BufferLease>() <= 72);

impl BufferLease {
    /// Holds nothing yet, and never more than `limit` bytes.
    pub fn new(connection: Rc<Budget>, worker: Rc<Budget>, limit: u64) -> Self {
        Self { connection, worker, limit, held: Held::default(), proven_from: 0, window: 0, denied: false }
    }

    /// Adapts the lease to a stream whose bytes count as acknowledged once a buffer of `buffer` bytes has taken them,
    /// which proves nothing about the client.
    pub fn behind_buffer(mut self, buffer: u64) -> Self {
        self.proven_from = buffer;
        self
    }

    /// Bytes held.
    pub fn held(&self) -> u64 {
        self.held.total()
    }

    /// True if a budget was short when the lease last asked.
    pub fn is_denied(&self) -> bool {
        self.denied
    }

    /// The client takes `window` bytes within a round trip, as earlier streams of its connection have shown. Its
    /// streams may hold `window` bytes together beyond first shares, whatever was acknowledged of each.
    pub fn trust(&mut self, window: u64) {
        self.window = window;
    }

    /// How many bytes more the stream may hand over, having handed over `sent` so far of which `outstanding` are
    /// not acknowledged, with `ready` more at hand. From then on it holds as much as both take. Zero: wait for
    /// acknowledgements, of which the last permits something, whatever others hold.
    pub fn permit(&mut self, sent: u64, outstanding: u64, ready: u64) -> u64 {
        let others = self.connection.grown.used.get().saturating_sub(self.held.grown);
        let proven = sent.saturating_sub(outstanding).saturating_sub(self.proven_from);
        let proven = proven.max(self.window.saturating_sub(others));
        let wanted = outstanding.saturating_add(ready).min(self.limit).next_multiple_of(TRAIN).min(self.limit);
        let wanted = wanted.min(INITIAL.saturating_add(proven)).max(outstanding.min(self.held()));
        self.hold(wanted, proven);
        self.held().max(PACKET).saturating_sub(outstanding)
    }

    /// Gives back what is not used while the stream waits for its client, but for a train to begin again with. It grows
    /// again as it did at first.
    pub fn shrink(&mut self, sent: u64, outstanding: u64) {
        self.pause(sent, outstanding, TRAIN);
    }

    /// Gives back all that is not used while the stream has nothing to send. It grows again as it did at first.
    pub fn rest(&mut self, sent: u64, outstanding: u64) {
        self.pause(sent, outstanding, 0);
    }

    fn pause(&mut self, sent: u64, outstanding: u64, least: u64) {
        self.set(self.held.cut(outstanding.max(least)));
        self.proven_from = self.proven_from.max(sent.saturating_sub(outstanding));
    }

    /// Holds `wanted` bytes from now on, or what the budgets allow of it. Beyond first shares they allow as much as was
    /// `proven` to be acknowledged.
    fn hold(&mut self, wanted: u64, proven: u64) {
        let mut after = self.held.cut(wanted);
        let short = |after: Held| wanted.saturating_sub(after.total());
        let (connection, worker) = (&self.connection, &self.worker);
        if short(after) > 0 {
            let left = connection.trains.left().min(worker.trains.left());
            after.train += short(after).min(TRAIN.saturating_sub(after.train)).min(left);
            if after.train == TRAIN {
                let allows = |part: fn(&Budget) -> &Part, own| {
                    part(connection).allows(own, connection.share).min(part(worker).allows(own, worker.share))
                };
                let first = short(after).min(INITIAL.saturating_sub(after.total()));
                after.first += first.min(allows(|budget| &budget.first, after.first));
                let grown = short(after).min(proven.saturating_sub(after.grown));
                after.grown += grown.min(allows(|budget| &budget.grown, after.grown));
            }
        }
        self.denied = short(after) > 0;
        self.set(after);
    }

    fn set(&mut self, after: Held) {
        if after != self.held {
            self.connection.account(self.held, after);
            self.worker.account(self.held, after);
            self.held = after;
        }
    }
}

impl Drop for BufferLease {
    fn drop(&mut self) {
        self.set(Held::default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MIB: u64 = 1024 * 1024;

    fn lease(worker: &Rc<Budget>) -> BufferLease {
        BufferLease::new(Budget::for_connection(4 * MIB), Rc::clone(worker), MIB)
    }

    /// Sends all that is permitted, `rounds` times, each acknowledged at once.
    fn read_fast(lease: &mut BufferLease, rounds: usize) {
        let mut sent = 0;
        for _ in 0..rounds {
            sent += lease.permit(sent, 0, u64::MAX / 2);
        }
    }

    #[test]
    fn a_stream_alone_grows_to_all_that_it_may_hold() {
        let worker = Budget::for_worker(32 * MIB);
        let mut stream = lease(&worker);
        read_fast(&mut stream, 8);
        assert_eq!(stream.held(), MIB);
        drop(stream);
        assert_eq!(worker.used(), 0);
    }

    #[test]
    fn a_client_that_does_not_read_never_holds_more_than_its_first_share() {
        let worker = Budget::for_worker(32 * MIB);
        let mut stream = lease(&worker);
        let sent = stream.permit(0, 0, MIB);
        for _ in 0..100 {
            assert_eq!(stream.permit(sent, sent, MIB), 0);
        }
        assert_eq!(stream.held(), INITIAL);
    }

    #[test]
    fn what_a_connection_was_seen_to_take_its_streams_share() {
        let worker = Budget::for_worker(32 * MIB);
        let connection = Budget::for_connection(16 * MIB);
        let stream = || {
            let mut lease = BufferLease::new(Rc::clone(&connection), Rc::clone(&worker), 16 * MIB);
            lease.trust(MIB);
            lease
        };
        let (mut first, mut second, mut third) = (stream(), stream(), stream());
        assert_eq!(first.permit(0, 0, 700 * 1024), 704 * 1024);
        assert_eq!(second.permit(0, 0, 2 * MIB), 2 * INITIAL + MIB - 704 * 1024);
        assert_eq!(third.permit(0, 0, 2 * MIB), INITIAL);
        drop(first);
        assert_eq!(third.permit(0, 0, 2 * MIB), 704 * 1024);
        third.trust(0);
        assert_eq!(third.permit(704 * 1024, 704 * 1024, 2 * MIB), 0, "what is outstanding is not taken back");
    }

    #[test]
    fn a_stream_whose_client_pauses_gives_back_what_it_does_not_use_and_grows_again() {
        let worker = Budget::for_worker(32 * MIB);
        let mut stream = lease(&worker);
        read_fast(&mut stream, 8);
        stream.shrink(10 * MIB, 20_000);
        assert_eq!((stream.held(), worker.used()), (20_000, 20_000));
        stream.shrink(10 * MIB, 0);
        assert_eq!((stream.held(), worker.used()), (TRAIN, TRAIN));
        let mut sent = 10 * MIB;
        for _ in 0..8 {
            sent += stream.permit(sent, 0, u64::MAX / 2);
        }
        assert_eq!(stream.held(), MIB);
    }

    #[test]
    fn a_stream_that_has_nothing_to_send_holds_what_is_not_acknowledged_alone_and_grows_again() {
        let worker = Budget::for_worker(32 * MIB);
        let mut stream = lease(&worker);
        read_fast(&mut stream, 8);
        stream.rest(10 * MIB, 3_000);
        assert_eq!((stream.held(), worker.used()), (3_000, 3_000));
        stream.rest(10 * MIB, 0);
        assert_eq!((stream.held(), worker.used()), (0, 0));
        let mut sent = 10 * MIB;
        for _ in 0..8 {
            sent += stream.permit(sent, 0, u64::MAX / 2);
        }
        assert_eq!(stream.held(), MIB);
    }

    #[test]
    fn a_short_response_holds_no_more_than_it_needs() {
        let worker = Budget::for_worker(32 * MIB);
        let mut stream = lease(&worker);
        assert!(stream.permit(0, 0, 1000) >= 1000);
        assert_eq!(stream.held(), TRAIN);
    }

    #[test]
    fn beside_a_thousand_that_do_not_read_a_newcomer_gets_a_train_and_more_once_it_reads() {
        let worker = Budget::for_worker(32 * MIB);
        let mut stalled: Vec<_> = (0..1000).map(|_| lease(&worker)).collect();
        for stream in &mut stalled {
            assert!(stream.permit(0, 0, MIB) >= TRAIN);
        }
        assert!(worker.used() <= 32 * MIB);
        let mut newcomer = lease(&worker);
        assert!(newcomer.permit(0, 0, MIB) >= TRAIN);
        drop(stalled.drain(..500));
        read_fast(&mut newcomer, 8);
        assert!(newcomer.held() > INITIAL);
    }

    #[test]
    fn a_budget_that_shrinks_takes_nothing_back_and_gives_no_more() {
        let worker = Budget::for_worker(32 * MIB);
        let mut stream = lease(&worker);
        let mut sent = 0;
        let mut sends = |acknowledged: u64| {
            sent += stream.permit(sent, sent - acknowledged, MIB).min(MIB);
            (stream.held(), sent)
        };
        assert_eq!(sends(0), (INITIAL, INITIAL));
        assert_eq!(sends(INITIAL), (2 * INITIAL, 3 * INITIAL));
        worker.resize(TRAIN);
        assert_eq!(sends(INITIAL), (2 * INITIAL, 3 * INITIAL), "all that it holds is outstanding");
        assert_eq!(sends(3 * INITIAL), (2 * INITIAL, 5 * INITIAL));
        worker.resize(32 * MIB);
        assert_eq!(sends(5 * INITIAL), (6 * INITIAL, 11 * INITIAL));
    }

    #[test]
    fn what_a_buffer_has_taken_proves_nothing() {
        let worker = Budget::for_worker(32 * MIB);
        let mut stream = lease(&worker).behind_buffer(MIB);
        assert_eq!(stream.permit(MIB, 0, MIB), INITIAL);
        assert_eq!(stream.permit(MIB + 2 * INITIAL, 0, MIB), 3 * INITIAL);
    }

    #[test]
    fn what_was_acknowledged_is_given_back_at_once() {
        let worker = Budget::for_worker(32 * MIB);
        let mut stream = lease(&worker);
        read_fast(&mut stream, 8);
        stream.permit(20 * MIB, 100_000, 1_000);
        assert_eq!((stream.held(), worker.used()), (7 * TRAIN, 7 * TRAIN));
    }

    #[test]
    fn no_growth_of_the_window_waits_for_the_lease() {
        let worker = Budget::for_worker(64 * MIB);
        let mut stream = BufferLease::new(Budget::for_connection(16 * MIB), worker, 16 * MIB);
        // In slow start the window grows by all that is acknowledged; beside it something is to be unsent.
        let (mut acknowledged, unsent) = (0, 4 * TRAIN);
        while acknowledged < 10_000_000 {
            let outstanding = 12_000 + acknowledged;
            let permitted = stream.permit(acknowledged + outstanding, outstanding, unsent);
            assert!(permitted >= unsent, "{permitted} at {acknowledged}");
            acknowledged += 10_000;
        }
    }

    #[test]
    fn a_stream_alone_has_enough_for_half_a_gigabit_at_a_tenth_of_a_second_and_several_share() {
        let worker = Budget::for_worker(64 * MIB);
        let alone = || BufferLease::new(Budget::for_connection(16 * MIB), Rc::clone(&worker), 16 * MIB);
        let mut streams: Vec<_> = (0..10).map(|_| alone()).collect();
        let mut rounds = |count: usize| {
            for _ in 0..100 {
                for stream in &mut streams[..count] {
                    stream.permit(1 << 30, stream.held(), MIB);
                }
            }
            streams[..count].iter().map(BufferLease::held).collect::<Vec<_>>()
        };
        let held = rounds(1);
        assert!(held[0] > 11 * MIB, "{held:?}");
        let held = rounds(10);
        assert!(held.iter().all(|held| *held > MIB), "{held:?}");
        assert!(worker.used() <= 64 * MIB);
    }

    #[test]
    fn a_thousand_that_do_not_read_hold_half_of_the_budget_and_one_that_reads_grows_beside_them() {
        let worker = Budget::for_worker(64 * MIB);
        let mut stalled: Vec<_> = (0..1000).map(|_| lease(&worker)).collect();
        for round in 0..10 {
            for stream in &mut stalled {
                stream.permit(0, if round == 0 { 0 } else { stream.held() }, MIB);
            }
        }
        assert!(worker.used() <= 32 * MIB, "{}", worker.used());
        let mut newcomer = lease(&worker);
        read_fast(&mut newcomer, 20);
        assert!(newcomer.held() > MIB / 2, "{}", newcomer.held());
    }

    #[test]
    fn clients_that_read_fast_and_then_nothing_leave_others_their_first_shares() {
        let worker = Budget::for_worker(64 * MIB);
        let limit = 16 * MIB;
        let mut stalled: Vec<_> =
            (0..20).map(|_| BufferLease::new(Budget::for_connection(limit), Rc::clone(&worker), limit)).collect();
        for stream in &mut stalled {
            let mut outstanding = 0;
            for _ in 0..100 {
                outstanding += stream.permit(1 << 30, outstanding, MIB).min(MIB);
            }
            assert_eq!(stream.held(), outstanding.max(TRAIN));
        }
        assert!(worker.used() > 30 * MIB && worker.used() < 40 * MIB, "{}", worker.used());
        let mut newcomers: Vec<_> = (0..50).map(|_| lease(&worker)).collect();
        for newcomer in &mut newcomers {
            assert_eq!(newcomer.permit(0, 0, MIB), INITIAL);
        }
    }

    #[test]
    fn beside_any_number_that_do_not_read_a_newcomer_gets_a_packet_at_a_time() {
        let worker = Budget::for_worker(32 * MIB);
        let mut stalled: Vec<_> = (0..2000).map(|_| lease(&worker)).collect();
        for stream in &mut stalled {
            stream.permit(0, 0, MIB);
        }
        assert!(worker.used() <= 32 * MIB);
        let mut newcomer = lease(&worker);
        let mut sent = 0;
        for _ in 0..100 {
            let permitted = newcomer.permit(sent, 0, MIB);
            assert_eq!(permitted, PACKET);
            assert!(newcomer.is_denied());
            sent += permitted;
            assert_eq!(newcomer.permit(sent, permitted, MIB), 0);
        }
    }

    proptest! {
        #[test]
        fn no_order_of_sending_and_acknowledging_passes_a_limit(
            steps in prop::collection::vec((0usize..20, 0u64..2 * MIB, any::<bool>()), 0..400),
        ) {
            let worker = Budget::for_worker(2 * MIB);
            let connections: Vec<_> = (0..4).map(|_| Budget::for_connection(MIB)).collect();
            let mut streams: Vec<_> = (0..20)
                .map(|n| (BufferLease::new(Rc::clone(&connections[n % 4]), Rc::clone(&worker), 512 * 1024), 0, 0))
                .collect();
            for (n, bytes, send) in steps {
                let (lease, sent, outstanding) = &mut streams[n];
                if send {
                    let permitted = lease.permit(*sent, *outstanding, bytes).min(bytes);
                    *sent += permitted;
                    *outstanding += permitted;
                } else {
                    *outstanding = outstanding.saturating_sub(bytes);
                    match bytes % 4 {
                        0 => lease.shrink(*sent, *outstanding),
                        1 => lease.rest(*sent, *outstanding),
                        _ => {}
                    }
                }
                prop_assert!(*outstanding <= lease.held().max(PACKET));
                prop_assert!(lease.held() <= 512 * 1024);
                prop_assert!(worker.used() <= 2 * MIB);
                prop_assert!(connections.iter().all(|connection| connection.used() <= MIB));
                let acknowledged = *sent - *outstanding;
                prop_assert!(lease.held() <= INITIAL + acknowledged);
                prop_assert_eq!(worker.used(), streams.iter().map(|stream| stream.0.held()).sum::<u64>());
            }
            drop(streams);
            prop_assert_eq!(worker.used(), 0);
        }
    }
}
