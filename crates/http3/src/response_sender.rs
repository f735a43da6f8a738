//! Sends the bytes of a response within the client's window, litequic's budget and the timeouts, and never lets an
//! incomplete response look complete.

use super::{
    error_code::{ErrorCode, to_application_error},
    http3_worker::Http3Connection,
    paused_streams::PausedStreams,
    request_outcome::StreamSendError,
};
use crate::http3_metrics::Http3Metrics;
use bytes::Bytes;
use litequic_base::timers;
use litequic_exchange::{MinimumRate, RecordGuard, RequestEnd};
use litequic_resources::{
    connections::TrafficCounter,
    send::{
        BufferLease, FIRST_SHARE_BYTES, TRAIN,
        path::{MIN_REFILL, WriteAllowance},
    },
    transport::SendWindow,
};
use litequic_telemetry::WakeCause;
use s2n_quic::{connection, stream};
use std::{
    collections::VecDeque,
    future::poll_fn,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};
use tokio::time::{Instant, timeout};

/// Interval at which a stream that may not send checks whether its client has acknowledged anything. Otherwise events
/// wake it.
const STALL_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Longest wait for acknowledgements before a failed response is reset.
const RESET_ACK_TIMEOUT: Duration = Duration::from_secs(1);

/// Minimum rate at which a client acknowledges the last bytes of a stream, beyond `timeouts.send`, in bytes per second:
/// half of what GPRS carries. All these bytes are within the client's window, so that only the path delays them.
const MIN_FINAL_RATE: u64 = 4 * 1024;
/// Bytes to which [`MIN_FINAL_RATE`] applies. A client has more outstanding only if it was fast.
const MIN_FINAL_RATE_BYTES: u64 = 1024 * 1024;
/// Minimum rate beyond [`MIN_FINAL_RATE_BYTES`], in bytes per second.
const MIN_FINAL_RATE_BEYOND: u64 = 64 * 1024;

/// Sender on one stream. If it is dropped before [`Self::finish_stream`] it resets the stream: s2n-quic alone would end
/// the stream as if the response were complete.
pub(super) struct ResponseSender {
    stream: stream::SendStream,
    pub(super) window: Box<dyn SendWindow>,
    pub(super) paused_streams: Rc<PausedStreams>,
    pub(super) lease: BufferLease,
    /// Bytes that QUIC does not have yet, up to a first share of a response.
    queued: VecDeque<Bytes>,
    /// Number of bytes in `queued`.
    queued_bytes: u64,
    /// s2n-quic's bound on the unacknowledged bytes of the stream, as [`read_stream_buffer`] reports it.
    buffer: u64,
    /// Minimum rate at which the client reads.
    minimum_rate: MinimumRate,
    /// Counts bytes that QUIC accepts.
    motion: TrafficCounter,
    /// Total time for which the client's window was shut. A wait for the path has no minimum rate, as other streams of
    /// the connection use the path, too.
    window_wait: Duration,
    sent: u64,
    /// Unacknowledged bytes when the stream was last polled.
    outstanding: u64,
    /// Bytes of the response's body so far.
    pub(super) body_bytes: u64,
    /// A final response has begun.
    pub(super) has_response: bool,
    pub(super) tunnel: bool,
    /// The next bytes are the last of the response.
    pub(super) is_last: bool,
    /// The stream has ended or was reset.
    ended: bool,
    pub(super) metrics: Arc<Http3Metrics>,
}

const _: () = assert!(size_of::<ResponseSender>() <= 424);

impl<H> Http3Connection<H> {
    /// Creates a sender on `stream`, which sends within `window`. Its client must read at the rate `pace`.
    pub(super) fn open_sender(
        &self,
        mut stream: stream::SendStream,
        window: Box<dyn SendWindow>,
        pace: MinimumRate,
    ) -> ResponseSender {
        if self.stream_buffer.get().is_none() {
            self.stream_buffer.set(read_stream_buffer(&mut stream));
        }
        let limit = u64::from(self.terms.limits.stream_send_buffer);
        ResponseSender {
            stream,
            window,
            paused_streams: Rc::clone(&self.paused_streams),
            lease: BufferLease::new(Rc::clone(&self.memory.sent), Rc::clone(&self.worker.send), limit),
            queued: VecDeque::new(),
            queued_bytes: 0,
            buffer: self.stream_buffer.get().unwrap_or_default(),
            minimum_rate: pace,
            motion: self.memory.entry.traffic_counter(),
            window_wait: Duration::ZERO,
            sent: 0,
            outstanding: 0,
            body_bytes: 0,
            has_response: false,
            tunnel: false,
            is_last: false,
            ended: false,
            metrics: Arc::clone(&self.worker.metrics),
        }
    }
}

