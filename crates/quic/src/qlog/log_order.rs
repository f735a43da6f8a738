//! An operator's order to log connections: which, how many, and the way of their lines from workers to the control
//! thread. A reader that is too slow loses events, which are counted; no worker waits for it.

use super::json::JsonObject;
use litequic_base::network::Network;
use litequic_telemetry::clients::{Selection, Selector};
use std::{
    net::SocketAddr,
    sync::{
        Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};
use tokio::sync::Notify;

/// Connections of an order at most: where many clients share an address, those that are found first.
pub const MAX_CONNECTIONS_LOGGED: usize = 8;
/// Bytes of all logs of an order at most: two minutes at 2,000 packets a second.
pub const MAX_LOG_BYTES: usize = 64 << 20;

/// Bytes of lines of an order that a worker holds at most until they are read.
const MAX_UNREAD_BYTES: usize = 256 << 10;
/// Bytes of lines that wake the reader, which otherwise reads four times a second: a wake costs a system call.
const WAKE_BYTES: usize = 64 << 10;
/// A record's first byte (RFC 7464 §2.2).
pub(super) const RECORD_SEPARATOR: u8 = 0x1e;

/// An order, shared by the control thread and the workers.
#[derive(Debug)]
pub struct LogOrder {
    clients: LoggedClients,
    /// Connections that begin from now on, rather than those that are open.
    next: bool,
    /// Leaves clients' addresses out.
    pub(super) anonymous: bool,
    /// Connections that may still be logged.
    places: AtomicUsize,
    /// Logs that have begun.
    begun: AtomicUsize,
    /// Logs that have ended.
    ended: AtomicUsize,
    /// When each log has begun: the times of its events count from there.
    epochs: [OnceLock<Instant>; MAX_CONNECTIONS_LOGGED],
    /// Events that were left out at the end of each log.
    omitted: [AtomicU64; MAX_CONNECTIONS_LOGGED],
    is_over: AtomicBool,
    /// One for each worker.
    pipes: Vec<Mutex<Vec<u8>>>,
    readable: Notify,
}

/// The clients whose connections are meant.
#[derive(Debug, Clone, Copy)]
enum LoggedClients {
    Address(SocketAddr),
    Network(Network),
}

/// Why a log ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogEnd {
    /// All connections have ended.
    Connection,
    /// The order's time is over.
    Time,
    /// The log has [`MAX_LOG_BYTES`].
    Size,
}

impl LogOrder {
    /// An order for the connection of the client at `address`.
    pub fn for_address(address: SocketAddr, workers: usize) -> Self {
        Self::new(LoggedClients::Address(SocketAddr::new(address.ip().to_canonical(), address.port())), 1, workers)
    }

    /// An order for `connections` connections of clients in `network`.
    pub fn for_network(network: Network, connections: usize, workers: usize) -> Self {
        Self::new(LoggedClients::Network(network), connections.min(MAX_CONNECTIONS_LOGGED), workers)
    }

    fn new(clients: LoggedClients, places: usize, workers: usize) -> Self {
        Self {
            clients,
            next: false,
            anonymous: false,
            places: AtomicUsize::new(places),
            begun: AtomicUsize::new(0),
            ended: AtomicUsize::new(0),
            epochs: [const { OnceLock::new() }; MAX_CONNECTIONS_LOGGED],
            omitted: [const { AtomicU64::new(0) }; MAX_CONNECTIONS_LOGGED],
            is_over: AtomicBool::new(false),
            pipes: (0..workers).map(|_| Mutex::default()).collect(),
            readable: Notify::new(),
        }
    }

    /// Has the next connection logged that begins, instead of those that are open.
    #[must_use]
    pub fn for_next(self) -> Self {
        Self { next: true, places: AtomicUsize::new(1), ..self }
    }

    /// Leaves clients' addresses out.
    #[must_use]
    pub fn without_addresses(self) -> Self {
        Self { anonymous: true, ..self }
    }

    /// The connections that are meant, among those of a list.
    pub fn client_selection(&self) -> Selection {
        let client = match self.clients {
            LoggedClients::Address(address) => Selector::Address(address),
            LoggedClients::Network(network) => Selector::Network(network),
        };
        Selection { client: Some(client), protocol: None }
    }

    /// Whether there is no place for another log.
    pub fn is_used_up(&self) -> bool {
        self.places.load(Relaxed) == 0
    }

    /// Whether connections are meant that begin from now on.
    pub const fn is_for_next(&self) -> bool {
        self.next
    }

    /// Whether a connection of the client at `address` is meant.
    pub(crate) fn selects_client(&self, address: SocketAddr) -> bool {
        match self.clients {
            LoggedClients::Address(client) => {
                client.port() == address.port() && client.ip() == address.ip().to_canonical()
            }
            LoggedClients::Network(network) => network.contains_address(address.ip()),
        }
    }

    /// Takes the place of another log, which begins now, and returns its number, from 1 on, and the time; `None` if
    /// there is none left.
    pub(super) fn begin_log(&self) -> Option<(usize, Instant)> {
        self.places.fetch_update(Relaxed, Relaxed, |places| places.checked_sub(1)).ok()?;
        let index = self.begun.fetch_add(1, Relaxed);
        Some((index + 1, *self.epochs.get(index)?.get_or_init(Instant::now)))
    }

    /// The log number `log` has ended, whose last `omitted` events were left out.
    pub(super) fn end_one_log(&self, log: usize, omitted: u64) {
        if let Some(of_log) = self.omitted.get(log.wrapping_sub(1)) {
            of_log.store(omitted, Relaxed);
        }
        self.ended.fetch_add(1, Relaxed);
        self.readable.notify_one();
    }

