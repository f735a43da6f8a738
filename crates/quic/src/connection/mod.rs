//! Keeps the state that litequic has of each connection by its packets, from the start of the connection to its end.
//!
//! - [`connections`] holds the connections of an endpoint, and processes each received packet.
//! - [`connection_state`] is one connection, made of the following:
//! - [`stream_state`], [`stream_credit`]: the client's limits for sending on its request streams.
//! - [`send_queue`]: bytes of responses that are queued, sent and acknowledged.
//! - [`control_frames`]: the client's limits below HTTP/3.
//! - [`lost_packets`]: packets that were declared lost wrongly.
//! - [`acknowledged_numbers`], [`ack_frequency`]: acknowledged packets, and the frequency of acknowledgements.
//! - [`path_challenge`], [`mod@client_address`]: the validation of paths.
//!
//! `quic::endpoint` creates and removes connections in the table, and passes events and received packets. Nothing is
//! missed while a connection is open: every frame passes here before s2n-quic processes it, and s2n-quic closes a
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
pub(super) use client_address::{ValidatedAddresses, datagram_client, set_named_client};
pub(super) use connection_state::ConnectionState;
pub(super) use connections::{Connections, PacketAction, ReceivedPacket};
pub(super) use path_challenge::{UnansweredChallenge, move_before_response};
pub(super) use send_queue::{SendQueue, SentStreams};
pub(super) use stream_state::StreamSendState;
