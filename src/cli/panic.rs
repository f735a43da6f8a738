//! Ends the process on a panic, which is always litequic's own fault, with a last line that names thread, place and
//! message. A supervisor starts it anew; continuing half broken would be worse.

use super::exit::Exit;
use litequic_base::lifecycle::abort_if_requested;
use litequic_telemetry::log;
use std::{
    backtrace::{Backtrace, BacktraceStatus},
    panic::{self, PanicHookInfo},
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
};

/// Whether a thread has panicked and writes the last line.
static PANIC_IN_PROGRESS: AtomicBool = AtomicBool::new(false);

/// Makes a panic on any thread, in a task or outside, end the process: with [`Exit::Software`] where panics unwind, by
/// SIGABRT where they abort (release builds).
pub(super) fn end_process_on_panic() {
    panic::set_hook(Box::new(|panic| {
        // Only one thread writes the last line. A thread that panics meanwhile waits for the end.
        while PANIC_IN_PROGRESS.swap(true, Relaxed) {
            thread::park();
        }
        report_panic(panic);
        abort_if_requested();
        if cfg!(panic = "unwind") {
            std::process::exit(Exit::Software as i32);
        }
    }));
}

/// Reports `panic` in the format of the log, or as a sentence without a log. No wait for a reader is unbounded.
fn report_panic(panic: &PanicHookInfo<'_>) {
    let thread = thread::current();
    let thread = thread.name().unwrap_or("unnamed");
    let message = panic.payload_as_str().unwrap_or("no message");
    let place = panic.location().map(ToString::to_string).unwrap_or_default();
    let backtrace = Backtrace::capture();
    let before = match backtrace.status() {
        BacktraceStatus::Captured => format!("{backtrace}\n"),
        _ => String::new(),
    };
    let event = || tracing::error!(thread, panic = message, place, "internal error: a thread panicked, stopping");
    let plain = format!("litequic: internal error, stopping: thread {thread} panicked at {place}: {message}\n");
    log::write_panic_lines(&before, event, &plain);
}
