//! Adaptive ACK frequency: a client whose acknowledgements keep a worker busy is requested to send fewer
//! (draft-ietf-quic-ack-frequency-12, or the older draft that Firefox has), if it supports that. s2n-quic does not
//! (docs/adr/0013-adaptive-ack-frequency.md).
//!
//! - `quic::endpoint::tls` reads the client's support from its transport parameters.
//! - `quic::endpoint::events` passes a connection's beginning and end, lost packets, and s2n-quic's state of the path.
//! - [`rule`] decides from the ACK frames that came what to request, an [`epoch`] at a time.
//! - `quic::endpoint::frame_slot` makes room for the frame in a packet: a `quic::wire::placeholder`, in whose place a
//!   [`request`] is put.
//! - [`delivery`] has it sent again until it arrives.
//!
//! [`state`] is one connection, which joins them. `quic::endpoint::interceptor` provides received and sent packets.

mod ack_frequency_state;
mod delivery;
mod epoch;
mod request;
mod support;
mod threshold_rule;

pub(crate) use ack_frequency_state::AckFrequencyState;
pub use support::{AckFrequencySupport, DraftVersion};
