//! Adapts the ACK frequency: a client whose acknowledgements keep a worker busy is asked to send fewer
//! (draft-ietf-quic-ack-frequency-12, or the older draft that Firefox has), if it supports that. s2n-quic has no
//! support for that (docs/adr/0013-adaptive-ack-frequency.md).
//!
//! - `quic::endpoint::tls` reads the client's support from its transport parameters.
//! - `quic::endpoint::events` passes a connection's beginning and end, lost packets, and s2n-quic's state of the path.
//! - [`threshold_rule`] decides about the next request from the received ACK frames, an [`epoch`] at a time.
//! - `quic::endpoint::frame_slot` makes room in a packet: a `quic::wire::placeholder`, which a [`request`] replaces.
//! - [`delivery`] repeats the request until the client acknowledges it.
//!
//! [`ack_frequency_state`] joins these for one connection. `quic::endpoint::interceptor` provides received and sent
//! packets.

mod ack_frequency_state;
mod delivery;
mod epoch;
mod request;
mod support;
mod threshold_rule;

pub(crate) use ack_frequency_state::AckFrequencyState;
pub use support::{AckFrequencySupport, DraftVersion};
