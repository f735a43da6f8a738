//! litequic terminates HTTP/3 and forwards plaintext HTTP/1.1 to an origin that was never changed.
//!
//! The way of a request: [`net`] receives datagrams, [`quic`] makes connections of them, [`http3`] makes
//! requests, [`tcp`] those of clients without HTTP/3; [`exchange`] is what the front doors and the proxy agree on,
//! [`proxy`] sends the request to the origin. [`app`] wires them; [`cli`] starts it. `docs/architecture.md` has the picture.
// It panics within a character.
#![cfg_attr(not(test), warn(clippy::string_slice))]

pub mod access_log;
pub mod admin;
// Fuzz targets need no endpoint: without these two nobody makes one, which is most of what there is to compile.
#[cfg(not(fuzzing))]
pub mod app;
pub mod budget;
#[cfg(not(fuzzing))]
pub mod cli;
pub mod config;
pub mod datagram;
pub mod exchange;
pub mod http3;
pub mod lifecycle;
pub mod memory;
pub mod net;
mod number;
pub mod proxy;
pub mod quic;
pub mod rate;
pub mod receive_budget;
pub mod sources;
pub mod tcp;
pub mod telemetry;
pub mod tls;
pub mod transport;
