//! Carries questions of the control thread to a worker, which answers one after the other and lets its other tasks run
//! in between (docs/adr/0054-clients.md).

use litequic_quic::{self as quic, EndpointState, LogOrder};
use litequic_resources::connections::{ConnectionRegistry, WorkerList};
use litequic_telemetry::clients::{ListQuery, OpenConnection, Selection};
use std::{rc::Rc, sync::Arc, time::Instant};
use tokio::{
    sync::{mpsc, oneshot},
    task::yield_now,
};

/// Maximum number of questions that wait for a worker.
const MAX_QUEUED: usize = 16;

/// Question to a worker. Its answer is discarded if the control thread no longer waits for it.
#[derive(Debug)]
pub(super) enum WorkerRequest {
    /// List the connections that are open.
    List {
        /// Selection, order and length of the list.
        query: ListQuery,
        /// Sender of the list.
        answer: oneshot::Sender<WorkerList>,
    },
    /// Close connections.
    Close {
        /// Connections to close.
        selection: Selection,
        /// Whether to close at once, or when the requests have ended.
        at_once: bool,
        /// Sender of the number of closed connections.
        answer: oneshot::Sender<u64>,
    },
    /// Log connections over QUIC.
    Log {
        /// Connections to log.
        order: Arc<LogOrder>,
        /// Sender that confirms the start of the logs.
        answer: oneshot::Sender<()>,
    },
    /// Drop the logs of orders that are over.
    DropLogs {
        /// Sender that confirms the end of the logs.
        answer: oneshot::Sender<()>,
    },
}

/// Queue of questions to one worker.
pub(super) type WorkerRequestSender = mpsc::Sender<WorkerRequest>;

/// Receiver of the questions to one worker.
pub(super) type Mailbox = mpsc::Receiver<WorkerRequest>;

/// Creates the queue of a worker: its sender and its receiver.
pub(super) fn create_mailbox() -> (WorkerRequestSender, Mailbox) {
    mpsc::channel(MAX_QUEUED)
}

