//! The bytes of a decrypted 1-RTT packet: its frames, what litequic needs of them, which of them break a rule, and the
//! placeholder in whose stead litequic puts a frame of its own; and the encoding of transport parameters. Pure.

pub mod frame;

mod packet_summary;
pub(super) mod parameters;
pub(super) mod placeholder;
mod violation;

pub(super) use packet_summary::{BlockedFrames, PacketSummary, StreamFrame};
