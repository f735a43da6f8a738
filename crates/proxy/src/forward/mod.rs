//! Forwards a request to an origin: its attempts, the wait for the response's header, and the response's body, which
//! can be spooled into memory when its connection is needed.

mod attempt;
mod authentication;
mod header_wait;
mod open_exchange;
mod response_body;
mod retry;
mod spool;
mod transfer;

pub(crate) use attempt::{ForwardFailure, ForwardedRequest, forward_request};
