//! Captures events as formatted lines, without queueing them: for lines that the writer itself writes, and for the last
//! line of a process that panicked.

use std::cell::RefCell;

thread_local! {
    /// Captured lines of this thread's events, while it captures.
    static CAPTURED: RefCell<Option<Vec<u8>>> = const { RefCell::new(None) };
}

/// Captures the lines of the events that `events` logs. `None` if no line is logged: the level is off, or there is no
/// log.
pub(super) fn capture_events(events: impl FnOnce()) -> Option<Vec<u8>> {
    CAPTURED.set(Some(Vec::new()));
    events();
    CAPTURED.take().filter(|lines| !lines.is_empty())
}

/// Whether the calling thread captures events.
pub(super) fn is_capturing() -> bool {
    CAPTURED.with_borrow(Option::is_some)
}

/// Adds `line` to the captured lines. Returns false if the thread does not capture.
pub(super) fn capture_line(line: &[u8]) -> bool {
    CAPTURED.with_borrow_mut(|captured| captured.as_mut().map(|lines| lines.extend_from_slice(line)).is_some())
}
