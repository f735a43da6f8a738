//! HTTP/3 (RFC 9114) on QUIC streams: frames, QPACK and field sections on the way in, the same on the way out.
//!
//! [`serve`] is the connection's loop. The public modules below are pure: they take bytes and return values, and use no
//! stream, timer or task. A stream's bytes go through [`frame::MessageStream`] (requests, responses) or
//! [`frame::ControlStream`], a HEADERS frame's payload through [`qpack::decode`], its fields through
//! [`message::request`], [`message::response`] or [`message::trailers`]. Messages are encoded by
//! [`message::encode_response`] and its neighbours.
//!
//! It uses `litequic-exchange`, `litequic-resources` and the crates below them, and s2n-quic's streams. The program
//! uses it.
// It panics within a character.
#![cfg_attr(not(test), warn(clippy::string_slice))]
#![forbid(unsafe_code)]

pub mod client;
pub mod error;
pub mod frame;
mod linger;
pub mod message;
pub mod qpack;
pub mod uni;
pub mod varint;

mod alt_svc;
mod connection;
mod control;
mod exchanges;
mod front;
mod life;
mod metrics;
mod outcome;
mod pauses;
mod phase;
mod priorities;
mod receive;
mod request;
mod response;
mod send;
mod send_error;
mod tunnel;

pub use connection::serve_http3;
pub use error::ErrorCode;
pub use frame::settings;
pub use front::{ClientAddressFn, Http3Worker, QuicTransportFn};
pub use metrics::Http3Metrics;
pub use request::request_future_size;
