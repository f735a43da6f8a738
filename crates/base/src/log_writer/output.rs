//! Writes lines to a file or to standard error, which may be a pipe, a file, a terminal or a socket of journald.
//! O_NONBLOCK is never set on standard error: the flag belongs to the open file, which other processes share. The lock
//! of std's `Stderr` is never taken: a writer would hold it for as long as the reader of a pipe does not read.

use parking_lot::Mutex;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
};
use std::{
    fmt,
    fs::{File, OpenOptions},
    io,
    os::fd::{AsFd, BorrowedFd},
    path::PathBuf,
    sync::{Arc, mpsc},
    thread,
    time::{Duration, Instant},
};

/// Bytes that a pipe accepts in one piece whatever other processes write (`PIPE_BUF`, pipe(7)): lines of the log, the
/// access log and a new process that takes over stay whole on one pipe.
const PIPE_ATOMIC_BYTES: usize = 4096;

/// Held during each write to standard error, so that lines longer than [`PIPE_ATOMIC_BYTES`] stay whole within the
/// process.
static STDERR_LOCK: Mutex<()> = Mutex::new(());

/// Destination of lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogTarget {
    /// Standard error.
    Stderr,
    /// Standard output.
    Stdout,
    /// A file that is appended to, and created if missing.
    File(PathBuf),
}

impl fmt::Display for LogTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stderr => f.write_str("stderr"),
            Self::Stdout => f.write_str("stdout"),
            Self::File(path) => path.display().fmt(f),
        }
    }
}

impl LogTarget {
    pub(super) fn open_log_target(&self) -> io::Result<OpenOutput> {
        match self {
            Self::Stderr => Ok(OpenOutput::Stderr),
            Self::Stdout => Ok(OpenOutput::Stdout),
            Self::File(path) => OpenOptions::new().append(true).create(true).open(path).map(OpenOutput::File),
        }
    }
}

#[derive(Debug)]
pub(super) enum OpenOutput {
    Stderr,
    Stdout,
    File(File),
    #[cfg(test)]
    Disk(tests::Disk),
}

#[derive(Debug)]
pub(super) struct PartialWriteError {
    /// Bytes that were written before the error.
    pub(super) written: usize,
    pub(super) error: io::Error,
}

impl OpenOutput {
    /// Writes whole lines, and blocks until they are written or an error occurs.
    pub(super) fn write_whole_lines(&mut self, lines: &[u8]) -> Result<(), PartialWriteError> {
        match self {
            Self::File(file) => write_fully(file.as_fd(), lines),
            // In this process, only this thread writes to standard output; a new process that takes over may write
            // beside it.
            Self::Stdout => write_in_chunks(lines, |chunk| write_fully(io::stdout().as_fd(), chunk)),
            #[cfg(test)]
            Self::Disk(disk) => disk.write(lines),
            Self::Stderr => write_in_chunks(lines, |chunk| {
                let _turn = STDERR_LOCK.lock();
                write_fully(io::stderr().as_fd(), chunk)
            }),
        }
    }
}

/// Writes `lines` in pieces that stay whole on a pipe that other processes write to.
fn write_in_chunks(
    lines: &[u8],
    write: impl Fn(&[u8]) -> Result<(), PartialWriteError>,
) -> Result<(), PartialWriteError> {
    let mut rest = lines;
    while !rest.is_empty() {
        let (chunk, after) = rest.split_at(chunk_length(rest));
        let before = lines.len() - rest.len();
        write(chunk).map_err(|failed| PartialWriteError { written: before + failed.written, ..failed })?;
        rest = after;
    }
    Ok(())
}

/// Length of the first chunk of `lines`: as many lines as stay whole on a pipe, or one longer line.
fn chunk_length(lines: &[u8]) -> usize {
    let end = |ends: &[u8]| ends.iter().rposition(|byte| *byte == b'\n').map(|at| at + 1);
    match lines.get(..PIPE_ATOMIC_BYTES) {
        None => lines.len(),
        Some(whole) => end(whole).unwrap_or_else(|| {
            let first = lines.iter().position(|byte| *byte == b'\n');
            first.map_or(lines.len(), |at| at + 1)
        }),
    }
}

fn write_fully(to: BorrowedFd<'_>, bytes: &[u8]) -> Result<(), PartialWriteError> {
    let mut written = 0;
    while let Some(rest) = bytes.get(written..).filter(|rest| !rest.is_empty()) {
        match rustix::io::write(to, rest) {
            Ok(0) => return Err(PartialWriteError { written, error: io::ErrorKind::WriteZero.into() }),
            Ok(more) => written += more,
            Err(Errno::INTR) => {}
            // Another process that shares the file has set O_NONBLOCK. An error of poll(2) appears again at the next
            // write.
            Err(Errno::AGAIN) => drop(poll(&mut [PollFd::from_borrowed_fd(to, PollFlags::OUT)], None)),
            Err(error) => return Err(PartialWriteError { written, error: error.into() }),
        }
    }
    Ok(())
}

/// Locks standard error for the rest of the process's life, so that the caller writes last. Gives up after `limit`, as
/// when a writer is blocked.
pub fn hold_stderr(limit: Duration) {
    if let Some(guard) = STDERR_LOCK.try_lock_for(limit) {
        std::mem::forget(guard);
    }
}

