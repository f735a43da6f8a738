//! Ends a turn of the worker's loop.

use std::{
    pin::pin,
    task::{Context, Poll},
};

/// Returns "pending", and has the runtime poll again after every other ready task has run and events were polled. The
/// event loop returns to the runtime only when nothing is ready: on a busy socket the worker's connections and origins
/// would starve. A plain wake would let tasks run, but events wait for 60 of them.
pub(super) fn yield_to_runtime<T>(cx: &mut Context<'_>) -> Poll<T> {
    let turn = pin!(tokio::task::yield_now());
    // The future is ready in a test, without a runtime's scheduler.
    if Future::poll(turn, cx).is_ready() {
        cx.waker().wake_by_ref();
    }
    Poll::Pending
}
