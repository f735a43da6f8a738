//! Lists, closes, denies and logs clients for the operator: the control thread asks every worker, and merges the
//! answers.

use super::denial::Denial;
use super::mailbox::{WorkerRequest, WorkerRequestSender};
use super::metrics::ProcessMetrics;
use base64::{Engine, prelude::BASE64_STANDARD};
use bytes::Bytes;
use futures_util::future;
use litequic_admin::{
    ClientControl, ClientList, ClientStatus, CloseOrder, DeniedList, DenyOrder, QlogLines, QlogOrder, WorkersReply,
};
use litequic_config::Network;
use litequic_quic::{LogEnd, LogOrder, MAX_LOG_BYTES};
use litequic_resources::connections::WorkerList;
use litequic_telemetry::clients::{
    ClientReport, ConnectionDescription, ListQuery, Selection, Selector, TopN, TransportReport,
};
use litequic_tls as tls;
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::{
    sync::{Semaphore, mpsc, oneshot},
    time::{sleep, timeout, timeout_at},
};

/// Timeout of a worker's answer; a worker that hangs is found in the same time.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// Time between the two lists from which the rates of connections are computed.
const RATE_INTERVAL: Duration = Duration::from_secs(1);

/// Number of orders to log connections that are served at once: each may take 256 KiB of every worker.
const MAX_LOG_ORDERS: usize = 4;
/// Number of pieces of lines that wait for a reader, beyond the lines that workers hold.
const MAX_QUEUED_PIECES: usize = 1;
/// Interval at which lines are read, even if few were written.
const READ_INTERVAL: Duration = Duration::from_millis(250);

/// Client control of the admin listener, which sends its questions to all workers.
#[derive(Debug, Clone)]
pub(super) struct WorkerClientControl {
    /// Queues of the workers, by index.
    workers: Vec<WorkerRequestSender>,
    metrics: Arc<ProcessMetrics>,
    denial: Arc<Denial>,
    /// Permits of orders to log connections.
    logs: Arc<Semaphore>,
}

impl WorkerClientControl {
    pub(super) fn new(workers: Vec<WorkerRequestSender>, metrics: Arc<ProcessMetrics>, denial: Arc<Denial>) -> Self {
        Self { workers, metrics, denial, logs: Arc::new(Semaphore::new(MAX_LOG_ORDERS)) }
    }

    /// Sends the question that `request` makes to all workers; returns their answers.
    ///
    /// # Errors
    ///
    /// A worker does not answer.
    async fn ask_workers<T>(&self, request: impl Fn(oneshot::Sender<T>) -> WorkerRequest) -> Result<Vec<T>, String> {
        let request = &request;
        let answers = self.workers.iter().enumerate().map(async |(worker, requests)| {
            let asked = async {
                let (answer, answered) = oneshot::channel();
                requests.send(request(answer)).await.ok()?;
                answered.await.ok()
            };
            timeout(ANSWER_TIMEOUT, asked)
                .await
                .ok()
                .flatten()
                .ok_or_else(|| format!("worker {worker} does not answer\n"))
        });
        future::try_join_all(answers).await
    }

    async fn list_connections(&self, query: ListQuery) -> Result<Vec<WorkerList>, String> {
        self.ask_workers(|answer| WorkerRequest::List { query, answer }).await
    }
}

