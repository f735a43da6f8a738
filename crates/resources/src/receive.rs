//! Keeps the receive budget of a worker: the bytes that its clients may send ahead, and the bytes that litequic
//! buffers, received and not read yet, because an origin is slow or because bytes before them are missing. QUIC and
//! HTTP/2 share it.
//!
//! A window cannot shrink while a connection is open (docs/upstream/receive-windows.md). So the sum of windows is not
//! bounded, but buffered bytes are: a new connection's window depends on the buffered bytes and on the windows of
//! connections with an upload, and idle connections count as nothing. Once more is buffered than the budget, the
//! connection that buffers most, of the source that buffers most, is closed (docs/adr/0026-receive-windows.md). Pure.

use crate::fairness::{ClientSource, EvictionOrder};
use futures_util::task::AtomicWaker;
use litequic_base::relaxed_cell::RelaxedCell;
use parking_lot::Mutex;
use slab::Slab;
use std::{
    cmp::Reverse,
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    task::{Context, Poll},
};

/// Streams whose windows fill that of their connection (`Limits::stream_receive_window`).
const STREAMS_OF_WINDOW: u64 = 8;

/// Receive budget of one worker. It has a lock and atomics because s2n-quic requires its providers to be `Send`; one
/// thread alone uses it.
#[derive(Debug, Clone)]
pub struct ReceiveBudget(Arc<ReceiveBudgetState>);

#[derive(Debug)]
struct ReceiveBudgetState {
    /// Budget in bytes.
    bytes: RelaxedCell,
    /// Bytes that every connection may buffer.
    floor: u64,
    held: RelaxedCell,
    /// Sum of the windows that uploads may fill.
    granted: RelaxedCell,
    accounts: Mutex<Slab<ReceiveAccount>>,
}

impl ReceiveBudget {
    /// A budget of `bytes`, beside which every connection may buffer `floor` bytes.
    pub fn new(bytes: u64, floor: u64) -> Self {
        Self(Arc::new(ReceiveBudgetState {
            bytes: RelaxedCell::new(bytes),
            floor,
            held: RelaxedCell::default(),
            granted: RelaxedCell::default(),
            accounts: Mutex::default(),
        }))
    }

    /// Sets the budget to `bytes`.
    pub fn resize(&self, bytes: u64) {
        self.0.bytes.set(bytes);
    }

    /// Number of bytes that were received and not read.
    pub fn buffered_bytes(&self) -> u64 {
        self.0.held.get()
    }

    /// Sum of the windows that uploads may fill, in bytes.
    pub fn granted_bytes(&self) -> u64 {
        self.0.granted.get()
    }

    /// The larger of [`Self::buffered_bytes`] and [`Self::granted_bytes`], on which a new connection's window depends.
    pub fn used_receive_bytes(&self) -> u64 {
        self.buffered_bytes().max(self.granted_bytes())
    }

    /// Registers a connection whose client may send `window` bytes ahead. The client is in `network` (address and
    /// prefix length in bits), or a source of its own.
    pub fn grant_window(&self, window: u64, network: Option<(IpAddr, u8)>) -> WindowGrant {
        let mut accounts = self.0.accounts.lock();
        let entry = accounts.vacant_entry();
        let id = entry.key();
        let account = ReceiveAccount(Arc::new(ReceiveAccountState {
            budget: self.clone(),
            source: ClientSource::new(network, id as u64),
            window,
            held: RelaxedCell::default(),
            uploads: RelaxedCell::default(),
            is_evicted: AtomicBool::new(false),
            has_ended: AtomicBool::new(false),
            waker: AtomicWaker::new(),
        }));
        entry.insert(account.clone());
        WindowGrant { id, account }
    }

