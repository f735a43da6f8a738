//! Sockets: one a worker on the same port, how the kernel hands each its own packets, and how they are read and written.

mod backend;
mod cut;
mod descriptors;
mod epoll;
mod feature;
mod flush;
mod listener;
mod metrics;
mod probe;
mod socket;
mod steering;
mod sys;
mod transmit;
mod uring;

pub use backend::{Backend, OpenSocket, Receiver, SocketOptions};
pub use descriptors::{receive, send};
pub use listener::{ListenError, listen_group};
pub use metrics::Metrics;
pub use probe::{Family, Feature, Finding, probe};
pub use socket::{BindError, Group};
pub use steering::{Generation, Steering};
pub use sys::thread_cpu_time;
pub use transmit::Sender;

/// Errors in a row before a socket counts as broken. One comes of a shortage of memory, say, and passes.
const MAX_ERRORS: u32 = 1000;

#[cfg(test)]
mod tests;
