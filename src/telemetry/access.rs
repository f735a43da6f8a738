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
    sync::oneshot,
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
    writer: SyncSender<Message>,
    reopen: Arc<AtomicBool>,
    done: oneshot::Receiver<()>,
}

impl AccessLog {
    /// Opens `target`, and writes to it from a thread of its own. Failures to write are counted in `metrics`.
    ///
    /// # Errors
    ///
    /// The file cannot be opened, or the thread not be started.
    pub fn start(target: Target, metrics: Arc<ControlMetrics>) -> io::Result<Self> {
        let output = target.open()?;
        let (sender, waiting) = sync_channel(MAX_WAITING);
        let (ended, done) = oneshot::channel();
        let reopen = Arc::new(AtomicBool::new(false));
        let writer = Writer { target, output, waiting, reopen: Arc::clone(&reopen), metrics };
        thread::Builder::new().name("access-log".into()).spawn(move || {
            writer.run();
            // Nobody may wait any more.
            let _ = ended.send(());
        })?;
        Ok(Self { writer: sender, reopen, done })
    }

    /// For one worker, which counts in `metrics`.
    pub fn lines(&self, style: Style, metrics: Arc<WorkerMetrics>) -> Lines {
        Lines { style, piece: Piece::default(), writer: self.writer.clone(), metrics }
    }

    /// To have the file opened anew.
    pub fn reopener(&self) -> Reopener {
        Reopener { writer: self.writer.clone(), reopen: Arc::clone(&self.reopen) }
    }

    /// Waits until all lines are written that workers which have ended handed over; two seconds at most.
    pub async fn finish(self) {
        let last = async {
            while let Err(TrySendError::Full(_)) = self.writer.try_send(Message::End) {
                sleep(TRY_AGAIN).await;
            }
            // An error says that the writer has ended.
            let _ = self.done.await;
        };
        // A disk that does not answer does not keep the process.
        let _ = timeout(LAST_LINES, last).await;
    }
}

/// Has the file opened anew, by the name that it had: after a rotation.
#[derive(Debug, Clone)]
pub struct Reopener {
    writer: SyncSender<Message>,
    reopen: Arc<AtomicBool>,
}

impl Reopener {
    /// Lines that are written from now on go to the file of that name. If it cannot be opened they go where they went.
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
                self.metrics.access_log_lost.add(piece.lines);
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
mod tests {
    use super::*;

    /// A log whose writer is the test.
    fn unwritten(style: Style, room: usize) -> (Lines, Receiver<Message>, Arc<WorkerMetrics>) {
        let (writer, waiting) = sync_channel(room);
        let metrics = Arc::<WorkerMetrics>::default();
        let lines = Lines { style, piece: Piece::default(), writer, metrics: metrics.clone() };
        (lines, waiting, metrics)
    }

    fn written(style: Style, write: impl FnOnce(&mut Line<'_>)) -> String {
        let (mut lines, waiting, _) = unwritten(style, 1);
        lines.add(write);
        drop(lines);
        text(&waiting).0
    }

    fn text(waiting: &Receiver<Message>) -> (String, u64) {
        match waiting.try_recv().unwrap() {
            Message::Lines(piece) => (piece.text, piece.lines),
            Message::Reopen | Message::End => panic!("no lines"),
        }
    }

    #[test]
    fn a_line_reads_like_this() {
        let write = |line: &mut Line<'_>| {
            line.time("time", SystemTime::UNIX_EPOCH + Duration::from_millis(1_700_000_000_123));
            line.plain("client", "192.0.2.1");
            line.text("path", b"/a b");
            line.text("origin", b"app");
            line.text("error", b"");
            line.number("status", 200);
            line.seconds("duration", Duration::from_micros(1_000_070));
        };
        let json = "{\"time\":\"2023-11-14T22:13:20.123Z\",\"client\":\"192.0.2.1\",\"path\":\"/a b\",\"origin\":\"app\",\
                    \"status\":200,\"duration\":1.000070}\n";
        let logfmt = "time=2023-11-14T22:13:20.123Z client=192.0.2.1 path=\"/a b\" origin=app status=200 \
                      duration=1.000070\n";
        assert_eq!(written(Style::Json, write), json);
        assert_eq!(written(Style::Logfmt, write), logfmt);
    }

