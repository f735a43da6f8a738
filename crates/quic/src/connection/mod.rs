//! The state that litequic keeps of each connection by its packets, from the connection's beginning to its end.
//!
//! - [`table`]: the connections of an endpoint; each received packet is processed there.
//! - [`state`]: one connection, of
//! - [`stream`], [`stream_credit`]: how far its client lets litequic send on each of its request streams,
//! - [`send_queue`]: what of its responses is queued, sent and acknowledged,
//! - [`control_frames`]: whether its client respects the limits below HTTP/3,
//! - [`lost_packets`]: which of its packets were declared lost wrongly,
//! - [`acknowledged`], [`ack_frequency`]: what its client has acknowledged, and how often it is asked to.
//! - [`path_challenge`], [`mod@client_address`]: the validation of its paths.
//!
//! `quic::endpoint` creates and removes connections in the table, and passes events and received packets. Nothing is
//! missed as long as a connection is open: s2n-quic processes no frame that does not pass here first, and closes a
//! connection at a frame that `quic::wire::frame` does not parse.

mod ack_frequency;
mod acknowledged_numbers;
mod by_id;
mod client_address;
mod connection_state;
mod connections;
mod control_frames;
mod lost_packets;
mod path_challenge;
mod send_queue;
mod stream_credit;
mod stream_state;

pub use ack_frequency::{AckFrequencySupport, DraftVersion};
pub use acknowledged_numbers::{AcknowledgedNumbers, MAX_ACKNOWLEDGED_RANGES};
pub use control_frames::AlertHandle;

pub(super) use ack_frequency::AckFrequencyState;
pub(super) use client_address::ValidatedAddresses;
pub(super) use connection_state::ConnectionState;
pub(super) use connections::{Connections, PacketAction, ReceivedPacket};
pub(super) use path_challenge::{UnansweredChallenge, move_before_response};
pub(super) use send_queue::{SendQueue, SentStreams};
pub(super) use stream_state::StreamSendState;
