//! HTTP/2 (RFC 9113) over TLS: h2's frames and fields, and the limits that it lacks: how many frames a second, how many
//! cancelled requests, how much at once, and how long a stream may stall.

mod accepting;
mod body;
mod counted;
mod serve;
mod settings;
mod stream;
mod tasks;
mod tunnel;
mod window;

pub use super::frames::{FrameCounter, FrameFlood};
pub(super) use serve::serve_http2;