impl ResponseSender {
    /// Sends `chunk`. Waits while the client's window is shut or the stream's share is used up. Where streams are
    /// served by their priorities, a response's first share is queued here until its turn, so that most responses are
    /// read to their end and free their origin's connection. Not cancel safe: part of `chunk` may be sent.
    pub(super) async fn send_bytes(&mut self, mut chunk: Bytes) -> Result<(), StreamSendError> {
        if self.queued.is_empty() {
            poll_fn(|cx| Poll::Ready(self.send_at_once(&mut chunk, cx))).await?;
        }
        if chunk.is_empty() {
            return Ok(());
        }
        self.queued_bytes = self.queued_bytes.saturating_add(chunk.len() as u64);
        self.queued.push_back(chunk);
        if self.window.is_ordered() {
            poll_fn(|cx| Poll::Ready(self.try_flush(cx))).await?;
            if self.is_within_first_share() {
                return Ok(());
            }
        }
        self.flush_queued().await
    }

    /// Passes all queued bytes to QUIC. Not cancel safe.
    pub(super) async fn flush_queued(&mut self) -> Result<(), StreamSendError> {
        while self.queued_bytes > 0 {
            let ready = usize::try_from(self.queued_bytes).unwrap_or(usize::MAX);
            let permitted = self.wait_permitted(ready).await?;
            poll_fn(|cx| Poll::Ready(self.pass_queued(permitted, cx))).await?;
        }
        Ok(())
    }

    /// Passes queued bytes to QUIC, as far as they may be sent now. The task is woken when more may.
    fn try_flush(&mut self, cx: &mut Context<'_>) -> Result<(), StreamSendError> {
        while self.queued_bytes > 0 {
            let room = self.window.send_limit().saturating_sub(self.sent);
            if room == 0 {
                self.window.register_waker(cx.waker());
                return if self.has_stopped(cx) { Err(StreamSendError::Stopped) } else { Ok(()) };
            }
            let ready = usize::try_from(self.queued_bytes.min(room)).unwrap_or(usize::MAX);
            let Poll::Ready(permitted) = self.poll_permitted(ready, cx) else { return Ok(()) };
            self.pass_queued(permitted?, cx)?;
        }
        Ok(())
    }

    /// Passes queued bytes to QUIC, `permitted` ones, for which it has room.
    fn pass_queued(&mut self, mut permitted: usize, cx: &mut Context<'_>) -> Result<(), StreamSendError> {
        let before = self.sent;
        while let Some(mut piece) = self.next_queued_piece(&mut permitted) {
            match self.stream.poll_send(&mut piece, cx) {
                Poll::Ready(accepted) => accepted.map_err(|_| StreamSendError::Stopped)?,
                // QUIC has no room, which should not happen. A stream that lacks a piece must not continue.
                Poll::Pending => return Err(StreamSendError::Stopped),
            }
        }
        self.motion.count_sent(self.sent.saturating_sub(before));
        self.window.on_queued(self.sent);
        Ok(())
    }

    /// Takes the next queued piece, of at most `permitted` bytes, and counts it as sent.
    fn next_queued_piece(&mut self, permitted: &mut usize) -> Option<Bytes> {
        if *permitted == 0 {
            return None;
        }
        let first = self.queued.front_mut()?;
        let piece = if first.len() <= *permitted { self.queued.pop_front()? } else { first.split_to(*permitted) };
        *permitted -= piece.len();
        self.queued_bytes = self.queued_bytes.saturating_sub(piece.len() as u64);
        self.sent = self.sent.saturating_add(piece.len() as u64);
        Some(piece)
    }

    /// Whether the queued bytes belong to the response's first share, and are leased.
    fn is_within_first_share(&self) -> bool {
        self.sent.saturating_add(self.queued_bytes) <= FIRST_SHARE_BYTES
            && self.lease.held_bytes() >= self.outstanding.saturating_add(self.queued_bytes)
    }

