//! HTTP/1.1 (RFC 9112) over TLS: hyper's server behind a guard that accepts only what two parsers read in the same way.

mod body;
mod expectation;
mod guard;
mod head;
mod requests;
mod serve;

pub use guard::{PipelineState, RequestGuardStream};
pub(super) use serve::serve_http1;
