//! A request from its head to its response's: the stages that it passes, in order.

mod error_log;
mod heads;
mod proxy;
mod stages;

pub use heads::{request_head, response_head};
pub use proxy::Proxy;
