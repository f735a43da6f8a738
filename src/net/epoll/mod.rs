//! Datagrams over epoll: a socket that is readable is emptied with recvmmsg(2), a batch at a time, and what QUIC has to
//! say to it leaves with sendmmsg(2) in the same turn of the worker's loop. No task or queue stands between.

mod flush;
mod receive;
mod transmit;

pub use receive::Receiver;
pub use transmit::Sender;

use super::feature::{self, Features};
use crate::telemetry::WorkerMetrics;
use std::{io, net::UdpSocket, sync::Arc};

/// How a socket is used.
#[derive(Debug, Clone, Copy)]
pub struct EpollOptions {
    /// Messages received at once, at most.
    pub receive_batch: u16,
    /// Whether messages may hold several datagrams on their way out (UDP_SEGMENT).
    pub gso: bool,
    /// Whether messages may hold several datagrams on their way in (UDP_GRO).
    pub gro: bool,
}

/// Both halves of a socket.
#[derive(Debug)]
pub struct Epoll {
    /// What comes.
    pub receiver: Receiver,
    /// What goes.
    pub sender: Sender,
    /// Whether the size of packets may be probed: nothing on their way, this machine included, cuts them up.
    pub may_probe_mtu: bool,
}

impl Epoll {
    /// Takes `socket`, which is bound and does not block, into use. To be called on the worker's thread, inside its
    /// runtime. What the kernel does not have is done without, counted and logged.
    ///
    /// # Errors
    ///
    /// The socket cannot be registered, or has no address.
    pub fn new(socket: UdpSocket, options: EpollOptions, metrics: Arc<WorkerMetrics>) -> io::Result<Self> {
        let local = socket.local_addr()?;
        let Features { gso, gro, may_probe_mtu } = feature::enable(&socket, local, options, &metrics);
        let sending = socket.try_clone()?;
        Ok(Self {
            receiver: Receiver::new(socket, local, options.receive_batch, gro, Arc::clone(&metrics))?,
            sender: Sender::new(sending, local, gso, metrics),
            may_probe_mtu,
        })
    }
}

#[cfg(test)]
mod tests;
