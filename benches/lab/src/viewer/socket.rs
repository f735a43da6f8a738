//! A socket that hands its endpoint one datagram a turn. An endpoint that reads many at once acknowledges them at once;
//! a viewer behind an access link gets them apart, and acknowledges every second packet (RFC 9000 §13.2.2), as the
//! viewers of LiteQUIC's paper do.

use quinn::{
    AsyncUdpSocket, UdpPoller,
    udp::{RecvMeta, Transmit},
};
use std::{
    collections::VecDeque,
    io::{self, IoSliceMut},
    net::SocketAddr,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll, ready},
};

/// What one receive call can give with UDP GRO (udp(7)).
const MOST: usize = 64 << 10; // bytes

#[derive(Debug)]
pub(super) struct OneByOne {
    socket: Arc<dyn AsyncUdpSocket>,
    received: Mutex<Received>,
}

/// What was received, and not handed on yet.
#[derive(Debug)]
struct Received {
    datagrams: VecDeque<(RecvMeta, Vec<u8>)>,
    buffer: Vec<u8>,
    /// One was handed on in this turn.
    is_done: bool,
}

impl OneByOne {
    pub(super) fn new(socket: Arc<dyn AsyncUdpSocket>) -> Arc<Self> {
        let received = Received { datagrams: VecDeque::new(), buffer: vec![0; MOST], is_done: false };
        Arc::new(Self { socket, received: Mutex::new(received) })
    }
}

impl AsyncUdpSocket for OneByOne {
    fn poll_recv(
        &self,
        context: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
        metas: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        let received = &mut *self.received.lock().unwrap_or_else(PoisonError::into_inner);
        if std::mem::take(&mut received.is_done) {
            // The connection's turn comes first: its task was woken earlier.
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        if received.datagrams.is_empty() {
            let mut meta = [RecvMeta::default()];
            let mut buffer = [IoSliceMut::new(&mut received.buffer)];
            ready!(self.socket.poll_recv(context, &mut buffer, &mut meta))?;
            let [meta] = meta;
            let whole = received.buffer.get(..meta.len).unwrap_or_default();
            for datagram in whole.chunks(meta.stride.max(1)) {
                let meta = RecvMeta { len: datagram.len(), stride: datagram.len(), ..meta };
                received.datagrams.push_back((meta, datagram.to_vec()));
            }
        }
        let next = received.datagrams.pop_front().zip(buffers.first_mut().zip(metas.first_mut()));
        let Some(((read, datagram), (buffer, meta))) = next else { return Poll::Ready(Ok(0)) };
        let Some(room) = buffer.get_mut(..datagram.len()) else { return Poll::Ready(Ok(0)) };
        room.copy_from_slice(&datagram);
        *meta = read;
        received.is_done = true;
        Poll::Ready(Ok(1))
    }

    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        Arc::clone(&self.socket).create_io_poller()
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        self.socket.try_send(transmit)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    fn may_fragment(&self) -> bool {
        self.socket.may_fragment()
    }

    fn max_transmit_segments(&self) -> usize {
        self.socket.max_transmit_segments()
    }
}