impl ClientControl for WorkerClientControl {
    fn list_clients(&self, query: ListQuery) -> WorkersReply<'_, ClientList> {
        Box::pin(async move {
            let mut lists = self.list_connections(query).await?;
            if lists.iter().any(|list| !list.has_rates) {
                sleep(RATE_INTERVAL).await;
                lists = self.list_connections(query).await?;
            }
            let sum = |count: fn(&WorkerList) -> u64| lists.iter().map(count).sum::<u64>();
            let quic = self.metrics.sum_over_workers(|worker| worker.quic.handshakes_open.get());
            let (connections, selected) = (sum(|list| list.connections), sum(|list| list.selected));
            let handshakes = sum(|list| list.handshakes).saturating_add(quic);
            let mut best = TopN::new(query.limit);
            for report in lists.into_iter().flat_map(|list| list.reports) {
                let order = (report.name.worker, report.name.number);
                best.offer_value(query.sort.report_sort_value(&report), order, || report);
            }
            Ok(ClientList {
                clients: best.into_sorted().into_iter().map(client_status).collect(),
                selected: Some(selected),
                connections: Some(connections),
                handshakes: Some(handshakes),
                older_processes: Some(self.metrics.control.older_processes.get()),
            })
        })
    }

    fn close_clients(&self, order: CloseOrder) -> WorkersReply<'_, u64> {
        Box::pin(async move {
            let CloseOrder { selection, now, .. } = order;
            let closed = self.ask_workers(|answer| WorkerRequest::Close { selection, at_once: now, answer }).await?;
            let connections: u64 = closed.iter().sum();
            if let Some(client) = selection.client {
                tracing::info!(%client, connections, at_once = now, "closing connections for the operator");
            }
            Ok(connections)
        })
    }

    fn deny_clients(&self, order: DenyOrder) -> WorkersReply<'_, Result<String, String>> {
        Box::pin(async move {
            if let Err(problem) = self.denial.deny_network(&order) {
                return Ok(Err(problem));
            }
            let DenyOrder { network, time, .. } = order;
            // No connection of the network can begin from now on, so that closing the open ones is enough.
            let selection = Selection { client: Some(Selector::Network(network)), protocol: None };
            let closed = self.ask_workers(|answer| WorkerRequest::Close { selection, at_once: true, answer }).await;
            let denied = format!("{network} is denied for {}", humantime::format_duration(time));
            let closed = closed
                .map_err(|problem| format!("{denied}, but its open connections could not be closed: {problem}"))?;
            let mut text = format!("{denied}; closed {}\n", connections_text(closed.iter().sum()));
            if self.metrics.control.older_processes.get() > 0 {
                text += "an older process still drains, and its connections of this network stay open\n";
            }
            text += "A restart ends the denial; a hot upgrade does not. To deny the network permanently, set deny of \
                     [[routes]] in the configuration.\n";
            Ok(Ok(text))
        })
    }

    fn log_connections(&self, order: QlogOrder) -> WorkersReply<'_, Result<QlogLines, String>> {
        Box::pin(async move {
            let Ok(permit) = Arc::clone(&self.logs).try_acquire_owned() else {
                return Ok(Err(format!("{MAX_LOG_ORDERS} qlog requests are active already, which is the maximum\n")));
            };
            let log_order = match self.build_log_order(order).await? {
                Ok(log_order) => Arc::new(log_order),
                Err(problem) => return Ok(Err(problem)),
            };
            let deadline = Instant::now() + order.time;
            let asked = self.ask_workers(|answer| WorkerRequest::Log { order: Arc::clone(&log_order), answer }).await;
            if asked.is_err() || (log_order.begun_logs() == 0 && !order.next) {
                self.end_logs(&log_order).await;
                asked?;
                return Ok(Err(self.no_log_reason(order).await?));
            }
            tracing::info!(client = %order.client, seconds = order.time.as_secs(), "logging connections as qlog");
            let (sender, lines) = mpsc::channel(MAX_QUEUED_PIECES);
            let workers = self.clone();
            tokio::spawn(async move {
                let reason = send_log_lines(&log_order, &sender, deadline).await;
                workers.end_logs(&log_order).await;
                // After the size limit no further line fits; otherwise the remaining lines are sent with the last ones.
                let rest = log_order.take_lines();
                let rest = if reason == LogEnd::Size { Vec::new() } else { rest };
                // An error means that the reader is gone.
                let last = sender.send([rest, log_order.last_lines(reason)].concat().into());
                let _ = timeout(ANSWER_TIMEOUT, last).await;
                drop(permit);
            });
            Ok(Ok(lines))
        })
    }

    fn allow_clients(&self, network: Network) -> Result<String, String> {
        self.denial.allow_network(network)
    }

    fn list_denied_networks(&self) -> DeniedList {
        self.denial.denied_list()
    }
}

