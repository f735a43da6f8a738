//! Budgets of response bytes that the streams of a connection or of a worker share, and the streams' leases.

use std::{cell::Cell, rc::Rc};

/// Bytes that a stream may hold however much the others hold: one packet train.
pub const TRAIN: u64 = TRAIN_BYTES as u64;
/// [`TRAIN`] as `usize`.
pub const TRAIN_BYTES: usize = 16 * 1024;
/// Bytes that a stream may have unacknowledged even if the budgets have nothing left: a packet, so that clients that do
/// not read, however many, do not keep another client from being served. They are on top of the budgets.
const PACKET_BYTES: u64 = 1_200;
/// Bytes that a stream may hold before any acknowledgement: more than QUIC sends in its first round trips.
pub const FIRST_SHARE_BYTES: u64 = 128 * 1024;
/// Maximum number of trains reserved in a connection's budget. Further streams share the part of first shares.
const CONNECTION_TRAINS: u64 = 128;
/// Number of trains reserved in a worker's budget; more only if they are no more than a quarter of the budget.
const WORKER_TRAINS: u64 = 1024;

/// Part of a budget, in bytes.
#[derive(Debug, Default)]
struct BudgetPart {
    limit: Cell<u64>,
    used: Cell<u64>,
}

impl BudgetPart {
    fn free_bytes(&self) -> u64 {
        self.limit.get().saturating_sub(self.used.get())
    }

    /// Number of further bytes of this part that a stream with `own` bytes may take: until it has `share` times the
    /// rest.
    fn allowed_bytes(&self, own: u64, share: u64) -> u64 {
        self.free_bytes().saturating_mul(share).saturating_sub(own) / (share + 1)
    }

    /// Counts that a stream that had `before` bytes of this part now has `after`.
    fn account_part(&self, before: u64, after: u64) {
        self.used.set((self.used.get() + after).saturating_sub(before));
    }
}

/// Budget of response bytes that the streams of a connection or of a worker share.
#[derive(Debug)]
pub struct SendBudget {
    /// Part for first trains.
    trains: BudgetPart,
    /// Part for first shares, beyond first trains.
    first: BudgetPart,
    /// Part for bytes beyond first shares.
    grown: BudgetPart,
    /// Bytes that a stream may have of a part, as a multiple of the part's free bytes.
    share: u64,
    /// Returns the sizes of the parts for a limit.
    split: fn(u64) -> PartBytes,
}

impl SendBudget {
    /// A budget of `limit` bytes for one connection, whose streams are one client's: a stream alone gets nearly all but
    /// the other streams' trains.
    pub fn for_connection(limit: u64) -> Rc<Self> {
        Self::new(limit, 16, |limit| {
            let (train, first) = ((limit / 2).min(CONNECTION_TRAINS * TRAIN), limit / 8);
            PartBytes { train, first, grown: limit - train - first }
        })
    }

    /// A budget of `limit` bytes for one worker: a stream alone gets half of the part beyond first shares.
    pub fn for_worker(limit: u64) -> Rc<Self> {
        Self::new(limit, 1, |limit| {
            let (train, first) = ((limit / 2).min(WORKER_TRAINS * TRAIN).max(limit / 4), limit / 4);
            PartBytes { train, first, grown: limit - train - first }
        })
    }

    fn new(limit: u64, share: u64, split: fn(u64) -> PartBytes) -> Rc<Self> {
        let [trains, first, grown] = std::array::from_fn(|_| BudgetPart::default());
        let budget = Self { trains, first, grown, share, split };
        budget.resize(limit);
        Rc::new(budget)
    }

    /// Sets the limit to `limit` bytes. Leased bytes beyond it stay leased until they are released.
    pub fn resize(&self, limit: u64) {
        let PartBytes { train, first, grown } = (self.split)(limit);
        self.trains.limit.set(train);
        self.first.limit.set(first);
        self.grown.limit.set(grown);
    }