    /// Sends `chunk` if it fits into the stream's first train with all bytes before it, and no other stream competes.
    /// Then neither acknowledgements nor the budget need a check.
    fn send_at_once(&mut self, chunk: &mut Bytes, cx: &mut Context<'_>) -> Result<(), StreamSendError> {
        let length = chunk.len() as u64;
        let end = self.sent.saturating_add(length);
        if end > TRAIN.min(self.buffer).min(self.window.send_limit())
            || self.lease.permit_bytes(self.sent, self.sent, length) < length
            || !self.window.may_send_at_once(self.sent, length, self.is_last)
        {
            return Ok(());
        }
        // Pending means that QUIC has no room, which should not happen. The next bytes wait for it.
        if let Poll::Ready(accepted) = self.stream.poll_send(chunk, cx) {
            accepted.map_err(|_| StreamSendError::Stopped)?;
            self.motion.count_sent(length);
            self.sent = end;
        }
        Ok(())
    }

    /// Waits until bytes may be sent, and returns their number.
    async fn wait_permitted(&mut self, ready: usize) -> Result<usize, StreamSendError> {
        let room = self.wait_window().await?;
        let ready = usize::try_from(room).unwrap_or(ready).min(ready);
        if let Poll::Ready(permitted) = poll_fn(|cx| Poll::Ready(self.poll_permitted(ready, cx))).await {
            return permitted;
        }
        if self.lease.denied {
            self.metrics.shared.limit_send_buffer.increment();
        }
        let tick = STALL_CHECK_INTERVAL.min(self.minimum_rate.idle_timeout);
        let mut waited = Duration::ZERO;
        let mut before = u64::MAX;
        loop {
            if let Ok(permitted) = timeout(tick, poll_fn(|cx| self.poll_permitted(ready, cx))).await {
                return permitted;
            }
            self.metrics.wake.note_cause(WakeCause::Other);
            self.outstanding = self.unacknowledged_bytes().await?;
            // Without unacknowledged bytes the stream waits for its turn, not for its client.
            let moves = self.outstanding < before || self.outstanding == 0;
            waited = if moves { Duration::ZERO } else { waited + tick };
            before = self.outstanding;
            if waited >= self.minimum_rate.idle_timeout {
                return Err(StreamSendError::TimedOut);
            }
        }
    }

    /// Returns the part of `ready` bytes that the path can carry, where streams are not served by their priorities. A
    /// response's first share is always sent at once: most responses end within it, and free their origin's connection
    /// however slowly the client reads.
    fn path_allowance(&mut self, outstanding: u64, ready: u64) -> WriteAllowance {
        // Asked in any case: acknowledgements wake the stream only then, should its lease be used up.
        let room = self.window.write_allowance(self.sent, outstanding, ready);
        if self.sent.saturating_add(ready) <= FIRST_SHARE_BYTES { WriteAllowance::Bytes(ready) } else { room }
    }

    /// Polls for the number of bytes that may be sent of `ready`, at least one. Pending until the path and the lease
    /// allow more; each wakes the task.
    fn poll_permitted(&mut self, ready: usize, cx: &mut Context<'_>) -> Poll<Result<usize, StreamSendError>> {
        // Register the waker before reading the state, or a wake is lost.
        self.window.register_waker(cx.waker());
        let (outstanding, ready) = match self.poll_available(cx) {
            Poll::Ready(Ok(available)) => (self.buffer.saturating_sub(available as u64), ready.min(available)),
            Poll::Ready(Err(_)) => return Poll::Ready(Err(StreamSendError::Stopped)),
            // The buffer is full. s2n-quic wakes the task when that changes.
            Poll::Pending => return Poll::Pending,
        };
        self.outstanding = outstanding;
        // All ready bytes are in memory and leased. So a response up to about a first share is read to its end at once,
        // and frees its origin's connection.
        self.lease.window = self.window.earned_window();
        if self.window.is_ordered() {
            return self.poll_send_turn(outstanding, ready as u64).map(Ok);
        }
        let permitted = self.lease.permit_bytes(self.sent, outstanding, ready as u64);
        let enough = match self.path_allowance(outstanding, ready as u64) {
            WriteAllowance::Bytes(room) => {
                // Small pieces cost as much as large ones.
                let enough = (self.lease.held_bytes() / 4).clamp(1, MIN_REFILL);
                if permitted >= enough.min(room) {
                    return Poll::Ready(Ok(usize::try_from(permitted.min(room)).unwrap_or(ready).min(ready)));
                }
                enough
            }
            WriteAllowance::Unacknowledged => MIN_REFILL,
            WriteAllowance::Unsent => {
                self.window.wait_until_sent();
                return Poll::Pending;
            }
        };
        self.window.wait_until_acknowledged(enough);
        Poll::Pending
    }