    /// Closes connections until no more is buffered than the budget: each time the connection that buffers most, of the
    /// source whose connections buffer most. Their bytes no longer count, as they are freed within this turn. A
    /// connection that buffers at most `floor` bytes stays open.
    fn close_largest(&self) {
        let accounts = self.0.accounts.lock();
        let mut holding: Vec<&ReceiveAccount> =
            accounts.iter().map(|(_, account)| account).filter(|account| !account.0.is_evicted.load(Relaxed)).collect();
        holding.sort_unstable_by_key(|account| Reverse(account.unread_bytes()));
        let mut victims = EvictionOrder::default();
        for account in holding {
            let (source, held) = (&account.0.source, account.unread_bytes());
            if held > self.0.floor {
                victims.add_claim(source, held, account);
            } else {
                victims.add_fixed_amount(source, held);
            }
        }
        for account in victims {
            if self.buffered_bytes() <= self.0.bytes.get() {
                return;
            }
            account.release_unread();
            account.0.is_evicted.store(true, Relaxed);
            account.0.waker.wake();
        }
    }
}

/// Receive window of a connection. Dropped at the connection's end, which releases its buffered bytes.
#[derive(Debug)]
pub struct WindowGrant {
    id: usize,
    /// Account of the connection's streams.
    pub account: ReceiveAccount,
}

const _: () = assert!(size_of::<WindowGrant>() <= 16);

impl Drop for WindowGrant {
    fn drop(&mut self) {
        self.account.0.budget.0.accounts.lock().try_remove(self.id);
        // The connection's tasks may still use the account until they are dropped: it counts nothing any more.
        self.account.0.has_ended.store(true, Relaxed);
        self.account.release_unread();
    }
}

/// Account of the bytes that one connection has received and not read.
#[derive(Debug, Clone)]
pub struct ReceiveAccount(Arc<ReceiveAccountState>);

#[derive(Debug)]
struct ReceiveAccountState {
    budget: ReceiveBudget,
    /// Source of the client, with the account's number.
    source: ClientSource,
    window: u64,
    held: RelaxedCell,
    /// Number of requests whose bodies count as uploads.
    uploads: RelaxedCell,
    /// The connection is to be closed.
    is_evicted: AtomicBool,
    has_ended: AtomicBool,
    waker: AtomicWaker,
}

impl ReceiveAccount {
    /// Counts `bytes` received bytes. Bytes of a QUIC stream count from the end of the bytes before, gaps included:
    /// flow control counts so (RFC 9000 §4.1), and it is an upper bound of the memory that they take.
    pub fn on_received(&self, bytes: u64) {
        let ReceiveAccountState { budget, window, held, is_evicted: is_over, has_ended, .. } = &*self.0;
        if is_over.load(Relaxed) || has_ended.load(Relaxed) {
            return;
        }
        let before = held.get();
        // Flow control bounds the buffered bytes: any excess belongs to streams that were reset, which are not read to
        // their end.
        let now = before.saturating_add(bytes).min(*window);
        held.set(now);
        budget.0.held.add_saturating(now.saturating_sub(before));
        if now > budget.0.floor && budget.buffered_bytes() > budget.0.bytes.get() {
            budget.close_largest();
        }
    }

    /// Counts `bytes` bytes that were read.
    pub fn count_taken(&self, bytes: u64) {
        let before = self.unread_bytes();
        let now = before.saturating_sub(bytes);
        self.0.held.set(now);
        self.0.budget.0.held.subtract_saturating(before.saturating_sub(now));
    }

    /// Counts all bytes as read, once no stream is open: the bytes of streams that were reset were discarded.
    pub fn release_unread(&self) {
        self.count_taken(self.unread_bytes());
    }

    /// Counts a request's body as an upload: a stream's part of the connection's window is in use as long as the result
    /// exists.
    pub fn begin_upload(&self) -> UploadAccount {
        let ReceiveAccountState { budget, window, uploads, .. } = &*self.0;
        if uploads.get() < STREAMS_OF_WINDOW {
            budget.0.granted.add_saturating(*window / STREAMS_OF_WINDOW);
        }
        uploads.add_saturating(1);
        UploadAccount(self.clone())
    }

