//! A client's socket that can be replaced beneath its connection, as a NAT does that forgot, and that receives what an
//! attacker sends.

use quinn::{
    AsyncUdpSocket, UdpPoller,
    udp::{RecvMeta, Transmit},
};
use std::{
    collections::VecDeque,
    io::{self, IoSliceMut},
    net::SocketAddr,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
};

/// Bytes of litequic's connection IDs.
const ID_LEN: usize = 16;
/// RFC 9000 §17.2: the header's form, in the first byte.
const LONG_HEADER: u8 = 0x80;

#[derive(Debug)]
pub(super) struct Tap {
    server: SocketAddr,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    socket: Arc<dyn AsyncUdpSocket>,
    /// The destination connection ID of the last packet with a short header.
    destination: Option<[u8; ID_LEN]>,
    injected: VecDeque<Vec<u8>>,
    waker: Option<Waker>,
}

impl Tap {
    pub(super) fn new(socket: Arc<dyn AsyncUdpSocket>, server: SocketAddr) -> Self {
        let state = State { socket, destination: None, injected: VecDeque::new(), waker: None };
        Self { server, state: Mutex::new(state) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Goes on with another socket. The connection does not notice.
    pub(super) fn replace(&self, socket: Arc<dyn AsyncUdpSocket>) {
        let mut state = self.lock();
        state.socket = socket;
        wake(state);
    }

    /// The connection ID that an observer of the client sees.
    pub(super) fn destination(&self) -> Option<[u8; ID_LEN]> {
        self.lock().destination
    }

    /// A datagram that an attacker sends with the server's address.
    pub(super) fn inject(&self, datagram: &[u8]) {
        let mut state = self.lock();
        state.injected.push_back(datagram.to_vec());
        wake(state);
    }
}

fn wake(mut state: MutexGuard<'_, State>) {
    let waker = state.waker.take();
    drop(state);
    if let Some(waker) = waker {
        waker.wake();
    }
}

/// Waits for the socket of the moment.
#[derive(Debug)]
struct Poller {
    tap: Arc<Tap>,
    socket: Arc<dyn AsyncUdpSocket>,
    poller: Pin<Box<dyn UdpPoller>>,
}

impl UdpPoller for Poller {
    fn poll_writable(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let socket = Arc::clone(&self.tap.lock().socket);
        if !Arc::ptr_eq(&socket, &self.socket) {
            self.poller = Arc::clone(&socket).create_io_poller();
            self.socket = socket;
        }
        self.poller.as_mut().poll_writable(cx)
    }
}

impl AsyncUdpSocket for Tap {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        let socket = Arc::clone(&self.lock().socket);
        let poller = Arc::clone(&socket).create_io_poller();
        Box::pin(Poller { tap: self, socket, poller })
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        let mut state = self.lock();
        if let Some((first, rest)) = transmit.contents.split_first()
            && first & LONG_HEADER == 0
        {
            state.destination = rest.first_chunk().copied();
        }
        state.socket.try_send(transmit)
    }

    fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        bufs: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        let mut state = self.lock();
        state.waker = Some(cx.waker().clone());
        if let (Some(datagram), Some(buffer), Some(meta)) =
            (state.injected.pop_front(), bufs.first_mut(), meta.first_mut())
        {
            let len = datagram.len().min(buffer.len());
            buffer.iter_mut().zip(&datagram).for_each(|(place, byte)| *place = *byte);
            *meta = RecvMeta { addr: self.server, len, stride: len, ecn: None, dst_ip: None };
            return Poll::Ready(Ok(1));
        }
        state.socket.poll_recv(cx, bufs, meta)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.lock().socket.local_addr()
    }

    fn max_transmit_segments(&self) -> usize {
        self.lock().socket.max_transmit_segments()
    }

    fn max_receive_segments(&self) -> usize {
        self.lock().socket.max_receive_segments()
    }

    fn may_fragment(&self) -> bool {
        self.lock().socket.may_fragment()
    }
}
