//! Defines the layout of a buffer that holds a received message.

use super::super::{
    control::{CONTROL_ALIGN, CONTROL_LEN, to_cmsg_length},
    raw_address::RawAddress,
};
use libc::msghdr;
use std::mem::{size_of, zeroed};

/// Bytes at the start of a buffer (struct io_uring_recvmsg_out): lengths of address, control messages and payload, and
/// flags.
pub(super) const RECVMSG_OUT_LEN: usize = 4 * size_of::<u32>();
/// Bytes of the address, a multiple of the alignment of control messages.
pub(super) const ADDRESS_ROOM: usize = 32;
/// Bytes before the payload.
pub(super) const BUFFER_HEADER_LEN: usize = RECVMSG_OUT_LEN + ADDRESS_ROOM + CONTROL_LEN;

const _: () =
    assert!((RECVMSG_OUT_LEN + ADDRESS_ROOM).is_multiple_of(CONTROL_ALIGN) && ADDRESS_ROOM >= size_of::<RawAddress>());

/// Arguments of a multishot receive, which set this layout.
#[expect(clippy::cast_possible_truncation, reason = "32 bytes")]
pub(super) fn receive_arguments() -> msghdr {
    // SAFETY: sendmsg(2): a msghdr is integers and pointers, for which zero is a value.
    let mut header: msghdr = unsafe { zeroed() };
    header.msg_namelen = ADDRESS_ROOM as libc::socklen_t;
    header.msg_controllen = to_cmsg_length(CONTROL_LEN);
    header
}
