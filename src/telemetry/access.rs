//! The access log's way to its file. Workers put lines together and hand them over in pieces, without waiting; one thread
//! writes them. What does not find room is dropped and counted.

use super::{control::ControlMetrics, metrics::WorkerMetrics};
use std::{
    fmt::Write as _,
    fs::{File, OpenOptions},
    io::{self, Write},
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
        mpsc::{Receiver, SyncSender, TrySendError, sync_channel},
    },
    thread,
    time::{Duration, SystemTime},
};
use tokio::{
    sync::oneshot::{self, error::TryRecvError},
    time::{sleep, timeout},
};

/// Pieces that wait for the writer: 16 MiB of lines of usual length, some seconds of a disk that does not answer.
const MAX_WAITING: usize = 1024;
/// A worker's lines are handed over once they are that long, and at every [`Lines::flush`].
const PIECE: usize = 16 * 1024;
/// Bytes of one value: what a client sent is no longer in the log, however long it was.
const MAX_VALUE: usize = 2048;
/// How long the end of the process waits for the last lines.
const LAST_LINES: Duration = Duration::from_secs(2);
/// How long opening a file may take: a pipe that nobody reads is never opened.
const OPENING: Duration = Duration::from_secs(5);
/// Between two tries to tell a writer that is behind.
const TRY_AGAIN: Duration = Duration::from_millis(10);

/// Where lines go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// Standard error.
    Stderr,
    /// A file that is appended to, and made where there is none.
    File(PathBuf),
}

impl Target {
    fn open(&self) -> io::Result<Output> {
        match self {
            Self::Stderr => Ok(Output::Stderr),
            Self::File(path) => OpenOptions::new().append(true).create(true).open(path).map(Output::File),
        }
    }
}

enum Output {
    Stderr,
    File(File),
}

impl Output {
    /// Writes whole lines, at once: another writer's stay whole beside them.
    fn write(&mut self, lines: &[u8]) -> io::Result<()> {
        match self {
            Self::Stderr => io::stderr().lock().write_all(lines),
            Self::File(file) => file.write_all(lines),
        }
    }
}

/// What the writer is told.
enum Message {
    Lines(Piece),
    /// To look whether the file is to be opened anew.
    Reopen,
    /// That all is said.
    End,
}

/// Lines of one worker, put together.
#[derive(Default)]
struct Piece {
    text: String,
    lines: u64,
}

/// The writing thread, as the rest of the process sees it.
#[derive(Debug)]
pub struct AccessLog {
    sink: Sink,
    leaving: Leaving,
}

impl AccessLog {
    /// Opens `target`, and writes to it from a thread of its own. Failures to write are counted in `metrics`.
    ///
    /// # Errors
    ///
    /// The file cannot be opened, or not within five seconds, or the thread not be started.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives up; the file may be made all the same.
    pub async fn start(target: Target, metrics: Arc<ControlMetrics>) -> io::Result<Self> {
        let (sender, waiting) = sync_channel(MAX_WAITING);
        let (tell, opened) = oneshot::channel();
        let (ended, done) = oneshot::channel();
        let reopen = Arc::new(AtomicBool::new(false));
        let asked = Arc::clone(&reopen);
        thread::Builder::new().name("access-log".into()).spawn(move || {
            // Here, as opening may wait for somebody else.
            match target.open() {
                Ok(output) => {
                    if tell.send(Ok(())).is_ok() {
                        Writer { target, output, waiting, reopen: asked, metrics }.run();
                    }
                }
                // Nobody may wait any more.
                Err(error) => drop(tell.send(Err(error))),
            }
            // The same.
            let _ = ended.send(());
        })?;
        match timeout(OPENING, opened).await {
            Ok(Ok(opened)) => opened?,
            Ok(Err(_)) => return Err(io::Error::other("its thread ended")),
            Err(_) => return Err(io::Error::new(io::ErrorKind::TimedOut, "it was not opened in time")),
        }
        Ok(Self { sink: Sink { writer: sender, reopen }, leaving: Leaving(done) })
    }

    /// The way to it.
    pub const fn sink(&self) -> &Sink {
        &self.sink
    }

    /// Has it end once nobody has a [`Sink`] any more.
    pub fn leave(self) -> Leaving {
        self.leaving
    }

    /// Waits until all lines are written that workers which have ended handed over; two seconds at most.
    pub async fn finish(self) {
        let last = async {
            while let Err(TrySendError::Full(_)) = self.sink.writer.try_send(Message::End) {
                sleep(TRY_AGAIN).await;
            }
        };
        // A disk that does not answer does not keep the process.
        let _ = timeout(LAST_LINES, async { tokio::join!(last, self.leaving.finish()) }).await;
    }
}

/// A writing thread that ends by itself.
#[derive(Debug)]
pub struct Leaving(oneshot::Receiver<()>);

impl Leaving {
    /// Whether it has ended.
    pub fn has_ended(&mut self) -> bool {
        !matches!(self.0.try_recv(), Err(TryRecvError::Empty))
    }

    /// Waits for its end, two seconds at most.
    pub async fn finish(self) {
        // An error says that it has ended, too.
        let _ = timeout(LAST_LINES, self.0).await;
    }
}

/// The way to a writing thread.
#[derive(Debug, Clone)]
pub struct Sink {
    writer: SyncSender<Message>,
    reopen: Arc<AtomicBool>,
}

impl Sink {
    /// For one worker, which counts in `metrics`.
    pub fn lines(&self, style: Style, metrics: Arc<WorkerMetrics>) -> Lines {
        Lines { style, piece: Piece::default(), writer: self.writer.clone(), metrics }
    }

