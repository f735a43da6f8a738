//! Sockets: one a worker on the same port, and how the kernel hands each its own packets.

mod socket;
mod steering;
mod sys;

pub use socket::{BindError, bind_group};
pub use steering::Steering;
pub use sys::thread_cpu_time;
