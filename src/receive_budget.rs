//! What a worker's clients may send ahead, and what litequic holds of it: bytes that were received and not read yet, because
//! an origin is slow or because bytes before them are missing. QUIC and HTTP/2 share it.
//!
//! A window is a promise, and cannot be changed while a connection lives (docs/upstream/receive-windows.md). So promises
//! are not bounded, what is held is: a new connection's window depends on what is held and on what connections with an upload
//! may send, idle connections count for nothing, and once more is held than the budget, the connection that holds most is
//! closed (docs/adr/0026-receive-windows.md).

use crate::{config::Limits, telemetry::WorkerMetrics};
use futures_util::task::AtomicWaker;
use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{
            AtomicBool, AtomicU32, AtomicU64,
            Ordering::{self, Relaxed},
        },
    },
    task::{Context, Poll},
};

/// One worker's. A lock and atomics, because s2n-quic wants its providers `Send`; one thread alone uses them.
#[derive(Debug, Clone)]
pub struct ReceiveBudget(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    metrics: Arc<WorkerMetrics>,
    /// Bytes that may be held: of the configuration by which the last connection began.
    bytes: AtomicU64,
    accounts: Mutex<Accounts>,
}

#[derive(Debug, Default)]
struct Accounts {
    next: u64,
    by_id: HashMap<u64, Account>,
}

impl ReceiveBudget {
    /// A worker's, whose gauges `metrics` has.
    pub fn new(metrics: Arc<WorkerMetrics>) -> Self {
        Self(Arc::new(Shared { metrics, bytes: AtomicU64::new(u64::MAX), accounts: Mutex::default() }))
    }

    /// The window of a connection that begins now. Counted if it is smaller than `connection_receive_buffer`.
    pub fn begin(&self, limits: &Limits) -> Grant {
        let Shared { metrics, bytes, .. } = &*self.0;
        bytes.store(limits.worker_receive_buffer, Relaxed);
        let window = limits.receive_window(metrics.receive_granted.get().max(metrics.receive_held.get()));
        if window < limits.connection_receive_buffer.into() {
            metrics.limit_receive_buffer.increment();
        }
        let account = Account(Arc::new(State {
            budget: self.clone(),
            window,
            held: AtomicU64::new(0),
            uploads: AtomicU32::new(0),
            is_over: AtomicBool::new(false),
            waker: AtomicWaker::new(),
        }));
        let mut accounts = self.accounts();
        let id = accounts.next;
        accounts.next = id.wrapping_add(1);
        accounts.by_id.insert(id, account.clone());
        drop(accounts);
        Grant { id, account }
    }

    /// Has the connection closed that holds most. What it holds counts no longer: it is freed within this turn.
    fn close_one(&self) {
        let accounts = self.accounts();
        let holding = accounts.by_id.values().filter(|account| !account.0.is_over.load(Relaxed));
        let Some(account) = holding.max_by_key(|account| account.held()) else { return };
        self.0.metrics.limit_receive_held.increment();
        account.none_is_left();
        account.0.is_over.store(true, Ordering::Release);
        account.0.waker.wake();
    }

    fn accounts(&self) -> MutexGuard<'_, Accounts> {
        self.0.accounts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection's window. What the connection holds is given back when this is dropped, at its end.
#[derive(Debug)]
pub struct Grant {
    id: u64,
    account: Account,
}

impl Grant {
    /// Bytes.
    pub fn window(&self) -> u64 {
        self.account.0.window
    }

    /// So many bytes came: [`Account::came`].
    pub fn came(&self, bytes: u64) {
        self.account.came(bytes);
    }

    /// What the connection's streams are accounted in.
    pub fn account(&self) -> Account {
        self.account.clone()
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        self.account.0.budget.accounts().by_id.remove(&self.id);
        // What its tasks do until they are dropped counts for nothing.
        self.account.0.is_over.store(true, Relaxed);
        self.account.none_is_left();
    }
}

/// One connection's account of what was received and not read.
#[derive(Debug, Clone)]
pub struct Account(Arc<State>);

#[derive(Debug)]
struct State {
    budget: ReceiveBudget,
    window: u64,
    held: AtomicU64,
    /// Requests whose bodies have turned out to be uploads.
    uploads: AtomicU32,
    is_over: AtomicBool,
    waker: AtomicWaker,
}

impl Account {
    /// So many bytes came. Those of a QUIC stream count from the end of what came before, gaps included: that is what flow
    /// control counts (RFC 9000 §4.1), and what memory the rest takes at most.
    pub fn came(&self, bytes: u64) {
        let State { budget, window, held, is_over, .. } = &*self.0;
        if is_over.load(Relaxed) {
            return;
        }
        let before = held.load(Relaxed);
        // Flow control allows no more: what exceeds it is of streams that were reset, which nobody reads to their end.
        let now = before.saturating_add(bytes).min(*window);
        held.store(now, Relaxed);
        let Shared { metrics, bytes, .. } = &*budget.0;
        metrics.receive_held.add(now.saturating_sub(before));
        if now > Limits::RECEIVE_FLOOR && metrics.receive_held.get() > bytes.load(Relaxed) {
            budget.close_one();
        }
    }

