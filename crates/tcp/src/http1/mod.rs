//! Serves HTTP/1.1 (RFC 9112) by hyper, behind a guard that accepts only bytes which two parsers read in the same way.

mod body;
mod expectation;
mod http1_server;
mod request_guard;
mod request_scanner;

pub(super) use http1_server::serve_http1;
pub use request_guard::{PipelineState, RequestGuardStream};
