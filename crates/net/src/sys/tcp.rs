//! Reads the kernel's state of a TCP connection.

use super::result::check_result;
use libc::{c_int, c_void, socklen_t};
use std::{
    io,
    mem::{MaybeUninit, size_of},
    os::fd::RawFd,
};

/// State of the TCP connection of `socket` (tcp(7), TCP_INFO). If the descriptor was closed, the result is an error, or
/// the state of the socket that has the number by now.
///
/// # Errors
///
/// EBADF or ENOTSOCK if the descriptor is not a socket, EOPNOTSUPP or ENOPROTOOPT for a socket of another kind.
pub(crate) fn tcp_info(socket: RawFd) -> io::Result<libc::tcp_info> {
    let mut info = MaybeUninit::<libc::tcp_info>::zeroed();
    let mut length = socklen_t::try_from(size_of::<libc::tcp_info>()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let name: c_int = libc::TCP_INFO;
    // SAFETY: getsockopt(2): the kernel writes at most `length` bytes, which is the size of what the pointer leads to,
    // and rejects a number that is no open socket's. All-zero is a valid tcp_info, so that an older kernel, which
    // writes less, leaves valid numbers.
    unsafe {
        check_result(libc::getsockopt(
            socket,
            libc::IPPROTO_TCP,
            name,
            info.as_mut_ptr().cast::<c_void>(),
            &raw mut length,
        ))?;
        Ok(info.assume_init())
    }
}
