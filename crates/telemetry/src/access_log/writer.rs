//! The path of a line to its file. Workers format lines and send them in pieces, without waiting; the thread of
//! [`log_writer`](litequic_base::log_writer) writes them. Pieces that do not fit into the queue are dropped, and
//! counted.

use super::{
    line::{AccessLine, LineStyle},
    metrics::{AccessLogMetrics, WriterMetrics},
};
pub(super) use litequic_base::log_writer::LogTarget;
use litequic_base::log_writer::{LineSender, LogPiece, StartedWriter, WriterEvents, WriterWake, line_queue};
use std::{
    io,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};
use tokio::{
    sync::oneshot::{self, error::TryRecvError},
    time::timeout,
};

/// Bytes of lines in the writer's queue: some seconds of a disk that does not answer.
const MAX_ACCESS_QUEUE_BYTES: usize = 16 << 20;
/// Bytes of a worker's lines that are sent at once; shorter ones are sent at every [`LineBuffer::flush`].
const ACCESS_PIECE_BYTES: usize = 16 * 1024;
/// How long the end of the process waits for the last lines.
const LAST_ACCESS_LINES_TIMEOUT: Duration = Duration::from_secs(2);
/// How long opening a file may take: opening a pipe without a reader never returns.
const OPEN_TIMEOUT: Duration = Duration::from_secs(5);

/// The writing thread, as other modules use it.
#[derive(Debug)]
pub(super) struct AccessLogWriter {
    sink: LineSink,
    leaving: LeavingWriter,
}

impl AccessLogWriter {
    /// Opens `target`, and writes to it from a thread of its own. Failures to write are counted in `metrics`.
    ///
    /// # Errors
    ///
    /// The file cannot be opened, or not within five seconds, or the thread not be started.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives up; the file may be created all the same.
    pub(super) async fn start_writer(target: LogTarget, metrics: Arc<WriterMetrics>) -> io::Result<Self> {
        let (sender, receiver) = line_queue(MAX_ACCESS_QUEUE_BYTES);
        let StartedWriter { opened, ended } =
            receiver.spawn_writer(target, "access-log", AccessLogWriterEvents(metrics))?;
        match timeout(OPEN_TIMEOUT, opened).await {
            Ok(Ok(opened)) => opened?,
            Ok(Err(_)) => return Err(io::Error::other("its thread ended")),
            Err(_) => return Err(io::Error::new(io::ErrorKind::TimedOut, "opening it timed out")),
        }
        Ok(Self { sink: LineSink(sender), leaving: LeavingWriter(ended) })
    }

    /// The channel to it.
    pub(super) const fn line_sink(&self) -> &LineSink {
        &self.sink
    }

    /// Lets the writer end once no [`Sink`] is left.
    pub(super) fn into_leaving(self) -> LeavingWriter {
        self.leaving
    }

    /// Waits until all lines are written that ended workers sent; two seconds at most.
    pub(super) async fn finish_writer(self) {
        self.sink.0.end_queue();
        // A disk that does not answer does not delay the end of the process.
        self.leaving.wait_for_writer_end().await;
    }
}

/// What became of lines, in the log and the metrics.
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

/// A writing thread that ends by itself.
#[derive(Debug)]
pub(super) struct LeavingWriter(oneshot::Receiver<()>);

impl LeavingWriter {
    /// Whether it has ended.
    pub(super) fn has_ended(&mut self) -> bool {
        !matches!(self.0.try_recv(), Err(TryRecvError::Empty))
    }

    /// Waits for its end, two seconds at most.
    pub(super) async fn wait_for_writer_end(self) {
        // An error means that it has ended, too.
        let _ = timeout(LAST_ACCESS_LINES_TIMEOUT, self.0).await;
    }
}

/// The channel to a writing thread.
#[derive(Debug, Clone)]
pub(super) struct LineSink(LineSender);

impl LineSink {
    /// For one worker, which counts in `metrics`.
    pub(super) fn line_buffer(&self, style: LineStyle, metrics: Arc<AccessLogMetrics>) -> LineBuffer {
        LineBuffer { style, text: String::new(), lines: 0, writer: self.0.clone(), metrics }
    }

    /// Reopens the file by its name: after a rotation. Lines that are written from now on go to the file of that name;
    /// if it cannot be opened they go where they went.
    pub(super) fn reopen_file(&self) {
        self.0.request_reopen();
    }
}

/// One worker's lines before they reach the writer.
pub(super) struct LineBuffer {
    style: LineStyle,
    text: String,
    /// Lines in `text`.
    lines: u64,
    writer: LineSender,
    metrics: Arc<AccessLogMetrics>,
}

impl LineBuffer {
    /// Adds a line that `write` fills. Never waits.
    pub(super) fn append_line(&mut self, write: impl FnOnce(&mut AccessLine<'_>)) {
        AccessLine::append_access_line(self.style, &mut self.text, write);
        self.lines += 1;
        if self.text.len() >= ACCESS_PIECE_BYTES {
            self.send_lines();
        }
    }

    /// Sends what there is; to be called periodically, so that no line waits for more.
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
