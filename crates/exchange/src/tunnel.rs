//! Bytes both ways instead of a body, once a client and its origin have agreed on another protocol (RFC 9110 §7.8).
//!
//! A front end that gets such a request adds an [`Upgrade`] to the request's head, and keeps the client's bytes.
//! The handler that opens it answers 101 with a body that is a [`Tunnel`]; the front end joins both.

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

/// Bytes that litequic buffers in each direction, beyond what the ends' own buffers hold.
pub const TUNNEL_BUFFER: usize = 8 * 1024;

/// The protocols that a request offers to switch to: `Upgrade` as it came (RFC 9110 §7.8), or `:protocol` (RFC 8441
/// §4). Such a request has no body, and its method is GET.
#[derive(Debug, Clone)]
pub struct Upgrade(pub Box<[u8]>);

/// The origin's end. Its bytes end when the origin has ended its own; shutting it down forwards the client's end.
/// Dropped before both, it resets the origin's connection, so that nothing that was cut off looks whole.
pub struct Tunnel {
    /// The protocol agreed on.
    protocol: String,
    end: Pin<Box<dyn TunnelStream>>,
    expiry: Rc<TunnelExpiry>,
    /// Counts what the client sends.
    received: Option<ByteCounter>,
    /// Counts what is sent to the client.
    sent: Option<ByteCounter>,
}

/// What a [`Tunnel`] is made of.
pub trait TunnelStream: AsyncRead + AsyncWrite {
    /// The tunnel has been opened, and may be ended by `quiet`.
    fn on_tunnel_opened(&self, quiet: &Rc<TunnelExpiry>);
}

/// How long a tunnel has been silent, and its end for that.
#[derive(Debug)]
pub struct TunnelExpiry {
    idle_timeout: Duration,
    /// The idle timeout once one side has ended.
    half_closed_timeout: Cell<Duration>,
    /// Whether one side has ended.
    is_half_closed: Cell<bool>,
    last_activity: Cell<Instant>,
    evicted: Notify,
    /// The timeout is another one by now.
    shortened: Notify,
}

/// Why a tunnel ends although both its ends are open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExpiryCause {
    /// Nothing has moved for its idle timeout.
    TimedOut,
    /// One side has ended, and nothing has moved for the timeout of that state.
    HalfClosed,
    /// Another client gets its place.
    Evicted,
}

impl Tunnel {
    /// A tunnel to `end`, for `protocol`, with an idle timeout of `patience`.
    pub fn new(protocol: String, end: impl TunnelStream + 'static, patience: Duration) -> Self {
        let quiet = Rc::new(TunnelExpiry {
            idle_timeout: patience,
            half_closed_timeout: Cell::new(patience),
            is_half_closed: Cell::default(),
            last_activity: Cell::new(Instant::now()),
            evicted: Notify::new(),
            shortened: Notify::new(),
        });
        end.on_tunnel_opened(&quiet);
        Self { protocol, end: Box::pin(end), expiry: quiet, received: None, sent: None }
    }

    /// Sets the idle timeout to `half_closed` for when one side has ended, unless its own is shorter.
    #[must_use]
    pub fn with_half_closed_timeout(self, half_closed: Duration) -> Self {
        self.expiry.half_closed_timeout.set(half_closed.min(self.expiry.idle_timeout));
        self
    }

    /// Counts what the client sends in `received`, and what goes to the client in `sent`.
    #[must_use]
    pub fn with_byte_counters(self, received: &ByteCounter, sent: &ByteCounter) -> Self {
        Self { received: Some(received.clone()), sent: Some(sent.clone()), ..self }
    }

    /// The bytes in it.
    pub fn upgrade_protocol(&self) -> &str {
        &self.protocol
    }

    /// When it ends although both its ends are open. The front end that joins the tunnel polls it.
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
    /// Ready once the idle timeout has passed, or the tunnel is to end for another client's. Cancel safe.
    pub async fn wait_for_expiry(&self) -> ExpiryCause {
        loop {
            let is_half_closed = self.is_half_closed.get();
            let deadline = self.last_activity.get()
                + if is_half_closed { self.half_closed_timeout.get() } else { self.idle_timeout };
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

    /// One side has ended: the other may take its time from now on.
    fn on_half_closed(&self) {
        if !self.is_half_closed.replace(true) {
            self.last_activity.set(Instant::now());
            self.shortened.notify_one();
        }
    }

    /// For how long nothing has moved in either direction.
    pub fn idle_time(&self) -> Duration {
        timers::elapsed_since_resume(self.last_activity.get())
    }

    /// Ends the tunnel: another client gets its place.
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