    /// Number of leased bytes.
    pub fn leased_bytes(&self) -> u64 {
        self.trains.used.get() + self.first.used.get() + self.grown.used.get()
    }

    /// Counts that a stream that held `before` now holds `after`.
    fn account_lease(&self, before: PartBytes, after: PartBytes) {
        self.trains.account_part(before.train, after.train);
        self.first.account_part(before.first, after.first);
        self.grown.account_part(before.grown, after.grown);
    }
}

/// Bytes of each part of a budget: its size, or what a stream holds of it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct PartBytes {
    train: u64,
    first: u64,
    grown: u64,
}

impl PartBytes {
    fn total_bytes(self) -> u64 {
        self.train + self.first + self.grown
    }

    /// Reduces the total to `bytes`: the part that was taken last goes first.
    fn cut_to(self, bytes: u64) -> Self {
        let train = self.train.min(bytes);
        let first = self.first.min(bytes - train);
        Self { train, first, grown: self.grown.min(bytes - train - first) }
    }
}

/// Lease of one stream on its connection's and its worker's budget, released when dropped.
#[derive(Debug)]
pub struct BufferLease {
    connection: Rc<SendBudget>,
    worker: Rc<SendBudget>,
    /// Maximum number of bytes that this stream holds.
    limit: u64,
    held: PartBytes,
    /// Acknowledged bytes count as proof from this offset on: the bytes before the last pause do not count.
    proven_from: u64,
    /// Bytes that the client has taken within a round trip, on any stream of the connection.
    pub window: u64,
    /// Whether a budget allowed less than the last request.
    pub denied: bool,
}

const _: () = assert!(size_of::<BufferLease>() <= 72);

impl BufferLease {
    /// An empty lease, which never holds more than `limit` bytes.
    pub fn new(connection: Rc<SendBudget>, worker: Rc<SendBudget>, limit: u64) -> Self {
        Self { connection, worker, limit, held: PartBytes::default(), proven_from: 0, window: 0, denied: false }
    }

    /// Adapts the lease to a stream whose bytes count as acknowledged once a buffer of `buffer` bytes has taken them,
    /// which proves nothing about the client.
    pub fn behind_buffer(mut self, buffer: u64) -> Self {
        self.proven_from = buffer;
        self
    }

    /// Number of bytes that the lease holds.
    pub fn held_bytes(&self) -> u64 {
        self.held.total_bytes()
    }

    /// Number of further bytes that the stream may queue, after `sent` bytes of which `outstanding` are not
    /// acknowledged, with `ready` more at hand. From then on the lease holds the outstanding and the permitted bytes.
    /// Zero means to wait for acknowledgements, of which the last permits something, whatever others hold.
    pub fn permit_bytes(&mut self, sent: u64, outstanding: u64, ready: u64) -> u64 {
        let others = self.connection.grown.used.get().saturating_sub(self.held.grown);
        let proven = sent.saturating_sub(outstanding).saturating_sub(self.proven_from);
        let proven = proven.max(self.window.saturating_sub(others));
        let wanted = outstanding.saturating_add(ready).min(self.limit).next_multiple_of(TRAIN).min(self.limit);
        let wanted = wanted.min(FIRST_SHARE_BYTES.saturating_add(proven)).max(outstanding.min(self.held_bytes()));
        self.hold_bytes(wanted, proven);
        self.held_bytes().max(PACKET_BYTES).saturating_sub(outstanding)
    }

    /// Releases the unused bytes beyond `least` while the stream has nothing to send (0), or waits for its client (a
    /// [`TRAIN`], to begin again with). The lease grows again as it did at first.
    pub fn cut_unused(&mut self, sent: u64, outstanding: u64, least: u64) {
        self.set_held_bytes(self.held.cut_to(outstanding.max(least)));
        self.proven_from = self.proven_from.max(sent.saturating_sub(outstanding));
    }