    /// So many bytes were read.
    pub fn taken(&self, bytes: u64) {
        let before = self.held();
        let now = before.saturating_sub(bytes);
        self.0.held.store(now, Relaxed);
        self.0.budget.0.metrics.receive_held.sub(before.saturating_sub(now));
    }

    /// No stream is open: whatever came was read or discarded, what was reset too.
    pub fn none_is_left(&self) {
        self.taken(self.held());
    }

    /// A request's body is an upload: as long as this lives, the connection's window counts as used.
    pub fn upload(&self) -> Upload {
        if self.0.uploads.fetch_add(1, Relaxed) == 0 {
            self.0.budget.0.metrics.receive_granted.add(self.0.window);
        }
        Upload(self.clone())
    }

    /// Ready once the connection is to be closed, because it holds too much. The last task that polls is woken.
    pub fn poll_over(&self, cx: &Context<'_>) -> Poll<()> {
        self.0.waker.register(cx.waker());
        if self.0.is_over.load(Ordering::Acquire) { Poll::Ready(()) } else { Poll::Pending }
    }

    fn held(&self) -> u64 {
        self.0.held.load(Relaxed)
    }
}

/// An upload in progress.
#[derive(Debug)]
pub struct Upload(Account);

impl Drop for Upload {
    fn drop(&mut self) {
        let Account(state) = &self.0;
        if state.uploads.fetch_sub(1, Relaxed) == 1 {
            state.budget.0.metrics.receive_granted.sub(state.window);
        }
    }
}

/// What was read of one request: tells when it turns out to be an upload.
#[derive(Debug)]
pub struct Taken {
    account: Account,
    bytes: u64,
    upload: Option<Upload>,
}

impl Taken {
    /// Of a request that begins.
    pub const fn new(account: Account) -> Self {
        Self { account, bytes: 0, upload: None }
    }

    /// So many bytes more.
    pub fn add(&mut self, bytes: u64) {
        self.account.taken(bytes);
        self.bytes = self.bytes.saturating_add(bytes);
        if self.upload.is_none() && self.bytes > Limits::RECEIVE_FLOOR {
            self.upload = Some(self.account.upload());
        }
    }

