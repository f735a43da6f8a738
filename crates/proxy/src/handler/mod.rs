//! Takes a request from its head to its response's: the stages that it passes, in order.

mod error_log;
mod heads;
mod proxy;
mod stages;

pub use heads::{convert_request_head, convert_response_head};
pub use proxy::Proxy;
