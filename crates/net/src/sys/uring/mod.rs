//! Receives and sends on a socket by io_uring(7): a multishot receive into buffers that the kernel picks, and sends
//! that are submitted together. Only the thread that created the ring uses it (IORING_SETUP_SINGLE_ISSUER); the kernel
//! works on the ring only during that thread's io_uring_enter(2) (IORING_SETUP_DEFER_TASKRUN).

mod buffer_layout;
mod multishot_receive;
mod provided_buffers;
mod ring;
mod uring_error;

pub(crate) use multishot_receive::{MultishotReceive, max_completions};
pub(crate) use ring::Ring;
pub(crate) use uring_error::UringError;

#[cfg(test)]
mod tests;
