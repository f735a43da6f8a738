//! Serves HTTP/2 (RFC 9113) by h2, and adds the limits that h2 lacks: of frames a second, of cancelled requests, of
//! bytes in memory, and of a stream's stall.

mod body;
mod first_settings;
mod frame_limit_stream;
mod http2_server;
mod request_stream;
mod send_capacity;
mod stream_acceptor;
mod stream_tasks;
mod tunnel_stream;
mod unread_frames;

pub use super::http2_frames::{FrameCounter, FrameFlood};
pub(super) use http2_server::serve_http2;
