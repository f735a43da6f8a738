//! Filters a connection's bytes for h2, and counts the client's frames.

use super::{first_settings::FirstSettings, unread_frames::UnreadFrames};
use crate::http2_frames::{FrameCounter, ReceivedPriority};
use litequic_base::timers::{DeadlineTimer, Throttle};
use litequic_exchange::LingerBudget;
use litequic_resources::receive::ReceiveAccount;
use std::{
    cell::Cell,
    io,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, ready},
    time::{Duration, Instant},
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Limits for discarding bytes behind GOAWAY. The kernel would answer unread bytes with a reset, which may overtake
/// GOAWAY.
const MAX_DISCARDED: u64 = 256 * 1024;
const DISCARD_TIMEOUT: Duration = Duration::from_secs(1);

/// An event in the frames of a client.
pub(super) enum FrameNotice {
    /// There were too many frames other than DATA and HEADERS: the connection ends.
    Flood,
    /// There were too many small DATA frames: the connection is not read for a while.
    Slowed,
    /// The client has reset a stream.
    Reset(u32),
    /// The client has signalled a priority.
    Update(ReceivedPriority),
}

/// A stream from which nothing more is read after too many frames. `notify` is called for each notice.
pub(super) struct FrameLimitStream<S, T> {
    pub(super) stream: S,
    pub(super) frames: FrameCounter,
    pub(super) account: ReceiveAccount,
    /// HEADERS frames that were read. Nothing more is read before all are accepted, as h2 has no other limit for
    /// requests that wait to be accepted.
    pub(super) heads: Rc<Cell<u32>>,
    pub(super) small_frames: Throttle,
    pub(super) pause: DeadlineTimer,
    pub(super) unread: Rc<UnreadFrames>,
    pub(super) notify: T,
    pub(super) flooded: bool,
    /// All received bytes were read.
    pub(super) drained: bool,
    pub(super) lingering: Option<LingerBudget>,
    /// The first frame, with a setting that h2 cannot send, until it is written.
    pub(super) first: Option<FirstSettings>,
}

impl<S: AsyncRead + Unpin, T> FrameLimitStream<S, T> {
    /// Reads and discards the client's further bytes, until its end or a limit.
    fn poll_discard(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let lingering = self.lingering.get_or_insert_with(|| LingerBudget::new(MAX_DISCARDED, DISCARD_TIMEOUT));
        let mut bytes = [0; 4096];
        loop {
            let mut out = ReadBuf::new(&mut bytes);
            match Pin::new(&mut self.stream).poll_read(cx, &mut out) {
                Poll::Ready(Ok(())) if !out.filled().is_empty() => {
                    if lingering.spend_bytes(out.filled().len() as u64).is_err() {
                        return Poll::Ready(());
                    }
                }
                Poll::Ready(_) => return Poll::Ready(()),
                Poll::Pending => return lingering.poll_linger_timeout(cx).map(drop),
            }
        }
    }
}

impl<S: AsyncRead + Unpin, T: Fn(FrameNotice) + Unpin> AsyncRead for FrameLimitStream<S, T> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, out: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        // In both cases the caller is woken by another event.
        if self.flooded || self.heads.get() > 0 {
            return Poll::Pending;
        }
        let this = &mut *self;
        ready!(this.unread.poll_unread_room(cx));
        ready!(this.small_frames.poll_pause(&mut this.pause, cx));
        let before = out.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, out);
        self.drained = read.is_pending();
        ready!(read)?;
        let came = out.filled().get(before..).unwrap_or_default();
        self.drained |= came.is_empty();
        if self.frames.count_received_frames(came, Instant::now()).is_err() {
            out.set_filled(before);
            self.flooded = true;
            (self.notify)(FrameNotice::Flood);
            return Poll::Pending;
        }
        let this = &mut *self;
        this.frames.overheads.drain(..).for_each(|(stream, bytes)| this.unread.count_unread_frames(stream, bytes));
        if this.small_frames.count_things(std::mem::take(&mut this.frames.small)) {
            (this.notify)(FrameNotice::Slowed);
        }
        this.frames.resets.drain(..).for_each(|stream| (this.notify)(FrameNotice::Reset(stream)));
        let updates = this.frames.updates.iter_mut().flat_map(|updates| updates.drain(..));
        updates.for_each(|update| (this.notify)(FrameNotice::Update(update)));
        this.heads.set(std::mem::take(&mut this.frames.heads));
        let data = std::mem::take(&mut this.frames.data);
        if data > 0 {
            this.account.on_received(data);
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin, T: Unpin> AsyncWrite for FrameLimitStream<S, T> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[io::IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        if let Some(first) = &mut this.first {
            let written = ready!(first.poll_write_frame(&mut this.stream, slices, cx));
            this.first = None;
            if !matches!(written, Ok(0)) {
                return Poll::Ready(written);
            }
        }
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.stream).poll_shutdown(cx))?;
        if !self.drained {
            ready!(self.poll_discard(cx));
        }
        Poll::Ready(Ok(()))
    }
}
