//! Wraps the system calls that neither std nor socket2 have: all unsafe code of the crate. Each function is safe to
//! call.
#![expect(unsafe_code, reason = "system calls; this is the one place for them")]

mod control;
mod int_option;
mod mmsg;
mod raw_address;
mod readiness;
mod result;
mod reuseport;
mod tcp;
mod uring;

pub(super) use int_option::IntOption;
pub(super) use mmsg::{GRO_MESSAGE_LEN, KernelMessage, PLAIN_MESSAGE_LEN, ReceiveBatch, SendBatch};
pub(super) use readiness::register_interest;
pub(super) use reuseport::attach_reuseport_cbpf;
pub(super) use tcp::tcp_info;
pub(super) use uring::{MultishotReceive, Ring, UringError, max_completions};
