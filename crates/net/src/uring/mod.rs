//! Datagrams over io_uring: the kernel receives by itself, into buffers that it was given, and the worker finds what
//! was received in its next turn; QUIC's packets are sent in the same call that collects what came meanwhile.

mod check;
mod receive;
mod send;

pub(super) use check::check_io_uring;
pub(super) use receive::UringReceiver;
