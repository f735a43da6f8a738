//! The error of a system call, by its result.

use libc::c_int;
use std::io;

pub(super) fn check(result: c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
