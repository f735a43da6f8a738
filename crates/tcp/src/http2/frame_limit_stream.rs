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
    stream: S,
    frames: FrameCounter,
    account: ReceiveAccount,
    /// HEADERS frames that were read. Nothing more is read before all are accepted, as h2 has no other limit for
    /// requests that wait to be accepted.
    heads: Rc<Cell<u32>>,
    small_frames: Throttle,
    pause: DeadlineTimer,
    unread: Rc<UnreadFrames>,
    notify: T,
    flooded: bool,
    /// All received bytes were read.
    drained: bool,
    lingering: Option<LingerBudget>,
    /// The first frame, with a setting that h2 cannot send, until it is written.
    first: Option<FirstSettings>,
}

impl<S, T: Fn(FrameNotice)> FrameLimitStream<S, T> {
    pub(super) fn new(
        stream: S,
        frames: FrameCounter,
        small_frames: Throttle,
        account: ReceiveAccount,
        heads: Rc<Cell<u32>>,
        unread: Rc<UnreadFrames>,
        tell: T,
    ) -> Self {
        Self {
            stream,
            frames,
            account,
            heads,
            small_frames,
            pause: DeadlineTimer::default(),
            unread,
            notify: tell,
            flooded: false,
            drained: false,
            lingering: None,
            first: None,
        }
    }

    pub(super) fn without_rfc7540_priorities(mut self) -> Self {
        self.first = Some(FirstSettings::default());
        self
    }
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
        this.frames.take_overheads().for_each(|(stream, bytes)| this.unread.count_unread_frames(stream, bytes));
        if this.small_frames.count_things(this.frames.take_small_frames()) {
            (this.notify)(FrameNotice::Slowed);
        }
        self.frames.take_reset_streams().into_iter().for_each(|stream| (self.notify)(FrameNotice::Reset(stream)));
        if self.frames.has_priorities() {
            self.frames.take_priorities().into_iter().for_each(|update| (self.notify)(FrameNotice::Update(update)));
        }
        let heads = self.frames.take_head_count();
        self.heads.set(heads);
        let data = self.frames.take_data_len();
        if data > 0 {
            self.account.on_received(data);
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin, T> FrameLimitStream<S, T> {
    /// Writes the first frame by [`FirstSettings::poll_write_frame`].
    fn poll_first_frame(&mut self, cx: &mut Context<'_>, slices: &[io::IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let Some(first) = &mut self.first else { return Poll::Ready(Ok(0)) };
        let written = ready!(first.poll_write_frame(&mut self.stream, slices, cx));
        self.first = None;
        Poll::Ready(written)
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
        if self.first.is_some() {
            let written = ready!(self.poll_first_frame(cx, slices))?;
            if written > 0 {
                return Poll::Ready(Ok(written));
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
