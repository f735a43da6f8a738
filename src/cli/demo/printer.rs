//! Writes the demo's standard output from a thread: a terminal that is stopped (Ctrl-S) stops no worker.

use litequic_base::log_writer::{LineSender, LogPiece, LogTarget, WriterEvents, WriterWake, line_queue};
use std::{io, time::Duration};

/// Maximum number of bytes that wait for the terminal. Further text is not printed.
const MAX_WAITING_BYTES: usize = 64 * 1024;
/// Timeout of the last line.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

/// Prints text on a thread.
#[derive(Debug, Clone)]
pub(super) struct Printer(LineSender);

impl Printer {
    /// Starts the thread.
    ///
    /// # Errors
    ///
    /// The thread cannot be started.
    pub(super) fn start_printer() -> io::Result<Self> {
        let (sender, receiver) = line_queue(MAX_WAITING_BYTES);
        receiver.spawn_writer(LogTarget::Stdout, "stdout", SilentReport)?;
        Ok(Self(sender))
    }

    /// Prints `text`, which ends a line.
    pub(super) fn print_text(&self, text: String) {
        self.0.push_lines(LogPiece { text: text.into_bytes(), lines: 1 }, WriterWake::Now);
    }

    /// Waits until all text is printed, for [`FLUSH_TIMEOUT`] at most.
    pub(super) fn wait_until_printed(&self) {
        self.0.wait_until_written(FLUSH_TIMEOUT);
    }
}

/// Ignores write errors: a closed output is no error.
struct SilentReport;

impl WriterEvents for SilentReport {
    fn on_write_failed(&mut self, _: u64, _: &io::Error, _: bool) {}

    fn on_missing_lines(&mut self, _: u64) -> Option<Vec<u8>> {
        None
    }
}
