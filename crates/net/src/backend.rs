//! A socket with its backend: the configured one, or epoll if io_uring is unavailable.

use super::{
    epoll,
    feature::{self, Features},
    socket_sender::SocketSender,
    sys::{Ring, SendBatch, UringError, max_completions},
    uring,
};
use crate::{
    datagram::{DatagramHeader, Receive},
    metrics::SocketMetrics,
};
use std::{
    io,
    net::{SocketAddr, UdpSocket},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    task::{Context, Poll},
};

/// System interface by which a worker receives and sends datagrams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backend {
    /// recvmmsg(2) and sendmmsg(2) on a socket that epoll(7) watches.
    Epoll,
    /// io_uring(7).
    IoUring,
}

/// Configuration of a worker's UDP socket.
#[derive(Debug, Clone, Copy)]
pub struct SocketOptions {
    /// System interface that the socket uses if the kernel has it.
    pub backend: Backend,
    /// Largest number of messages received at once.
    pub receive_batch: u16,
    /// Whether messages may hold several datagrams when sent (UDP_SEGMENT).
    pub gso: bool,
    /// Whether messages may hold several datagrams when received (UDP_GRO).
    pub gro: bool,
}

/// The receiving and the sending half of a socket.
#[derive(Debug)]
pub struct OpenSocket {
    /// The receiving half.
    pub receiver: SocketReceiver,
    /// The sending half.
    pub sender: SocketSender,
    /// Whether the size of packets may be probed: nothing on their path, this machine included, fragments them.
    pub may_probe_mtu: bool,
    /// Backend in use: epoll if io_uring is unavailable.
    pub backend: Backend,
}

/// The receiving half of a socket.
#[derive(Debug)]
#[expect(missing_docs, reason = "the names say it")]
pub enum SocketReceiver {
    Epoll(epoll::EpollReceiver),
    IoUring(uring::UringReceiver),
}

impl OpenSocket {
    /// Prepares `socket`, which is bound and does not block. To be called on the worker's thread, inside its runtime.
    /// Features that the kernel lacks, io_uring included, are left out, counted and logged.
    ///
    /// # Errors
    ///
    /// The socket cannot be registered, or has no address.
    pub fn new(socket: UdpSocket, options: SocketOptions, metrics: Arc<SocketMetrics>) -> io::Result<Self> {
        let local = socket.local_addr()?;
        let features = feature::enable_features(&socket, local, options, &metrics);
        if options.backend == Backend::IoUring {
            match Self::open_io_uring(&socket, local, features, options, &metrics) {
                Ok(open) => return open,
                Err(refusal) => report_uring_error(&refusal, &metrics),
            }
        }
        let Features { gso, gro, may_probe_mtu } = features;
        let sending = socket.try_clone()?;
        let receiver = epoll::EpollReceiver::new(socket, local, options.receive_batch, gro, Arc::clone(&metrics))?;
        Ok(Self {
            receiver: SocketReceiver::Epoll(receiver),
            sender: SocketSender::new(sending, SendBatch::new(local), gso, metrics),
            may_probe_mtu,
            backend: Backend::Epoll,
        })
    }

    fn open_io_uring(
        socket: &UdpSocket,
        local: SocketAddr,
        Features { gso, gro, may_probe_mtu }: Features,
        options: SocketOptions,
        metrics: &Arc<SocketMetrics>,
    ) -> Result<io::Result<Self>, UringError> {
        uring::check_io_uring()?;
        let batch = options.receive_batch;
        let ring = Ring::new(socket, local, max_completions(batch.into()))?;
        let receiver = uring::UringReceiver::new(ring.clone(), local, batch, gro, Arc::clone(metrics))?;
        Ok(socket.try_clone().map(|sending| Self {
            receiver: SocketReceiver::IoUring(receiver),
            sender: SocketSender::new(sending, ring, gso, Arc::clone(metrics)),
            may_probe_mtu,
            backend: Backend::IoUring,
        }))
    }
}

/// Counts an error of io_uring, and logs the first one of the process.
fn report_uring_error(refusal: &UringError, metrics: &SocketMetrics) {
    static URING_ERROR_LOGGED: AtomicBool = AtomicBool::new(false);

    let errno = if let UringError::Step(_, error) = refusal { error.raw_os_error() } else { None };
    match (refusal, errno) {
        // By seccomp, a security module or `kernel.io_uring_disabled`.
        (_, Some(libc::EPERM | libc::EACCES)) => metrics.io_degraded_io_uring_forbidden.increment(),
        (UringError::Missing(_), _) | (_, Some(libc::ENOSYS | libc::EINVAL | libc::EOPNOTSUPP)) => {
            metrics.io_degraded_io_uring_missing.increment();
        }
        (_, Some(libc::ENOMEM | libc::EMFILE | libc::ENFILE)) => metrics.io_degraded_io_uring_memory.increment(),
        _ => metrics.io_degraded_io_uring_broken.increment(),
    }
    if !URING_ERROR_LOGGED.swap(true, Relaxed) {
        tracing::warn!(reason = %refusal, "io_uring is unavailable; falling back to epoll");
    }
}

impl Receive for SocketReceiver {
    fn poll_batch(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        match self {
            Self::Epoll(receiver) => receiver.poll_batch(cx),
            Self::IoUring(receiver) => receiver.poll_batch(cx),
        }
    }

    fn take_batch(&mut self) -> io::Result<usize> {
        match self {
            Self::Epoll(receiver) => receiver.take_batch(),
            Self::IoUring(receiver) => receiver.take_batch(),
        }
    }

    fn is_drained(&self) -> bool {
        match self {
            Self::Epoll(receiver) => receiver.is_drained(),
            Self::IoUring(receiver) => receiver.is_drained(),
        }
    }

    fn datagram(&mut self, index: usize) -> Option<(DatagramHeader, &mut [u8])> {
        match self {
            Self::Epoll(receiver) => receiver.datagram(index),
            Self::IoUring(receiver) => receiver.datagram(index),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_io_uring_are_counted_by_kind() {
        let metrics = SocketMetrics::default();
        let counters = [
            &metrics.io_degraded_io_uring_forbidden,
            &metrics.io_degraded_io_uring_missing,
            &metrics.io_degraded_io_uring_memory,
            &metrics.io_degraded_io_uring_broken,
        ];
        let step = |errno| UringError::Step("io_uring_setup", io::Error::from_raw_os_error(errno));
        for (errors, counts) in [
            ([libc::EPERM, libc::EACCES].map(step), [2, 0, 0, 0]),
            ([libc::ENOSYS, libc::EINVAL].map(step), [2, 2, 0, 0]),
            ([libc::ENOMEM, libc::EMFILE].map(step), [2, 2, 2, 0]),
            ([step(libc::EIO), UringError::Loopback("does not arrive")], [2, 2, 2, 2]),
            ([UringError::Missing("a feature"), step(libc::EIO)], [2, 3, 2, 3]),
        ] {
            errors.iter().for_each(|error| report_uring_error(error, &metrics));
            assert_eq!(counters.map(|counter| counter.get()), counts);
        }
        assert_eq!(UringError::Missing("IORING_OP_SENDMSG").to_string(), "the kernel has no IORING_OP_SENDMSG");
    }
}
