//! The end of a turn of the worker's loop.

use std::{
    pin::pin,
    task::{Context, Poll},
};

/// Returns "pending" and has the runtime poll again after it has run every other task that is ready and has polled for
/// events. The event loop returns to the runtime only when nothing is ready: on a busy socket the worker's connections
/// and origins would starve. A plain wake would let tasks run, but events wait for 60 of them.
pub(super) fn yield_to_runtime<T>(cx: &mut Context<'_>) -> Poll<T> {
    let turn = pin!(tokio::task::yield_now());
    // Ready where no runtime's scheduler polls: a test.
    if Future::poll(turn, cx).is_ready() {
        cx.waker().wake_by_ref();
    }
    Poll::Pending
}
