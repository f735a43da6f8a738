//! State of one registered connection, and its traffic.

use super::sent_rate::SentRate;
use crate::fairness::{ClientSource, PoolSlot, QueuePlace};
use litequic_telemetry::clients::OpenConnection;
use std::{
    cell::{Cell, OnceCell, RefCell},
    net::SocketAddr,
    rc::{Rc, Weak},
    task::Waker,
    time::{Duration, Instant},
};

/// Shortest time without a request after which a connection may be closed: before, its next request may be in flight.
pub(super) const MIN_IDLE_TIME: Duration = Duration::from_secs(1);
/// Memory that a connection takes beside its counters, and an open request (docs/reference/limits.md). Of connections
/// with small counters, the one with the most requests holds the most.
pub(super) const CONNECTION_OVERHEAD_BYTES: u64 = 28 * 1024;
pub(super) const REQUEST_OVERHEAD_BYTES: u64 = 72 * 1024;

/// Reason for closing a connection although its client did nothing wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EvictionReason {
    /// Memory is short, and the connection has no open request: it ends gracefully.
    Idle,
    /// Memory is short, and the connection holds the most: it ends at once.
    Heaviest,
    /// Another client needs the slot, and the connection has no open request: it ends gracefully.
    Drained,
    /// Another client needs the slot: the connection ends at once.
    Evicted,
    /// The operator closes the connection gracefully, once its requests have ended.
    Operator,
    /// The operator closes the connection at once.
    OperatorNow,
}

impl EvictionReason {
    /// Whether the operator closes the connection.
    pub const fn is_operator(self) -> bool {
        matches!(self, Self::Operator | Self::OperatorNow)
    }

    /// Whether the connection ends at once, and its requests with it.
    pub(super) const fn is_at_once(self) -> bool {
        matches!(self, Self::Heaviest | Self::Evicted | Self::OperatorNow)
    }
}

pub(super) struct RegisteredConnection {
    pub(super) pool: ConnectionPool,
    pub(super) source: Cell<ClientSource>,
    /// Slot of the connection in its pool, until an eviction releases it.
    pub(super) slot: Cell<Option<PoolSlot>>,
    /// Slot of the connection's TLS handshake over TCP, while the handshake lasts.
    pub(super) handshake: Cell<Option<PoolSlot>>,
    /// Place of the connection's handshake in the queue for a slot.
    pub(super) handshake_place: Cell<Option<QueuePlace>>,
    /// Whether the handshake is over, so that the connection is ready for requests.
    pub(super) ready: Cell<bool>,
    /// Address of the client when the connection began, or once a PROXY protocol header named it.
    pub(super) client: Cell<Option<SocketAddr>>,
    /// Set once the connection is ready for requests.
    pub(super) connection: OnceCell<Weak<dyn OpenConnection>>,
    pub(super) opened_at: Instant,
    pub(super) rate: Cell<SentRate>,
    /// Functions that each count some of the connection's memory, in bytes.
    pub(super) memory_counters: RefCell<Vec<Box<dyn Fn() -> u64>>>,
    pub(super) requests: Cell<u32>,
    /// Time at which the connection became ready, or its last request ended.
    pub(super) last_used: Cell<Instant>,
    pub(super) traffic: TrafficCounter,
    pub(super) eviction: Cell<Option<EvictionReason>>,
    pub(super) waker: RefCell<Option<Waker>>,
}

/// Counts the bytes that a connection has sent and received, and remembers the worker's period of the last ones, so
/// that counting reads no clock.
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
    /// Records traffic in the current period.
    pub(super) fn mark_active(&self) {
        self.cells.last_period.set(self.period.get());
    }

    /// Counts `bytes` bytes that were sent to the client.
    pub fn count_sent(&self, bytes: u64) {
        self.mark_active();
        self.cells.sent.set(self.cells.sent.get().wrapping_add(bytes));
    }

    /// Counts `bytes` bytes that were received from the client.
    pub fn count_received(&self, bytes: u64) {
        self.mark_active();
        self.cells.received.set(self.cells.received.get().wrapping_add(bytes));
    }

    /// Numbers of bytes that were sent and received so far.
    pub(super) fn sent_and_received(&self) -> (u64, u64) {
        (self.cells.sent.get(), self.cells.received.get())
    }

    pub(super) fn silent_periods(&self) -> u32 {
        self.period.get().wrapping_sub(self.cells.last_period.get())
    }
}

litequic_base::partial_debug!(RegisteredConnection { eviction });

/// Pool of connections of a worker, with a limit of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectionPool {
    /// Connections over TLS, for HTTP/1.1 and HTTP/2.
    Tls,
    /// Connections of plain HTTP.
    Plain,
    /// Connections of HTTP/3.
    Quic,
}

impl RegisteredConnection {
    /// Time without an open request, if that is long enough for an eviction. `None` before the connection is ready.
    pub(super) fn idle_for(&self, now: Instant) -> Option<Duration> {
        let unused = now.saturating_duration_since(self.last_used.get());
        (self.ready.get() && self.requests.get() == 0 && unused >= MIN_IDLE_TIME).then_some(unused)
    }

    #[cfg(test)]
    pub(super) fn backdate_last_use(&self, time: Duration) {
        self.last_used.set(self.last_used.get().checked_sub(time).expect("a machine that has run for as long"));
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        let taken =
            CONNECTION_OVERHEAD_BYTES.saturating_add(REQUEST_OVERHEAD_BYTES.saturating_mul(self.requests.get().into()));
        self.memory_counters.borrow().iter().fold(taken, |sum, held| sum.saturating_add(held()))
    }

    /// Whether `reason` ends the connection, rather than an earlier reason.
    pub(super) fn is_closed_by(&self, reason: EvictionReason) -> bool {
        self.eviction.get().is_none_or(|end| !end.is_at_once() && end != reason)
    }

    pub(super) fn wake_task(&self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}
