//! HTTP/2 (RFC 9113) over TLS: h2's frames and fields, and the limits that it lacks: how many frames a second, how many
//! cancelled requests, how much at once, and how long a stream may stall.

mod body;
mod first_settings;
mod frame_limit_stream;
mod http2_server;
mod request_stream;
mod send_capacity;
mod stream_acceptor;
mod stream_tasks;
mod tunnel_stream;

pub use super::http2_frames::{FrameCounter, FrameFlood};
pub(super) use http2_server::serve_http2;
