//! The queue between the threads that log and the one that writes. A push moves a pointer under a lock that is held for
//! no longer than that.

use std::{
    collections::VecDeque,
    sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError},
    thread::{self, ThreadId},
    time::{Duration, Instant},
};

/// Bytes that the writer takes at once: what a pipe holds by default (pipe(7)).
const BATCH: usize = 64 * 1024;
/// Delay between two looks at a queue that is awaited.
const LOOK: Duration = Duration::from_millis(1);

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
pub fn queue(bound: usize) -> (LineSender, LineReceiver) {
    let queue = Arc::new(Queue { bound, state: Mutex::default(), changed: Condvar::new(), writer: OnceLock::new() });
    (LineSender(Arc::new(Sending(Arc::clone(&queue)))), LineReceiver(queue))
}

/// The side of the threads that log. When the last clone is dropped, the writer ends with what is queued.
#[derive(Debug, Clone)]
pub struct LineSender(Arc<Sending>);

#[derive(Debug)]
struct Sending(Arc<Queue>);

impl Drop for Sending {
    fn drop(&mut self) {
        self.0.end();
    }
}

impl LineSender {
    /// Queues `piece`. False if there is no room, or the queue has ended: its lines are dropped, and the writer will
    /// report them. Never waits for the writer.
    pub fn push(&self, piece: LogPiece, wake: WriterWake) -> bool {
        self.queue().push(piece, wake)
    }

    /// Wakes the writer if it sleeps and there is something to do: after pushes with [`WriterWake::Later`].
    pub fn wake(&self) {
        self.queue().wake();
    }

    /// Has the writer call [`Report::alarm`](super::Report::alarm) at `time`, or earlier if it was called for earlier.
    pub fn call_at(&self, time: Instant) {
        self.queue().call_at(time);
    }

    /// Has the writer reopen its file by name.
    pub fn reopen(&self) {
        self.queue().reopen();
    }

    /// Refuses further pieces. The writer ends with what is queued.
    pub fn end(&self) {
        self.queue().end();
    }

    /// Waits until all is written that was queued, for `limit` at most; returns whether it is. Holds no lock while it
    /// waits, and waits for none: for threads that panicked, too.
    pub fn wait_until_written(&self, limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        while !self.queue().is_written() {
            if Instant::now() >= deadline {
                return false;
            }
            thread::sleep(LOOK);
        }
        true
    }

    /// Refuses further pieces, as [`LineSender::end`], but only if the lock is free: for a thread that panicked.
    /// Returns the pieces that are queued if the calling thread is the writer, which will not write them any more.
    pub fn end_in_panic(&self) -> Vec<LogPiece> {
        let queue = self.queue();
        let Some(mut state) = queue.try_lock() else { return Vec::new() };
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

    fn queue(&self) -> &Queue {
        &self.0.0
    }
}

/// The side of the writer.
#[derive(Debug)]
pub struct LineReceiver(Arc<Queue>);

/// What the writer is to do next.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Work {
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
    pub(super) fn adopt(&self) {
        let _ = self.0.writer.set(thread::current().id());
    }

