//! Registers sockets with tokio's epoll for one kind of readiness only.

use std::{io, net::UdpSocket};
use tokio::io::{Interest, unix::AsyncFd};

/// Registers `socket` with the runtime of the calling thread for `interest` only. tokio's own `UdpSocket` would
/// register for writability too: the kernel would then wake the worker for every packet sent.
///
/// # Errors
///
/// The error of epoll_ctl(2), or the thread has no runtime with I/O.
pub(crate) fn register_interest(socket: UdpSocket, interest: Interest) -> io::Result<AsyncFd<UdpSocket>> {
    // SAFETY: epoll(7): a descriptor must stay open, and the same, until it is taken out of the epoll instance. The
    // UdpSocket owns it and is owned by the AsyncFd, which takes it out before it drops it.
    unsafe { AsyncFd::register_with_interest(socket, interest) }.map_err(io::Error::from)
}
