//! Serves HTTP/3 (RFC 9114) on QUIC streams: frames, QPACK and field sections on the way in, the same on the way out.
//!
//! [`serve_http3`] serves one connection. The public modules below are pure: they take bytes and return values, and use
//! no stream, timer or task. A stream's bytes go through [`frame::MessageStream`] (requests, responses) or
//! [`frame::ControlStream`], a HEADERS frame's payload through [`qpack::decode_section`], and the decoded fields
//! through [`message::decode_request`], [`message::decode_response`] or [`message::decode_trailers`].
//! [`message::encode_request`], [`message::encode_response`] and [`message::encode_trailers`] encode messages.
//!
//! The crate uses `litequic-exchange`, `litequic-resources`, the crates below these two, and s2n-quic's streams. The
//! program uses the crate.
// Slicing a string within a character panics.
#![cfg_attr(not(test), warn(clippy::string_slice))]
#![forbid(unsafe_code)]

pub mod client;
pub mod error_code;
pub mod frame;
mod lingering_streams;
pub mod message;
pub mod qpack;
pub mod stream_type;
pub mod varint;

mod alt_svc_renewal;
mod connection;
mod connection_requests;
mod extended_connect;
mod http3_lifecycle;
mod http3_metrics;
mod http3_phase;
mod http3_priorities;
mod http3_worker;
mod paused_streams;
mod request_outcome;
mod request_receiver;
mod request_stream;
mod response_sender;
mod response_writer;
mod unidirectional_streams;

pub use connection::serve_http3;
pub use error_code::ErrorCode;
pub use frame::settings;
pub use http3_metrics::Http3Metrics;
pub use http3_worker::{ClientAddressFn, Http3Worker, QuicTransportFn};
pub use request_stream::request_future_size;
