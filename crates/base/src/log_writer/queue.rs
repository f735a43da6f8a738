//! The queue between the threads that log and the thread that writes. A push moves a pointer under a lock, which is
//! held for no longer than that.

use parking_lot::{Condvar, Mutex, MutexGuard};
use std::{
    collections::VecDeque,
    ops::Deref,
    sync::{Arc, OnceLock},
    thread::{self, ThreadId},
    time::{Duration, Instant},
};

/// Bytes of a batch: the default capacity of a pipe (pipe(7)).
const BATCH_BYTES: usize = 64 * 1024;
/// Delay between two checks whether the queue has been written.
const DRAIN_POLL_INTERVAL: Duration = Duration::from_millis(1);

/// Whole lines in one allocation.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct LogPiece {
    /// Text of the lines, each with a line feed.
    pub text: Vec<u8>,
    /// Number of lines in `text`.
    pub lines: u64,
}

/// Whether a push wakes a writer that sleeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriterWake {
    /// Wake the writer: a system call if the writer sleeps.
    Now,
    /// Make no system call: the caller calls [`LineQueue::wake_line_writer`] soon.
    Later,
}

/// A queue of at most `bound` bytes, including the bytes that are being written.
pub fn line_queue(bound: usize) -> (LineSender, LineReceiver) {
    let queue =
        Arc::new(LineQueue { bound, state: Mutex::default(), changed: Condvar::new(), writer: OnceLock::new() });
    (LineSender(Arc::new(QueueEndGuard(Arc::clone(&queue)))), LineReceiver(queue))
}

/// Sending half of the queue. When the last clone is dropped, the writer ends once all queued lines are written.
#[derive(Debug, Clone)]
pub struct LineSender(Arc<QueueEndGuard>);

#[derive(Debug)]
struct QueueEndGuard(Arc<LineQueue>);

impl Drop for QueueEndGuard {
    fn drop(&mut self) {
        self.0.end_queue();
    }
}

impl Deref for LineSender {
    type Target = LineQueue;

    fn deref(&self) -> &LineQueue {
        &self.0.0
    }
}

/// Receiving half of the queue, for the writer.
#[derive(Debug)]
pub struct LineReceiver(pub(super) Arc<LineQueue>);

#[derive(Debug, PartialEq, Eq)]
pub(super) enum WriterWork {
    /// Write the pieces of the batch.
    Write,
    /// Reopen the file by name.
    Reopen,
    /// The time of [`LineQueue::schedule_alarm`] has come.
    Alarm,
    /// The queue is empty and has ended.
    End,
}

impl LineReceiver {
    pub(super) fn register_writer_thread(&self) {
        let _ = self.0.writer.set(thread::current().id());
    }

    /// Waits for work. `batch` must be empty, and receives the pieces to write: about 64 KiB at most, or one piece.
    pub(super) fn next_work(&self, batch: &mut Vec<LogPiece>) -> WriterWork {
        let mut state = self.0.state.lock();
        loop {
            if std::mem::take(&mut state.reopen) {
                return WriterWork::Reopen;
            }
            let wait = state.alarm.map(|time| time.saturating_duration_since(Instant::now()));
            if wait.is_some_and(|wait| wait.is_zero()) {
                state.alarm = None;
                return WriterWork::Alarm;
            }
            if state.drain_batch(batch) {
                return WriterWork::Write;
            }
            if state.ended {
                return WriterWork::End;
            }
            state.sleeping = true;
            match wait {
                None => self.0.changed.wait(&mut state),
                Some(wait) => _ = self.0.changed.wait_for(&mut state, wait),
            }
            state.sleeping = false;
        }
    }

    /// Number of lines that were dropped since the last call that returned some. 0 as long as more than half of the
    /// queue would be full after `written` bytes have left it, unless the queue has ended.
    pub(super) fn take_dropped(&self, written: usize) -> u64 {
        let mut state = self.0.state.lock();
        let left = state.bytes.saturating_sub(written);
        if left <= self.0.bound / 2 || state.ended { std::mem::take(&mut state.dropped) } else { 0 }
    }

    /// Frees the room of `bytes` bytes of a batch, which are written or lost.
    pub(super) fn release_written(&self, bytes: usize) {
        let mut state = self.0.state.lock();
        state.bytes = state.bytes.saturating_sub(bytes);
    }

    /// Removes the next piece without waiting: for a test that has no writer.
    pub fn pop_piece(&self) -> Option<LogPiece> {
        let mut state = self.0.state.lock();
        let piece = state.pieces.pop_front()?;
        state.bytes -= piece.text.len();
        Some(piece)
    }
}

impl Drop for LineReceiver {
    fn drop(&mut self) {
        self.0.end_queue();
    }
}

