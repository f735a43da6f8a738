//! Accounts for one response over TCP in the send budget. hyper and h2 queue all bytes until the kernel takes them, so
//! a body is polled only as far as its lease allows.

use crate::{priorities::TurnState, tcp_metrics::TcpMetrics};
use bytes::{Buf, Bytes};
use litequic_exchange::RequestRecord;
use litequic_resources::send::{BufferLease, SendBudget, TRAIN};
use std::{
    cell::RefCell,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll, Waker},
};

/// Largest number of bytes for which a body is polled at once, as much as is read from an origin at once.
const MAX_READ: u64 = 256 * 1024;
/// Largest number of queued bytes of a response, and of a connection. The kernel decides how much is in flight, with
/// buffers of its own: these queues only keep it busy until the worker's next turn.
const MAX_STREAM_QUEUE: u64 = 1024 * 1024;
pub(super) const MAX_CONNECTION_QUEUE: u64 = 4 * MAX_STREAM_QUEUE;
/// Bytes that the kernel buffers for a client that reads nothing: the default of `net.ipv4.tcp_wmem` on Linux.
const SOCKET_BUFFER: u64 = 4 * 1024 * 1024;

/// The lease of one response and its queued bytes, shared by the body and its pieces.
pub(super) struct ResponseBuffer {
    state: RefCell<ResponseBufferState>,
    metrics: Arc<TcpMetrics>,
    record: RequestRecord,
}

struct ResponseBufferState {
    lease: BufferLease,
    /// Bytes handed over so far.
    sent: u64,
    /// Bytes that TLS has accepted.
    written: u64,
    /// Bytes that the kernel has not taken.
    queued: u64,
    /// Waker of the task that waits for room.
    waiting: Option<Waker>,
    /// No more bytes will be written.
    ended: bool,
    /// Bytes written since [`ResponseBuffer::take_progress`] was called; `None` if no piece was passed on, either.
    progress: Option<u64>,
}

impl ResponseBuffer {
    /// Creates the buffer of a response that may have `limit` bytes in memory, out of its connection's and its worker's
    /// budget. `metrics` and `record` count the bytes that TLS accepts.
    pub(super) fn new(
        connection: &Rc<SendBudget>,
        worker: &Rc<SendBudget>,
        limit: u64,
        metrics: Arc<TcpMetrics>,
        record: RequestRecord,
    ) -> Rc<Self> {
        let lease = BufferLease::new(Rc::clone(connection), Rc::clone(worker), limit.min(MAX_STREAM_QUEUE))
            .behind_buffer(SOCKET_BUFFER);
        let state =
            ResponseBufferState { lease, sent: 0, written: 0, queued: 0, waiting: None, ended: false, progress: None };
        Rc::new(Self { state: RefCell::new(state), metrics, record })
    }

