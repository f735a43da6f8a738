//! hyper's end of a connection, without a task of its own: it is polled by its user, a request while it is in use, its
//! pool's watch while it is idle ([0016](../../../docs/adr/0016-connections-without-a-task.md)).

use super::{connect::Stream, request_body::OriginRequestBody};
use crate::proxy::error::Error;
use bytes::Bytes;
use futures_util::task::AtomicWaker;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use std::{
    cell::RefCell,
    future::{Future, poll_fn},
    pin::Pin,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    task::{Context, Poll, Wake, Waker},
};
use tokio::task::{JoinHandle, spawn_local};

/// The most that hyper reads at once, and buffers of a response. Large reads make few system calls and feed long GSO
/// trains; with the piece that is to be taken, a connection holds at most twice that.
const READ_BUFFER_BYTES: usize = 256 * 1024;
/// A response's header: twice the limit of a client's, for origins that set many cookies.
const MAX_RESPONSE_HEADER_BYTES: usize = 64 * 1024;

type Connection = http1::Connection<TokioIo<Stream>, OriginRequestBody>;

/// Reads and writes for hyper's handles of the connection, as often as it is polled.
#[derive(Debug)]
pub(super) struct Driver {
    /// Borrowed for one poll at a time. `None` once the connection has ended.
    connection: RefCell<Option<Connection>>,
    /// The parts that remain then, and unread bytes.
    left: RefCell<Option<(Stream, Bytes)>>,
    relay: Arc<Relay>,
    /// Wakes `relay`.
    waker: Waker,
}

const _: () = assert!(size_of::<Driver>() <= 768);

/// The one waker that a connection registers everywhere, as long as it is open: it forwards to the current owner, so
/// that a change of owner is one registration, and a request is not woken by its own actions.
#[derive(Debug, Default)]
struct Relay {
    /// The task to wake.
    owner: AtomicWaker,
    /// Since the last poll.
    woken: AtomicBool,
    muted: AtomicBool,
}

impl Wake for Relay {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.muted.load(Relaxed) {
            self.woken.store(true, Relaxed);
            self.owner.wake();
        }
    }
}

impl Driver {
    /// hyper on `stream`: the sender of requests, and its driver.
    ///
    /// # Errors
    ///
    /// None today: HTTP/1.1 has no handshake, and this does not wait.
    pub(super) async fn of(stream: Stream) -> Result<(http1::SendRequest<OriginRequestBody>, Rc<Self>), Error> {
        // hyper's own bound on a response's fields is 100; a configured one would have it fill two tables of so many
        // for each response.
        let (sender, connection) = http1::Builder::new()
            .max_buf_size(READ_BUFFER_BYTES)
            .max_header_size(MAX_RESPONSE_HEADER_BYTES)
            .writev(true)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(|_| Error::Connect)?;
        let relay = Arc::new(Relay::default());
        let waker = Waker::from(Arc::clone(&relay));
        Ok((
            sender,
            Rc::new(Self { connection: RefCell::new(Some(connection)), left: RefCell::default(), relay, waker }),
        ))
    }

    /// Does what can be done now. Ready once the connection has ended; until then the task is woken when there is more
    /// to do.
    pub(super) fn poll(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.relay.owner.register(cx.waker());
        self.relay.woken.store(false, Relaxed);
        let mut borrowed = self.connection.borrow_mut();
        let Some(connection) = &mut *borrowed else { return Poll::Ready(()) };
        let Poll::Ready(result) = Pin::new(connection).poll(&mut Context::from_waker(&self.waker)) else {
            return Poll::Pending;
        };
        let ended = borrowed.take();
        drop(borrowed);
        // After the borrow: a request's body may be in it.
        match result {
            Ok(()) => {
                let parts = ended.map(http1::Connection::into_parts);
                self.left.replace(parts.map(|parts| (parts.io.into_inner(), parts.read_buf)));
            }
            Err(error) => tracing::debug!(%error, "a connection to the origin ended"),
        }
        Poll::Ready(())
    }

    /// The connection without HTTP, once it has ended in order: after a 101, or closed. `None` if it failed.
    pub(super) fn leave(&self) -> Option<(Stream, Bytes)> {
        self.left.take()
    }

    /// Whether the connection has ended before a response's header that hyper did not read: it was larger than hyper's
    /// bounds.
    pub(super) fn has_unread_header(&self) -> bool {
        self.left.borrow().as_ref().is_none_or(|(_, unread)| unread.starts_with(b"HTTP/"))
    }

    /// Runs `act` on one of hyper's handles, without a wake: the caller must poll this driver after it before it waits.
    pub(super) fn quietly<T>(&self, act: impl FnOnce(&mut Context<'_>) -> T) -> T {
        self.relay.muted.store(true, Relaxed);
        let result = act(&mut Context::from_waker(Waker::noop()));
        self.relay.muted.store(false, Relaxed);
        result
    }

    /// Whether it was woken since the last poll.
    pub(super) fn is_woken(&self) -> bool {
        self.relay.woken.load(Relaxed)
    }

    /// Wakes `owner` from now on rather than the last poller, at once if there is something to do.
    pub(super) fn hand_over(&self, owner: &Waker) {
        self.relay.owner.register(owner);
        if self.is_woken() {
            owner.wake_by_ref();
        }
    }
}

/// Polls a connection whose response came before its request's body was sent, as the response's body may not be read: a
/// client may read nothing before the origin has everything. Dropped, it stops.
#[derive(Debug)]
pub(super) struct Pump(JoinHandle<()>);

impl Pump {
    /// For `driver`, until its connection ends: that hyper has taken the body's last piece does not mean that it was
    /// sent.
    pub(super) fn start(driver: &Rc<Driver>) -> Self {
        let driver = Rc::downgrade(driver);
        Self(spawn_local(poll_fn(move |cx| driver.upgrade().map_or(Poll::Ready(()), |driver| driver.poll(cx)))))
    }

    /// Ready once it has stopped, and another task has to poll.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        Pin::new(&mut self.0).poll(cx).map(|_| ())
    }
}

impl Drop for Pump {
    fn drop(&mut self) {
        self.0.abort();
    }
}