    /// What it is accounted in.
    pub const fn account(&self) -> &Account {
        &self.account
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::task::noop_waker_ref;
    use proptest::prelude::*;

    const FLOOR: u64 = Limits::RECEIVE_FLOOR;
    const MIB: u64 = 1024 * 1024;

    fn limits(connection: u64, worker: u64) -> Limits {
        Limits {
            connection_receive_buffer: connection.try_into().unwrap(),
            worker_receive_buffer: worker,
            ..Limits::default()
        }
    }

    fn budget() -> (ReceiveBudget, Arc<WorkerMetrics>) {
        let metrics = Arc::<WorkerMetrics>::default();
        (ReceiveBudget::new(Arc::clone(&metrics)), metrics)
    }

    fn is_over(grant: &Grant) -> bool {
        grant.account.poll_over(&Context::from_waker(noop_waker_ref())).is_ready()
    }

    #[test]
    fn a_window_is_a_share_of_what_is_left_within_its_bounds() {
        let table = [
            ("all is left", 6 * MIB, 256 * MIB, 0, 6 * MIB),
            ("three quarters are left", 6 * MIB, 256 * MIB, 64 * MIB, 6 * MIB),
            ("a quarter is left", 6 * MIB, 256 * MIB, 192 * MIB, 2 * MIB),
            ("hardly anything is left", 6 * MIB, 256 * MIB, 255 * MIB, FLOOR),
            ("nothing is left", 6 * MIB, 256 * MIB, 256 * MIB, FLOOR),
            ("less than nothing is left", 6 * MIB, 256 * MIB, 300 * MIB, FLOOR),
            ("a connection may have less than the floor", 16 * 1024, 256 * MIB, 300 * MIB, 16 * 1024),
        ];
        for (what, connection, worker, used, expected) in table {
            assert_eq!(limits(connection, worker).receive_window(used), expected, "{what}");
        }
    }

    #[test]
    fn idle_connections_leave_windows_as_they_are_and_uploads_make_them_smaller() {
        let (budget, metrics) = budget();
        let limits = limits(2 * MIB, 64 * MIB);
        let idle: Vec<Grant> = (0..1000).map(|_| budget.begin(&limits)).collect();
        assert!(idle.iter().all(|grant| grant.window() == 2 * MIB));
        assert_eq!(metrics.limit_receive_buffer.get(), 0);
        let uploads: Vec<Upload> = idle.iter().take(16).map(|grant| grant.account().upload()).collect();
        let second = idle[0].account().upload();
        assert_eq!(metrics.receive_granted.get(), 32 * MIB, "a connection counts once");
        assert_eq!(budget.begin(&limits).window(), MIB);
        assert_eq!(metrics.limit_receive_buffer.get(), 1);
        drop(uploads);
        assert_eq!(metrics.receive_granted.get(), 2 * MIB);
        drop(second);
        assert_eq!(budget.begin(&limits).window(), 2 * MIB);
    }

    #[test]
    fn a_body_is_an_upload_once_it_is_longer_than_what_every_connection_may_send() {
        let (budget, metrics) = budget();
        let grant = budget.begin(&limits(MIB, 64 * MIB));
        let mut taken = Taken::new(grant.account());
        taken.add(FLOOR);
        assert_eq!(metrics.receive_granted.get(), 0);
        taken.add(1);
        taken.add(1);
        assert_eq!(metrics.receive_granted.get(), MIB);
        drop(taken);
        assert_eq!(metrics.receive_granted.get(), 0);
    }

    #[test]
    fn what_came_is_held_until_it_was_read_or_its_connection_ends() {
        let (budget, metrics) = budget();
        let limits = limits(MIB, 64 * MIB);
        let (one, other) = (budget.begin(&limits), budget.begin(&limits));
        one.account.came(1000);
        other.account.came(500);
        one.account.taken(400);
        assert_eq!(metrics.receive_held.get(), 1100);
        one.account.came(2 * MIB);
        assert_eq!(metrics.receive_held.get(), MIB + 500, "no more than a window");
        one.account.taken(3 * MIB);
        assert_eq!(metrics.receive_held.get(), 500);
        drop(one);
        let account = other.account();
        drop(other);
        assert_eq!(metrics.receive_held.get(), 0);
        account.came(1000);
        assert_eq!(metrics.receive_held.get(), 0, "it has ended");
    }

    #[test]
    fn whoever_holds_most_is_closed_once_more_is_held_than_the_budget() {
        let (budget, metrics) = budget();
        let limits = limits(MIB, 2 * MIB);
        let grants: Vec<Grant> = (0..4).map(|_| budget.begin(&limits)).collect();
        for (grant, bytes) in grants.iter().zip([MIB / 2, MIB, MIB / 2]) {
            grant.account.came(bytes);
        }
        assert!(!grants.iter().any(is_over), "nothing is over the budget");
        // Which exceeds it, but is no more than every connection may hold.
        grants[3].account.came(FLOOR);
        assert!(!grants.iter().any(is_over));
        grants[3].account.came(1);
        assert_eq!([0, 1, 2, 3].map(|nth: usize| is_over(&grants[nth])), [false, true, false, false]);
        assert_eq!((metrics.receive_held.get(), metrics.limit_receive_held.get()), (MIB + FLOOR + 1, 1));
    }

    proptest! {
        #[test]
        fn no_more_is_held_than_the_budget_and_a_floor_a_connection(
            worker in 16 * 1024..16 * MIB, steps in prop::collection::vec((0usize..40, 0..2 * MIB, any::<bool>()), 0..400),
        ) {
            let (budget, metrics) = budget();
            let grants: Vec<Grant> = (0..40).map(|_| budget.begin(&limits(MIB, worker))).collect();
            for (nth, bytes, reads) in steps {
                let Account(state) = &grants[nth].account;
                if reads { grants[nth].account.taken(bytes) } else { grants[nth].account.came(bytes) }
                prop_assert!(state.held.load(Relaxed) <= state.window);
                let held: u64 = grants.iter().map(|grant| grant.account.held()).sum();
                prop_assert_eq!(held, metrics.receive_held.get());
                prop_assert!(held <= worker + 40 * FLOOR);
            }
            drop(grants);
            prop_assert_eq!(metrics.receive_held.get(), 0);
        }
    }
}
