//! The path of a line to its file. Workers format lines and send them in pieces, without waiting; one thread writes
//! them. Pieces that do not fit into the queue are dropped and counted.

use super::{
    line::{Line, Style},
    metrics::{Metrics, WriterMetrics},
};
use std::{
    fs::{File, OpenOptions},
    io::{self, Write},
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
        mpsc::{Receiver, SyncSender, TrySendError, sync_channel},
    },
    thread,
    time::Duration,
};
use tokio::{
    sync::oneshot::{self, error::TryRecvError},
    time::{sleep, timeout},
};

/// Pieces in the writer's queue: 16 MiB of lines of usual length, some seconds of a disk that does not answer.
const MAX_WAITING: usize = 1024;
/// A worker's lines are sent once they are that long, and at every [`Lines::flush`].
const PIECE: usize = 16 * 1024;
/// How long the end of the process waits for the last lines.
const LAST_LINES: Duration = Duration::from_secs(2);
/// How long opening a file may take: opening a pipe without a reader never returns.
const OPENING: Duration = Duration::from_secs(5);
/// Between two attempts to reach a writer that is behind.
const TRY_AGAIN: Duration = Duration::from_millis(10);

/// Where lines go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Target {
    /// Standard error.
    Stderr,
    /// A file that is appended to, and created if missing.
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

/// Messages to the writer.
enum Message {
    Lines(Piece),
    /// Check whether the file is to be reopened.
    Reopen,
    /// No more lines follow.
    End,
}

/// Formatted lines of one worker.
#[derive(Default)]
struct Piece {
    text: String,
    lines: u64,
}

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
    pub(super) async fn start(target: Target, metrics: Arc<WriterMetrics>) -> io::Result<Self> {
        let (sender, waiting) = sync_channel(MAX_WAITING);
        let (tell, opened) = oneshot::channel();
        let (ended, done) = oneshot::channel();
        let reopen = Arc::new(AtomicBool::new(false));
        let asked = Arc::clone(&reopen);
        thread::Builder::new().name("access-log".into()).spawn(move || {
            // On this thread, as opening may block.
            match target.open() {
                Ok(output) => {
                    if tell.send(Ok(())).is_ok() {
                        Writer { target, output, waiting, reopen: asked, metrics }.run();
                    }
                }
                // The caller may have given up.
                Err(error) => drop(tell.send(Err(error))),
            }
            // The same.
            let _ = ended.send(());
        })?;
        match timeout(OPENING, opened).await {
            Ok(Ok(opened)) => opened?,
            Ok(Err(_)) => return Err(io::Error::other("its thread ended")),
            Err(_) => return Err(io::Error::new(io::ErrorKind::TimedOut, "opening it timed out")),
        }
        Ok(Self { sink: Sink { writer: sender, reopen }, leaving: Leaving(done) })
    }

    /// The channel to it.
    pub(super) const fn sink(&self) -> &Sink {
        &self.sink
    }

    /// It ends once no [`Sink`] is left.
    pub(super) fn leave(self) -> Leaving {
        self.leaving
    }

    /// Waits until all lines are written that ended workers sent; two seconds at most.
    pub(super) async fn finish(self) {
        let last = async {
            while let Err(TrySendError::Full(_)) = self.sink.writer.try_send(Message::End) {
                sleep(TRY_AGAIN).await;
            }
        };
        // A disk that does not answer does not delay the end of the process.
        let _ = timeout(LAST_LINES, async { tokio::join!(last, self.leaving.finish()) }).await;
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
pub(super) struct Sink {
    writer: SyncSender<Message>,
    reopen: Arc<AtomicBool>,
}

impl Sink {
    /// For one worker, which counts in `metrics`.
    pub(super) fn lines(&self, style: Style, metrics: Arc<Metrics>) -> Lines {
        Lines { style, piece: Piece::default(), writer: self.writer.clone(), metrics }
    }

    /// Reopens the file by its name: after a rotation. Lines that are written from now on go to the file of that name;
    /// if it cannot be opened they go where they went.
    pub(super) fn reopen(&self) {
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
    metrics: Arc<WriterMetrics>,
}

impl Writer {
    fn run(mut self) {
        let mut failing = false;
        while let Ok(message) = self.waiting.recv() {
            if self.reopen.swap(false, Relaxed) {
                match self.target.open() {
                    Ok(output) => self.output = output,
                    Err(error) => tracing::warn!(%error, "cannot reopen the access log"),
                }
            }
            let piece = match message {
                Message::Lines(piece) => piece,
                Message::Reopen => continue,
                Message::End => return,
            };
            let written = self.output.write(piece.text.as_bytes());
            if let Err(error) = &written {
                self.metrics.lost.fetch_add(piece.lines, Relaxed);
                if !failing {
                    tracing::warn!(%error, "cannot write the access log");
                }
            }
            failing = written.is_err();
        }
    }
}

/// One worker's lines before they reach the writer.
pub(super) struct Lines {
    style: Style,
    piece: Piece,
    writer: SyncSender<Message>,
    metrics: Arc<Metrics>,
}

impl Lines {
    /// Adds a line that `write` fills. Never waits.
    pub(super) fn add(&mut self, write: impl FnOnce(&mut Line<'_>)) {
        Line::append(self.style, &mut self.piece.text, write);
        self.piece.lines += 1;
        if self.piece.text.len() >= PIECE {
            self.flush();
        }
    }

    /// Sends what there is; to be called periodically, so that no line waits for more.
    pub(super) fn flush(&mut self) {
        if self.piece.lines == 0 {
            return;
        }
        let piece = std::mem::take(&mut self.piece);
        let lines = piece.lines;
        match self.writer.try_send(Message::Lines(piece)) {
            Ok(()) => self.metrics.queued.add(lines),
            Err(_) => self.metrics.dropped.add(lines),
        }
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        self.flush();
    }
}

#[cfg(test)]
mod tests;
