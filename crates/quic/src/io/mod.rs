//! Implements s2n-quic's I/O provider over litequic's own sockets: a batch in, the endpoint, a batch out, all in one
//! turn of the worker's loop. The endpoint's task is the only one, and yields to the others after each batch.

mod ack_counts;
mod ack_reordering;
mod endpoint_io;
mod hooks;
mod moderation;
mod proxied_datagrams;
mod proxy_flows;
mod receive;
mod timer;
mod transmit;
mod yield_to_runtime;

pub(super) use ack_counts::AckCounts;
pub use ack_reordering::{AckReordering, Arrival, MAX_OVERTAKEN, MAX_REORDERED_CONNECTIONS, MAX_SMALL_DATAGRAM_LEN};
pub(super) use endpoint_io::MAX_MTU;
pub use endpoint_io::{EndpointIo, SocketIo};
pub(super) use hooks::EndpointHooks;
pub(super) use moderation::{MAX_TURN_PERIOD, Moderation, longest_turn};
pub(super) use proxied_datagrams::ProxiedDatagrams;
pub use proxy_flows::ProxyFlows;

#[cfg(test)]
mod tests;
