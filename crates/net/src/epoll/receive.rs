//! The receiving half: a batch a call, cut into datagrams.

use super::super::{
    cut::{Cut, Datagram},
    sys::{GRO_MESSAGE, PLAIN_MESSAGE, ReceiveBatch, register},
};
use crate::Metrics;
use crate::datagram::{Receive, Received};
use crate::flush::MAX_ERRORS;
use std::{
    fmt, io,
    net::{SocketAddr, UdpSocket},
    sync::Arc,
    task::{Context, Poll, ready},
};
use tokio::io::{Interest, unix::AsyncFd};

/// The receiving half of a socket.
pub struct EpollReceiver {
    local: SocketAddr,
    /// While arrivals are events.
    events: Option<AsyncFd<UdpSocket>>,
    inbox: Inbox,
}

/// The socket, and the last batch.
struct Inbox {
    socket: UdpSocket,
    batch: ReceiveBatch,
    cut: Cut,
    errors: u32,
    drained: bool,
    metrics: Arc<Metrics>,
}

impl EpollReceiver {
    pub(crate) fn new(
        socket: UdpSocket,
        local: SocketAddr,
        receive_batch: u16,
        gro: bool,
        metrics: Arc<Metrics>,
    ) -> io::Result<Self> {
        let messages = usize::from(receive_batch.max(1));
        let events = Some(listen(&socket)?);
        let batch = ReceiveBatch::new(messages, if gro { GRO_MESSAGE } else { PLAIN_MESSAGE });
        let cut = Cut::new(local, messages, Arc::clone(&metrics));
        Ok(Self { local, events, inbox: Inbox { socket, batch, cut, errors: 0, drained: false, metrics } })
    }
}

/// Makes arrivals at `socket` events, including those that are queued.
fn listen(socket: &UdpSocket) -> io::Result<AsyncFd<UdpSocket>> {
    register(socket.try_clone()?, Interest::READABLE)
}

impl Inbox {
    /// One call's datagrams. 0: none that is usable, or an error that may pass.
    fn receive(&mut self) -> io::Result<usize> {
        self.metrics.syscalls_recvmmsg.increment();
        match self.batch.receive(&self.socket) {
            Ok(count) => {
                self.errors = 0;
                // A short batch has emptied the socket: remembering that saves a call that would return EAGAIN.
                self.drained = count < self.batch.room();
                Ok(self.cut.cut(count, |message| self.batch.arrived(message)))
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.drained = true;
                Ok(0)
            }
            Err(error) => {
                self.drained = false;
                self.errors += 1;
                if self.errors >= MAX_ERRORS { Err(error) } else { Ok(0) }
            }
        }
    }
}

impl Receive for EpollReceiver {
    fn poll_batch(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let events = match &mut self.events {
            Some(events) => events,
            none => none.insert(listen(&self.inbox.socket)?),
        };
        loop {
            let mut ready = ready!(events.poll_read_ready(cx))?;
            let datagrams = self.inbox.receive()?;
            if self.inbox.drained {
                // What arrives from now on is an event of its own (edge-triggered, epoll(7)).
                ready.clear_ready();
            }
            if datagrams > 0 {
                return Poll::Ready(Ok(datagrams));
            }
        }
    }

    fn take_batch(&mut self) -> io::Result<usize> {
        // It would end each wait of the worker, even without a reader.
        self.events = None;
        self.inbox.receive()
    }

    fn is_drained(&self) -> bool {
        self.inbox.drained
    }

    fn datagram(&mut self, index: usize) -> Option<(Received, &mut [u8])> {
        let Datagram { header, message, range } = self.inbox.cut.get(index)?;
        Some((header, self.inbox.batch.bytes_mut(message, range)?))
    }
}

impl fmt::Debug for EpollReceiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver").field("local", &self.local).finish_non_exhaustive()
    }
}
