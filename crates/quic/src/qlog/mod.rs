//! Logs one connection packet by packet as qlog, on the order of an operator (`litequic ctl qlog`; docs/adr/0060).
//!
//! The format is that of draft-ietf-quic-qlog-main-schema and draft-ietf-quic-qlog-quic-events as JSON-SEQ (RFC 7464).
//! Frames are those of the wire: `quic::endpoint::interceptor` passes received packets before ACK frames are merged,
//! and sent ones once they have litequic's frames. Nothing secret is written: no payload, no token, no stateless reset
//! token.
//!
//! - [`log_order`] is an operator's order, and passes its lines to the control thread, bounded.
//! - [`connection_log`] is one connection's log, to which its events write.
//! - [`frames`] and [`parameters`] describe the contents of events. Pure.

mod connection_log;
mod frames;
mod log_order;
mod parameters;

pub(super) use connection_log::{ConnectionLog, recovery_metrics};
pub use log_order::{LogEnd, LogOrder, MAX_CONNECTIONS_LOGGED, MAX_LOG_BYTES};