/// The queue that both halves share.
#[derive(Debug)]
pub struct LineQueue {
    /// Upper bound of `LineQueueState::bytes`.
    bound: usize,
    state: Mutex<LineQueueState>,
    /// Notified when the writer must read the state.
    changed: Condvar,
    writer: OnceLock<ThreadId>,
}

#[derive(Debug, Default)]
struct LineQueueState {
    pieces: VecDeque<LogPiece>,
    /// Bytes of queued lines and of lines that are being written.
    bytes: usize,
    /// Lines that were dropped and not reported yet.
    dropped: u64,
    sleeping: bool,
    reopen: bool,
    ended: bool,
    /// Next time at which the writer calls [`WriterEvents::on_alarm`](super::WriterEvents::on_alarm).
    alarm: Option<Instant>,
}

impl LineQueueState {
    /// Moves pieces of about [`BATCH_BYTES`] bytes to `batch`. Returns false if the queue has none.
    fn drain_batch(&mut self, batch: &mut Vec<LogPiece>) -> bool {
        let mut bytes = 0;
        while let Some(piece) = self.pieces.pop_front_if(|next| bytes == 0 || bytes + next.text.len() <= BATCH_BYTES) {
            bytes += piece.text.len();
            batch.push(piece);
        }
        !batch.is_empty()
    }
}

impl LineQueue {
    /// Queues `piece`. Returns false if there is no room, or the queue has ended: the lines of `piece` are dropped, and
    /// the writer will report them. Never waits for the writer.
    pub fn push_lines(&self, piece: LogPiece, wake: WriterWake) -> bool {
        let mut state = self.state.lock();
        if state.ended || state.bytes.saturating_add(piece.text.len()) > self.bound {
            state.dropped = state.dropped.saturating_add(piece.lines);
            return false;
        }
        state.bytes += piece.text.len();
        state.pieces.push_back(piece);
        if wake == WriterWake::Now {
            self.wake_writer(state);
        }
        true
    }

    /// Wakes the writer if it sleeps while pieces are queued: to be called after pushes with [`WriterWake::Later`].
    pub fn wake_line_writer(&self) {
        let state = self.state.lock();
        if !state.pieces.is_empty() {
            self.wake_writer(state);
        }
    }

    /// Has the writer call [`WriterEvents::on_alarm`](super::WriterEvents::on_alarm) at `time`, or at an earlier time
    /// that was scheduled before.
    pub fn schedule_alarm(&self, time: Instant) {
        let mut state = self.state.lock();
        if state.alarm.is_none_or(|alarm| time < alarm) {
            state.alarm = Some(time);
            self.wake_writer(state);
        }
    }

    /// Has the writer reopen the log file by name.
    pub fn request_reopen(&self) {
        let mut state = self.state.lock();
        state.reopen = true;
        self.wake_writer(state);
    }

    /// Rejects further pieces. The writer ends once all queued lines are written.
    pub fn end_queue(&self) {
        let mut state = self.state.lock();
        state.ended = true;
        self.wake_writer(state);
    }

    /// Waits until all queued lines are written, at most for `limit`; returns whether they are. Holds no lock while it
    /// waits, and waits for no lock: threads that panicked may call it.
    pub fn wait_until_written(&self, limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        while self.state.try_lock().is_none_or(|state| state.bytes != 0) {
            if Instant::now() >= deadline {
                return false;
            }
            thread::sleep(DRAIN_POLL_INTERVAL);
        }
        true
    }

    /// Rejects further pieces, as [`LineQueue::end_queue`] does, but only if the lock is free: for a thread that
    /// panicked. Returns the queued pieces if the calling thread is the writer, which will not write them any more.
    pub fn end_in_panic(&self) -> Vec<LogPiece> {
        let Some(mut state) = self.state.try_lock() else { return Vec::new() };
        state.ended = true;
        self.changed.notify_all();
        match self.writer.get() == Some(&thread::current().id()) {
            true => {
                state.bytes = 0;
                state.pieces.drain(..).collect()
            }
            false => Vec::new(),
        }
    }

