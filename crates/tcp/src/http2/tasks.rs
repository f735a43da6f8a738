//! The tasks of a connection's streams.

use litequic_base::lifecycle::pass_panic_on;
use std::cell::RefCell;
use tokio::task::JoinSet;

/// The tasks of a connection's streams: they belong to it, and end with it.
#[derive(Default)]
pub(super) struct StreamTasks(RefCell<JoinSet<()>>);

impl StreamTasks {
    pub(super) fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        self.reap();
        self.0.borrow_mut().spawn_local(task);
    }

    fn reap(&self) {
        while let Some(ended) = self.0.borrow_mut().try_join_next() {
            pass_panic_on(ended);
        }
    }

    /// Ends what still runs.
    pub(super) fn end(&self) {
        self.reap();
        self.0.borrow_mut().abort_all();
    }
}
