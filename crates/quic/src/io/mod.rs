//! s2n-quic's I/O provider over litequic's own sockets: a batch in, the endpoint, a batch out, all in one turn of the
//! worker's loop. The endpoint's task is the only one, and yields to the others after each batch.

mod ack_order;
mod batches;
mod hooks;
mod moderation;
mod provider;
mod receive;
mod timer;
mod transmit;
mod yield_to_runtime;

pub use ack_order::{AckReordering, Arrival, MAX_OVERTAKEN, MAX_REORDERED_CONNECTIONS, MAX_SMALL_DATAGRAM_LEN};
pub(super) use batches::AckCounts;
pub(super) use hooks::EndpointHooks;
pub(super) use moderation::{MAX_TURN_PERIOD, Moderation, longest_turn};
pub(super) use provider::MAX_MTU;
pub use provider::{EndpointIo, SocketIo};

#[cfg(test)]
mod tests;
