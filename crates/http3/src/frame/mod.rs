//! Reads and writes frames (RFC 9114 §7), buffers no more than necessary, and enforces the order of frames.
// Numbers here come from clients: none may wrap, and none may panic in builds with overflow checks.
#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]

mod control_stream;
mod frame_header;
mod frame_reader;
mod message_stream;
pub mod settings;

pub use control_stream::{ControlFrame, ControlStream, MAX_IGNORED_CONTROL_FRAMES, encode_goaway};
pub use frame_header::{FrameHeader, FrameType};
pub use frame_reader::{FrameEvent, FrameReader, PayloadAction};
pub use message_stream::{MAX_IDLE_FRAMES, MessagePart, MessageStream};

/// Role of a peer on a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeerRole {
    /// The peer sends requests.
    Client,
    /// The peer sends responses.
    Server,
}