    /// Holds `wanted` bytes from now on, or as many as the budgets allow. Beyond first shares they allow `proven`
    /// bytes, as many as were acknowledged.
    fn hold_bytes(&mut self, wanted: u64, proven: u64) {
        let mut after = self.held.cut_to(wanted);
        let short = |after: PartBytes| wanted.saturating_sub(after.total_bytes());
        let (connection, worker) = (&self.connection, &self.worker);
        if short(after) > 0 {
            let left = connection.trains.free_bytes().min(worker.trains.free_bytes());
            after.train += short(after).min(TRAIN.saturating_sub(after.train)).min(left);
            let allows = |part: fn(&SendBudget) -> &BudgetPart, own| {
                part(connection).allowed_bytes(own, connection.share).min(part(worker).allowed_bytes(own, worker.share))
            };
            // Also without a whole train: more streams than there are trains have all that they send in memory.
            let first = short(after).min(FIRST_SHARE_BYTES.saturating_sub(after.total_bytes()));
            after.first += first.min(allows(|budget| &budget.first, after.first));
            let grown = short(after).min(proven.saturating_sub(after.grown));
            after.grown += grown.min(allows(|budget| &budget.grown, after.grown));
        }
        self.denied = short(after) > 0;
        self.set_held_bytes(after);
    }

    fn set_held_bytes(&mut self, after: PartBytes) {
        if after != self.held {
            self.connection.account_lease(self.held, after);
            self.worker.account_lease(self.held, after);
            self.held = after;
        }
    }
}

