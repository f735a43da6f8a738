//! litequic terminates HTTP/3 and forwards HTTP/1.1, in plaintext or over TLS, to an origin that was never changed.
//!
//! A request's path: [`net`] receives datagrams, [`quic`] turns them into connections, [`http3`] into requests; [`tcp`]
//! serves clients without HTTP/3. [`exchange`] is the interface between these front ends and the proxy, and [`proxy`]
//! sends the request to the origin. [`app`] connects them; [`cli`] starts it. `docs/architecture.md` has the picture.
// It panics within a character.
#![cfg_attr(not(test), warn(clippy::string_slice))]

pub mod access_log;
pub mod acme;
pub mod admin;
// Fuzz targets need no endpoint: without these two none is made, and an endpoint is most of the code to compile.
#[cfg(not(fuzzing))]
pub mod app;
pub mod budget;
#[cfg(not(fuzzing))]
pub mod cli;
pub mod clients;
pub mod config;
pub mod datagram;
pub mod descriptors;
pub mod exchange;
mod half_sip_hash;
pub mod http1;
pub mod http3;
pub mod lifecycle;
mod log_writer;
pub mod memory;
pub mod net;
pub mod network;
mod number;
pub mod priority;
pub mod proxy;
pub mod quic;
pub mod rate;
pub mod receive_budget;
pub mod sources;
pub mod suspension;
pub mod tcp;
pub mod telemetry;
pub mod terms;
pub mod tls;
pub mod traces;
pub mod transport;
