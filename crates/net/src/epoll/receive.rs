//! Receives a batch of messages with each system call, and splits them into datagrams.

use super::super::{
    datagram_splitter::{DatagramSlice, DatagramSplitter},
    receive_errors::MAX_RECEIVE_ERRORS,
    sys::{GRO_MESSAGE_LEN, PLAIN_MESSAGE_LEN, ReceiveBatch, register_interest},
};
use crate::{
    datagram::{DatagramHeader, Receive},
    metrics::SocketMetrics,
};
use std::{
    io,
    net::{SocketAddr, UdpSocket},
    sync::Arc,
    task::{Context, Poll, ready},
};
use tokio::io::{Interest, unix::AsyncFd};

/// Receiving half of a socket with the epoll backend.
pub struct EpollReceiver {
    local: SocketAddr,
    /// Registration with epoll; `None` while the caller polls by itself.
    events: Option<AsyncFd<UdpSocket>>,
    inbox: EpollInbox,
}

/// Socket of an [`EpollReceiver`], with its last batch.
struct EpollInbox {
    socket: UdpSocket,
    batch: ReceiveBatch,
    cut: DatagramSplitter,
    errors: u32,
    drained: bool,
    metrics: Arc<SocketMetrics>,
}

impl EpollReceiver {
    pub(crate) fn new(
        socket: UdpSocket,
        local: SocketAddr,
        receive_batch: u16,
        gro: bool,
        metrics: Arc<SocketMetrics>,
    ) -> io::Result<Self> {
        let messages = usize::from(receive_batch.max(1));
        let events = Some(watch_arrivals(&socket)?);
        let batch = ReceiveBatch::new(messages, if gro { GRO_MESSAGE_LEN } else { PLAIN_MESSAGE_LEN });
        let cut = DatagramSplitter::new(local, messages, Arc::clone(&metrics));
        Ok(Self { local, events, inbox: EpollInbox { socket, batch, cut, errors: 0, drained: false, metrics } })
    }
}

/// Registers `socket` with epoll for arrivals, including datagrams that are queued already.
fn watch_arrivals(socket: &UdpSocket) -> io::Result<AsyncFd<UdpSocket>> {
    register_interest(socket.try_clone()?, Interest::READABLE)
}

impl EpollInbox {
    /// Reads datagrams with one system call, and returns their number; 0 if none is usable or the error may pass.
    fn read_socket(&mut self) -> io::Result<usize> {
        self.metrics.syscalls_recvmmsg.increment();
        match self.batch.call_recvmmsg(&self.socket) {
            Ok(count) => {
                self.errors = 0;
                // A short batch has emptied the socket. Remembering that avoids a call that would return EAGAIN.
                self.drained = count < self.batch.message_capacity();
                Ok(self.cut.split_batch(count, |message| self.batch.kernel_message(message)))
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.drained = true;
                Ok(0)
            }
            Err(error) => {
                self.drained = false;
                self.errors += 1;
                if self.errors >= MAX_RECEIVE_ERRORS { Err(error) } else { Ok(0) }
            }
        }
    }
}

impl Receive for EpollReceiver {
    fn poll_batch(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let events = match &mut self.events {
            Some(events) => events,
            none => none.insert(watch_arrivals(&self.inbox.socket)?),
        };
        loop {
            let mut ready = ready!(events.poll_read_ready(cx))?;
            let datagrams = self.inbox.read_socket()?;
            if self.inbox.drained {
                // Every later arrival is an event of its own (edge-triggered, epoll(7)).
                ready.clear_ready();
            }
            if datagrams > 0 {
                return Poll::Ready(Ok(datagrams));
            }
        }
    }

    fn take_batch(&mut self) -> io::Result<usize> {
        // A registration would end each wait of the worker, even without a reader.
        self.events = None;
        self.inbox.read_socket()
    }

    fn is_drained(&self) -> bool {
        self.inbox.drained
    }

    fn datagram(&mut self, index: usize) -> Option<(DatagramHeader, &mut [u8])> {
        let DatagramSlice { header, message, range } = self.inbox.cut.get(index)?;
        Some((header, self.inbox.batch.message_bytes_mut(message, range)?))
    }
}

litequic_base::partial_debug!(EpollReceiver { local });
