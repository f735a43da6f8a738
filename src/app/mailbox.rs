//! Questions of the control thread to a worker, and their answers: a worker takes one after the other, and lets its
//! other tasks run in between (docs/adr/0054-clients.md).

use crate::{
    clients::{ListQuery, OpenConnection, Selection},
    memory::{CloseWalk, ListWalk, MemoryAccounts, OpenWalk, WorkerList},
    quic::{self, EndpointState, LogOrder},
};
use std::{rc::Rc, sync::Arc, time::Instant};
use tokio::{
    sync::{mpsc, oneshot},
    task::yield_now,
};

/// Questions that wait for a worker at most.
const QUEUE: usize = 16;

/// A question to a worker. One whose asker is gone is answered in vain.
#[derive(Debug)]
pub(super) enum WorkerRequest {
    /// List the connections that are open.
    List {
        /// The list that is wanted.
        query: ListQuery,
        /// Where it goes.
        answer: oneshot::Sender<WorkerList>,
    },
    /// Close connections.
    Close {
        /// Connections that are meant.
        selection: Selection,
        /// At once; else when their requests have ended.
        at_once: bool,
        /// Where their number goes.
        answer: oneshot::Sender<u64>,
    },
    /// Log connections over QUIC.
    Log {
        /// Which.
        order: Arc<LogOrder>,
        /// Told once they are.
        answer: oneshot::Sender<()>,
    },
    /// Drop the logs of orders that are over.
    DropLogs {
        /// Told once they are.
        answer: oneshot::Sender<()>,
    },
}

/// Sends questions to one worker.
pub(super) type WorkerRequests = mpsc::Sender<WorkerRequest>;

/// A worker's mailbox.
#[derive(Debug)]
pub(super) struct Mailbox(mpsc::Receiver<WorkerRequest>);

impl Mailbox {
    /// A mailbox, and what fills it.
    pub(super) fn new() -> (WorkerRequests, Self) {
        let (requests, received) = mpsc::channel(QUEUE);
        (requests, Self(received))
    }

    /// Answers questions about the connections of `accounts`, which are those of `worker` and, over QUIC, of
    /// `endpoints`. Does not end.
    pub(super) async fn serve(
        mut self,
        worker: usize,
        accounts: Rc<MemoryAccounts>,
        endpoints: Vec<Arc<EndpointState>>,
    ) {
        while let Some(request) = self.0.recv().await {
            match request {
                WorkerRequest::List { query, answer } => {
                    let mut walk = ListWalk::new(worker, query);
                    while walk.look(&accounts, Instant::now()) {
                        yield_now().await;
                    }
                    // Its rows are described in a turn of their own.
                    yield_now().await;
                    // An error means that the asker is gone.
                    let _ = answer.send(walk.finish(&accounts, Instant::now()));
                }
                WorkerRequest::Close { selection, at_once, answer } => {
                    let mut walk = CloseWalk::new(worker, selection, at_once);
                    while walk.look(&accounts) {
                        yield_now().await;
                    }
                    let _ = answer.send(walk.closed);
                }
                WorkerRequest::Log { order, answer } => {
                    if order.is_of_next() {
                        endpoints.iter().for_each(|endpoint| endpoint.log_next(&order, worker));
                    } else {
                        let mut walk = OpenWalk::new(worker, order.selection());
                        let mut log = |open: &dyn OpenConnection| {
                            if let Some(connection) = open.quic().filter(|_| !order.is_full()) {
                                quic::log_open(connection, &order, worker);
                            }
                        };
                        while walk.look(&accounts, &mut log) {
                            yield_now().await;
                        }
                    }
                    let _ = answer.send(());
                }
                WorkerRequest::DropLogs { answer } => {
                    endpoints.iter().for_each(|endpoint| endpoint.drop_logs());
                    let _ = answer.send(());
                }
            }
            yield_now().await;
        }
        std::future::pending::<()>().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        clients::{Description, TransportReport},
        memory::{ConnectionPool, MemoryAccount},
    };
    use std::{cell::Cell, net::SocketAddr};
    use tokio::task::LocalSet;

    /// Connections that a worker looks at in a turn at most.
    const MOST: u32 = 1_000;

    const CLIENT: ([u8; 4], u16) = ([192, 0, 2, 1], 7);

    /// A connection that counts how often its client is asked for.
    struct Counted {
        looks: Rc<Cell<u32>>,
    }

    impl OpenConnection for Counted {
        fn address(&self) -> SocketAddr {
            self.looks.set(self.looks.get() + 1);
            CLIENT.into()
        }

        fn protocol(&self) -> &'static str {
            "HTTP/2"
        }

        fn transport(&self) -> TransportReport {
            TransportReport::default()
        }

        fn describe(&self) -> Description {
            let local = CLIENT.into();
            let (server_name, group, resumed, certificate) = Default::default();
            Description { local, server_name, tls: "1.3", group, resumed, certificate, requests: 0 }
        }
    }

    /// Asks a worker with 5,000 connections the question that `request` makes. Returns its answer, the connections it
    /// looked at, and the most that it looked at between two turns of another task.
    async fn ask<T: 'static>(request: impl FnOnce(oneshot::Sender<T>) -> WorkerRequest) -> (T, u32, u32) {
        let (accounts, looks) = (Rc::<MemoryAccounts>::default(), Rc::<Cell<u32>>::default());
        let open: Vec<(MemoryAccount, Rc<Counted>)> = (0..5_000)
            .map(|_| {
                let account = accounts.admit(ConnectionPool::Tls, None, u32::MAX).unwrap();
                let connection = Rc::new(Counted { looks: Rc::clone(&looks) });
                account.ready();
                let weak = Rc::downgrade(&connection);
                account.represents(weak);
                (account, connection)
            })
            .collect();
        let (requests, mailbox) = Mailbox::new();
        let (answer, mut answered) = oneshot::channel();
        assert!(requests.send(request(answer)).await.is_ok());
        let (mut before, mut most) = (0, 0);
        let other = async {
            loop {
                let now = looks.get();
                most = most.max(now - before);
                before = now;
                if let Ok(answer) = answered.try_recv() {
                    return answer;
                }
                yield_now().await;
            }
        };
        let local = LocalSet::new();
        local.spawn_local(mailbox.serve(3, Rc::clone(&accounts), Vec::new()));
        let answer = local.run_until(other).await;
        drop(open);
        (answer, before, most)
    }

    #[tokio::test]
    async fn no_question_has_a_worker_look_at_more_than_a_thousand_connections_in_a_turn() {
        let selection = Selection { client: Some("192.0.2.1".parse().unwrap()), protocol: None };
        // Each row is looked at once more.
        for limit in [50, MOST] {
            let query = ListQuery { selection, limit: limit as usize, ..ListQuery::default() };
            let (list, looks, most) = ask(|answer| WorkerRequest::List { query, answer }).await;
            assert_eq!((list.connections, list.selected, list.reports.len()), (5_000, 5_000, limit as usize));
            assert_eq!((looks, most), (5_000 + limit, MOST));
        }
        let close = |answer| WorkerRequest::Close { selection, at_once: false, answer };
        assert_eq!(ask(close).await, (5_000, 5_000, MOST));
        let order = Arc::new(LogOrder::of_address(CLIENT.into(), 4));
        let ((), looks, most) = ask(|answer| WorkerRequest::Log { order, answer }).await;
        assert_eq!((looks, most), (5_000, MOST));
    }
}
