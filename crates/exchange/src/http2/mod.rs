//! Parses and writes HTTP/2 (RFC 9113) as a client: frames, field blocks by HPACK without a dynamic table (RFC 7541),
//! and heads of responses. Pure: no socket, clock or task.
// Numbers here come from servers: none may wrap, and none may panic in builds with overflow checks.
#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]

mod client_connection;
mod client_stream;
mod frame;
mod hpack;
mod output_queue;
mod response;

pub use client_connection::{ClientConnection, ConnectionFault, GoAway, MAX_INTERIM};
pub use client_stream::StreamFailure;
pub use frame::{
    DEFAULT_MAX_FRAME_LEN, DEFAULT_WINDOW, FRAME_HEADER_LEN, Http2ErrorCode, Http2FrameHeader, LARGEST_FRAME_LEN,
    MAX_WINDOW, PREFACE, flag, kind, parse_settings, setting, write_goaway, write_header_frames, write_ping_ack,
    write_rst_stream, write_settings, write_settings_ack, write_window_update,
};
pub use hpack::{decode_block, write_field_block, write_request};
pub use response::{HeadFault, read_response_head, read_response_trailers};

#[cfg(test)]
mod oracle_tests;
#[cfg(test)]
mod server_fault_tests;
#[cfg(test)]
mod tests;
