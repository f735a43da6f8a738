//! Questions of the control thread to a worker, and their answers: a worker takes one after the other, and lets its
//! other tasks run in between (docs/adr/0054-clients.md).

use crate::{
    clients::{ListQuery, Selection},
    memory::{CloseWalk, ListWalk, MemoryAccounts, WorkerList},
    quic::{EndpointState, LogOrder},
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
                    endpoints.iter().for_each(|endpoint| endpoint.log_connections(&order, worker));
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