    /// Has the file opened anew, by the name that it had: after a rotation. Lines that are written from now on go to the
    /// file of that name; if it cannot be opened they go where they went.
    pub fn reopen(&self) {
        self.reopen.store(true, Relaxed);
        // Wakes the writer; if there is no room it is awake.
        let _ = self.writer.try_send(Message::Reopen);
    }
}

/// The thread.
struct Writer {
    target: Target,
    output: Output,
    waiting: Receiver<Message>,
    reopen: Arc<AtomicBool>,
    metrics: Arc<ControlMetrics>,
}

impl Writer {
    fn run(mut self) {
        let mut failing = false;
        while let Ok(message) = self.waiting.recv() {
            if self.reopen.swap(false, Relaxed) {
                match self.target.open() {
                    Ok(output) => self.output = output,
                    Err(error) => tracing::warn!(%error, "the access log's file cannot be opened anew"),
                }
            }
            let piece = match message {
                Message::Lines(piece) => piece,
                Message::Reopen => continue,
                Message::End => return,
            };
            let written = self.output.write(piece.text.as_bytes());
            if let Err(error) = &written {
                self.metrics.access_log_lost.fetch_add(piece.lines, Relaxed);
                if !failing {
                    tracing::warn!(%error, "the access log cannot be written");
                }
            }
            failing = written.is_err();
        }
    }
}

/// How a line is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// An object a line.
    Json,
    /// `key=value`, blanks between.
    Logfmt,
}

/// One worker's lines on their way to the writer.
pub struct Lines {
    style: Style,
    piece: Piece,
    writer: SyncSender<Message>,
    metrics: Arc<WorkerMetrics>,
}

impl Lines {
    /// Adds a line of what `write` puts into it. Never waits.
    pub fn add(&mut self, write: impl FnOnce(&mut Line<'_>)) {
        let text = &mut self.piece.text;
        if self.style == Style::Json {
            text.push('{');
        }
        write(&mut Line { style: self.style, text, first: true });
        text.push_str(if self.style == Style::Json { "}\n" } else { "\n" });
        self.piece.lines += 1;
        if self.piece.text.len() >= PIECE {
            self.flush();
        }
    }

    /// Hands over what there is; to be called now and then, so that no line waits for others.
    pub fn flush(&mut self) {
        if self.piece.lines == 0 {
            return;
        }
        let piece = std::mem::take(&mut self.piece);
        let lines = piece.lines;
        match self.writer.try_send(Message::Lines(piece)) {
            Ok(()) => self.metrics.access_log_lines.add(lines),
            Err(_) => self.metrics.access_log_dropped.add(lines),
        }
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        self.flush();
    }
}

/// A line that is being written. Keys are ours, values are anybody's: what leaves here is printable ASCII without a quote
/// that was not put there by us, so that no value ends its line, or its place in it.
pub struct Line<'a> {
    style: Style,
    text: &'a mut String,
    first: bool,
}

impl Line<'_> {
    fn key(&mut self, key: &str) {
        match (self.style, std::mem::take(&mut self.first)) {
            (Style::Json, true) => self.text.push('"'),
            (Style::Json, false) => self.text.push_str(",\""),
            (Style::Logfmt, true) => {}
            (Style::Logfmt, false) => self.text.push(' '),
        }
        self.text.push_str(key);
        self.text.push_str(if self.style == Style::Json { "\":" } else { "=" });
    }

    /// A text, however it came; left out where it is empty.
    pub fn text(&mut self, key: &str, value: &[u8]) {
        if value.is_empty() {
            return;
        }
        self.key(key);
        let is_bare = |byte: &u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\\' | b'=');
        let is_whole = value.len() <= MAX_VALUE;
        let value = value.get(..MAX_VALUE).unwrap_or(value);
        if self.style == Style::Logfmt && is_whole && value.iter().all(is_bare) {
            self.text.extend(value.iter().map(|byte| char::from(*byte)));
            return;
        }
        self.text.push('"');
        // A character that the cut went through, or that is none, is U+FFFD.
        for character in String::from_utf8_lossy(value).chars() {
            match character {
                '"' | '\\' => self.text.extend(['\\', character]),
                ' '..='~' => self.text.push(character),
                _ => {
                    for unit in character.encode_utf16(&mut [0; 2]) {
                        // Writing to a String cannot fail.
                        let _ = write!(self.text, "\\u{unit:04x}");
                    }
                }
            }
        }
        self.text.push_str(if is_whole { "\"" } else { "...\"" });
    }

    /// A number.
    pub fn number(&mut self, key: &str, value: u64) {
        self.key(key);
        let _ = write!(self.text, "{value}");
    }

    /// A time span, in seconds to the microsecond.
    pub fn seconds(&mut self, key: &str, value: Duration) {
        self.key(key);
        let _ = write!(self.text, "{}.{:06}", value.as_secs(), value.subsec_micros());
    }

    /// A point of time in UTC, to the millisecond, as RFC 3339 writes it.
    pub fn time(&mut self, key: &str, value: SystemTime) {
        self.key(key);
        let quote = if self.style == Style::Json { "\"" } else { "" };
        let _ = write!(self.text, "{quote}{}{quote}", humantime::format_rfc3339_millis(value));
    }

    /// What is shown as printable ASCII without blanks.
    pub fn plain(&mut self, key: &str, value: impl std::fmt::Display) {
        self.key(key);
        let quote = if self.style == Style::Json { "\"" } else { "" };
        let _ = write!(self.text, "{quote}{value}{quote}");
    }
}

#[cfg(test)]
mod tests;
