//! The end of the process by a panic, which is always litequic's own fault: one last line that names thread, place and
//! message. A supervisor starts it anew; continuing half broken would be worse.

use super::exit::Exit;
use std::{
    backtrace::{Backtrace, BacktraceStatus},
    io::{self, Write},
    panic::{self, PanicHookInfo},
    thread,
};
use tracing::Level;

/// From now on a panic on any thread, in a task or outside, ends the process: with [`Exit::Software`] where panics
/// unwind, by SIGABRT where they abort (release builds).
pub(super) fn end_the_process_on_panics() {
    panic::set_hook(Box::new(|panic| {
        // Locked for good: output of other threads waits for the end, so that ours is the last line. On this thread it
        // is no obstacle (the lock is reentrant).
        std::mem::forget(io::stderr().lock());
        tell(panic);
        if cfg!(panic = "unwind") {
            std::process::exit(Exit::Software as i32);
        }
    }));
}

/// Through the log, as everything is; to standard error if there is none.
fn tell(panic: &PanicHookInfo<'_>) {
    let thread = thread::current();
    let thread = thread.name().unwrap_or("unnamed");
    let message = panic.payload_as_str().unwrap_or("no message");
    let place = panic.location().map(ToString::to_string).unwrap_or_default();
    let backtrace = Backtrace::capture();
    if backtrace.status() == BacktraceStatus::Captured {
        // As below.
        let _ = writeln!(io::stderr(), "{backtrace}");
    }
    if tracing::enabled!(Level::ERROR) {
        tracing::error!(thread, panic = message, place, "internal error: a thread panicked, stopping");
    } else {
        // If standard error is closed, only the exit code remains.
        let _ = writeln!(
            io::stderr(),
            "litequic: internal error, stopping: thread {thread} panicked at {place}: {message}"
        );
    }
}
