//! Reads the bytes of a decrypted 1-RTT packet: its frames, a summary of them, violations, and the placeholder that
//! litequic replaces by a frame of its own; and encodes transport parameters. Pure.

pub mod frame;

mod packet_summary;
pub(super) mod parameters;
pub(super) mod placeholder;
mod violation;

pub(super) use packet_summary::{BlockedFrames, PacketSummary, StreamFrame};
