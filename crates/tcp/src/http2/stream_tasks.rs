//! Runs the tasks of a connection's streams.

use litequic_base::lifecycle::propagate_panic;
use std::cell::RefCell;
use tokio::task::JoinSet;

/// The tasks of a connection's streams, which end with the connection.
#[derive(Default)]
pub(super) struct StreamTasks(RefCell<JoinSet<()>>);

impl StreamTasks {
    pub(super) fn spawn_task(&self, task: impl Future<Output = ()> + 'static) {
        self.reap_ended();
        self.0.borrow_mut().spawn_local(task);
    }

    fn reap_ended(&self) {
        while let Some(ended) = self.0.borrow_mut().try_join_next() {
            propagate_panic(ended);
        }
    }

    pub(super) fn abort_tasks(&self) {
        self.reap_ended();
        self.0.borrow_mut().abort_all();
    }
}