    /// Polls for the number of bytes that may be sent of `ready`, at least one. Pending until the stream's turn, for
    /// which it waits only with bytes that its lease allows.
    fn poll_send_turn(&mut self, outstanding: u64, ready: u64) -> Poll<usize> {
        // All queued bytes are in memory.
        let permitted = self.lease.permit_bytes(self.sent, outstanding, self.queued_bytes).min(ready);
        // Small pieces cost as much as large ones.
        let enough = (self.lease.held_bytes() / 4).clamp(1, MIN_REFILL);
        let may_go = permitted >= enough.min(ready);
        let enough = match self.window.write_allowance(self.sent, outstanding, if may_go { permitted } else { 0 }) {
            WriteAllowance::Bytes(room) if room > 0 => {
                return Poll::Ready(usize::try_from(room.min(permitted)).unwrap_or(usize::MAX));
            }
            WriteAllowance::Bytes(_) => enough,
            WriteAllowance::Unacknowledged => MIN_REFILL,
            // The order wakes the stream.
            WriteAllowance::Unsent => return Poll::Pending,
        };
        self.window.wait_until_acknowledged(enough);
        Poll::Pending
    }

    /// Waits until the client's window has room, and returns the number of bytes. QUIC never gets more: it would buffer
    /// them, and on a reset announce a final size that the client did not allow
    /// (docs/adr/0009-queue-within-the-peers-window.md).
    async fn wait_window(&mut self) -> Result<u64, StreamSendError> {
        let room = self.window.send_limit().saturating_sub(self.sent);
        if room > 0 {
            return Ok(room);
        }
        let clock = Instant::now();
        let tick = self.paused_streams.delay.min(self.minimum_rate.idle_timeout);
        let mut waited = Duration::ZERO;
        let mut before = u64::MAX;
        let mut pause = None;
        loop {
            let nap = tick.min(self.remaining_client_wait(timers::elapsed_since_resume(clock), self.outstanding)?);
            let changed = poll_fn(|cx| {
                self.window.register_waker(cx.waker());
                match self.window.send_limit().saturating_sub(self.sent) {
                    0 if self.has_stopped(cx) => Poll::Ready(Err(StreamSendError::Stopped)),
                    0 => Poll::Pending,
                    room => Poll::Ready(Ok(room)),
                }
            });
            if let Ok(room) = timers::timeout(nap, changed).await {
                self.window_wait = self.window_wait.saturating_add(timers::elapsed_since_resume(clock));
                return room;
            }
            // On a slow path the client acknowledges bytes that it has not read yet.
            self.outstanding = self.unacknowledged_bytes().await?;
            if clock.elapsed() >= tick {
                pause.get_or_insert_with(|| self.paused_streams.begin_pause());
                self.lease.cut_unused(self.sent, self.outstanding.saturating_add(self.queued_bytes), TRAIN);
            }
            waited = if self.outstanding < before { Duration::ZERO } else { waited + nap };
            before = self.outstanding;
            if waited >= self.minimum_rate.idle_timeout {
                return Err(StreamSendError::TimedOut);
            }
        }
    }

    /// Returns the remaining time of a client that has been waited for `now` and in earlier waits, with `outstanding`
    /// unacknowledged bytes. A tunnel has no minimum rate.
    fn remaining_client_wait(&self, now: Duration, outstanding: u64) -> Result<Duration, StreamSendError> {
        let allowed = if self.tunnel {
            Duration::MAX
        } else {
            self.minimum_rate.allowed_wait(self.sent.saturating_sub(outstanding))
        };
        let left = allowed.saturating_sub(self.window_wait.saturating_add(now));
        if left.is_zero() { Err(StreamSendError::TooSlow) } else { Ok(left) }
    }