    #[test]
    fn no_value_forges_a_line_or_another_value() {
        let long = vec![b'x'; 100_000];
        let evil: [&[u8]; 8] = [
            b"a\n{\"status\":200}",
            b"a\r\nstatus=200",
            b"\",\"status\":200,\"x\":\"",
            b"x status=200",
            b"\\\"status=200",
            b"\x1b]0;title\x07 \x9b \xff\xfe \x00 \x7f",
            "\u{2028} \u{202e} \u{1f600}".as_bytes(),
            &long,
        ];
        for value in evil {
            for style in [Style::Json, Style::Logfmt] {
                let line = written(style, |line| {
                    line.text("path", value);
                    line.number("bytes", 7);
                });
                assert!(line.ends_with('\n') && line.len() < 3 * MAX_VALUE);
                let body = line.trim_end_matches('\n');
                assert!(body.bytes().all(|byte| (b' '..=b'~').contains(&byte)), "{line}");
                let quoted = match style {
                    Style::Json => {
                        let object: serde_json::Value = serde_json::from_str(body).unwrap();
                        assert_eq!(object.as_object().unwrap().len(), 2, "{line}");
                        assert_eq!(object["bytes"], 7);
                        object["path"].as_str().unwrap().to_owned()
                    }
                    Style::Logfmt => {
                        let value = body.strip_prefix("path=").unwrap().strip_suffix(" bytes=7").unwrap();
                        serde_json::from_str(value).unwrap()
                    }
                };
                match value.len() <= MAX_VALUE {
                    true => assert_eq!(quoted, String::from_utf8_lossy(value)),
                    false => assert!(quoted.ends_with("x...")),
                }
            }
        }
    }

    #[test]
    fn lines_that_find_no_room_are_dropped_and_counted() {
        let (mut lines, waiting, metrics) = unwritten(Style::Json, 1);
        for _ in 0..3 {
            lines.add(|line| line.number("status", 200));
            lines.add(|line| line.number("status", 200));
            lines.flush();
        }
        assert_eq!((metrics.access_log_lines.get(), metrics.access_log_dropped.get()), (2, 4));
        assert_eq!(text(&waiting).1, 2);
        assert!(waiting.try_recv().is_err());
    }

    #[test]
    fn long_pieces_are_handed_over_unasked() {
        let (mut lines, waiting, _) = unwritten(Style::Logfmt, 1);
        while waiting.try_recv().is_err() {
            lines.add(|line| line.text("path", &[b'x'; 1000]));
            assert!(lines.piece.text.len() < PIECE);
        }
    }

    #[tokio::test]
    async fn what_was_handed_over_is_in_the_file_at_the_end_and_a_rotation_loses_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("access.log");
        std::fs::write(&path, "before\n").unwrap();
        let control = Arc::<ControlMetrics>::default();
        let log = AccessLog::start(Target::File(path.clone()), Arc::clone(&control)).unwrap();
        let mut lines = log.lines(Style::Logfmt, Arc::default());
        lines.add(|line| line.number("n", 1));
        lines.flush();
        while !std::fs::read_to_string(&path).unwrap().ends_with("n=1\n") {
            tokio::task::yield_now().await;
        }
        let rotated = folder.path().join("access.log.1");
        std::fs::rename(&path, &rotated).unwrap();
        let reopener = log.reopener();
        reopener.reopen();
        lines.add(|line| line.number("n", 2));
        drop((lines, reopener));
        log.finish().await;
        assert_eq!(std::fs::read_to_string(rotated).unwrap(), "before\nn=1\n");
        assert_eq!(std::fs::read_to_string(path).unwrap(), "n=2\n");
        assert_eq!(control.access_log_lost.get(), 0);
    }

    #[tokio::test]
    async fn lines_that_cannot_be_written_are_counted() {
        let control = Arc::<ControlMetrics>::default();
        // Every write fails there for want of space (full(4)).
        let log = AccessLog::start(Target::File("/dev/full".into()), Arc::clone(&control)).unwrap();
        let mut lines = log.lines(Style::Json, Arc::default());
        lines.add(|line| line.number("n", 1));
        drop(lines);
        log.finish().await;
        assert_eq!(control.access_log_lost.get(), 1);
    }
}
