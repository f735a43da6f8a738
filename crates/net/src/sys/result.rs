//! Converts the result of a system call.

use libc::c_int;
use std::io;

/// Returns errno as an error, unless the system call's `result` is 0.
pub(super) fn check_result(result: c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