impl WorkerClientControl {
    /// Translates the operator's `order` into one for workers.
    async fn build_log_order(&self, order: QlogOrder) -> Result<Result<LogOrder, String>, String> {
        let workers = self.workers.len();
        let mut log_order = match order.client {
            Selector::Address(address) => LogOrder::for_address(address, workers),
            Selector::Network(network) => {
                LogOrder::for_network(network, if order.next { 1 } else { order.connections }, workers)
            }
            Selector::Connection(_) => {
                let selection = Selection { client: Some(order.client), protocol: None };
                let lists = self.list_connections(ListQuery { selection, limit: 1, ..ListQuery::default() }).await?;
                match lists.into_iter().flat_map(|list| list.reports).next() {
                    Some(report) => LogOrder::for_address(report.address, workers),
                    None => return Ok(Err(format!("no connection {} is open\n", order.client))),
                }
            }
        };
        (log_order.next, log_order.anonymous) = (order.next, order.anonymous);
        Ok(Ok(log_order))
    }

    /// Reason for which no connection of `order` is logged.
    async fn no_log_reason(&self, order: QlogOrder) -> Result<String, String> {
        let selection = Selection { client: Some(order.client), protocol: None };
        let lists = self.list_connections(ListQuery { selection, limit: 1, ..ListQuery::default() }).await?;
        let over_tcp: u64 = lists.iter().map(|list| list.selected).sum();
        let client = order.client;
        Ok(match over_tcp {
            0 => format!("no connection of {client} is open; --next logs its next one\n"),
            _ => format!(
                "{client} has {} over TCP and none over QUIC; qlog records QUIC only\n",
                connections_text(over_tcp)
            ),
        })
    }

    /// Ends `order` and has workers drop its logs.
    async fn end_logs(&self, order: &LogOrder) {
        order.end_order();
        // A worker that does not answer drops them with the next order.
        let _ = self.ask_workers(|answer| WorkerRequest::DropLogs { answer }).await;
    }
}

/// Sends the lines of `order` to `sender` until the order, the deadline or the size limit ends it; returns the reason.
/// Lines are taken from workers only when `sender` has room: while a reader is slow, workers hold their lines, and drop
/// events once they hold enough.
async fn send_log_lines(order: &LogOrder, sender: &mpsc::Sender<Bytes>, deadline: Instant) -> LogEnd {
    let mut left = MAX_LOG_BYTES;
    loop {
        let wait = timeout_at(deadline.into(), timeout(READ_INTERVAL, order.wait_readable()));
        let is_late = tokio::select! {
            waited = wait => waited.is_err(),
            () = sender.closed() => return LogEnd::Connection,
        };
        let room = match timeout_at(deadline.into(), sender.reserve()).await {
            Ok(Ok(room)) => room,
            Ok(Err(_)) => return LogEnd::Connection,
            // The reader is slower than the connection.
            Err(_) => return LogEnd::Time,
        };
        let has_ended = order.has_all_ended();
        let lines = order.take_lines();
        left = match left.checked_sub(lines.len()) {
            Some(left) => left,
            None => return LogEnd::Size,
        };
        if !lines.is_empty() {
            room.send(lines.into());
        }
        if has_ended || is_late {
            return if has_ended { LogEnd::Connection } else { LogEnd::Time };
        }
    }
}

/// Text for a number of connections.
fn connections_text(count: u64) -> String {
    if count == 1 { "1 connection".into() } else { format!("{count} connections") }
}

