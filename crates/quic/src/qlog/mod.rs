//! qlog: what one connection does, packet by packet, for an operator who asks (`litequic ctl qlog`; docs/adr/0060).
//!
//! The format is that of draft-ietf-quic-qlog-main-schema and draft-ietf-quic-qlog-quic-events as JSON-SEQ (RFC 7464).
//! Frames are those of the wire: `quic::endpoint::interceptor` passes received packets before ACK frames are merged,
//! and sent ones once litequic's frames are in them. Nothing secret is written: no payload, no token, no stateless
//! reset token.
//!
//! - [`order`]: what an operator asks for, and the way of its lines to the control thread, bounded.
//! - [`log`]: one connection's log, which its events write to.
//! - [`frames`], [`parameters`], [`json`]: their contents. Pure.

mod connection_log;
mod frames;
mod json;
mod log_order;
mod parameters;

pub(super) use connection_log::{ConnectionLog, LogMetrics, LoggedPacket};
pub use log_order::{LogEnd, LogOrder, MAX_CONNECTIONS_LOGGED, MAX_LOG_BYTES};
