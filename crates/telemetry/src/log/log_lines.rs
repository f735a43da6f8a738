//! Sends the lines of the log to its writer, and writes the last lines of a process.

use super::{capture, line_limiter::LineLimiter, metrics::LogLineMetrics};
use litequic_base::log_writer::{LineSender, LogPiece, WriterEvents, WriterWake, hold_stderr, write_last_lines};
use std::{
    cell::Cell,
    io::{self, Write},
    sync::{Arc, OnceLock, atomic::Ordering::Relaxed},
    time::{Duration, Instant},
};
use tracing_subscriber::fmt::MakeWriter;

/// Longest time that an orderly end waits for the last lines, as that of the access log.
const LAST_LINES_TIMEOUT: Duration = Duration::from_secs(2);
/// Longest time that a panic waits for the earlier lines, for standard error, and for its own line.
const PANIC_TIMEOUT: Duration = Duration::from_secs(1);
/// Longest time that the reason for the end of the process waits for a reader.
const LAST_LINE_TIMEOUT: Duration = Duration::from_secs(1);

/// Log of the process, once it is set up.
pub(super) static LOG: OnceLock<LogOutput> = OnceLock::new();

thread_local! {
    static WAKE_MODE: Cell<WakeMode> = const { Cell::new(WakeMode::AtOnce) };
}

/// Way in which the lines of a thread wake the writer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WakeMode {
    /// Each line wakes a writer that sleeps.
    AtOnce,
    /// [`wake_log_writer`] wakes the writer, which the thread calls before it waits; `due`: a line was logged since the
    /// last call.
    Later { due: bool },
}

/// Has the lines of the calling thread wake the writer only at the thread's next call of [`wake_log_writer`], so that
/// logging makes no system call on a worker.
pub fn defer_log_wakes() {
    WAKE_MODE.set(WakeMode::Later { due: false });
}

/// Wakes the writer if the calling thread has logged lines since the last call: to be called before the thread waits.
pub fn wake_log_writer() {
    if WAKE_MODE.get() == (WakeMode::Later { due: true }) {
        WAKE_MODE.set(WakeMode::Later { due: false });
        if let Some(log) = LOG.get() {
            log.lines.sender.wake_line_writer();
        }
    }
}

/// Waits until all logged lines and the summaries of suppressed lines are written; at most two seconds. For an orderly
/// end. Returns whether there is a log.
pub fn finish_log() -> bool {
    let Some(LogOutput { lines, limiter, .. }) = LOG.get() else { return false };
    limiter.summarize(true, |line| lines.queue_line(line));
    lines.sender.wake_line_writer();
    lines.sender.wait_until_written(LAST_LINES_TIMEOUT);
    true
}

/// Writes the reason for the end of the process as the last line, after all logged lines, past the log's thread, and
/// within a second: the line of the event that `event` logs if the log is JSON, or else `plain`.
pub fn write_end_reason(event: impl FnOnce(), plain: String) {
    let json = LOG.get().filter(|log| log.is_json).and_then(|_| capture::capture_events(event));
    write_last_lines(json.unwrap_or_else(|| plain.into_bytes()), LAST_LINE_TIMEOUT);
}

/// Writes `before` and the lines of the events that `events` logs, or `plain` if they are not logged or there is no
/// log, to standard error, as the last lines of a process that panicked: after all logged lines, past the log's thread,
/// which may be blocked or have panicked itself, and within three seconds.
pub fn write_panic_lines(before: &str, events: impl FnOnce(), plain: &str) {
    let unwritten = LOG.get().map_or_else(Vec::new, |LogOutput { lines, .. }| {
        let unwritten = lines.sender.end_in_panic();
        lines.sender.wait_until_written(PANIC_TIMEOUT);
        unwritten
    });
    let last = capture::capture_events(events).unwrap_or_else(|| plain.into());
    hold_stderr(PANIC_TIMEOUT);
    let unwritten = unwritten.iter().map(|piece| piece.text.as_slice());
    let lines: Vec<&[u8]> = unwritten.chain([before.as_bytes(), &last]).collect();
    write_last_lines(lines.concat(), PANIC_TIMEOUT);
}

/// State for [`finish_log`] and for a panic.
pub(super) struct LogOutput {
    pub(super) lines: LogLineSender,
    pub(super) limiter: Arc<LineLimiter>,
    pub(super) is_json: bool,
}

/// Sender of lines to the log's writer.
#[derive(Debug, Clone)]
pub(super) struct LogLineSender {
    pub(super) sender: LineSender,
    pub(super) metrics: Arc<LogLineMetrics>,
}

impl LogLineSender {
    fn queue_line(&self, line: Vec<u8>) {
        let wake = match WAKE_MODE.get() {
            WakeMode::AtOnce => WriterWake::Now,
            WakeMode::Later { .. } => {
                WAKE_MODE.set(WakeMode::Later { due: true });
                WriterWake::Later
            }
        };
        match self.sender.push_lines(LogPiece { text: line, lines: 1 }, wake) {
            true => &self.metrics.queued,
            false => &self.metrics.dropped,
        }
        .fetch_add(1, Relaxed);
    }
}

impl Write for &LogLineSender {
    /// Queues or captures one event's line, as tracing-subscriber writes it.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if !capture::capture_line(line) {
            self.queue_line(line.to_vec());
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for LogLineSender {
    type Writer = &'a Self;

    fn make_writer(&'a self) -> Self::Writer {
        self
    }
}

/// Handles the events of the log's writer.
pub(super) struct LogWriterEvents {
    pub(super) lines: LogLineSender,
    pub(super) limiter: Arc<LineLimiter>,
    pub(super) written: fn(),
}

impl WriterEvents for LogWriterEvents {
    fn on_write_failed(&mut self, lines: u64, _: &io::Error, _: bool) {
        self.lines.metrics.lost.fetch_add(lines, Relaxed);
    }

    fn on_missing_lines(&mut self, lines: u64) -> Option<Vec<u8>> {
        capture::capture_events(|| {
            tracing::warn!(lines, "lines are missing from the log: they were dropped, or could not be written");
        })
    }

    fn on_alarm(&mut self) -> Option<Instant> {
        self.limiter.summarize(false, |line| self.lines.queue_line(line))
    }

    fn on_lines_written(&mut self) {
        (self.written)();
    }
}