    /// Wakes the writer if it sleeps. Unlocks first, so that the writer does not wake and find the lock taken.
    fn wake_writer(&self, mut state: MutexGuard<'_, LineQueueState>) {
        let sleeping = std::mem::take(&mut state.sleeping);
        drop(state);
        if sleeping {
            self.changed.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn piece(bytes: usize) -> LogPiece {
        LogPiece { text: vec![b'x'; bytes], lines: 1 }
    }

    #[test]
    fn lines_beyond_the_bound_are_dropped_and_reported_later() {
        let (sender, receiver) = line_queue(100);
        let pushed: Vec<bool> = [60, 41, 40, 1].map(|bytes| sender.push_lines(piece(bytes), WriterWake::Now)).into();
        assert_eq!(pushed, [true, false, true, false]);
        let mut batch = Vec::new();
        assert_eq!(receiver.next_work(&mut batch), WriterWork::Write);
        assert_eq!(
            (batch.len(), sender.push_lines(piece(1), WriterWake::Now)),
            (2, false),
            "bytes being written count"
        );
        assert_eq!(receiver.take_dropped(0), 0, "there is no room yet");
        assert_eq!(receiver.take_dropped(60), 3);
        assert_eq!(receiver.take_dropped(60), 0);
        receiver.release_written(100);
        assert!(sender.push_lines(piece(100), WriterWake::Later));
    }

    #[test]
    fn the_writer_reopens_first_then_gets_batches_and_the_end() {
        let (sender, receiver) = line_queue(1 << 20);
        let sizes = [BATCH_BYTES - 1, 1, 1, 2 * BATCH_BYTES, 1];
        sizes.iter().for_each(|size| assert!(sender.push_lines(piece(*size), WriterWake::Now)));
        sender.request_reopen();
        sender.end_queue();
        assert!(!sender.push_lines(piece(1), WriterWake::Now));
        let mut batch = Vec::new();
        assert_eq!(receiver.next_work(&mut batch), WriterWork::Reopen);
        for expected in [2, 1, 1, 1] {
            assert_eq!(receiver.next_work(&mut batch), WriterWork::Write);
            assert_eq!(batch.len(), expected);
            receiver.release_written(batch.drain(..).map(|piece| piece.text.len()).sum());
        }
        assert_eq!(receiver.next_work(&mut batch), WriterWork::End);
        assert_eq!(receiver.take_dropped(0), 1);
        assert!(sender.wait_until_written(Duration::ZERO));
    }

    #[test]
    fn the_earliest_alarm_comes_once() {
        let (sender, receiver) = line_queue(10);
        let now = Instant::now();
        sender.schedule_alarm(now + Duration::from_secs(3600));
        sender.schedule_alarm(now);
        sender.schedule_alarm(now + Duration::from_secs(1));
        let mut batch = Vec::new();
        assert_eq!(receiver.next_work(&mut batch), WriterWork::Alarm);
        sender.end_queue();
        assert_eq!(receiver.next_work(&mut batch), WriterWork::End);
    }

    #[test]
    fn pieces_later_wakes_and_the_last_sender_wake_the_writer() {
        let (sender, receiver) = line_queue(10);
        let writer = thread::spawn(move || {
            let (mut batch, mut batches) = (Vec::new(), 0);
            while receiver.next_work(&mut batch) != WriterWork::End {
                batches += 1;
                receiver.release_written(batch.drain(..).map(|piece| piece.text.len()).sum());
            }
            batches
        });
        for wake in [WriterWake::Now, WriterWake::Later] {
            assert!(sender.push_lines(piece(10), wake));
            sender.wake_line_writer();
            assert!(sender.wait_until_written(Duration::from_secs(10)), "{wake:?}");
        }
        drop(sender);
        assert_eq!(writer.join().unwrap(), 2);
    }

    #[test]
    fn a_writer_that_panicked_returns_the_queued_pieces() {
        let (sender, receiver) = line_queue(10);
        assert!(sender.push_lines(piece(3), WriterWake::Now));
        assert_eq!(sender.end_in_panic(), [], "another thread writes it");
        receiver.register_writer_thread();
        assert_eq!(sender.end_in_panic(), [piece(3)]);
        assert!(sender.wait_until_written(Duration::ZERO));
    }

    proptest! {
        /// Compared with sums: the queue never exceeds its bound, and each line is written once or reported as dropped.
        #[test]
        fn every_line_is_written_or_reported(
            bound in 1usize..200,
            steps in prop::collection::vec((0usize..100, any::<bool>()), 1..100),
        ) {
            let (sender, receiver) = line_queue(bound);
            let (mut held, mut written, mut reported, mut batch) = (0, 0, 0, Vec::new());
            let mut write = |held: &mut usize| {
                while *held > 0 && receiver.next_work(&mut batch) == WriterWork::Write {
                    let bytes = batch.iter().map(|piece| piece.text.len()).sum();
                    *held -= bytes;
                    written += batch.drain(..).map(|piece| piece.lines).sum::<u64>();
                    reported += receiver.take_dropped(bytes);
                    receiver.release_written(bytes);
                }
            };
            for (bytes, writes) in &steps {
                let fits = held + bytes < bound;
                prop_assert_eq!(sender.push_lines(piece(bytes + 1), WriterWake::Later), fits);
                held += if fits { bytes + 1 } else { 0 };
                if *writes {
                    write(&mut held);
                }
            }
            write(&mut held);
            sender.end_queue();
            reported += receiver.take_dropped(0);
            prop_assert_eq!(written + reported, steps.len() as u64);
        }
    }
}