    /// Returns the number of unacknowledged bytes in QUIC's buffer.
    async fn unacknowledged_bytes(&mut self) -> Result<u64, StreamSendError> {
        let available = timers::timeout(self.minimum_rate.idle_timeout, poll_fn(|cx| self.poll_available(cx)))
            .await
            .map_err(|_| StreamSendError::TimedOut)?
            .map_err(|_| StreamSendError::Stopped)?;
        Ok(self.buffer.saturating_sub(available as u64))
    }

    /// Polls for the number of bytes for which QUIC's buffer has room.
    fn poll_available(&mut self, cx: &mut Context<'_>) -> Poll<stream::Result<usize>> {
        let available = self.stream.poll_send_ready(cx);
        if let (0, Poll::Ready(Ok(available))) = (self.sent, &available) {
            self.buffer = *available as u64;
        }
        available
    }

    /// Ready once the client has sent STOP_SENDING. Until then queued bytes are passed to QUIC. While nothing is being
    /// sent, s2n-quic reports STOP_SENDING only on request; the window tells when.
    pub(super) fn poll_stopped(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.queued_bytes > 0 && self.try_flush(cx).is_err() {
            return Poll::Ready(());
        }
        self.window.register_waker(cx.waker());
        if self.window.is_stopped() && self.has_stopped(cx) { Poll::Ready(()) } else { Poll::Pending }
    }

    fn has_stopped(&mut self, cx: &mut Context<'_>) -> bool {
        matches!(self.poll_available(cx), Poll::Ready(Err(_)))
    }

    /// Returns the wanted length of the next piece in bytes: no more than the lease, nor than a first share unless the
    /// path has more in flight.
    pub(super) fn piece_limit(&self) -> u64 {
        self.lease.held_bytes().min(self.outstanding.max(FIRST_SHARE_BYTES)).max(TRAIN)
    }

    /// Returns leased bytes that are not used, while there is nothing to send.
    pub(super) fn release_unused_lease(&mut self, cx: &mut Context<'_>) {
        // Pending means that the buffer is full, so that nothing is unused.
        if let Poll::Ready(Ok(available)) = self.stream.poll_send_ready(cx) {
            let outstanding = self.buffer.saturating_sub(available as u64);
            self.lease.cut_unused(self.sent, outstanding.saturating_add(self.queued_bytes), 0);
        }
    }

    /// Ends the stream, without a wait.
    pub(super) fn end_stream(&mut self) {
        // An error means that the stream is gone already.
        let _ = self.stream.finish();
    }

    /// Ends the stream, and waits until the client has acknowledged all of it, so that the lease counts the bytes in
    /// memory, or has closed without an error. A client that takes longer than `timeouts.send` and [`MIN_FINAL_RATE`]
    /// allow is cut off. If the future is dropped, the response counts as complete if the client had done either.
    pub(super) async fn finish_stream(&mut self, recording: &RecordGuard) -> Result<(), StreamSendError> {
        self.flush_queued().await?;
        if self.lease.held_bytes() > TRAIN {
            self.release_unused_lease(&mut Context::from_waker(Waker::noop()));
        }
        let timeout = final_ack_timeout(self.minimum_rate.idle_timeout, self.lease.held_bytes());
        let end = StreamEnd { sender: self, recording };
        let ended = poll_fn(|cx| end.sender.poll_stream_end(cx));
        timers::timeout(timeout, ended).await.map_err(|_| StreamSendError::TimedOut)?
    }

    /// Ready once the client has acknowledged the whole stream, or has stopped it.
    fn poll_stream_end(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), StreamSendError>> {
        self.stream.poll_close(cx).map(|acknowledged| {
            self.ended = true;
            acknowledged.or_else(|error| if is_client_error(&error) { Err(StreamSendError::Stopped) } else { Ok(()) })
        })
    }

