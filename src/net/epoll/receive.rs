//! The receiving half: a batch a call, cut into datagrams.

use super::super::sys::{Arrived, GRO_MESSAGE, PLAIN_MESSAGE, ReceiveBatch, register};
use crate::{
    datagram::{Receive, Received},
    telemetry::WorkerMetrics,
};
use s2n_quic_core::{
    inet::{ExplicitCongestionNotification as Ecn, SocketAddress},
    path::Tuple,
};
use std::{
    fmt, io,
    net::{SocketAddr, UdpSocket},
    ops::Range,
    sync::Arc,
    task::{Context, Poll, ready},
};
use tokio::io::{Interest, unix::AsyncFd};

/// Errors in a row before a socket counts as broken. One comes of a shortage of memory, say, and passes.
const MAX_ERRORS: u32 = 1000;

/// The receiving half of a socket.
pub struct Receiver {
    socket: AsyncFd<UdpSocket>,
    local: SocketAddr,
    batch: ReceiveBatch,
    datagrams: Vec<Datagram>,
    errors: u32,
    metrics: Arc<WorkerMetrics>,
}

/// A datagram of the batch: which octets of which message.
struct Datagram {
    header: Received,
    message: usize,
    range: Range<usize>,
}

impl Receiver {
    pub(super) fn new(
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
            datagrams: Vec::with_capacity(messages),
            errors: 0,
            metrics,
        })
    }

    /// Cuts `count` messages into datagrams. Those that are not whole are of no use.
    fn cut(&mut self, count: usize) {
        self.datagrams.clear();
        let mut octets = 0;
        for message in 0..count {
            let Some(arrived) = self.batch.arrived(message) else { break };
            let header = match header(&arrived, self.local) {
                Some(header) if !arrived.truncated => header,
                _ => {
                    self.metrics.datagrams_dropped_truncated.increment();
                    continue;
                }
            };
            octets += arrived.len;
            let datagram = |range| Datagram { header, message, range };
            self.datagrams.extend(ranges(arrived.len, arrived.segment).map(datagram));
        }
        self.metrics.receive_batches.increment();
        self.metrics.receive_messages.add(count as u64);
        self.metrics.datagrams_received.add(self.datagrams.len() as u64);
        self.metrics.datagram_bytes_received.add(octets as u64);
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
                    if count < self.batch.room() {
                        ready.clear_ready();
                    }
                    self.cut(count);
                    if !self.datagrams.is_empty() {
                        return Poll::Ready(Ok(self.datagrams.len()));
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

    fn datagram(&mut self, index: usize) -> Option<(Received, &mut [u8])> {
        let Datagram { header, message, range } = self.datagrams.get(index)?;
        Some((*header, self.batch.bytes_mut(*message, range.clone())?))
    }
}

impl fmt::Debug for Receiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver").field("local", &self.local).finish_non_exhaustive()
    }
}

/// The datagrams of a message of `len` octets. An empty message is none: QUIC has no empty packets.
fn ranges(len: usize, segment: usize) -> impl Iterator<Item = Range<usize>> {
    (0..len).step_by(segment.max(1)).map(move |start| start..(start + segment).min(len))
}

fn header(arrived: &Arrived, local: SocketAddr) -> Option<Received> {
    let ip = arrived.local.unwrap_or(local.ip());
    Some(Received {
        path: Tuple {
            remote_address: SocketAddress::from(arrived.remote?).into(),
            local_address: SocketAddress::from(SocketAddr::new(ip, local.port())).into(),
        },
        ecn: Ecn::new(arrived.ecn),
    })
}
