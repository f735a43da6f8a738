//! Passes an operator's order to log connections to the workers, and their lines to the control thread. A reader that
//! is too slow loses events, which are counted; no worker waits for it.

use super::frames::milliseconds;
use litequic_base::network::Network;
use litequic_telemetry::clients::{Selection, Selector};
use parking_lot::Mutex;
use serde_json::{Value as Json, json};
use std::{
    io::Write as _,
    net::SocketAddr,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::{Duration, Instant},
};
use tokio::sync::Notify;

/// Largest number of logged connections of an order: of many clients at one address, the first ones.
pub const MAX_CONNECTIONS_LOGGED: usize = 8;
/// Largest size of all logs of an order, bytes: two minutes at 2,000 packets a second.
pub const MAX_LOG_BYTES: usize = 64 << 20;

/// Largest number of bytes of an order's lines that wait in a worker to be read.
const MAX_UNREAD_BYTES: usize = 256 << 10;
/// Bytes of lines that wake the reader, which otherwise reads four times a second: a wake costs a system call.
const WAKE_BYTES: usize = 64 << 10;
/// First byte of a record (RFC 7464 §2.2).
pub(super) const RECORD_SEPARATOR: u8 = 0x1e;

/// An operator's order to log connections, shared by the control thread and the workers.
#[derive(Debug)]
pub struct LogOrder {
    clients: LoggedClients,
    /// Logs connections that begin from now on, not open ones.
    pub next: bool,
    /// Clients' addresses are left out.
    pub anonymous: bool,
    logs: Mutex<OrderedLogs>,
    is_over: AtomicBool,
    /// Unread lines of each worker.
    pipes: Vec<Mutex<Vec<u8>>>,
    readable: Notify,
}

/// Clients whose connections are logged.
#[derive(Debug, Clone, Copy)]
enum LoggedClients {
    Address(SocketAddr),
    Network(Network),
}

/// The logs of an order.
#[derive(Debug)]
struct OrderedLogs {
    /// Number of connections that may still be logged.
    places: usize,
    /// Begin of each log, from which its events' times count, and number of events left out at its end.
    begun: Vec<(Instant, u64)>,
    /// Number of logs that have ended.
    ended: usize,
}

/// Reason for the end of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogEnd {
    /// All logged connections have ended.
    Connection,
    /// The time of the order is over.
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
            logs: Mutex::new(OrderedLogs { places, begun: Vec::new(), ended: 0 }),
            is_over: AtomicBool::new(false),
            pipes: (0..workers).map(|_| Mutex::default()).collect(),
            readable: Notify::new(),
        }
    }

    /// Selection of the order's connections in a list of connections.
    pub fn client_selection(&self) -> Selection {
        let client = match self.clients {
            LoggedClients::Address(address) => Selector::Address(address),
            LoggedClients::Network(network) => Selector::Network(network),
        };
        Selection { client: Some(client), protocol: None }
    }

    /// Whether no further log may begin.
    pub fn is_used_up(&self) -> bool {
        self.logs.lock().places == 0
    }

    /// Whether the order includes a connection of the client at `address`.
    pub(crate) fn selects_client(&self, address: SocketAddr) -> bool {
        match self.clients {
            LoggedClients::Address(client) => {
                client.port() == address.port() && client.ip() == address.ip().to_canonical()
            }
            LoggedClients::Network(network) => network.contains_address(address.ip()),
        }
    }

    /// Begins another log, and returns its number, from 1 on, and the time; `None` if the order is used up.
    pub(super) fn begin_log(&self) -> Option<(usize, Instant)> {
        let mut logs = self.logs.lock();
        logs.places = logs.places.checked_sub(1)?;
        let now = Instant::now();
        logs.begun.push((now, 0));
        Some((logs.begun.len(), now))
    }

    /// Ends log number `log`, whose last `omitted` events were left out.
    pub(super) fn end_one_log(&self, log: usize, omitted: u64) {
        let mut logs = self.logs.lock();
        if let Some((_, of_log)) = logs.begun.get_mut(log.wrapping_sub(1)) {
            *of_log = omitted;
        }
        logs.ended += 1;
        self.readable.notify_one();
    }

    /// Ends the order and drops all logs of it.
    pub fn end_order(&self) {
        self.is_over.store(true, Relaxed);
    }

    /// Whether the order is over.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Relaxed)
    }

    /// Number of logs that have begun.
    pub fn begun_logs(&self) -> usize {
        self.logs.lock().begun.len()
    }

    /// Whether every log of the order has ended.
    pub fn has_all_ended(&self) -> bool {
        let logs = self.logs.lock();
        let waits = self.next && logs.places > 0;
        !waits && logs.begun.len() == logs.ended
    }

    /// Hands over `lines` of `worker`. False if the lines have no room.
    pub fn hand_over_lines(&self, worker: usize, lines: &[u8]) -> bool {
        let Some(pipe) = self.pipes.get(worker) else { return false };
        let mut held = pipe.lock();
        if held.len() + lines.len() > MAX_UNREAD_BYTES {
            return false;
        }
        let before = held.len();
        let needed = before + lines.len();
        if needed > held.capacity() {
            // A vector's own growth might reserve twice the allowed bytes.
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

    /// Takes the lines of every worker.
    pub fn take_lines(&self) -> Vec<u8> {
        let mut all = Vec::new();
        for pipe in &self.pipes {
            let mut held = pipe.lock();
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

    /// Returns the last lines of all logs, which ended for `reason`.
    pub fn last_lines(&self, reason: LogEnd) -> Vec<u8> {
        let mut lines = Vec::new();
        for (log, (epoch, omitted)) in (1..).zip(&self.logs.lock().begun) {
            let time = epoch.elapsed();
            if *omitted > 0 {
                write_omitted_count(&mut lines, log, time, *omitted);
            }
            let data = json!({ "reason": reason.reason_name() });
            write_event_record(&mut lines, log, time, "litequic:log_ended", &data);
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

/// Writes that `count` events of log number `log` were left out.
pub(super) fn write_omitted_count(lines: &mut Vec<u8>, log: usize, time: Duration, count: u64) {
    write_event_record(lines, log, time, "litequic:events_omitted", &json!({ "count": count }));
}

/// Appends an event of log number `log` to `lines`, as a record.
pub(super) fn write_event_record(lines: &mut Vec<u8>, log: usize, time: Duration, name: &str, data: &Json) {
    lines.push(RECORD_SEPARATOR);
    let time = milliseconds(time);
    // `litequic ctl` expects the group first. Writing to memory does not fail.
    let _ = writeln!(lines, r#"{{"group_id":"{log}","time":{time},"name":"{name}","data":{data}}}"#);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_ends_with_its_last_log() {
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

        let next = LogOrder { next: true, ..LogOrder::for_address("[::ffff:192.0.2.9]:7".parse().unwrap(), 1) };
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
        assert_eq!(order.pipes[0].lock().capacity(), MAX_UNREAD_BYTES);
        assert!(order.hand_over_lines(1, &line), "another worker has room");
        assert!(!order.hand_over_lines(2, &line));
        assert_eq!(order.take_lines().len(), 257 * 1024);
        assert!(order.hand_over_lines(0, &line));
    }
}