    /// Waits until the client has acknowledged all bytes, or has stopped the stream, for at most [`RESET_ACK_TIMEOUT`].
    /// On a reset QUIC discards the bytes in its queue, the response's header as well.
    pub(super) async fn wait_acknowledged(&mut self) {
        if self.sent == 0 && self.queued_bytes == 0 {
            return;
        }
        let timeout = RESET_ACK_TIMEOUT.min(self.minimum_rate.idle_timeout);
        let acknowledged = poll_fn(|cx| {
            if self.try_flush(cx).is_err() {
                return Poll::Ready(());
            }
            // Register the waker before reading the state, or a wake is lost.
            self.window.register_waker(cx.waker());
            let outstanding = match self.poll_available(cx) {
                Poll::Ready(Ok(available)) => self.buffer.saturating_sub(available as u64),
                Poll::Ready(Err(_)) => return Poll::Ready(()),
                Poll::Pending => self.buffer,
            };
            if self.queued_bytes > 0 {
                return Poll::Pending;
            }
            if outstanding == 0 {
                return Poll::Ready(());
            }
            // Asked, so that acknowledgements wake the stream.
            let _ = self.window.write_allowance(self.sent, outstanding, 0);
            self.window.wait_until_acknowledged(outstanding);
            Poll::Pending
        });
        // After the timeout the unacknowledged bytes may be lost.
        let _ = timers::timeout(timeout, acknowledged).await;
    }

    /// Resets the stream with `code` (RFC 9114 §8.1).
    pub(super) fn reset_stream(&mut self, code: ErrorCode) {
        self.ended = true;
        // An error means that the stream is gone already.
        let _ = self.stream.reset(to_application_error(code));
    }
}

impl Drop for ResponseSender {
    fn drop(&mut self) {
        if self.has_response && !self.tunnel {
            self.metrics.shared.response_size.observe_size(self.body_bytes);
        }
        if !self.ended {
            self.reset_stream(ErrorCode::RequestCancelled);
        }
    }
}

/// A sender whose last byte was sent, with the record of its request.
struct StreamEnd<'a> {
    sender: &'a mut ResponseSender,
    recording: &'a RecordGuard,
}

impl Drop for StreamEnd<'_> {
    fn drop(&mut self) {
        // The task may have been dropped with its connection before it saw the acknowledgement.
        let mut cx = Context::from_waker(Waker::noop());
        if !self.sender.ended && matches!(self.sender.poll_stream_end(&mut cx), Poll::Ready(Ok(()))) {
            self.recording.set_end(RequestEnd::Complete);
        }
    }
}

/// Returns s2n-quic's bound on the unacknowledged bytes of each stream, as reported of `stream`, on which nothing was
/// sent; `None` if the stream is over. The configuration is no source: s2n-quic has read it when the handshake began,
/// HTTP/3 when it was done, and a reload may lie between.
fn read_stream_buffer(stream: &mut stream::SendStream) -> Option<u64> {
    match stream.poll_send_ready(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(Ok(available)) => Some(available as u64),
        _ => None,
    }
}

/// Whether a client's close before its acknowledgement of a complete response is an error. Many clients close the
/// connection behind the last byte.
fn is_client_error(error: &stream::Error) -> bool {
    match error {
        stream::Error::StreamReset { error, .. } => ErrorCode::is_error_code(**error),
        stream::Error::ConnectionError { error: connection::Error::Closed { initiator, .. }, .. } => {
            initiator.is_local()
        }
        stream::Error::ConnectionError { error: connection::Error::Application { error, initiator, .. }, .. } => {
            initiator.is_local() || ErrorCode::is_error_code(**error)
        }
        _ => true,
    }
}

/// Returns the longest wait for the acknowledgement of the last `held` bytes.
fn final_ack_timeout(timeout: Duration, held: u64) -> Duration {
    let first = held.min(MIN_FINAL_RATE_BYTES);
    timeout.saturating_add(Duration::from_secs(first / MIN_FINAL_RATE + (held - first) / MIN_FINAL_RATE_BEYOND))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_final_ack_timeout_grows_with_unacknowledged_bytes() {
        let timeout = Duration::from_secs(60);
        assert_eq!(final_ack_timeout(timeout, 0), timeout);
        assert_eq!(final_ack_timeout(timeout, 16 * 1024), Duration::from_secs(64));
        for (mebibytes, minutes) in [(1, 6), (16, 10)] {
            assert!(final_ack_timeout(timeout, mebibytes * MIN_FINAL_RATE_BYTES) < Duration::from_secs(minutes * 60));
        }
        assert_eq!(final_ack_timeout(Duration::MAX, u64::MAX), Duration::MAX);
    }
}