/// Writes `lines` to standard error past every queue and lock, within `limit`: for a process that ends. A thread of its
/// own writes, as no system call writes to every kind of file without waiting; if no thread can be started, the caller
/// writes as much as poll(2) reports room for.
pub fn write_last_lines(lines: Vec<u8>, limit: Duration) {
    let lines: Arc<[u8]> = lines.into();
    let (sender, done) = mpsc::channel();
    let copy = Arc::clone(&lines);
    let spawned = thread::Builder::new().name("last-line".into()).spawn(move || {
        let _ = sender.send(write_fully(io::stderr().as_fd(), &copy));
    });
    // If standard error is closed or full, only the exit code remains; what is late is lost.
    match spawned {
        Ok(_) => drop(done.recv_timeout(limit)),
        Err(_) => write_while_ready(io::stderr().as_fd(), &lines, limit),
    }
}

/// Writes `lines` as long as the file has room, within `limit`.
fn write_while_ready(to: BorrowedFd<'_>, lines: &[u8], limit: Duration) {
    let deadline = Instant::now() + limit;
    for chunk in lines.chunks(PIPE_ATOMIC_BYTES) {
        let left = Timespec::try_from(deadline.saturating_duration_since(Instant::now()));
        let mut ready = [PollFd::from_borrowed_fd(to, PollFlags::OUT)];
        let ready = left.is_ok_and(|left| poll(&mut ready, Some(&left)).is_ok_and(|ready| ready > 0));
        if !ready || write_fully(to, chunk).is_err() {
            return;
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::{Read, pipe};

    /// A disk with room for `room` bytes.
    #[derive(Debug, Default)]
    pub(in crate::log_writer) struct Disk {
        pub(in crate::log_writer) room: usize,
        pub(in crate::log_writer) text: Vec<u8>,
    }

    impl Disk {
        pub(super) fn write(&mut self, lines: &[u8]) -> Result<(), PartialWriteError> {
            let written = self.room.min(lines.len());
            self.text.extend_from_slice(&lines[..written]);
            self.room -= written;
            match written == lines.len() {
                true => Ok(()),
                false => Err(PartialWriteError { written, error: io::ErrorKind::StorageFull.into() }),
            }
        }
    }

    #[test]
    fn a_chunk_is_the_lines_that_a_pipe_accepts_whole() {
        let line = |bytes: usize| [vec![b'x'; bytes - 1], vec![b'\n']].concat();
        let cases = [
            (line(10), 10),
            (line(PIPE_ATOMIC_BYTES), PIPE_ATOMIC_BYTES),
            ([line(10), line(20)].concat(), 30),
            ([line(10), line(PIPE_ATOMIC_BYTES)].concat(), 10),
            ([line(PIPE_ATOMIC_BYTES - 1), line(1), line(1)].concat(), PIPE_ATOMIC_BYTES),
            ([line(PIPE_ATOMIC_BYTES + 1), line(1)].concat(), PIPE_ATOMIC_BYTES + 1),
            (vec![b'x'; 2 * PIPE_ATOMIC_BYTES], 2 * PIPE_ATOMIC_BYTES),
        ];
        for (lines, expected) in cases {
            assert_eq!(chunk_length(&lines), expected);
        }
    }

    #[test]
    fn a_full_pipe_is_abandoned_after_the_limit() {
        let (mut reader, writer) = pipe().unwrap();
        let limit = Duration::from_millis(50);
        let began = Instant::now();
        write_while_ready(writer.as_fd(), &vec![b'x'; 1 << 20], limit);
        assert!(began.elapsed() >= limit, "the pipe holds 64 KiB");
        drop(writer);
        let mut read = Vec::new();
        reader.read_to_end(&mut read).unwrap();
        assert_eq!(read.len(), 64 * 1024);
    }

    #[test]
    fn a_pipe_that_another_process_made_nonblocking_is_written_whole() {
        let (mut reader, writer) = pipe().unwrap();
        rustix::fs::fcntl_setfl(&writer, rustix::fs::OFlags::NONBLOCK).unwrap();
        let reading = thread::spawn(move || {
            let mut read = Vec::new();
            reader.read_to_end(&mut read).map(|_| read.len())
        });
        write_fully(writer.as_fd(), &vec![b'x'; 1 << 20]).unwrap();
        drop(writer);
        assert_eq!(reading.join().unwrap().unwrap(), 1 << 20);
    }

    #[test]
    fn a_failed_write_reports_the_written_bytes() {
        let mut full = OpenOutput::File(OpenOptions::new().write(true).open("/dev/full").unwrap());
        let failed = full.write_whole_lines(b"line\n").unwrap_err();
        assert_eq!((failed.written, failed.error.kind()), (0, io::ErrorKind::StorageFull));
    }

    proptest! {
        #[test]
        fn chunks_are_whole_lines_and_lose_nothing(lengths in prop::collection::vec(1usize..6000, 0..20)) {
            let lines: Vec<u8> =
                lengths.iter().flat_map(|bytes| [vec![b'x'; bytes - 1], vec![b'\n']].concat()).collect();
            let mut rest = &lines[..];
            while !rest.is_empty() {
                let (first, after) = rest.split_at(chunk_length(rest));
                prop_assert!(first.ends_with(b"\n"));
                prop_assert!(first.len() <= PIPE_ATOMIC_BYTES || first.iter().filter(|byte| **byte == b'\n').count() == 1);
                rest = after;
            }
        }
    }
}
