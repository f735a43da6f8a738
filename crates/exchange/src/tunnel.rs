//! Carries bytes both ways instead of a body, once a client and its origin have agreed on another protocol (RFC 9110
//! §7.8).
//!
//! A front end that receives such a request adds an [`Upgrade`] to the request's head, and keeps the client's bytes.
//! The handler that opens the tunnel answers 101 with a [`Tunnel`] as the body; the front end joins it with the
//! client's stream.

use super::byte_counter::ByteCounter;
use litequic_base::timers;
use std::{
    cell::Cell,
    io,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, ready},
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    select,
    sync::Notify,
    time::Instant,
};

/// Size of litequic's buffer for each direction, in bytes. The buffers of both sides come on top.
pub const TUNNEL_BUFFER: usize = 8 * 1024;

/// The protocols that a request offers to switch to: the value of `Upgrade` (RFC 9110 §7.8), or of `:protocol` (RFC
/// 8441 §4). Such a request has no body, and its method is GET.
#[derive(Debug, Clone)]
pub struct Upgrade(pub Box<[u8]>);

/// The origin's side of a tunnel. Reading ends when the origin has ended its side; shutting the tunnel down forwards
/// the client's end. If it is dropped before both, the origin's connection is reset, so that bytes that were cut off do
/// not look complete.
pub struct Tunnel {
    /// Protocol to which the client upgrades.
    pub protocol: String,
    end: Pin<Box<dyn TunnelStream>>,
    expiry: Rc<TunnelExpiry>,
    /// Counts bytes from the client.
    received: Option<ByteCounter>,
    /// Counts bytes to the client.
    sent: Option<ByteCounter>,
}

/// A stream to an origin that can be a [`Tunnel`].
trait TunnelStream: AsyncRead + AsyncWrite {}

impl<S: AsyncRead + AsyncWrite> TunnelStream for S {}

/// The idle timeout of a tunnel, and its eviction for another client.
#[derive(Debug)]
pub struct TunnelExpiry {
    idle_timeout: Duration,
    /// Idle timeout once one side has ended.
    half_closed_timeout: Duration,
    is_half_closed: Cell<bool>,
    last_activity: Cell<Instant>,
    evicted: Notify,
    /// Signals that the timeout has become shorter.
    shortened: Notify,
}

/// The reason why a tunnel ends although both its sides are open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExpiryCause {
    /// No byte has moved for the idle timeout.
    TimedOut,
    /// One side has ended, and no byte has moved for the idle timeout of that state.
    HalfClosed,
    /// The tunnel makes room for another client's.
    Evicted,
}

impl Tunnel {
    /// Creates a tunnel over `end` for `protocol`, which `expiry` ends.
    pub fn new(protocol: String, end: impl AsyncRead + AsyncWrite + 'static, expiry: Rc<TunnelExpiry>) -> Self {
        Self { protocol, end: Box::pin(end), expiry, received: None, sent: None }
    }

    /// Counts bytes from the client in `received`, and bytes to the client in `sent`.
    #[must_use]
    pub fn with_byte_counters(self, received: &ByteCounter, sent: &ByteCounter) -> Self {
        Self { received: Some(received.clone()), sent: Some(sent.clone()), ..self }
    }

    /// Returns the tunnel's expiry, which the front end that joins the tunnel polls.
    pub fn expiry_handle(&self) -> Rc<TunnelExpiry> {
        Rc::clone(&self.expiry)
    }

    fn count_tunnel_bytes(&self, bytes: usize, counter: Option<&ByteCounter>) {
        if bytes > 0 {
            self.expiry.last_activity.set(Instant::now());
        }
        if let Some(counter) = counter {
            counter.add_bytes(bytes);
        }
    }
}

impl TunnelExpiry {
    /// The expiry of a tunnel that begins now. Once one side has ended, the idle timeout is `half_closed`, unless
    /// `idle_timeout` is shorter.
    pub fn new(idle_timeout: Duration, half_closed: Duration) -> Rc<Self> {
        Rc::new(Self {
            idle_timeout,
            half_closed_timeout: half_closed.min(idle_timeout),
            is_half_closed: Cell::default(),
            last_activity: Cell::new(Instant::now()),
            evicted: Notify::new(),
            shortened: Notify::new(),
        })
    }

    /// Waits until the idle timeout has passed, or the tunnel is evicted. Cancel safe.
    pub async fn wait_for_expiry(&self) -> ExpiryCause {
        loop {
            let is_half_closed = self.is_half_closed.get();
            let deadline =
                self.last_activity.get() + if is_half_closed { self.half_closed_timeout } else { self.idle_timeout };
            if deadline <= Instant::now() && timers::grace_deadline().is_none() {
                return if is_half_closed { ExpiryCause::HalfClosed } else { ExpiryCause::TimedOut };
            }
            select! {
                () = self.evicted.notified() => return ExpiryCause::Evicted,
                () = self.shortened.notified() => {}
                () = timers::sleep_until_counted(deadline) => {}
            }
        }
    }

    /// Restarts the timeout once one side has ended.
    fn on_half_closed(&self) {
        if !self.is_half_closed.replace(true) {
            self.last_activity.set(Instant::now());
            self.shortened.notify_one();
        }
    }

    /// Returns the time for which no byte has moved in either direction.
    pub fn idle_time(&self) -> Duration {
        timers::elapsed_since_resume(self.last_activity.get())
    }

    /// Ends the tunnel, to make room for another client's.
    pub fn evict_tunnel(&self) {
        self.evicted.notify_one();
    }
}

impl AsyncRead for Tunnel {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, out: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = out.filled().len();
        ready!(self.end.as_mut().poll_read(cx, out))?;
        let read = out.filled().len().saturating_sub(before);
        self.count_tunnel_bytes(read, self.sent.as_ref());
        if read == 0 && out.remaining() > 0 {
            self.expiry.on_half_closed();
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Tunnel {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = ready!(self.end.as_mut().poll_write(cx, bytes))?;
        self.count_tunnel_bytes(written, self.received.as_ref());
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.end.as_mut().poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.expiry.on_half_closed();
        self.end.as_mut().poll_shutdown(cx)
    }
}
