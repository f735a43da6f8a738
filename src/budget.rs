//! The send budget: how many bytes of responses may be in memory, so that a stream, a connection and a worker stay
//! bounded. HTTP/1.1, HTTP/2 and HTTP/3 share it.
//!
//! s2n-quic and h2 bound a stream's send buffer alone, so a stream leases bytes from its connection's and its worker's
//! budget before it hands them over. They are in flight until the client has acknowledged them (QUIC), or the kernel has
//! taken them (TCP). Two rules make that fair. A lease grows only as bytes are acknowledged, so a client that does not
//! read never holds more than its first share. And it grows by what is left, as in the dynamic threshold of
//! shared-memory switches (Choudhury and Hahne, 1998). Half of a budget is kept for first packet trains, so that a
//! newcomer is served however much the others hold; where even those are taken, it gets a packet at a time. Pure.

use std::{cell::Cell, rc::Rc};

/// What a stream may hold however much the others hold: one packet train.
pub const TRAIN: u64 = TRAIN_BYTES as u64;
/// The same, as lengths are counted.
pub const TRAIN_BYTES: usize = 16 * 1024;
/// What a stream may have unacknowledged even where the budgets have nothing left: a packet's worth, so that no number of
/// clients that do not read keeps another from being served. It is on top of the budgets.
const PACKET: u64 = 1_200;
/// What a stream may hold before anything was acknowledged: more than QUIC sends in its first round trips.
const INITIAL: u64 = 128 * 1024;

/// Bytes that the streams of a connection, or of a worker, share.
#[derive(Debug)]
pub struct Budget {
    /// Of each half: first trains, and all beyond them.
    half: Cell<u64>,
    /// A stream may take what is left divided by this.
    share: u64,
    trains: Cell<u64>,
    grown: Cell<u64>,
}

impl Budget {
    /// Of one connection: of what is left a stream may take half.
    pub fn for_connection(limit: u64) -> Rc<Self> {
        Self::new(limit, 2)
    }

    /// Of one worker: of what is left a stream may take an eighth.
    pub fn for_worker(limit: u64) -> Rc<Self> {
        Self::new(limit, 8)
    }

    fn new(limit: u64, share: u64) -> Rc<Self> {
        Rc::new(Self { half: Cell::new(limit / 2), share, trains: Cell::new(0), grown: Cell::new(0) })
    }

    /// From now on `limit` bytes. What is leased beyond it stays so until it is given back.
    pub fn resize(&self, limit: u64) {
        self.half.set(limit / 2);
    }

    /// Bytes leased now.
    pub fn used(&self) -> u64 {
        self.trains.get() + self.grown.get()
    }

    /// How many bytes more a stream that holds `held` may take.
    fn allows(&self, held: u64) -> u64 {
        let train = TRAIN.saturating_sub(held).min(self.half.get().saturating_sub(self.trains.get()));
        if held + train < TRAIN {
            return train;
        }
        train + self.half.get().saturating_sub(self.grown.get()) / self.share
    }

    /// A stream that held `before` now holds `after`.
    fn account(&self, before: u64, after: u64) {
        let train = |held: u64| held.min(TRAIN);
        self.trains.set(self.trains.get() + train(after) - train(before));
        self.grown.set(self.grown.get() + (after - train(after)) - (before - train(before)));
    }
}

/// What one stream holds of its connection's and its worker's budget. Gives it back when dropped.
#[derive(Debug)]
pub struct Lease {
    connection: Rc<Budget>,
    worker: Rc<Budget>,
    /// The most that this stream ever holds.
    limit: u64,
    held: u64,
    /// How many bytes were acknowledged when the lease last grew.
    grown_at: u64,
    /// A budget allowed less than was asked for, the last time.
    denied: bool,
}

impl Lease {
    /// Holds nothing yet, and never more than `limit` bytes.
    pub fn new(connection: Rc<Budget>, worker: Rc<Budget>, limit: u64) -> Self {
        Self { connection, worker, limit, held: 0, grown_at: 0, denied: false }
    }

    /// Bytes held.
    pub fn held(&self) -> u64 {
        self.held
    }

    /// True once the stream's own limit is the only one that counts.
    pub fn is_full(&self) -> bool {
        self.held == self.limit
    }

    /// True if a budget was short when the lease last asked.
    pub fn is_denied(&self) -> bool {
        self.denied
    }

    /// How many bytes more the stream may hand over, having handed over `sent` so far of which `outstanding` are
    /// not acknowledged, with `ready` more at hand. Zero: wait for acknowledgements, or for others to give back.
    pub fn permit(&mut self, sent: u64, outstanding: u64, ready: u64) -> u64 {
        let acknowledged = sent.saturating_sub(outstanding);
        if self.held < INITIAL {
            self.grow(INITIAL.min((outstanding + ready).next_multiple_of(TRAIN)));
        }
        if self.held > 0
            && outstanding + ready > self.held
            && acknowledged - self.grown_at.min(acknowledged) >= self.held
        {
            self.grow(self.held * 2);
            self.grown_at = acknowledged;
        }
        self.held.max(PACKET).saturating_sub(outstanding)
    }

    /// Gives back what is not used while the stream waits for its client, but for a train to begin again with. It grows
    /// again as it did at first.
    pub fn shrink(&mut self, sent: u64, outstanding: u64) {
        self.set(outstanding.max(TRAIN).min(self.held));
        self.grown_at = sent.saturating_sub(outstanding);
    }

    /// Gives back all that is not used while the stream has nothing to send. It grows again as it did at first.
    pub fn rest(&mut self, sent: u64, outstanding: u64) {
        self.set(outstanding.min(self.held));
        self.grown_at = sent.saturating_sub(outstanding);
    }

    fn grow(&mut self, wanted: u64) {
        let allowed = self.connection.allows(self.held).min(self.worker.allows(self.held));
        let wanted = wanted.min(self.limit);
        let after = wanted.min(self.held + allowed);
        self.denied = after < wanted;
        if after > self.held {
            self.set(after);
        }
    }

    fn set(&mut self, after: u64) {
        self.connection.account(self.held, after);
        self.worker.account(self.held, after);
        self.held = after;
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MIB: u64 = 1024 * 1024;

    fn lease(worker: &Rc<Budget>) -> Lease {
        Lease::new(Budget::for_connection(4 * MIB), Rc::clone(worker), MIB)
    }

    /// Sends all that is permitted, `rounds` times, each acknowledged at once.
    fn read_fast(lease: &mut Lease, rounds: usize) {
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
        assert!(stream.is_full());
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
        assert!(stream.is_full());
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
        assert!(stream.is_full());
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
        let mut held_after_two_rounds = || {
            for _ in 0..2 {
                sent += stream.permit(sent, 0, MIB);
            }
            stream.held()
        };
        assert_eq!(held_after_two_rounds(), 2 * INITIAL);
        worker.resize(TRAIN);
        assert_eq!(held_after_two_rounds(), 2 * INITIAL);
        worker.resize(32 * MIB);
        assert_eq!(held_after_two_rounds(), 8 * INITIAL);
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
                .map(|n| (Lease::new(Rc::clone(&connections[n % 4]), Rc::clone(&worker), 512 * 1024), 0, 0))
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
                prop_assert_eq!(worker.used(), streams.iter().map(|stream| stream.0.held()).sum::<u64>());
            }
            drop(streams);
            prop_assert_eq!(worker.used(), 0);
        }
    }
}
