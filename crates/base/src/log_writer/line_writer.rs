//! The thread that writes what is queued, and reports what it could not.

use super::{
    output::{LogTarget, OpenOutput},
    queue::{LineReceiver, LogPiece, WriterWork},
};
use std::{io, thread, time::Instant};
use tokio::sync::oneshot;

/// What a log adds to its writer. Called on the writer's thread.
pub trait WriterEvents: Send + 'static {
    /// `lines` could not be written because of `error`. `first`: what was written before them was written.
    fn on_write_failed(&mut self, lines: u64, error: &io::Error, first: bool);

    /// `lines` were dropped or could not be written, and there is room again. Returns a line that says so, for the same
    /// output, if that is the place for it.
    fn on_missing_lines(&mut self, lines: u64) -> Option<Vec<u8>>;

    /// The time of [`LineSender::call_at`](super::LineSender::call_at) has come. Returns when to call again.
    fn on_alarm(&mut self) -> Option<Instant> {
        None
    }

    /// The file cannot be reopened: lines go where they went.
    fn on_reopen_failed(&mut self, _error: &io::Error) {}

    /// Called after each write that succeeded.
    fn on_lines_written(&mut self) {}
}

/// The events of a thread that was started.
#[derive(Debug)]
pub struct StartedWriter {
    /// The target is open, or cannot be opened. Opening a pipe waits for a reader.
    pub opened: oneshot::Receiver<io::Result<()>>,
    /// Fails once the thread has ended.
    pub ended: oneshot::Receiver<()>,
}

impl LineReceiver {
    /// Writes to `target` from a thread named `name`, until the queue ends.
    ///
    /// # Errors
    ///
    /// The thread cannot be started.
    pub fn spawn_writer(self, target: LogTarget, name: &str, report: impl WriterEvents) -> io::Result<StartedWriter> {
        let (open, opened) = oneshot::channel();
        let (running, ended) = oneshot::channel();
        thread::Builder::new().name(name.into()).spawn(move || {
            let _running: oneshot::Sender<()> = running;
            self.register_writer_thread();
            // On this thread, as opening may block.
            match target.open_log_target() {
                Ok(output) => {
                    let _ = open.send(Ok(()));
                    LineWriter { target, output, queue: self, report, state: WriterState::default() }.write_until_end();
                }
                // The caller may have given up.
                Err(error) => drop(open.send(Err(error))),
            }
        })?;
        Ok(StartedWriter { opened, ended })
    }
}

struct LineWriter<R> {
    target: LogTarget,
    output: OpenOutput,
    queue: LineReceiver,
    report: R,
    state: WriterState,
}

/// What became of earlier writes.
#[derive(Debug, Default)]
struct WriterState {
    /// The last write failed.
    failing: bool,
    /// The last write ended within a line.
    partial: bool,
    /// Lines dropped or lost that were not reported yet.
    missing: u64,
}

impl<R: WriterEvents> LineWriter<R> {
    fn write_until_end(mut self) {
        let (mut batch, mut buffer) = (Vec::new(), Vec::new());
        loop {
            match self.queue.next_work(&mut batch) {
                WriterWork::Write => {
                    let bytes = concatenate_pieces(&mut batch, &mut buffer);
                    self.write_batch(&buffer);
                    self.report_missing_lines(bytes);
                    self.queue.release_written(bytes);
                }
                WriterWork::Reopen => match self.target.open_log_target() {
                    Ok(output) => {
                        self.output = output;
                        self.state.partial = false;
                    }
                    Err(error) => self.report.on_reopen_failed(&error),
                },
                WriterWork::Alarm => {
                    if let Some(time) = self.report.on_alarm() {
                        self.queue.set_next_alarm(time);
                    }
                }
                WriterWork::End => return self.report_missing_lines(0),
            }
        }
    }

    /// Returns whether all of it was written.
    fn write_batch(&mut self, lines: &[u8]) -> bool {
        // What follows a partial line is not to become a part of it.
        let begun = if self.state.partial { self.output.write_whole_lines(b"\n") } else { Ok(()) };
        match begun.and_then(|()| self.output.write_whole_lines(lines)) {
            Ok(()) => {
                self.state = WriterState { missing: self.state.missing, ..WriterState::default() };
                self.report.on_lines_written();
                true
            }
            Err(failed) => {
                let (before, rest) = lines.split_at(failed.written.min(lines.len()));
                if let Some(last) = before.last() {
                    self.state.partial = *last != b'\n';
                }
                let lost = rest.iter().filter(|byte| **byte == b'\n').count() as u64;
                let first = !std::mem::replace(&mut self.state.failing, true);
                self.state.missing = self.state.missing.saturating_add(lost);
                self.report.on_write_failed(lost, &failed.error, first);
                false
            }
        }
    }

    /// Reports lines that are missing, if there is room once `written` bytes are gone from the queue.
    fn report_missing_lines(&mut self, written: usize) {
        self.state.missing = self.state.missing.saturating_add(self.queue.take_dropped(written));
        if self.state.missing == 0 || self.state.failing {
            return;
        }
        let missing = std::mem::take(&mut self.state.missing);
        if let Some(line) = self.report.on_missing_lines(missing)
            && !self.write_batch(&line)
        {
            // The line itself was counted instead of what it says.
            self.state.missing = missing;
        }
    }
}

/// Moves the pieces of `batch` to `buffer`, and returns their length.
fn concatenate_pieces(batch: &mut Vec<LogPiece>, buffer: &mut Vec<u8>) -> usize {
    buffer.clear();
    for piece in batch.drain(..) {
        if buffer.is_empty() {
            *buffer = piece.text;
        } else {
            buffer.extend_from_slice(&piece.text);
        }
    }
    buffer.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log_writer::{line_queue, output::tests::Disk};

    /// Notes what is reported; a line names what is missing.
    #[derive(Default)]
    struct Notes {
        failed: Vec<(u64, bool)>,
    }

    impl WriterEvents for Notes {
        fn on_write_failed(&mut self, lines: u64, error: &io::Error, first: bool) {
            assert_eq!(error.kind(), io::ErrorKind::StorageFull);
            self.failed.push((lines, first));
        }

        fn on_missing_lines(&mut self, lines: u64) -> Option<Vec<u8>> {
            Some(format!("{lines} missing\n").into_bytes())
        }
    }

    #[test]
    fn a_disk_that_is_full_loses_counted_lines_and_none_that_follow_are_merged() {
        let (_sender, queue) = line_queue(100);
        let (target, output) = (LogTarget::Stderr, OpenOutput::Disk(Disk { room: 10, text: Vec::new() }));
        let mut writer = LineWriter { target, output, queue, report: Notes::default(), state: WriterState::default() };
        let write = |writer: &mut LineWriter<Notes>, room: usize, lines: &str| {
            if let OpenOutput::Disk(disk) = &mut writer.output {
                disk.room += room;
            }
            writer.write_batch(lines.as_bytes());
            writer.report_missing_lines(0);
        };
        write(&mut writer, 0, "one\ntwo\nthree\nfour\n");
        write(&mut writer, 0, "five\n");
        // Room for the line that says how many are missing there is later only.
        write(&mut writer, 6, "six\n");
        write(&mut writer, 100, "seven\n");
        write(&mut writer, 0, "eight\n");
        let OpenOutput::Disk(disk) = &writer.output else { panic!("{:?}", writer.output) };
        let text = String::from_utf8_lossy(&disk.text);
        assert_eq!(text, "one\ntwo\nth\nsix\n3\nseven\n3 missing\neight\n");
        assert_eq!(writer.report.failed, [(2, true), (1, false), (1, true)]);
    }
}
