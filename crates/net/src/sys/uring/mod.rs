//! A socket's io_uring(7): a multishot receive into buffers that the kernel picks, and sends that are submitted
//! together. One thread uses it, the one that made it (IORING_SETUP_SINGLE_ISSUER); the kernel works on it only during
//! that thread's io_uring_enter(2) (IORING_SETUP_DEFER_TASKRUN).
//!
//! Invariants that every `SAFETY` below relies on:
//! - The kernel reads a send's header when it consumes its entry, which is before the call that submits it returns; its
//!   payload while it tries it, which is once, then and there (MSG_DONTWAIT). [`Ring::send`] returns when all have
//!   completed: none is ever in flight beyond. Headers of entries that the kernel did not consume stay where they are,
//!   and are such that it would not follow them (`SendBatch::defuse`).
//! - The kernel writes into a buffer of the receive from the moment it is provided until a completion names it, and
//!   then no more until it is provided again. Their memory outlives their registration, or is never given back.

mod buffers;
mod message_buffer;
mod receive;
mod refusal;
mod ring;

pub(crate) use receive::{MultishotReceive, completions};
pub(crate) use refusal::{UringError, UringErrorKind};
pub(crate) use ring::Ring;

#[cfg(test)]
mod tests;