/// Converts a report to an entry of `/clients`.
fn client_status(report: ClientReport) -> ClientStatus {
    let ClientReport { name, address, protocol, age, idle, open, sent, sent_rate, received, held, .. } = report;
    let TransportReport { rtt, packets_sent, acks, congestion_window, bytes_in_flight, .. } = report.transport;
    let ConnectionDescription { local, server_name, tls, group, resumed, certificate, requests } = report.description;
    let per_ack = packets_sent.zip(acks).filter(|(_, acks)| *acks > 0);
    ClientStatus {
        id: Some(name.to_string()),
        client: Some(address.to_string()),
        protocol: Some(protocol.into()),
        local: Some(local.to_string()),
        worker: Some(name.worker as u64),
        server_name: server_name.map(|name| name.to_string()),
        tls: Some(tls.into()),
        group: group.map(str::to_owned),
        resumed,
        certificate: certificate.as_deref().and_then(certificate_subject),
        age: Some(age.as_secs_f64()),
        idle: idle.map(|idle| idle.as_secs_f64()),
        open: Some(open.into()),
        requests: Some(requests),
        sent: Some(sent),
        sent_rate: Some(sent_rate),
        received: Some(received),
        held: Some(held),
        rtt: rtt.map(|rtt| rtt.as_secs_f64()),
        loss: report.transport.lost_per_million().map(|lost| lost as f64 / 1e6),
        packets_per_ack: per_ack.map(|(packets, acks)| packets as f64 / acks as f64),
        congestion_window,
        bytes_in_flight,
    }
}

/// Subject of a certificate in the format of `Client-Cert` (RFC 9440).
fn certificate_subject(certificate: &str) -> Option<String> {
    tls::parse_subject(&BASE64_STANDARD.decode(certificate.trim_matches(':')).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Missing lines are missing at the end, where the log gives the reason.
    #[tokio::test]
    async fn a_log_ends_before_64_mib_without_a_gap() {
        let mut order = LogOrder::for_address(([192, 0, 2, 1], 7).into(), 1);
        order.next = true;
        let (sender, mut lines) = mpsc::channel::<Bytes>(MAX_QUEUED_PIECES);
        let mut next = 0_u64;
        let write = async {
            loop {
                // Half of the lines that a worker may hold, so that both worker and reader wait at times.
                let piece: Vec<u8> = (0..16 << 10).flat_map(|at| (next + at).to_le_bytes()).collect();
                if order.hand_over_lines(0, &piece) {
                    next += 16 << 10;
                }
                tokio::task::yield_now().await;
            }
        };
        let read = async {
            let mut expected = 0_u64;
            while let Some(piece) = lines.recv().await {
                for number in piece.chunks_exact(8) {
                    assert_eq!(number, expected.to_le_bytes());
                    expected += 1;
                }
            }
            8 * usize::try_from(expected).unwrap()
        };
        let sent = async {
            let end = send_log_lines(&order, &sender, Instant::now() + Duration::from_secs(300)).await;
            drop(sender);
            end
        };
        let (end, bytes) = tokio::select! {
            () = write => unreachable!("it does not end"),
            both = async { tokio::join!(sent, read) } => both,
        };
        assert_eq!(end, LogEnd::Size);
        assert!((MAX_LOG_BYTES - (256 << 10)..=MAX_LOG_BYTES).contains(&bytes), "{bytes}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_blocked_reader_gets_one_piece_and_workers_hold_the_rest() {
        let mut order = LogOrder::for_address(([192, 0, 2, 1], 7).into(), 1);
        order.next = true;
        let (sender, mut lines) = mpsc::channel(MAX_QUEUED_PIECES);
        let line = [b'x'; 1 << 10];
        let mut held = 0;
        let write = async {
            loop {
                if order.hand_over_lines(0, &line) {
                    held += 1;
                    tokio::task::yield_now().await;
                } else {
                    sleep(READ_INTERVAL).await;
                }
            }
        };
        let end = tokio::select! {
            () = write => unreachable!("it does not end"),
            end = send_log_lines(&order, &sender, tokio::time::Instant::now().into_std() + Duration::from_secs(2)) => end,
        };
        assert_eq!(end, LogEnd::Time);
        assert!(held <= 2 * 256, "{held} KiB");
        let piece = lines.recv().await.unwrap();
        assert!(lines.try_recv().is_err() && piece.len() + order.take_lines().len() == held as usize * line.len());
    }
}