/// Answers questions about the connections of `accounts`, all of `worker`, and of `endpoints`, those over QUIC.
/// Does not end.
pub(super) async fn serve_requests(
    mut mailbox: Mailbox,
    worker: usize,
    accounts: Rc<ConnectionRegistry>,
    endpoints: Vec<Arc<EndpointState>>,
) {
    while let Some(request) = mailbox.recv().await {
        match request {
            WorkerRequest::List { query, answer } => {
                // An error means that the control thread no longer waits.
                let _ = answer.send(accounts.list_connections(worker, query, Instant::now).await);
            }
            WorkerRequest::Close { selection, at_once, answer } => {
                let _ = answer.send(accounts.close_connections(worker, selection, at_once).await);
            }
            WorkerRequest::Log { order, answer } => {
                if order.next {
                    endpoints.iter().for_each(|endpoint| endpoint.log_next_connection(&order, worker));
                } else {
                    let log = |open: &dyn OpenConnection| {
                        if let Some(connection) = open.quic_handle().filter(|_| !order.is_used_up()) {
                            quic::log_open_connection(connection, &order, worker);
                        }
                    };
                    accounts.visit_selected(worker, order.client_selection(), log).await;
                }
                let _ = answer.send(());
            }
            WorkerRequest::DropLogs { answer } => {
                endpoints.iter().for_each(|endpoint| endpoint.drop_ended_logs());
                let _ = answer.send(());
            }
        }
        yield_now().await;
    }
    std::future::pending::<()>().await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use litequic_resources::connections::{ConnectionEntry, ConnectionPool};
    use litequic_telemetry::clients::{ConnectionDescription, ListOrder, TransportReport};
    use std::{cell::Cell, net::SocketAddr};
    use tokio::task::LocalSet;

    const CLIENT: ([u8; 4], u16) = ([192, 0, 2, 1], 7);
    const CONNECTIONS: u32 = 5_000;

    /// Numbers of operations of a worker on connections.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    struct Work {
        /// Number of connections that were read.
        looks: u32,
        /// Number of connections whose transport was queried.
        asks: u32,
    }

    /// Connection that counts reads and queries.
    struct Counted(Rc<Cell<Work>>);

    impl OpenConnection for Counted {
        fn remote_address(&self) -> SocketAddr {
            self.0.update(|work| Work { looks: work.looks + 1, ..work });
            CLIENT.into()
        }

        fn http_version(&self) -> &'static str {
            "HTTP/2"
        }

        fn path_report(&self) -> TransportReport {
            self.0.update(|work| Work { asks: work.asks + 1, ..work });
            TransportReport::default()
        }

        fn describe_connection(&self) -> ConnectionDescription {
            ConnectionDescription {
                local: CLIENT.into(),
                server_name: None,
                tls: "1.3",
                group: None,
                resumed: None,
                certificate: None,
                requests: 0,
            }
        }
    }

    /// Asks a worker with 5,000 connections the question that `request` makes. Returns the answer, all work, and the
    /// most work between two turns of another task.
    async fn ask<T: 'static>(request: impl FnOnce(oneshot::Sender<T>) -> WorkerRequest) -> (T, Work, Work) {
        let (accounts, done) = (Rc::<ConnectionRegistry>::default(), Rc::<Cell<Work>>::default());
        let open: Vec<(ConnectionEntry, Rc<Counted>)> = (0..CONNECTIONS)
            .map(|_| {
                let account = accounts.admit_connection(ConnectionPool::Tls, None, u32::MAX).unwrap();
                let connection = Rc::new(Counted(Rc::clone(&done)));
                account.mark_ready();
                let weak = Rc::downgrade(&connection);
                account.set_open_connection(weak);
                (account, connection)
            })
            .collect();
        let (requests, mailbox) = create_mailbox();
        let (answer, mut answered) = oneshot::channel();
        assert!(requests.send(request(answer)).await.is_ok());
        let (mut before, mut most) = (Work::default(), Work::default());
        let other = async {
            loop {
                let now = done.get();
                most.looks = most.looks.max(now.looks - before.looks);
                most.asks = most.asks.max(now.asks - before.asks);
                before = now;
                if let Ok(answer) = answered.try_recv() {
                    return answer;
                }
                yield_now().await;
            }
        };
        let local = LocalSet::new();
        local.spawn_local(serve_requests(mailbox, 3, Rc::clone(&accounts), Vec::new()));
        let answer = local.run_until(other).await;
        drop(open);
        (answer, before, most)
    }

    #[tokio::test]
    async fn a_worker_reads_at_most_a_thousand_connections_per_turn() {
        let selection = Selection { client: Some("192.0.2.1".parse().unwrap()), protocol: None };
        let thousand = Work { looks: 1_000, asks: 0 };
        for (sort, limit, asks) in
            [(ListOrder::Sent, 50, 50), (ListOrder::Open, 1_000, 1_000), (ListOrder::Rtt, 1_000, 6_000)]
        {
            let query = ListQuery { selection, sort, limit };
            let (list, work, most) = ask(|answer| WorkerRequest::List { query, answer }).await;
            assert_eq!((list.connections, list.selected, list.reports.len()), (5_000, 5_000, limit), "{sort}");
            // Each row is read once more.
            assert_eq!(work, Work { looks: CONNECTIONS + u32::try_from(limit).unwrap(), asks }, "{sort}");
            assert!(most.looks <= 1_000 && most.asks <= 100, "{sort}: {most:?}");
        }
        let close = |answer| WorkerRequest::Close { selection, at_once: false, answer };
        let all = Work { looks: CONNECTIONS, asks: 0 };
        assert_eq!(ask(close).await, (u64::from(CONNECTIONS), all, thousand));
        let order = Arc::new(LogOrder::for_address(CLIENT.into(), 4));
        assert_eq!(ask(|answer| WorkerRequest::Log { order, answer }).await, ((), all, thousand));
    }
}