    /// Polls for the largest length of the next piece: at least a train, so that no piece is too short for its cost.
    /// Pending while the queued bytes use up the lease; a response without queued bytes always continues.
    pub(super) fn poll_allowance(&self, cx: &mut Context<'_>) -> Poll<u64> {
        let state = &mut *self.state.borrow_mut();
        let room = state.lease.permit_bytes(state.sent, state.queued, MAX_READ);
        if room > 0 {
            return Poll::Ready(room.clamp(TRAIN, MAX_READ));
        }
        if state.waiting.is_none() && state.lease.denied {
            self.metrics.shared.limit_send_buffer.increment();
        }
        state.waiting = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Ready once all pieces are written.
    pub(super) fn poll_all_written(&self, cx: &Context<'_>) -> Poll<()> {
        let state = &mut *self.state.borrow_mut();
        if state.queued == 0 {
            return Poll::Ready(());
        }
        state.waiting = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Returns a piece with `bytes`, which counts as queued.
    pub(super) fn queue_piece(self: &Rc<Self>, bytes: Bytes) -> QueuedPiece {
        let length = bytes.len() as u64;
        let state = &mut *self.state.borrow_mut();
        if state.sent == 0 {
            // For a short response this is the whole lease.
            state.lease.permit_bytes(0, 0, length);
        }
        state.sent = state.sent.saturating_add(length);
        state.queued = state.queued.saturating_add(length);
        state.count_progress(0);
        QueuedPiece { bytes, length, buffer: Some(Rc::clone(self)), turn: None }
    }

    /// Returns leased bytes that are not queued to the budget, while there is nothing to write.
    pub(super) fn return_unused_lease(&self) {
        let state = &mut *self.state.borrow_mut();
        state.lease.cut_unused(state.sent, state.queued, 0);
    }

    /// Ends the buffer: only queued bytes stay leased.
    pub(super) fn end_writing(&self) {
        self.state.borrow_mut().ended = true;
        self.return_unused_lease();
    }

    /// Returns the number of bytes written since the last call; `None` if no piece was passed on, either.
    pub(super) fn take_progress(&self) -> Option<u64> {
        self.state.borrow_mut().progress.take()
    }

    /// Returns the number of bytes that TLS has accepted.
    pub(super) fn written_bytes(&self) -> u64 {
        self.state.borrow().written
    }

    /// Counts `bytes` that TLS has accepted.
    fn on_piece_advanced(&self, bytes: u64) {
        let state = &mut *self.state.borrow_mut();
        state.count_progress(bytes);
        let written = state.written.saturating_add(bytes).min(state.sent);
        self.account_written(state, written);
    }

    /// Counts all bytes as written: the kernel has them, whether or not hyper or h2 has advanced the pieces.
    pub(super) fn on_all_written(&self) {
        let state = &mut *self.state.borrow_mut();
        let written = state.sent;
        self.account_written(state, written);
    }

    fn account_written(&self, state: &mut ResponseBufferState, written: u64) {
        let bytes = written.saturating_sub(state.written);
        state.written = written;
        self.metrics.shared.response_body_bytes.increment_by(bytes);
        self.record.update_facts(|facts| facts.sent = facts.sent.saturating_add(bytes));
    }

    fn on_piece_dropped(&self, bytes: u64) {
        let waiting = {
            let state = &mut *self.state.borrow_mut();
            state.count_progress(0);
            state.queued = state.queued.saturating_sub(bytes);
            if state.ended {
                state.lease.cut_unused(state.sent, state.queued, 0);
            }
            state.waiting.take()
        };
        if let Some(waiting) = waiting {
            waiting.wake();
        }
    }
}

impl ResponseBufferState {
    fn count_progress(&mut self, bytes: u64) {
        self.progress = Some(self.progress.unwrap_or(0).saturating_add(bytes));
    }
}

/// A piece of a response's body. It counts as queued until it is dropped, after all its bytes were written.
pub(super) struct QueuedPiece {
    bytes: Bytes,
    length: u64,
    /// `None` for bytes that count for no budget.
    buffer: Option<Rc<ResponseBuffer>>,
    /// State to which the piece's sending is reported, once h2 has the piece.
    turn: Option<Rc<TurnState>>,
}

impl QueuedPiece {
    /// Creates a piece that counts for no budget: bytes of a tunnel, or none.
    pub(super) const fn without_budget(bytes: Bytes) -> Self {
        Self { bytes, length: 0, buffer: None, turn: None }
    }

    /// Splits off the first `count` bytes.
    pub(super) fn split_to(&mut self, count: usize) -> Self {
        let bytes = self.bytes.split_to(count.min(self.bytes.len()));
        let length = self.length.min(bytes.len() as u64);
        self.length = self.length.saturating_sub(length);
        Self { bytes, length, buffer: self.buffer.clone(), turn: None }
    }

    /// Sets the state to which the piece's sending is reported, as h2 gets the piece.
    pub(super) fn set_turn(&mut self, turn: Rc<TurnState>) {
        self.turn = Some(turn);
    }
}

impl Buf for QueuedPiece {
    fn remaining(&self) -> usize {
        self.bytes.remaining()
    }

    fn chunk(&self) -> &[u8] {
        self.bytes.chunk()
    }

    fn advance(&mut self, count: usize) {
        self.bytes.advance(count);
        if let Some(share) = &self.buffer {
            share.on_piece_advanced(count as u64);
        }
        if let Some(turn) = &self.turn {
            turn.report_sent(count as u64);
        }
    }
}

impl Drop for QueuedPiece {
    fn drop(&mut self) {
        // The memory is freed before the task is woken, which requests more.
        let unsent = std::mem::take(&mut self.bytes).len() as u64;
        if let Some(turn) = self.turn.take().filter(|_| unsent > 0) {
            turn.report_sent(unsent);
        }
        if let Some(share) = &self.buffer {
            share.on_piece_dropped(self.length);
        }
    }
}
