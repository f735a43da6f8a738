//! Applies the priorities of responses over HTTP/2 (RFC 9218): signals, and the order in which responses hand over
//! their bytes.

mod http2_priorities;
mod response_order;

pub(super) use http2_priorities::Http2Priorities;
pub(super) use response_order::{ResponseTurn, TurnState};
