//! What a worker knows of one connection, and how many bytes have moved on it.

use super::sent_rate::SentRate;
use crate::fairness::{ClientSource, PoolSlot, QueuePlace};
use litequic_telemetry::clients::OpenConnection;
use std::{
    cell::{Cell, OnceCell, RefCell},
    fmt,
    net::SocketAddr,
    rc::{Rc, Weak},
    task::Waker,
    time::{Duration, Instant},
};

/// A connection without a request for less than that is not closed: its next request may be in flight.
pub(super) const MIN_IDLE_TIME: Duration = Duration::from_secs(1);
/// Bytes that a connection takes beside what it reports, and an open request (docs/limits.md): of those that report
/// little, the one with the most requests holds the most.
pub(super) const CONNECTION_OVERHEAD_BYTES: u64 = 28 * 1024;
pub(super) const REQUEST_OVERHEAD_BYTES: u64 = 72 * 1024;

/// Why a connection is closed although its client did nothing wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EvictionReason {
    /// Memory is short, and no request is open on it: it ends as after its last one.
    Idle,
    /// Memory is short, and it holds the most: it ends at once.
    Heaviest,
    /// Another client gets its place, and no request is open on it: it ends as after its last one.
    Drained,
    /// Another client gets its place: it ends at once.
    Evicted,
    /// The operator closes it: it ends as after its last request.
    Operator,
    /// The operator closes it at once.
    OperatorNow,
}

impl EvictionReason {
    /// Whether the operator closes the connection.
    pub const fn is_operator(self) -> bool {
        matches!(self, Self::Operator | Self::OperatorNow)
    }

    /// Whether the connection ends at once, with its requests.
    pub(super) const fn is_at_once(self) -> bool {
        matches!(self, Self::Heaviest | Self::Evicted | Self::OperatorNow)
    }
}

pub(super) struct RegisteredConnection {
    pub(super) pool: ConnectionPool,
    pub(super) source: Cell<ClientSource>,
    /// The connection's slot in its pool, until it is to end.
    pub(super) slot: Cell<Option<PoolSlot>>,
    /// The slot of its TLS handshake over TCP, while that lasts.
    pub(super) handshake: Cell<Option<PoolSlot>>,
    /// The connection's place among the handshakes that wait for a slot.
    pub(super) handshake_place: Cell<Option<QueuePlace>>,
    /// Whether it is ready for requests: its handshake is over.
    pub(super) ready: Cell<bool>,
    /// The client's address, as it was when the connection began or the client was known.
    pub(super) client: Cell<Option<SocketAddr>>,
    /// The connection, once it is ready for requests.
    pub(super) connection: OnceCell<Weak<dyn OpenConnection>>,
    pub(super) opened_at: Instant,
    pub(super) rate: Cell<SentRate>,
    /// Each returns some of the bytes that it holds.
    pub(super) memory_counters: RefCell<Vec<Box<dyn Fn() -> u64>>>,
    /// Requests that are open on it.
    pub(super) requests: Cell<u32>,
    /// When it became ready, or its last request ended.
    pub(super) last_used: Cell<Instant>,
    pub(super) traffic: TrafficCounter,
    pub(super) eviction: Cell<Option<EvictionReason>>,
    pub(super) waker: RefCell<Option<Waker>>,
}

/// How many bytes have moved on a connection, and when they last did, by the worker's periods: to note it reads no
/// clock.
#[derive(Debug, Clone, Default)]
pub struct TrafficCounter {
    pub(super) period: Rc<Cell<u32>>,
    pub(super) cells: Rc<TrafficCells>,
}

#[derive(Debug, Default)]
pub(super) struct TrafficCells {
    last_period: Cell<u32>,
    sent: Cell<u64>,
    received: Cell<u64>,
}

impl TrafficCounter {
    /// Something of a client has moved.
    pub(super) fn mark_active(&self) {
        self.cells.last_period.set(self.period.get());
    }

    /// `bytes` were sent to the client.
    pub fn count_sent(&self, bytes: u64) {
        self.mark_active();
        self.cells.sent.set(self.cells.sent.get().wrapping_add(bytes));
    }

    /// `bytes` of the client were received.
    pub fn count_received(&self, bytes: u64) {
        self.mark_active();
        self.cells.received.set(self.cells.received.get().wrapping_add(bytes));
    }

    /// The bytes that were sent and received so far.
    pub(super) fn sent_and_received(&self) -> (u64, u64) {
        (self.cells.sent.get(), self.cells.received.get())
    }

    /// Periods since bytes have moved.
    fn silent_periods(&self) -> u32 {
        self.period.get().wrapping_sub(self.cells.last_period.get())
    }
}

impl fmt::Debug for RegisteredConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AccountState")
            .field("held", &self.memory_bytes())
            .field("end", &self.eviction)
            .finish_non_exhaustive()
    }
}

/// The pools of connections of a worker. Each has its own limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectionPool {
    /// HTTP/1.1 and HTTP/2 over TLS.
    Tls,
    /// Plain HTTP.
    Plain,
    /// HTTP/3.
    Quic,
}

impl RegisteredConnection {
    /// For how long no request was open on it, if that is long enough for it to be closed. `None` before it is ready.
    pub(super) fn idle_for(&self, now: Instant) -> Option<Duration> {
        let unused = now.saturating_duration_since(self.last_used.get());
        (self.ready.get() && self.requests.get() == 0 && unused >= MIN_IDLE_TIME).then_some(unused)
    }

    /// Periods since bytes have moved on it.
    pub(super) fn silent_for(&self) -> u32 {
        self.traffic.silent_periods()
    }

    /// Has it unused for `time` longer.
    #[cfg(test)]
    pub(super) fn backdate_last_use(&self, time: Duration) {
        self.last_used.set(self.last_used.get().checked_sub(time).expect("a machine that has run for as long"));
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        let taken =
            CONNECTION_OVERHEAD_BYTES.saturating_add(REQUEST_OVERHEAD_BYTES.saturating_mul(self.requests.get().into()));
        self.memory_counters.borrow().iter().fold(taken, |sum, held| sum.saturating_add(held()))
    }

    /// Whether the connection ends for `reason`, rather than for an earlier one.
    pub(super) fn is_closed_by(&self, reason: EvictionReason) -> bool {
        self.eviction.get().is_none_or(|end| !end.is_at_once() && end != reason)
    }

    pub(super) fn begin_eviction(&self, end: EvictionReason) {
        self.eviction.set(Some(end));
        self.wake_task();
    }

    pub(super) fn wake_task(&self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}
