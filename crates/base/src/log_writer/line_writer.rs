//! Writes the queued lines on a thread, and reports lines that could not be written.

use super::{
    output::{LogTarget, OpenOutput},
    queue::{LineReceiver, LogPiece, WriterWork},
};
use std::{io, thread, time::Instant};
use tokio::sync::oneshot;

/// Callbacks of a log for events of its writer, called on the writer's thread.
pub trait WriterEvents: Send + 'static {
    /// Called when `lines` lines could not be written because of `error`. `first`: the write before succeeded.
    fn on_write_failed(&mut self, lines: u64, error: &io::Error, first: bool);

    /// Called once there is room again after `lines` lines were dropped or could not be written. Returns a line that
    /// reports the loss, for the same output, or `None` if the loss is reported elsewhere.
    fn on_missing_lines(&mut self, lines: u64) -> Option<Vec<u8>>;

    /// Called at the time of [`schedule_alarm`](super::LineQueue::schedule_alarm). Returns the next time.
    fn on_alarm(&mut self) -> Option<Instant> {
        None
    }

    /// Called when the file cannot be reopened: the writer continues with the file that is open.
    fn on_reopen_failed(&mut self, _error: &io::Error) {}

    /// Called after each successful write.
    fn on_lines_written(&mut self) {}
}

/// Events of a writer thread that was started.
#[derive(Debug)]
pub struct StartedWriter {
    /// Result of opening the target. Opening a pipe waits for a reader.
    pub opened: oneshot::Receiver<io::Result<()>>,
    /// Receiver that fails once the thread has ended.
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
            // The target is opened on this thread, as opening may block.
            match target.open_log_target() {
                Ok(output) => {
                    let _ = open.send(Ok(()));
                    LineWriter { target, output, queue: self, report, state: WriterState::default() }.write_until_end();
                }
                // The caller may have stopped waiting.
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

/// Results of earlier writes.
#[derive(Debug, Default)]
struct WriterState {
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
                        self.queue.0.schedule_alarm(time);
                    }
                }
                WriterWork::End => return self.report_missing_lines(0),
            }
        }
    }

    /// Writes `lines`, and counts lines that were lost. Returns whether all lines were written.
    fn write_batch(&mut self, lines: &[u8]) -> bool {
        // A line feed ends a partial line, so that the next line does not continue it.
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

    /// Reports lost lines, if the queue has room once `written` bytes have left it.
    fn report_missing_lines(&mut self, written: usize) {
        self.state.missing = self.state.missing.saturating_add(self.queue.take_dropped(written));
        if self.state.missing == 0 || self.state.failing {
            return;
        }
        let missing = std::mem::take(&mut self.state.missing);
        if let Some(line) = self.report.on_missing_lines(missing)
            && !self.write_batch(&line)
        {
            // Writing the report counted the report itself as lost, rather than the lines that it reports.
            self.state.missing = missing;
        }
    }
}

/// Moves the text of all pieces of `batch` to `buffer`, and returns its length in bytes.
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

    /// Records the reported failures; a line reports how many lines are missing.
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
    fn a_full_disk_loses_counted_lines_and_merges_none() {
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
        // Later writes alone have room for the line that reports the missing ones.
        write(&mut writer, 6, "six\n");
        write(&mut writer, 100, "seven\n");
        write(&mut writer, 0, "eight\n");
        let OpenOutput::Disk(disk) = &writer.output else { panic!("{:?}", writer.output) };
        let text = String::from_utf8_lossy(&disk.text);
        assert_eq!(text, "one\ntwo\nth\nsix\n3\nseven\n3 missing\neight\n");
        assert_eq!(writer.report.failed, [(2, true), (1, false), (1, true)]);
    }
}