    /// The order is over: its logs are dropped.
    pub fn end_order(&self) {
        self.is_over.store(true, Relaxed);
    }

    /// Whether the order is over.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Relaxed)
    }

    /// Logs that have begun.
    pub fn begun_logs(&self) -> usize {
        self.begun.load(Relaxed)
    }

    /// Whether every log that was to begin has ended.
    pub fn has_all_ended(&self) -> bool {
        let begun = self.begun.load(Relaxed);
        let waits = self.next && self.places.load(Relaxed) > 0;
        !waits && begun == self.ended.load(Relaxed)
    }

    /// Hands `lines` of `worker` over. Returns whether there was room for them.
    pub fn hand_over_lines(&self, worker: usize, lines: &[u8]) -> bool {
        let Some(pipe) = self.pipes.get(worker) else { return false };
        let mut held = pipe.lock().unwrap_or_else(PoisonError::into_inner);
        if held.len() + lines.len() > MAX_UNREAD_BYTES {
            return false;
        }
        let before = held.len();
        let needed = before + lines.len();
        if needed > held.capacity() {
            // By itself a vector might take twice as much as it may hold.
            let capacity = held.capacity().saturating_mul(2).clamp(needed, MAX_UNREAD_BYTES);
            held.reserve_exact(capacity - before);
        }
        held.extend_from_slice(lines);
        let is_enough = before < WAKE_BYTES && held.len() >= WAKE_BYTES;
        drop(held);
        if is_enough {
            self.readable.notify_one();
        }
        true
    }

    /// Takes the lines that every worker has handed over.
    pub fn take_lines(&self) -> Vec<u8> {
        let mut all = Vec::new();
        for pipe in &self.pipes {
            let mut held = pipe.lock().unwrap_or_else(PoisonError::into_inner);
            if all.is_empty() {
                all = std::mem::take(&mut held);
            } else {
                all.append(&mut held);
            }
        }
        all
    }

    /// Waits until many lines were handed over, or a log has ended. Cancel safe.
    pub async fn wait_readable(&self) {
        self.readable.notified().await;
    }

    /// The last lines of all logs, which ended for `reason`.
    pub fn last_lines(&self, reason: LogEnd) -> Vec<u8> {
        let mut lines = Vec::new();
        for ((log, epoch), omitted) in (1..=self.begun_logs()).zip(&self.epochs).zip(&self.omitted) {
            let (omitted, time) = (omitted.load(Relaxed), epoch.get().map_or(Duration::ZERO, Instant::elapsed));
            if omitted > 0 {
                write_omitted_count(&mut lines, log, time, omitted);
            }
            write_event_record(&mut lines, log, time, "litequic:log_ended", |data| {
                data.add_word("reason", reason.reason_name());
            });
        }
        lines
    }
}

impl LogEnd {
    const fn reason_name(self) -> &'static str {
        match self {
            Self::Connection => "connection",
            Self::Time => "time",
            Self::Size => "size",
        }
    }
}

/// Writes that `count` events of the log number `log` were left out.
pub(super) fn write_omitted_count(lines: &mut Vec<u8>, log: usize, time: Duration, count: u64) {
    write_event_record(lines, log, time, "litequic:events_omitted", |data| _ = data.add_number("count", count));
}

/// Writes an event of the log number `log` as a record at the end of `lines`.
pub(super) fn write_event_record(
    lines: &mut Vec<u8>,
    log: usize,
    time: Duration,
    name: &str,
    data: impl FnOnce(&mut JsonObject<'_>),
) {
    lines.push(RECORD_SEPARATOR);
    // `litequic ctl` reads the group, which is first.
    JsonObject::new(lines)
        .add_word("group_id", &log.to_string())
        .add_millis("time", time)
        .add_word("name", name)
        .add_object("data", data);
    lines.push(b'\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_has_so_many_places_and_ends_with_the_last_log() {
        let order = LogOrder::for_network("192.0.2.0/24".parse().unwrap(), 20, 1);
        let begun: Vec<usize> = std::iter::from_fn(|| order.begin_log()).map(|(log, _)| log).collect();
        assert_eq!(begun, [1, 2, 3, 4, 5, 6, 7, 8]);
        (1..=7).for_each(|log| order.end_one_log(log, 0));
        assert!(!order.has_all_ended());
        order.end_one_log(8, 0);
        assert!(order.has_all_ended());
        assert!(
            order.selects_client("[::ffff:192.0.2.9]:1".parse().unwrap())
                && !order.selects_client("192.0.3.9:1".parse().unwrap())
        );

        let next = LogOrder::for_address("[::ffff:192.0.2.9]:7".parse().unwrap(), 1).for_next();
        assert!(
            next.selects_client("192.0.2.9:7".parse().unwrap()) && !next.selects_client("192.0.2.9:8".parse().unwrap())
        );
        assert!(!next.has_all_ended());
        let first = next.begin_log().map(|(log, _)| log);
        assert_eq!((first, next.begin_log(), next.has_all_ended()), (Some(1), None, false));
        next.end_one_log(1, 0);
        assert!(next.has_all_ended());
    }

    #[test]
    fn lines_beyond_256_kib_are_left_out_until_they_are_read() {
        let order = LogOrder::for_network("192.0.2.0/24".parse().unwrap(), 1, 2);
        let line = [b'x'; 1024];
        assert_eq!((0..300).filter(|_| order.hand_over_lines(0, &line)).count(), 256);
        assert_eq!(order.pipes[0].lock().unwrap().capacity(), MAX_UNREAD_BYTES);
        assert!(order.hand_over_lines(1, &line), "another worker has room");
        assert!(!order.hand_over_lines(2, &line));
        assert_eq!(order.take_lines().len(), 257 * 1024);
        assert!(order.hand_over_lines(0, &line));
    }
}
