//! What a buffer of the receive holds before a message's payload, and the arguments that make the kernel write it.

use crate::sys::address::Name;
use crate::sys::control::CONTROL_ALIGN;
use crate::sys::control::{CONTROL_LEN, length};
use libc::msghdr;
use std::mem::{size_of, zeroed};

/// What begins a buffer (struct io_uring_recvmsg_out): the lengths of address, control messages and payload, and flags.
pub(super) const OUT: usize = 4 * size_of::<u32>();
/// Room for the address, a multiple of what control messages must be aligned to.
pub(super) const NAME: usize = 32;
/// What a buffer holds before the payload.
pub(super) const HEADER: usize = OUT + NAME + CONTROL_LEN;

const _: () = assert!((OUT + NAME).is_multiple_of(CONTROL_ALIGN) && NAME >= size_of::<Name>());

/// The arguments of the receive.
#[expect(clippy::cast_possible_truncation, reason = "32 bytes")]
pub(super) fn header() -> msghdr {
    // SAFETY: sendmsg(2): a msghdr is integers and pointers, for which zero is a value.
    let mut header: msghdr = unsafe { zeroed() };
    header.msg_namelen = NAME as libc::socklen_t;
    header.msg_controllen = length(CONTROL_LEN);
    header
}
