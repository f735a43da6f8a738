//! Sockets and CPUs: how many workers there are, where they run, and how the kernel hands each its own packets.

mod cpus;
mod socket;
mod steering;
mod sys;

pub use cpus::{Cpus, pin_to};
pub use socket::{BindError, bind_group};
pub use steering::Steering;
pub use sys::thread_cpu_time;
