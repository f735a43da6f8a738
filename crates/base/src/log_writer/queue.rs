//! The queue between the threads that log and the one that writes. A push moves a pointer under a lock that is held for
//! no longer than that.

use std::{
    collections::VecDeque,
    sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError},
    thread::{self, ThreadId},
    time::{Duration, Instant},
};

/// Bytes that the writer takes at once: what a pipe holds by default (pipe(7)).
const BATCH_BYTES: usize = 64 * 1024;
/// Delay between two looks at a queue that is awaited.
const DRAIN_POLL_INTERVAL: Duration = Duration::from_millis(1);

/// Whole lines in one allocation.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct LogPiece {
    /// The lines, each with its line feed.
    pub text: Vec<u8>,
    /// Number of lines in `text`.
    pub lines: u64,
}

/// Whether a push wakes the writer if it sleeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriterWake {
    /// Wake the writer: a system call if it sleeps.
    Now,
    /// Make no system call: the caller calls [`LineSender::wake`] soon.
    Later,
}

/// A queue that holds `bound` bytes at most, those being written included.
pub fn line_queue(bound: usize) -> (LineSender, LineReceiver) {
    let queue =
        Arc::new(LineQueue { bound, state: Mutex::default(), changed: Condvar::new(), writer: OnceLock::new() });
    (LineSender(Arc::new(QueueEndGuard(Arc::clone(&queue)))), LineReceiver(queue))
}

/// The side of the threads that log. When the last clone is dropped, the writer ends with what is queued.
#[derive(Debug, Clone)]
pub struct LineSender(Arc<QueueEndGuard>);

#[derive(Debug)]
struct QueueEndGuard(Arc<LineQueue>);

impl Drop for QueueEndGuard {
    fn drop(&mut self) {
        self.0.mark_ended();
    }
}

impl LineSender {
    /// Queues `piece`. False if there is no room, or the queue has ended: its lines are dropped, and the writer will
    /// report them. Never waits for the writer.
    pub fn push_lines(&self, piece: LogPiece, wake: WriterWake) -> bool {
        self.shared_queue().push_piece(piece, wake)
    }

    /// Wakes the writer if it sleeps and there is something to do: after pushes with [`WriterWake::Later`].
    pub fn wake_line_writer(&self) {
        self.shared_queue().wake_if_pending();
    }

    /// Has the writer call [`Report::alarm`](super::Report::alarm) at `time`, or earlier if it was called for earlier.
    pub fn schedule_alarm(&self, time: Instant) {
        self.shared_queue().advance_alarm(time);
    }

    /// Has the writer reopen its file by name.
    pub fn request_reopen(&self) {
        self.shared_queue().mark_reopen();
    }

    /// Refuses further pieces. The writer ends with what is queued.
    pub fn end_queue(&self) {
        self.shared_queue().mark_ended();
    }

    /// Waits until all is written that was queued, for `limit` at most; returns whether it is. Holds no lock while it
    /// waits, and waits for none: for threads that panicked, too.
    pub fn wait_until_written(&self, limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        while !self.shared_queue().is_fully_written() {
            if Instant::now() >= deadline {
                return false;
            }
            thread::sleep(DRAIN_POLL_INTERVAL);
        }
        true
    }

    /// Refuses further pieces, as [`LineSender::end`], but only if the lock is free: for a thread that panicked.
    /// Returns the pieces that are queued if the calling thread is the writer, which will not write them any more.
    pub fn end_in_panic(&self) -> Vec<LogPiece> {
        let queue = self.shared_queue();
        let Some(mut state) = queue.try_lock_queue_state() else { return Vec::new() };
        state.ended = true;
        queue.changed.notify_all();
        match queue.writer.get() == Some(&thread::current().id()) {
            true => {
                state.bytes = 0;
                state.pieces.drain(..).collect()
            }
            false => Vec::new(),
        }
    }

    fn shared_queue(&self) -> &LineQueue {
        &self.0.0
    }
}

/// The side of the writer.
#[derive(Debug)]
pub struct LineReceiver(Arc<LineQueue>);

/// What the writer is to do next.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum WriterWork {
    /// Write the pieces that were put into the batch.
    Write,
    /// Reopen the file by its name.
    Reopen,
    /// The time of [`LineSender::call_at`] has come.
    Alarm,
    /// Nothing is queued, and nothing follows.
    End,
}

impl LineReceiver {
    /// The calling thread is the writer.
    pub(super) fn register_writer_thread(&self) {
        let _ = self.0.writer.set(thread::current().id());
    }