impl Drop for BufferLease {
    fn drop(&mut self) {
        self.set_held_bytes(PartBytes::default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MIB: u64 = 1024 * 1024;

    fn lease(worker: &Rc<SendBudget>) -> BufferLease {
        BufferLease::new(SendBudget::for_connection(4 * MIB), Rc::clone(worker), MIB)
    }

    /// Sends all permitted bytes `rounds` times, each time acknowledged at once.
    fn read_fast(lease: &mut BufferLease, rounds: usize) {
        let mut sent = 0;
        for _ in 0..rounds {
            sent += lease.permit_bytes(sent, 0, u64::MAX / 2);
        }
    }

    #[test]
    fn a_stream_alone_grows_to_all_that_it_may_hold() {
        let worker = SendBudget::for_worker(32 * MIB);
        let mut stream = lease(&worker);
        read_fast(&mut stream, 8);
        assert_eq!(stream.held_bytes(), MIB);
        drop(stream);
        assert_eq!(worker.leased_bytes(), 0);
    }

    #[test]
    fn a_client_that_does_not_read_holds_only_its_first_share() {
        let worker = SendBudget::for_worker(32 * MIB);
        let mut stream = lease(&worker);
        let sent = stream.permit_bytes(0, 0, MIB);
        for _ in 0..100 {
            assert_eq!(stream.permit_bytes(sent, sent, MIB), 0);
        }
        assert_eq!(stream.held_bytes(), FIRST_SHARE_BYTES);
    }

    #[test]
    fn streams_share_the_window_that_their_connection_has_proven() {
        let worker = SendBudget::for_worker(32 * MIB);
        let connection = SendBudget::for_connection(16 * MIB);
        let stream = || {
            let mut lease = BufferLease::new(Rc::clone(&connection), Rc::clone(&worker), 16 * MIB);
            lease.window = MIB;
            lease
        };
        let (mut first, mut second, mut third) = (stream(), stream(), stream());
        assert_eq!(first.permit_bytes(0, 0, 700 * 1024), 704 * 1024);
        assert_eq!(second.permit_bytes(0, 0, 2 * MIB), 2 * FIRST_SHARE_BYTES + MIB - 704 * 1024);
        assert_eq!(third.permit_bytes(0, 0, 2 * MIB), FIRST_SHARE_BYTES);
        drop(first);
        assert_eq!(third.permit_bytes(0, 0, 2 * MIB), 704 * 1024);
        third.window = 0;
        assert_eq!(third.permit_bytes(704 * 1024, 704 * 1024, 2 * MIB), 0, "what is outstanding is not taken back");
    }

    #[test]
    fn a_paused_stream_releases_unused_bytes_and_grows_again() {
        let worker = SendBudget::for_worker(32 * MIB);
        let mut stream = lease(&worker);
        read_fast(&mut stream, 8);
        stream.cut_unused(10 * MIB, 20_000, TRAIN);
        assert_eq!((stream.held_bytes(), worker.leased_bytes()), (20_000, 20_000));
        stream.cut_unused(10 * MIB, 0, TRAIN);
        assert_eq!((stream.held_bytes(), worker.leased_bytes()), (TRAIN, TRAIN));
        let mut sent = 10 * MIB;
        for _ in 0..8 {
            sent += stream.permit_bytes(sent, 0, u64::MAX / 2);
        }
        assert_eq!(stream.held_bytes(), MIB);
    }

    #[test]
    fn an_idle_stream_holds_only_unacknowledged_bytes_and_grows_again() {
        let worker = SendBudget::for_worker(32 * MIB);
        let mut stream = lease(&worker);
        read_fast(&mut stream, 8);
        stream.cut_unused(10 * MIB, 3_000, 0);
        assert_eq!((stream.held_bytes(), worker.leased_bytes()), (3_000, 3_000));
        stream.cut_unused(10 * MIB, 0, 0);
        assert_eq!((stream.held_bytes(), worker.leased_bytes()), (0, 0));
        let mut sent = 10 * MIB;
        for _ in 0..8 {
            sent += stream.permit_bytes(sent, 0, u64::MAX / 2);
        }
        assert_eq!(stream.held_bytes(), MIB);
    }

    #[test]
    fn a_short_response_holds_no_more_than_it_needs() {
        let worker = SendBudget::for_worker(32 * MIB);
        let mut stream = lease(&worker);
        assert!(stream.permit_bytes(0, 0, 1000) >= 1000);
        assert_eq!(stream.held_bytes(), TRAIN);
    }

    #[test]
    fn beside_a_thousand_slow_readers_a_newcomer_gets_a_train() {
        let worker = SendBudget::for_worker(32 * MIB);
        let mut stalled: Vec<_> = (0..1000).map(|_| lease(&worker)).collect();
        for stream in &mut stalled {
            assert!(stream.permit_bytes(0, 0, MIB) >= TRAIN);
        }
        assert!(worker.leased_bytes() <= 32 * MIB);
        let mut newcomer = lease(&worker);
        assert!(newcomer.permit_bytes(0, 0, MIB) >= TRAIN);
        drop(stalled.drain(..500));
        read_fast(&mut newcomer, 8);
        assert!(newcomer.held_bytes() > FIRST_SHARE_BYTES);
    }

    #[test]
    fn a_smaller_budget_revokes_no_lease_and_grants_none() {
        let worker = SendBudget::for_worker(32 * MIB);
        let mut stream = lease(&worker);
        let mut sent = 0;
        let mut sends = |acknowledged: u64| {
            sent += stream.permit_bytes(sent, sent - acknowledged, MIB).min(MIB);
            (stream.held_bytes(), sent)
        };
        assert_eq!(sends(0), (FIRST_SHARE_BYTES, FIRST_SHARE_BYTES));
        assert_eq!(sends(FIRST_SHARE_BYTES), (2 * FIRST_SHARE_BYTES, 3 * FIRST_SHARE_BYTES));
        worker.resize(TRAIN);
        assert_eq!(
            sends(FIRST_SHARE_BYTES),
            (2 * FIRST_SHARE_BYTES, 3 * FIRST_SHARE_BYTES),
            "all that it holds is outstanding"
        );
        assert_eq!(sends(3 * FIRST_SHARE_BYTES), (2 * FIRST_SHARE_BYTES, 5 * FIRST_SHARE_BYTES));
        worker.resize(32 * MIB);
        assert_eq!(sends(5 * FIRST_SHARE_BYTES), (6 * FIRST_SHARE_BYTES, 11 * FIRST_SHARE_BYTES));
    }

    #[test]
    fn bytes_in_a_buffer_prove_nothing() {
        let worker = SendBudget::for_worker(32 * MIB);
        let mut stream = lease(&worker).behind_buffer(MIB);
        assert_eq!(stream.permit_bytes(MIB, 0, MIB), FIRST_SHARE_BYTES);
        assert_eq!(stream.permit_bytes(MIB + 2 * FIRST_SHARE_BYTES, 0, MIB), 3 * FIRST_SHARE_BYTES);
    }

    #[test]
    fn acknowledged_bytes_are_released_at_once() {
        let worker = SendBudget::for_worker(32 * MIB);
        let mut stream = lease(&worker);
        read_fast(&mut stream, 8);
        stream.permit_bytes(20 * MIB, 100_000, 1_000);
        assert_eq!((stream.held_bytes(), worker.leased_bytes()), (7 * TRAIN, 7 * TRAIN));
    }

    #[test]
    fn the_lease_never_delays_window_growth() {
        let worker = SendBudget::for_worker(64 * MIB);
        let mut stream = BufferLease::new(SendBudget::for_connection(16 * MIB), worker, 16 * MIB);
        // In slow start, the window grows by all acknowledged bytes, and further bytes should be unsent beside it.
        let (mut acknowledged, unsent) = (0, 4 * TRAIN);
        while acknowledged < 10_000_000 {
            let outstanding = 12_000 + acknowledged;
            let permitted = stream.permit_bytes(acknowledged + outstanding, outstanding, unsent);
            assert!(permitted >= unsent, "{permitted} at {acknowledged}");
            acknowledged += 10_000;
        }
    }

    #[test]
    fn one_stream_fills_half_a_gigabit_at_100_ms_and_several_share() {
        let worker = SendBudget::for_worker(64 * MIB);
        let alone = || BufferLease::new(SendBudget::for_connection(16 * MIB), Rc::clone(&worker), 16 * MIB);
        let mut streams: Vec<_> = (0..10).map(|_| alone()).collect();
        let mut rounds = |count: usize| {
            for _ in 0..100 {
                for stream in &mut streams[..count] {
                    stream.permit_bytes(1 << 30, stream.held_bytes(), MIB);
                }
            }
            streams[..count].iter().map(BufferLease::held_bytes).collect::<Vec<_>>()
        };
        let held = rounds(1);
        assert!(held[0] > 11 * MIB, "{held:?}");
        let held = rounds(10);
        assert!(held.iter().all(|held| *held > MIB), "{held:?}");
        assert!(worker.leased_bytes() <= 64 * MIB);
    }

    #[test]
    fn a_reader_grows_beside_a_thousand_clients_that_do_not_read() {
        let worker = SendBudget::for_worker(64 * MIB);
        let mut stalled: Vec<_> = (0..1000).map(|_| lease(&worker)).collect();
        for round in 0..10 {
            for stream in &mut stalled {
                stream.permit_bytes(0, if round == 0 { 0 } else { stream.held_bytes() }, MIB);
            }
        }
        assert!(worker.leased_bytes() <= 32 * MIB, "{}", worker.leased_bytes());
        let mut newcomer = lease(&worker);
        read_fast(&mut newcomer, 20);
        assert!(newcomer.held_bytes() > MIB / 2, "{}", newcomer.held_bytes());
    }

    #[test]
    fn clients_that_read_fast_and_then_nothing_leave_others_their_first_shares() {
        let worker = SendBudget::for_worker(64 * MIB);
        let limit = 16 * MIB;
        let mut stalled: Vec<_> =
            (0..20).map(|_| BufferLease::new(SendBudget::for_connection(limit), Rc::clone(&worker), limit)).collect();
        for stream in &mut stalled {
            let mut outstanding = 0;
            for _ in 0..100 {
                outstanding += stream.permit_bytes(1 << 30, outstanding, MIB).min(MIB);
            }
            assert_eq!(stream.held_bytes(), outstanding.max(TRAIN));
        }
        assert!(worker.leased_bytes() > 30 * MIB && worker.leased_bytes() < 40 * MIB, "{}", worker.leased_bytes());
        let mut newcomers: Vec<_> = (0..50).map(|_| lease(&worker)).collect();
        for newcomer in &mut newcomers {
            assert_eq!(newcomer.permit_bytes(0, 0, MIB), FIRST_SHARE_BYTES);
        }
    }

    #[test]
    fn a_newcomer_always_gets_a_packet_at_a_time() {
        let worker = SendBudget::for_worker(32 * MIB);
        let mut stalled: Vec<_> = (0..2000).map(|_| lease(&worker)).collect();
        // Their clients have read fast before, so that no part of the budget is left.
        for stream in &mut stalled {
            stream.permit_bytes(1 << 30, 0, MIB);
        }
        assert!(worker.leased_bytes() <= 32 * MIB);
        let mut newcomer = lease(&worker);
        let mut sent = 0;
        for _ in 0..100 {
            let permitted = newcomer.permit_bytes(sent, 0, MIB);
            assert_eq!(permitted, PACKET_BYTES);
            assert!(newcomer.denied);
            sent += permitted;
            assert_eq!(newcomer.permit_bytes(sent, permitted, MIB), 0);
        }
    }

    #[test]
    fn more_streams_than_trains_have_their_responses_in_memory() {
        let worker = SendBudget::for_worker(64 * MIB);
        let connections: Vec<_> = (0..64).map(|_| SendBudget::for_connection(16 * MIB)).collect();
        let lease_of = |n: usize| BufferLease::new(Rc::clone(&connections[n % 64]), Rc::clone(&worker), 16 * MIB);
        let mut streams: Vec<_> = (0..1984).map(lease_of).collect();
        for stream in &mut streams {
            assert!(stream.permit_bytes(0, 0, 10_000) >= 10_000);
        }
    }

    proptest! {
        #[test]
        fn no_order_of_sending_and_acknowledging_passes_a_limit(
            steps in prop::collection::vec((0usize..20, 0u64..2 * MIB, any::<bool>()), 0..400),
        ) {
            let worker = SendBudget::for_worker(2 * MIB);
            let connections: Vec<_> = (0..4).map(|_| SendBudget::for_connection(MIB)).collect();
            let mut streams: Vec<_> = (0..20)
                .map(|n| (BufferLease::new(Rc::clone(&connections[n % 4]), Rc::clone(&worker), 512 * 1024), 0, 0))
                .collect();
            for (n, bytes, send) in steps {
                let (lease, sent, outstanding) = &mut streams[n];
                if send {
                    let permitted = lease.permit_bytes(*sent, *outstanding, bytes).min(bytes);
                    *sent += permitted;
                    *outstanding += permitted;
                } else {
                    *outstanding = outstanding.saturating_sub(bytes);
                    match bytes % 4 {
                        0 => lease.cut_unused(*sent, *outstanding, TRAIN),
                        1 => lease.cut_unused(*sent, *outstanding, 0),
                        _ => {}
                    }
                }
                prop_assert!(*outstanding <= lease.held_bytes().max(PACKET_BYTES));
                prop_assert!(lease.held_bytes() <= 512 * 1024);
                prop_assert!(worker.leased_bytes() <= 2 * MIB);
                prop_assert!(connections.iter().all(|connection| connection.leased_bytes() <= MIB));
                let acknowledged = *sent - *outstanding;
                prop_assert!(lease.held_bytes() <= FIRST_SHARE_BYTES + acknowledged);
                prop_assert_eq!(worker.leased_bytes(), streams.iter().map(|stream| stream.0.held_bytes()).sum::<u64>());
            }
            drop(streams);
            prop_assert_eq!(worker.leased_bytes(), 0);
        }
    }
}
