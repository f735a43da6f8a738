//! Sockets: one a worker on the same port, how the kernel hands each its own packets, and how they are read and written.

mod epoll;
mod feature;
mod listener;
mod probe;
mod socket;
mod steering;
mod sys;

pub use epoll::{Epoll, EpollOptions, Receiver, Sender};
pub use listener::{ListenError, listen_group};
pub use probe::{Family, Feature, Finding, probe};
pub use socket::{BindError, bind_group};
pub use steering::Steering;
pub use sys::thread_cpu_time;
