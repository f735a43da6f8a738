//! A request on its way to an origin: its attempts, the wait for the response's header, and the response's body, which
//! can be taken into memory when its connection is needed.

mod attempt;
mod open;
mod response_body;
mod rest;
mod retry;
mod transfer;
mod wait;

pub(crate) use attempt::{ForwardFailure, ForwardedRequest, forward_request};
