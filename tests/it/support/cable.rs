//! How a client vanishes: its socket goes on, and nothing leaves it any more. Shared with examples/soak.

use quinn::{
    AsyncUdpSocket, UdpPoller,
    udp::{RecvMeta, Transmit},
};
use std::{
    io::{self, IoSliceMut},
    net::SocketAddr,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
};

/// A socket whose outgoing datagrams can be made to vanish.
#[derive(Debug)]
pub(crate) struct Cable {
    inner: Arc<dyn AsyncUdpSocket>,
    cut: Arc<AtomicBool>,
    /// To be cut once something has arrived.
    cut_when_answered: AtomicBool,
}

impl Cable {
    /// Over `inner`; cut while `cut` is true. It becomes true once something has arrived, if `cut_when_answered`: of a
    /// handshake the client's last flight does not leave.
    pub(crate) fn new(inner: Arc<dyn AsyncUdpSocket>, cut: Arc<AtomicBool>, cut_when_answered: bool) -> Self {
        Self { inner, cut, cut_when_answered: cut_when_answered.into() }
    }
}

impl AsyncUdpSocket for Cable {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        Arc::clone(&self.inner).create_io_poller()
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        if self.cut.load(Ordering::Relaxed) { Ok(()) } else { self.inner.try_send(transmit) }
    }

    fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        bufs: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        let received = self.inner.poll_recv(cx, bufs, meta);
        if received.is_ready() && self.cut_when_answered.swap(false, Ordering::Relaxed) {
            self.cut.store(true, Ordering::Relaxed);
        }
        received
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.inner.local_addr()
    }

    fn max_transmit_segments(&self) -> usize {
        self.inner.max_transmit_segments()
    }

    fn max_receive_segments(&self) -> usize {
        self.inner.max_receive_segments()
    }

    fn may_fragment(&self) -> bool {
        self.inner.may_fragment()
    }
}
