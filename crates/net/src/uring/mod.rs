//! Receives and sends datagrams over io_uring: the kernel receives into buffers that were provided, the worker reads
//! them in its next turn, and QUIC's packets are sent in the same call that collects completions.

mod check;
mod receive;
mod send;

pub(super) use check::check_io_uring;
pub(super) use receive::UringReceiver;