    /// Waits for work. `batch` is empty, and gets the pieces to write: some 64 KiB at most, or one piece.
    pub(super) fn next_work(&self, batch: &mut Vec<LogPiece>) -> WriterWork {
        let mut state = self.0.lock_queue_state();
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
            state = match wait {
                None => self.0.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(wait) => self.0.changed.wait_timeout(state, wait).unwrap_or_else(PoisonError::into_inner).0,
            };
            state.sleeping = false;
        }
    }

    /// Number of lines that were dropped since the last call, if half of the queue is free again once `written` bytes
    /// are gone, or the queue has ended; otherwise 0, and they are counted on.
    pub(super) fn take_dropped(&self, written: usize) -> u64 {
        let mut state = self.0.lock_queue_state();
        let left = state.bytes.saturating_sub(written);
        if left <= self.0.bound / 2 || state.ended { std::mem::take(&mut state.dropped) } else { 0 }
    }

    /// Sets the alarm, as [`LineSender::call_at`] does.
    pub(super) fn set_next_alarm(&self, time: Instant) {
        self.0.advance_alarm(time);
    }

    /// `bytes` of what [`Receiver::next`] returned are written, or lost.
    pub(super) fn release_written(&self, bytes: usize) {
        let mut state = self.0.lock_queue_state();
        state.bytes = state.bytes.saturating_sub(bytes);
    }

    /// Takes the next piece without waiting, as a test does that has no writer.
    pub fn pop_piece(&self) -> Option<LogPiece> {
        let mut state = self.0.lock_queue_state();
        let piece = state.pieces.pop_front()?;
        state.bytes -= piece.text.len();
        Some(piece)
    }
}

impl Drop for LineReceiver {
    fn drop(&mut self) {
        self.0.mark_ended();
    }
}

#[derive(Debug)]
struct LineQueue {
    /// Upper bound of [`State::bytes`].
    bound: usize,
    state: Mutex<LineQueueState>,
    /// The writer is to look at the state.
    changed: Condvar,
    /// The thread that writes.
    writer: OnceLock<ThreadId>,
}

#[derive(Debug, Default)]
struct LineQueueState {
    pieces: VecDeque<LogPiece>,
    /// Bytes queued, and being written.
    bytes: usize,
    /// Lines that found no room and are not reported yet.
    dropped: u64,
    /// The writer waits for a wake.
    sleeping: bool,
    /// The file is to be reopened.
    reopen: bool,
    /// Nothing more is queued.
    ended: bool,
    /// When the writer is to be called.
    alarm: Option<Instant>,
}

impl LineQueueState {
    /// Moves pieces of some [`BATCH`] bytes to `batch`. False if there are none.
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
    fn push_piece(&self, piece: LogPiece, wake: WriterWake) -> bool {
        let mut state = self.lock_queue_state();
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

    fn wake_if_pending(&self) {
        let state = self.lock_queue_state();
        if !state.pieces.is_empty() {
            self.wake_writer(state);
        }
    }

    fn advance_alarm(&self, time: Instant) {
        let mut state = self.lock_queue_state();
        if state.alarm.is_none_or(|alarm| time < alarm) {
            state.alarm = Some(time);
            self.wake_writer(state);
        }
    }

    fn mark_reopen(&self) {
        let mut state = self.lock_queue_state();
        state.reopen = true;
        self.wake_writer(state);
    }

    fn mark_ended(&self) {
        let mut state = self.lock_queue_state();
        state.ended = true;
        self.wake_writer(state);
    }

    /// Unlocks first, so that the writer does not wake to a lock that is taken.
    fn wake_writer(&self, mut state: MutexGuard<'_, LineQueueState>) {
        let sleeping = std::mem::take(&mut state.sleeping);
        drop(state);
        if sleeping {
            self.changed.notify_one();
        }
    }

    fn is_fully_written(&self) -> bool {
        self.try_lock_queue_state().is_some_and(|state| state.bytes == 0)
    }

    fn lock_queue_state(&self) -> MutexGuard<'_, LineQueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn try_lock_queue_state(&self) -> Option<MutexGuard<'_, LineQueueState>> {
        match self.state.try_lock() {
            Ok(state) => Some(state),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
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
    fn what_does_not_fit_is_dropped_and_counted_once_half_is_free() {
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
    fn the_writer_gets_a_batch_at_a_time_a_reopening_first_and_the_end_last() {
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
    fn an_alarm_comes_at_the_earliest_of_its_times_and_once() {
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
    fn a_sleeping_writer_is_woken_by_a_piece_by_a_later_wake_and_by_the_end_of_all_senders() {
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
    fn a_writer_that_panicked_gives_back_what_is_queued() {
        let (sender, receiver) = line_queue(10);
        assert!(sender.push_lines(piece(3), WriterWake::Now));
        assert_eq!(sender.end_in_panic(), [], "another thread writes it");
        receiver.register_writer_thread();
        assert_eq!(sender.end_in_panic(), [piece(3)]);
        assert!(sender.wait_until_written(Duration::ZERO));
    }

    proptest! {
        /// Against sums: no more than the bound is ever queued, and each line is written once or reported as dropped.
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
