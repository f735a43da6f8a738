//! Reads the bytes of a decrypted 1-RTT packet: its frames, a summary of them, violations, and the placeholder that
//! litequic replaces by a frame of its own; the header that begins a datagram of any version of QUIC; and encodes
//! transport parameters. Pure.

pub mod frame;

mod invariant_header;
mod packet_summary;
pub(super) mod parameters;
pub(super) mod placeholder;
mod violation;

pub(super) use invariant_header::{InvariantHeader, convert_to_initial};
pub(super) use packet_summary::{BlockedFrames, PacketSummary, StreamFrame};
