//! What a worker knows of one connection, and how many bytes have moved on it.

use super::sent_rate::SentRate;
use crate::fairness::{Place, Slot, Source};
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
pub(super) const UNUSED: Duration = Duration::from_secs(1);
/// Bytes that a connection takes beside what it reports, and an open request (docs/limits.md): of those that report
/// little, the one with the most requests holds the most.
pub(super) const CONNECTION: u64 = 28 * 1024;
pub(super) const REQUEST: u64 = 72 * 1024;

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

pub(super) struct AccountState {
    pub(super) pool: ConnectionPool,
    pub(super) source: Cell<Source>,
    /// The connection's slot in its pool, until it is to end.
    pub(super) slot: Cell<Option<Slot>>,
    /// The slot of its TLS handshake over TCP, while that lasts.
    pub(super) handshake: Cell<Option<Slot>>,
    /// The connection's place among the handshakes that wait for a slot.
    pub(super) waits: Cell<Option<Place>>,
    /// Whether it is ready for requests: its handshake is over.
    pub(super) ready: Cell<bool>,
    /// The client's address, as it was when the connection began or the client was known.
    pub(super) client: Cell<Option<SocketAddr>>,
    /// The connection, once it is ready for requests.
    pub(super) connection: OnceCell<Weak<dyn OpenConnection>>,
    pub(super) since: Instant,
    pub(super) rate: Cell<SentRate>,
    /// Each returns some of the bytes that it holds.
    pub(super) holds: RefCell<Vec<Box<dyn Fn() -> u64>>>,
    /// Requests that are open on it.
    pub(super) requests: Cell<u32>,
    /// When it became ready, or its last request ended.
    pub(super) used: Cell<Instant>,
    pub(super) motion: Motion,
    pub(super) end: Cell<Option<EvictionReason>>,
    pub(super) waker: RefCell<Option<Waker>>,
}

/// How many bytes have moved on a connection, and when they last did, by the worker's periods: to note it reads no
/// clock.
#[derive(Debug, Clone, Default)]
pub struct Motion {
    pub(super) clock: Rc<Cell<u32>>,
    pub(super) moved: Rc<Moved>,
}

#[derive(Debug, Default)]
pub(super) struct Moved {
    last: Cell<u32>,
    sent: Cell<u64>,
    received: Cell<u64>,
}

impl Motion {
    /// Something of a client has moved.
    pub(super) fn note(&self) {
        self.moved.last.set(self.clock.get());
    }

    /// `bytes` were sent to the client.
    pub fn sent(&self, bytes: u64) {
        self.note();
        self.moved.sent.set(self.moved.sent.get().wrapping_add(bytes));
    }

    /// `bytes` of the client were received.
    pub fn received(&self, bytes: u64) {
        self.note();
        self.moved.received.set(self.moved.received.get().wrapping_add(bytes));
    }

    /// The bytes that were sent and received so far.
    pub(super) fn bytes(&self) -> (u64, u64) {
        (self.moved.sent.get(), self.moved.received.get())
    }

    /// Periods since bytes have moved.
    fn age(&self) -> u32 {
        self.clock.get().wrapping_sub(self.moved.last.get())
    }
}

impl fmt::Debug for AccountState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AccountState").field("held", &self.held()).field("end", &self.end).finish_non_exhaustive()
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

impl AccountState {
    /// For how long no request was open on it, if that is long enough for it to be closed. `None` before it is ready.
    pub(super) fn idle_for(&self, now: Instant) -> Option<Duration> {
        let unused = now.saturating_duration_since(self.used.get());
        (self.ready.get() && self.requests.get() == 0 && unused >= UNUSED).then_some(unused)
    }

    /// Periods since bytes have moved on it.
    pub(super) fn silent_for(&self) -> u32 {
        self.motion.age()
    }

    /// Has it unused for `time` longer.
    #[cfg(test)]
    pub(super) fn age(&self, time: Duration) {
        self.used.set(self.used.get().checked_sub(time).expect("a machine that has run for as long"));
    }

    pub(super) fn held(&self) -> u64 {
        let taken = CONNECTION.saturating_add(REQUEST.saturating_mul(self.requests.get().into()));
        self.holds.borrow().iter().fold(taken, |sum, held| sum.saturating_add(held()))
    }

    /// Whether the connection ends for `reason`, rather than for an earlier one.
    pub(super) fn is_closed_by(&self, reason: EvictionReason) -> bool {
        self.end.get().is_none_or(|end| !end.is_at_once() && end != reason)
    }

    pub(super) fn end(&self, end: EvictionReason) {
        self.end.set(Some(end));
        self.wake();
    }

    pub(super) fn wake(&self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}
