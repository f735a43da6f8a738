//! Writes lines to the access log's file. Workers format lines and send them in pieces, without waiting; the thread of
//! [`log_writer`](litequic_base::log_writer) writes them. Pieces that do not fit into the queue are dropped, and
//! counted.

use super::{
    line::AccessLine,
    metrics::{AccessLogMetrics, WriterMetrics},
};
use litequic_base::log_writer::{LineSender, LogPiece, LogTarget, StartedWriter, WriterEvents, WriterWake, line_queue};
use std::{
    io,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};
use tokio::{sync::oneshot, time::timeout};

/// Bound of the writer's queue in bytes: some seconds of a disk that does not respond.
const MAX_ACCESS_QUEUE_BYTES: usize = 16 << 20;
/// Number of bytes of a worker's lines from which on they are sent at once; fewer are sent at every
/// [`LineBuffer::send_lines`].
const ACCESS_PIECE_BYTES: usize = 16 * 1024;
/// Longest time that the end of the process waits for the last lines.
const LAST_ACCESS_LINES_TIMEOUT: Duration = Duration::from_secs(2);
/// Longest time that opening a file may take: opening a pipe without a reader never returns.
const OPEN_TIMEOUT: Duration = Duration::from_secs(5);

/// Thread that writes the access log. It ends once no sender is left, or the queue has ended.
#[derive(Debug)]
pub(super) struct AccessLogWriter {
    pub(super) sender: LineSender,
    /// Answered, or closed, at the end of the thread.
    pub(super) ended: oneshot::Receiver<()>,
}

impl AccessLogWriter {
    /// Opens `target`, and writes to it from a thread of its own. `metrics` count lines that cannot be written.
    ///
    /// # Errors
    ///
    /// The file cannot be opened, or not within five seconds, or the thread cannot be started.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future cancels the start; the file may be created nevertheless.
    pub(super) async fn start_writer(target: LogTarget, metrics: Arc<WriterMetrics>) -> io::Result<Self> {
        let (sender, receiver) = line_queue(MAX_ACCESS_QUEUE_BYTES);
        let StartedWriter { opened, ended } =
            receiver.spawn_writer(target, "access-log", AccessLogWriterEvents(metrics))?;
        match timeout(OPEN_TIMEOUT, opened).await {
            Ok(Ok(opened)) => opened?,
            Ok(Err(_)) => return Err(io::Error::other("the writing thread ended")),
            Err(_) => return Err(io::Error::new(io::ErrorKind::TimedOut, "opening the file timed out")),
        }
        Ok(Self { sender, ended })
    }
}

/// Waits until a writing thread has `ended`; at most two seconds, because a disk that does not respond must not delay
/// the end of the process.
pub(super) async fn wait_for_writer_end(ended: oneshot::Receiver<()>) {
    // An error also means that the thread has ended.
    let _ = timeout(LAST_ACCESS_LINES_TIMEOUT, ended).await;
}

/// Reports the fate of lines in the log and the metrics.
struct AccessLogWriterEvents(Arc<WriterMetrics>);

impl WriterEvents for AccessLogWriterEvents {
    fn on_write_failed(&mut self, lines: u64, error: &io::Error, first: bool) {
        self.0.lost.fetch_add(lines, Relaxed);
        if first {
            tracing::warn!(%error, "cannot write the access log");
        }
    }

    fn on_missing_lines(&mut self, lines: u64) -> Option<Vec<u8>> {
        tracing::warn!(lines, "lines are missing from the access log: they were dropped, or could not be written");
        None
    }

    fn on_reopen_failed(&mut self, error: &io::Error) {
        tracing::warn!(%error, "cannot reopen the access log");
    }
}

/// Lines of one worker that were not sent yet.
pub(super) struct LineBuffer {
    text: String,
    /// Number of lines in `text`.
    lines: u64,
    writer: LineSender,
    metrics: Arc<AccessLogMetrics>,
}

impl LineBuffer {
    /// A buffer that sends lines to `writer`, and counts them in `metrics`.
    pub(super) const fn new(writer: LineSender, metrics: Arc<AccessLogMetrics>) -> Self {
        Self { text: String::new(), lines: 0, writer, metrics }
    }

    /// Appends a line that `write` fills. Never waits.
    pub(super) fn append_line(&mut self, write: impl FnOnce(&mut AccessLine<'_>)) {
        AccessLine::append_access_line(&mut self.text, write);
        self.lines += 1;
        if self.text.len() >= ACCESS_PIECE_BYTES {
            self.send_lines();
        }
    }

    /// Sends all lines; to be called periodically, so that no line waits for more.
    pub(super) fn send_lines(&mut self) {
        if self.lines == 0 {
            return;
        }
        let lines = std::mem::take(&mut self.lines);
        let text = std::mem::take(&mut self.text).into_bytes();
        match self.writer.push_lines(LogPiece { text, lines }, WriterWake::Now) {
            true => self.metrics.queued.increment_by(lines),
            false => self.metrics.dropped.increment_by(lines),
        }
    }
}

impl Drop for LineBuffer {
    fn drop(&mut self) {
        self.send_lines();
    }
}

#[cfg(test)]
mod tests;