    /// Ready once the connection is to be closed, because it buffers too much. The last task that polls is woken.
    pub fn poll_over_budget(&self, cx: &Context<'_>) -> Poll<()> {
        self.0.waker.register(cx.waker());
        if self.0.is_evicted.load(Relaxed) { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Number of bytes that the connection has received and not read.
    pub fn unread_bytes(&self) -> u64 {
        self.0.held.get()
    }
}

/// Upload in progress, until dropped.
#[derive(Debug)]
pub struct UploadAccount(ReceiveAccount);

impl Drop for UploadAccount {
    fn drop(&mut self) {
        let ReceiveAccount(state) = &self.0;
        state.uploads.subtract_saturating(1);
        if state.uploads.get() < STREAMS_OF_WINDOW {
            state.budget.0.granted.subtract_saturating(state.window / STREAMS_OF_WINDOW);
        }
    }
}

/// Counts the bytes that were read of one request's body, and registers an upload once they exceed the budget's
/// `floor`.
#[derive(Debug)]
pub struct UploadDetector {
    /// Account of the request's connection.
    pub account: ReceiveAccount,
    bytes: u64,
    upload: Option<UploadAccount>,
}

impl UploadDetector {
    /// A detector for a request that begins.
    pub const fn new(account: ReceiveAccount) -> Self {
        Self { account, bytes: 0, upload: None }
    }

    /// Counts `bytes` more bytes that were read.
    pub fn count_body_bytes(&mut self, bytes: u64) {
        self.account.count_taken(bytes);
        self.bytes = self.bytes.saturating_add(bytes);
        if self.upload.is_none() && self.bytes > self.account.0.budget.0.floor {
            self.upload = Some(self.account.begin_upload());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::task::noop_waker_ref;
    use proptest::prelude::*;

    const FLOOR: u64 = 64 * 1024;
    const MIB: u64 = 1024 * 1024;

    fn is_over(grant: &WindowGrant) -> bool {
        grant.account.poll_over_budget(&Context::from_waker(noop_waker_ref())).is_ready()
    }

    #[test]
    fn idle_connections_use_no_budget_and_uploads_an_eighth() {
        let budget = ReceiveBudget::new(64 * MIB, FLOOR);
        let idle: Vec<WindowGrant> = (0..1000).map(|_| budget.grant_window(2 * MIB, None)).collect();
        assert_eq!(budget.used_receive_bytes(), 0);
        let uploads: Vec<UploadAccount> =
            idle.iter().take(16).map(|grant| grant.account.clone().begin_upload()).collect();
        assert_eq!((budget.used_receive_bytes(), budget.granted_bytes()), (4 * MIB, 4 * MIB), "an eighth for each");
        let others: Vec<UploadAccount> = (0..20).map(|_| idle[0].account.clone().begin_upload()).collect();
        assert_eq!(budget.granted_bytes(), 5 * MIB + 3 * MIB / 4, "at most the connection's window");
        drop(uploads);
        assert_eq!(budget.granted_bytes(), 2 * MIB);
        idle[1].account.on_received(MIB);
        assert_eq!(budget.used_receive_bytes(), 2 * MIB, "the larger of what is held and what may be");
        drop(others);
        assert_eq!(budget.used_receive_bytes(), MIB);
    }

    #[test]
    fn a_body_longer_than_the_floor_counts_as_an_upload() {
        let budget = ReceiveBudget::new(64 * MIB, FLOOR);
        let grant = budget.grant_window(MIB, None);
        let mut taken = UploadDetector::new(grant.account.clone());
        taken.count_body_bytes(FLOOR);
        assert_eq!(budget.granted_bytes(), 0);
        taken.count_body_bytes(1);
        taken.count_body_bytes(1);
        assert_eq!(budget.granted_bytes(), MIB / 8);
        drop(taken);
        assert_eq!(budget.granted_bytes(), 0);
    }

    #[test]
    fn received_bytes_count_until_read_or_the_connection_ends() {
        let budget = ReceiveBudget::new(64 * MIB, FLOOR);
        let (one, other) = (budget.grant_window(MIB, None), budget.grant_window(MIB, None));
        one.account.on_received(1000);
        other.account.on_received(500);
        one.account.count_taken(400);
        assert_eq!(budget.buffered_bytes(), 1100);
        one.account.on_received(2 * MIB);
        assert_eq!(budget.buffered_bytes(), MIB + 500, "no more than a window");
        one.account.count_taken(3 * MIB);
        assert_eq!(budget.buffered_bytes(), 500);
        drop(one);
        let account = other.account.clone();
        drop(other);
        assert_eq!(budget.buffered_bytes(), 0);
        account.on_received(1000);
        assert_eq!(budget.buffered_bytes(), 0, "it has ended");
        assert!(account.poll_over_budget(&Context::from_waker(noop_waker_ref())).is_pending(), "by itself");
        assert!(budget.0.accounts.lock().is_empty());
    }

    #[test]
    fn the_largest_holder_is_closed_once_more_is_held_than_the_budget() {
        let budget = ReceiveBudget::new(2 * MIB, FLOOR);
        let grants: Vec<WindowGrant> = (0..4).map(|_| budget.grant_window(MIB, None)).collect();
        for (grant, bytes) in grants.iter().zip([MIB / 2, MIB, MIB / 2]) {
            grant.account.on_received(bytes);
        }
        // The budget is exceeded, but no connection buffers more than `floor` bytes.
        grants[3].account.on_received(FLOOR);
        assert!(!grants.iter().any(is_over));
        grants[3].account.on_received(1);
        assert_eq!([0, 1, 2, 3].map(|nth: usize| is_over(&grants[nth])), [false, true, false, false]);
        assert_eq!(budget.buffered_bytes(), MIB + FLOOR + 1);
    }

    #[test]
    fn the_largest_connection_of_the_source_that_holds_most_is_closed() {
        let budget = ReceiveBudget::new(2 * MIB, FLOOR);
        let address = |last: u8| Some(([192, 0, 2, last].into(), 32));
        let single = budget.grant_window(MIB, address(1));
        single.account.on_received(MIB - FLOOR);
        let many: Vec<WindowGrant> = (0..8).map(|_| budget.grant_window(MIB, address(2))).collect();
        (0..8).for_each(|nth: usize| many[nth].account.on_received(2 * FLOOR + nth as u64));
        assert!(!many.iter().any(is_over), "{}", budget.buffered_bytes());
        single.account.on_received(FLOOR);
        assert_eq!([&single, &many[7], &many[6]].map(is_over), [false, true, false]);
        // Bytes up to `floor` stay, whether one source or many sources hold them.
        let small: Vec<WindowGrant> = (0..64).map(|_| budget.grant_window(MIB, address(2))).collect();
        small.iter().for_each(|grant| grant.account.on_received(FLOOR));
        single.account.on_received(0);
        assert!(!small.iter().any(is_over));
    }

    proptest! {
        #[test]
        fn buffered_bytes_stay_below_the_budget_and_a_floor_each(
            bytes in 0..16 * MIB, steps in prop::collection::vec((0usize..40, 0..2 * MIB, any::<bool>()), 0..400),
        ) {
            let budget = ReceiveBudget::new(bytes, FLOOR);
            let grants: Vec<WindowGrant> = (0..40).map(|_| budget.grant_window(MIB, None)).collect();
            for (nth, bytes_moved, reads) in steps {
                let account = &grants[nth].account;
                if reads { account.count_taken(bytes_moved) } else { account.on_received(bytes_moved) }
                prop_assert!(account.unread_bytes() <= MIB);
                let held: u64 = grants.iter().map(|grant| grant.account.unread_bytes()).sum();
                prop_assert_eq!(held, budget.buffered_bytes());
                prop_assert!(held <= bytes + 40 * FLOOR);
            }
            drop(grants);
            prop_assert_eq!(budget.buffered_bytes(), 0);
        }
    }
}
