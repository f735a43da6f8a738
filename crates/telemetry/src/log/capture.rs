//! Formats an event as the log does, without queueing it: for lines that the writer itself writes, and for the last
//! line of a process that panicked.

use std::cell::RefCell;

thread_local! {
    /// The lines of this thread's events, while they are captured.
    static CAPTURED: RefCell<Option<Vec<u8>>> = const { RefCell::new(None) };
}

/// The lines of the events that `events` logs. None if there are none: their level is not logged, or there is no log.
pub(super) fn capture_events(events: impl FnOnce()) -> Option<Vec<u8>> {
    CAPTURED.set(Some(Vec::new()));
    events();
    CAPTURED.take().filter(|lines| !lines.is_empty())
}

/// Whether the calling thread captures its events.
pub(super) fn is_capturing() -> bool {
    CAPTURED.with_borrow(Option::is_some)
}

/// Adds `line` to what is captured. False if nothing is.
pub(super) fn capture_line(line: &[u8]) -> bool {
    CAPTURED.with_borrow_mut(|captured| captured.as_mut().map(|lines| lines.extend_from_slice(line)).is_some())
}
