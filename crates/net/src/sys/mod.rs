//! The system calls that neither std nor socket2 have: all unsafe code of the crate. Each function is safe to call.
#![expect(unsafe_code, reason = "system calls; this is the one place for them")]

mod address;
mod check;
mod control;
mod cpu_time;
mod mmsg;
mod option;
mod readiness;
mod reuseport;
mod tcp;
mod uring;

pub use cpu_time::thread_cpu_time;
pub(super) use mmsg::{Arrived, GRO_MESSAGE, PLAIN_MESSAGE, ReceiveBatch, SendBatch};
pub(super) use option::IntOption;
pub(super) use readiness::register;
pub(super) use reuseport::{Instruction, attach_reuseport_cbpf};
pub(super) use tcp::tcp_info;
pub(super) use uring::{MultishotReceive, Ring, UringError, UringErrorKind, completions};
