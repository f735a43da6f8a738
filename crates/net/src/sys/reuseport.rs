//! Attaches the program that selects a socket of a reuseport group.

use super::result::check_result;
use libc::{c_void, sock_filter, sock_fprog, socklen_t};
use std::{
    io,
    os::fd::{AsFd, AsRawFd},
};

/// Has `program` choose the socket for each datagram of the reuseport group of `socket`: the program returns the
/// socket's index, in the order of bind(2).
///
/// # Errors
///
/// ENOPROTOOPT before Linux 4.5 and in sandboxes without the option, EINVAL for a program that the kernel does not
/// accept.
pub(crate) fn attach_reuseport_cbpf(socket: &impl AsFd, program: &[sock_filter]) -> io::Result<()> {
    let len = u16::try_from(program.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let value_len = socklen_t::try_from(size_of::<sock_fprog>()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let program = sock_fprog { len, filter: program.as_ptr().cast_mut() };
    // SAFETY: socket(7), SO_ATTACH_REUSEPORT_CBPF: the option's value is a sock_fprog, whose size is given and whose
    // filter points to `len` instructions, which are borrowed for the call. The kernel only reads these.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_REUSEPORT_CBPF,
            (&raw const program).cast::<c_void>(),
            value_len,
        )
    };
    check_result(result)
}