    /// Waits for work. `batch` is empty, and gets the pieces to write: some 64 KiB at most, or one piece.
    pub(super) fn next(&self, batch: &mut Vec<LogPiece>) -> Work {
        let mut state = self.0.lock();
        loop {
            if std::mem::take(&mut state.reopen) {
                return Work::Reopen;
            }
            let wait = state.alarm.map(|time| time.saturating_duration_since(Instant::now()));
            if wait.is_some_and(|wait| wait.is_zero()) {
                state.alarm = None;
                return Work::Alarm;
            }
            if state.take(batch) {
                return Work::Write;
            }
            if state.ended {
                return Work::End;
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
        let mut state = self.0.lock();
        let left = state.bytes.saturating_sub(written);
        if left <= self.0.bound / 2 || state.ended { std::mem::take(&mut state.dropped) } else { 0 }
    }

    /// Sets the alarm, as [`LineSender::call_at`] does.
    pub(super) fn call_at(&self, time: Instant) {
        self.0.call_at(time);
    }

    /// `bytes` of what [`Receiver::next`] returned are written, or lost.
    pub(super) fn written(&self, bytes: usize) {
        let mut state = self.0.lock();
        state.bytes = state.bytes.saturating_sub(bytes);
    }

    /// Takes the next piece without waiting, as a test does that has no writer.
    pub fn pop(&self) -> Option<LogPiece> {
        let mut state = self.0.lock();
        let piece = state.pieces.pop_front()?;
        state.bytes -= piece.text.len();
        Some(piece)
    }
}

impl Drop for LineReceiver {
    fn drop(&mut self) {
        self.0.end();
    }
}

#[derive(Debug)]
struct Queue {
    /// Upper bound of [`State::bytes`].
    bound: usize,
    state: Mutex<State>,
    /// The writer is to look at the state.
    changed: Condvar,
    /// The thread that writes.
    writer: OnceLock<ThreadId>,
}

#[derive(Debug, Default)]
struct State {
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

impl State {
    /// Moves pieces of some [`BATCH`] bytes to `batch`. False if there are none.
    fn take(&mut self, batch: &mut Vec<LogPiece>) -> bool {
        let mut bytes = 0;
        while let Some(piece) = self.pieces.pop_front_if(|next| bytes == 0 || bytes + next.text.len() <= BATCH) {
            bytes += piece.text.len();
            batch.push(piece);
        }
        !batch.is_empty()
    }
}

impl Queue {
    fn push(&self, piece: LogPiece, wake: WriterWake) -> bool {
        let mut state = self.lock();
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

    fn wake(&self) {
        let state = self.lock();
        if !state.pieces.is_empty() {
            self.wake_writer(state);
        }
    }

    fn call_at(&self, time: Instant) {
        let mut state = self.lock();
        if state.alarm.is_none_or(|alarm| time < alarm) {
            state.alarm = Some(time);
            self.wake_writer(state);
        }
    }

    fn reopen(&self) {
        let mut state = self.lock();
        state.reopen = true;
        self.wake_writer(state);
    }

    fn end(&self) {
        let mut state = self.lock();
        state.ended = true;
        self.wake_writer(state);
    }

    /// Unlocks first, so that the writer does not wake to a lock that is taken.
    fn wake_writer(&self, mut state: MutexGuard<'_, State>) {
        let sleeping = std::mem::take(&mut state.sleeping);
        drop(state);
        if sleeping {
            self.changed.notify_one();
        }
    }

    fn is_written(&self) -> bool {
        self.try_lock().is_some_and(|state| state.bytes == 0)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn try_lock(&self) -> Option<MutexGuard<'_, State>> {
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
        let (sender, receiver) = queue(100);
        let pushed: Vec<bool> = [60, 41, 40, 1].map(|bytes| sender.push(piece(bytes), WriterWake::Now)).into();
        assert_eq!(pushed, [true, false, true, false]);
        let mut batch = Vec::new();
        assert_eq!(receiver.next(&mut batch), Work::Write);
        assert_eq!((batch.len(), sender.push(piece(1), WriterWake::Now)), (2, false), "bytes being written count");
        assert_eq!(receiver.take_dropped(0), 0, "there is no room yet");
        assert_eq!(receiver.take_dropped(60), 3);
        assert_eq!(receiver.take_dropped(60), 0);
        receiver.written(100);
        assert!(sender.push(piece(100), WriterWake::Later));
    }

    #[test]
    fn the_writer_gets_a_batch_at_a_time_a_reopening_first_and_the_end_last() {
        let (sender, receiver) = queue(1 << 20);
        let sizes = [BATCH - 1, 1, 1, 2 * BATCH, 1];
        sizes.iter().for_each(|size| assert!(sender.push(piece(*size), WriterWake::Now)));
        sender.reopen();
        sender.end();
        assert!(!sender.push(piece(1), WriterWake::Now));
        let mut batch = Vec::new();
        assert_eq!(receiver.next(&mut batch), Work::Reopen);
        for expected in [2, 1, 1, 1] {
            assert_eq!(receiver.next(&mut batch), Work::Write);
            assert_eq!(batch.len(), expected);
            receiver.written(batch.drain(..).map(|piece| piece.text.len()).sum());
        }
        assert_eq!(receiver.next(&mut batch), Work::End);
        assert_eq!(receiver.take_dropped(0), 1);
        assert!(sender.wait_until_written(Duration::ZERO));
    }

    #[test]
    fn an_alarm_comes_at_the_earliest_of_its_times_and_once() {
        let (sender, receiver) = queue(10);
        let now = Instant::now();
        sender.call_at(now + Duration::from_secs(3600));
        sender.call_at(now);
        sender.call_at(now + Duration::from_secs(1));
        let mut batch = Vec::new();
        assert_eq!(receiver.next(&mut batch), Work::Alarm);
        sender.end();
        assert_eq!(receiver.next(&mut batch), Work::End);
    }

    #[test]
    fn a_sleeping_writer_is_woken_by_a_piece_by_a_later_wake_and_by_the_end_of_all_senders() {
        let (sender, receiver) = queue(10);
        let writer = thread::spawn(move || {
            let (mut batch, mut batches) = (Vec::new(), 0);
            while receiver.next(&mut batch) != Work::End {
                batches += 1;
                receiver.written(batch.drain(..).map(|piece| piece.text.len()).sum());
            }
            batches
        });
        for wake in [WriterWake::Now, WriterWake::Later] {
            assert!(sender.push(piece(10), wake));
            sender.wake();
            assert!(sender.wait_until_written(Duration::from_secs(10)), "{wake:?}");
        }
        drop(sender);
        assert_eq!(writer.join().unwrap(), 2);
    }

    #[test]
    fn a_writer_that_panicked_gives_back_what_is_queued() {
        let (sender, receiver) = queue(10);
        assert!(sender.push(piece(3), WriterWake::Now));
        assert_eq!(sender.end_in_panic(), [], "another thread writes it");
        receiver.adopt();
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
            let (sender, receiver) = queue(bound);
            let (mut held, mut written, mut reported, mut batch) = (0, 0, 0, Vec::new());
            let mut write = |held: &mut usize| {
                while *held > 0 && receiver.next(&mut batch) == Work::Write {
                    let bytes = batch.iter().map(|piece| piece.text.len()).sum();
                    *held -= bytes;
                    written += batch.drain(..).map(|piece| piece.lines).sum::<u64>();
                    reported += receiver.take_dropped(bytes);
                    receiver.written(bytes);
                }
            };
            for (bytes, writes) in &steps {
                let fits = held + bytes < bound;
                prop_assert_eq!(sender.push(piece(bytes + 1), WriterWake::Later), fits);
                held += if fits { bytes + 1 } else { 0 };
                if *writes {
                    write(&mut held);
                }
            }
            write(&mut held);
            sender.end();
            reported += receiver.take_dropped(0);
            prop_assert_eq!(written + reported, steps.len() as u64);
        }
    }
}
