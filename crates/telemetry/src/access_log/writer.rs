//! The path of a line to its file. Workers format lines and send them in pieces, without waiting; the thread of
//! [`log_writer`](litequic_base::log_writer) writes them. Pieces that do not fit into the queue are dropped, and
//! counted.

use super::{
    line::{LogLine, Style},
    metrics::{Metrics, WriterMetrics},
};
pub(super) use litequic_base::log_writer::LogTarget;
use litequic_base::log_writer::{LineSender, LogPiece, Report, Started, WriterWake, queue};
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
const MAX_WAITING: usize = 16 << 20;
/// Bytes of a worker's lines that are sent at once; shorter ones are sent at every [`LineBuffer::flush`].
const PIECE: usize = 16 * 1024;
/// How long the end of the process waits for the last lines.
const LAST_LINES: Duration = Duration::from_secs(2);
/// How long opening a file may take: opening a pipe without a reader never returns.
const OPENING: Duration = Duration::from_secs(5);

/// The writing thread, as other modules use it.
#[derive(Debug)]
pub(super) struct Writing {
    sink: Sink,
    leaving: Leaving,
}

impl Writing {
    /// Opens `target`, and writes to it from a thread of its own. Failures to write are counted in `metrics`.
    ///
    /// # Errors
    ///
    /// The file cannot be opened, or not within five seconds, or the thread not be started.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives up; the file may be created all the same.
    pub(super) async fn start(target: LogTarget, metrics: Arc<WriterMetrics>) -> io::Result<Self> {
        let (sender, receiver) = queue(MAX_WAITING);
        let Started { opened, ended } = receiver.write_to(target, "access-log", Reports(metrics))?;
        match timeout(OPENING, opened).await {
            Ok(Ok(opened)) => opened?,
            Ok(Err(_)) => return Err(io::Error::other("its thread ended")),
            Err(_) => return Err(io::Error::new(io::ErrorKind::TimedOut, "opening it timed out")),
        }
        Ok(Self { sink: Sink(sender), leaving: Leaving(ended) })
    }

    /// The channel to it.
    pub(super) const fn sink(&self) -> &Sink {
        &self.sink
    }

    /// Lets the writer end once no [`Sink`] is left.
    pub(super) fn leave(self) -> Leaving {
        self.leaving
    }

    /// Waits until all lines are written that ended workers sent; two seconds at most.
    pub(super) async fn finish(self) {
        self.sink.0.end();
        // A disk that does not answer does not delay the end of the process.
        self.leaving.finish().await;
    }
}

/// What became of lines, in the log and the metrics.
struct Reports(Arc<WriterMetrics>);

impl Report for Reports {
    fn failed(&mut self, lines: u64, error: &io::Error, first: bool) {
        self.0.lost.fetch_add(lines, Relaxed);
        if first {
            tracing::warn!(%error, "cannot write the access log");
        }
    }

    fn missing(&mut self, lines: u64) -> Option<Vec<u8>> {
        tracing::warn!(lines, "lines are missing from the access log: they were dropped, or could not be written");
        None
    }

    fn cannot_reopen(&mut self, error: &io::Error) {
        tracing::warn!(%error, "cannot reopen the access log");
    }
}

/// A writing thread that ends by itself.
#[derive(Debug)]
pub(super) struct Leaving(oneshot::Receiver<()>);

impl Leaving {
    /// Whether it has ended.
    pub(super) fn has_ended(&mut self) -> bool {
        !matches!(self.0.try_recv(), Err(TryRecvError::Empty))
    }

    /// Waits for its end, two seconds at most.
    pub(super) async fn finish(self) {
        // An error means that it has ended, too.
        let _ = timeout(LAST_LINES, self.0).await;
    }
}

/// The channel to a writing thread.
#[derive(Debug, Clone)]
pub(super) struct Sink(LineSender);

impl Sink {
    /// For one worker, which counts in `metrics`.
    pub(super) fn lines(&self, style: Style, metrics: Arc<Metrics>) -> LineBuffer {
        LineBuffer { style, text: String::new(), lines: 0, writer: self.0.clone(), metrics }
    }

    /// Reopens the file by its name: after a rotation. Lines that are written from now on go to the file of that name;
    /// if it cannot be opened they go where they went.
    pub(super) fn reopen(&self) {
        self.0.reopen();
    }
}

/// One worker's lines before they reach the writer.
pub(super) struct LineBuffer {
    style: Style,
    text: String,
    /// Lines in `text`.
    lines: u64,
    writer: LineSender,
    metrics: Arc<Metrics>,
}

impl LineBuffer {
    /// Adds a line that `write` fills. Never waits.
    pub(super) fn add(&mut self, write: impl FnOnce(&mut LogLine<'_>)) {
        LogLine::append(self.style, &mut self.text, write);
        self.lines += 1;
        if self.text.len() >= PIECE {
            self.flush();
        }
    }

    /// Sends what there is; to be called periodically, so that no line waits for more.
    pub(super) fn flush(&mut self) {
        if self.lines == 0 {
            return;
        }
        let lines = std::mem::take(&mut self.lines);
        let text = std::mem::take(&mut self.text).into_bytes();
        match self.writer.push(LogPiece { text, lines }, WriterWake::Now) {
            true => self.metrics.queued.add(lines),
            false => self.metrics.dropped.add(lines),
        }
    }
}

impl Drop for LineBuffer {
    fn drop(&mut self) {
        self.flush();
    }
}

#[cfg(test)]
mod tests;
