//! The demo's standard output, written from a thread: a terminal that is stopped (Ctrl-S) stops no worker.

use litequic_base::log_writer::{LineSender, LogPiece, LogTarget, Report, WriterWake, queue};
use std::{io, time::Duration};

/// Bytes that wait for the terminal. What does not fit is not printed.
const MAX_WAITING: usize = 64 * 1024;
/// How long the end waits for the last line.
const LAST_LINES: Duration = Duration::from_secs(1);

/// Prints text.
#[derive(Debug, Clone)]
pub(super) struct Printer(LineSender);

impl Printer {
    /// # Errors
    ///
    /// The thread cannot be started.
    pub(super) fn start() -> io::Result<Self> {
        let (sender, receiver) = queue(MAX_WAITING);
        receiver.write_to(LogTarget::Stdout, "stdout", Unreported)?;
        Ok(Self(sender))
    }

    /// Prints `text`, which ends a line.
    pub(super) fn print(&self, text: String) {
        self.0.push(LogPiece { text: text.into_bytes(), lines: 1 }, WriterWake::Now);
    }

    /// Waits until all is printed, for a second at most.
    pub(super) fn finish(&self) {
        self.0.wait_until_written(LAST_LINES);
    }
}

/// A closed output is no error.
struct Unreported;

impl Report for Unreported {
    fn failed(&mut self, _: u64, _: &io::Error, _: bool) {}

    fn missing(&mut self, _: u64) -> Option<Vec<u8>> {
        None
    }
}
