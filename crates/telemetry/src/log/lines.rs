//! The lines of the log on their way to its writer, and the last ones of a process.

use super::{capture, limiter::Limiter, metrics::Metrics};
use litequic_base::log_writer::{LineSender, LogPiece, Report, WriterWake, hold_stderr, write_last};
use std::{
    cell::Cell,
    io::{self, Write},
    sync::{Arc, OnceLock, atomic::Ordering::Relaxed},
    time::{Duration, Instant},
};
use tracing_subscriber::fmt::MakeWriter;

/// How long an orderly end waits for the last lines to be written, as that of the access log.
const LAST_LINES: Duration = Duration::from_secs(2);
/// How long a panic waits for the lines before its own, for standard error, and for its own line.
const IN_PANIC: Duration = Duration::from_secs(1);
/// How long the reason for the end of the process waits for a reader.
const LAST_LINE: Duration = Duration::from_secs(1);

/// The log of the process, once it is set up.
pub(super) static LOG: OnceLock<LogOutput> = OnceLock::new();

thread_local! {
    static WAKES: Cell<Wakes> = const { Cell::new(Wakes::AtOnce) };
}

/// How the lines of a thread wake the writer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wakes {
    /// Each line does, if the writer sleeps.
    AtOnce,
    /// [`wake`] does, which the thread calls before it waits; whether there is a line since the last call.
    Later { due: bool },
}

/// Has the lines of the calling thread wake the writer at the thread's next call of [`wake`]: so that logging makes no
/// system call on a worker.
pub fn wake_later() {
    WAKES.set(Wakes::Later { due: false });
}

/// Wakes the writer if the calling thread has logged lines since the last call: to be called before the thread waits.
pub fn wake() {
    if WAKES.get() == (Wakes::Later { due: true }) {
        WAKES.set(Wakes::Later { due: false });
        if let Some(log) = LOG.get() {
            log.lines.sender.wake();
        }
    }
}

/// Waits until the lines that were logged are written, and the summaries of those that were not logged; two seconds at
/// most. For an orderly end. Returns whether there is a log.
pub fn finish() -> bool {
    let Some(LogOutput { lines, limiter }) = LOG.get() else { return false };
    limiter.summarize(true, |line| lines.push(line));
    lines.sender.wake();
    lines.sender.wait_until_written(LAST_LINES);
    true
}

/// Writes why the process ends, as the last line: behind all that was logged, past the log's thread, and within a
/// second.
pub fn write_reason(reason: String) {
    write_last(reason.into_bytes(), LAST_LINE);
}

/// Writes `before` and the lines of the events that `events` logs, or `plain` if they are not logged or there is no
/// log, to standard error, as the last lines of a process that panicked: behind what was logged, past the log's thread,
/// which may be blocked or the one that panicked, and within three seconds.
pub fn write_in_panic(before: &str, events: impl FnOnce(), plain: &str) {
    let unwritten = LOG.get().map_or_else(Vec::new, |LogOutput { lines, .. }| {
        let unwritten = lines.sender.end_in_panic();
        lines.sender.wait_until_written(IN_PANIC);
        unwritten
    });
    let last = capture::capture(events).unwrap_or_else(|| plain.into());
    hold_stderr(IN_PANIC);
    let unwritten = unwritten.iter().map(|piece| piece.text.as_slice());
    let lines: Vec<&[u8]> = unwritten.chain([before.as_bytes(), &last]).collect();
    write_last(lines.concat(), IN_PANIC);
}

/// What [`finish`] and a panic need.
pub(super) struct LogOutput {
    pub(super) lines: Lines,
    pub(super) limiter: Arc<Limiter>,
}

/// Queues lines for the writer.
#[derive(Debug, Clone)]
pub(super) struct Lines {
    pub(super) sender: LineSender,
    pub(super) metrics: Arc<Metrics>,
}

impl Lines {
    fn push(&self, line: Vec<u8>) {
        let wake = match WAKES.get() {
            Wakes::AtOnce => WriterWake::Now,
            Wakes::Later { .. } => {
                WAKES.set(Wakes::Later { due: true });
                WriterWake::Later
            }
        };
        match self.sender.push(LogPiece { text: line, lines: 1 }, wake) {
            true => &self.metrics.queued,
            false => &self.metrics.dropped,
        }
        .fetch_add(1, Relaxed);
    }
}

impl Write for &Lines {
    /// Takes one event's line, as tracing-subscriber writes it.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if !capture::add(line) {
            self.push(line.to_vec());
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Lines {
    type Writer = &'a Self;

    fn make_writer(&'a self) -> Self::Writer {
        self
    }
}

/// What the writer reports.
pub(super) struct Reports {
    pub(super) lines: Lines,
    pub(super) limiter: Arc<Limiter>,
    pub(super) written: fn(),
}

impl Report for Reports {
    fn failed(&mut self, lines: u64, _: &io::Error, _: bool) {
        self.lines.metrics.lost.fetch_add(lines, Relaxed);
    }

    fn missing(&mut self, lines: u64) -> Option<Vec<u8>> {
        capture::capture(|| {
            tracing::warn!(lines, "lines are missing from the log: they were dropped, or could not be written");
        })
    }

    fn alarm(&mut self) -> Option<Instant> {
        self.limiter.summarize(false, |line| self.lines.push(line))
    }

    fn written(&mut self) {
        (self.written)();
    }
}
