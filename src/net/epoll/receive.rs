//! The receiving half: a batch a call, cut into datagrams.

use super::super::{
    MAX_ERRORS,
    cut::{Cut, Datagram},
    sys::{GRO_MESSAGE, PLAIN_MESSAGE, ReceiveBatch, register},
};
use crate::{
    datagram::{Receive, Received},
    telemetry::WorkerMetrics,
};
use std::{
    fmt, io,
    net::{SocketAddr, UdpSocket},
    sync::Arc,
    task::{Context, Poll, ready},
};
use tokio::io::{Interest, unix::AsyncFd};

/// The receiving half of a socket.
pub struct Receiver {
    socket: AsyncFd<UdpSocket>,
    local: SocketAddr,
    batch: ReceiveBatch,
    cut: Cut,
    errors: u32,
    drained: bool,
    metrics: Arc<WorkerMetrics>,
}

impl Receiver {
    pub(in crate::net) fn new(
        socket: UdpSocket,
        local: SocketAddr,
        receive_batch: u16,
        gro: bool,
        metrics: Arc<WorkerMetrics>,
    ) -> io::Result<Self> {
        let messages = usize::from(receive_batch.max(1));
        Ok(Self {
            socket: register(socket, Interest::READABLE)?,
            local,
            batch: ReceiveBatch::new(messages, if gro { GRO_MESSAGE } else { PLAIN_MESSAGE }),
            cut: Cut::new(local, messages, Arc::clone(&metrics)),
            errors: 0,
            drained: false,
            metrics,
        })
    }
}

impl Receive for Receiver {
    fn poll_batch(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        loop {
            let mut ready = ready!(self.socket.poll_read_ready(cx))?;
            self.metrics.syscalls_recvmmsg.increment();
            match self.batch.receive(ready.get_inner()) {
                Ok(count) => {
                    self.errors = 0;
                    // A short batch has emptied the socket: to remember that saves the call that would only say so. What
                    // arrives from now on is an event of its own (edge-triggered, epoll(7)).
                    self.drained = count < self.batch.room();
                    if self.drained {
                        ready.clear_ready();
                    }
                    let datagrams = self.cut.cut(count, |message| self.batch.arrived(message));
                    if datagrams > 0 {
                        return Poll::Ready(Ok(datagrams));
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => ready.clear_ready(),
                Err(error) => {
                    self.errors += 1;
                    if self.errors >= MAX_ERRORS {
                        return Poll::Ready(Err(error));
                    }
                }
            }
        }
    }

    fn is_drained(&self) -> bool {
        self.drained
    }

    fn datagram(&mut self, index: usize) -> Option<(Received, &mut [u8])> {
        let Datagram { header, message, range } = self.cut.get(index)?;
        Some((header, self.batch.bytes_mut(message, range)?))
    }
}

impl fmt::Debug for Receiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver").field("local", &self.local).finish_non_exhaustive()
    }
}
