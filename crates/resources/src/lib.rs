//! Divides the resources that a process's connections share: buffers to send and to receive, memory, file descriptors,
//! slots of pools.
//!
//! This crate uses `litequic-base`, `litequic-exchange` (priorities) and `litequic-telemetry` (lists of clients).
//! `litequic-quic`, `litequic-http3`, `litequic-tcp`, `litequic-proxy`, `litequic-admin` and the program use it.
// Slicing a string panics within a character.
#![cfg_attr(not(test), warn(clippy::string_slice))]
#![forbid(unsafe_code)]

pub mod connections;
pub mod descriptors;
pub mod fairness;
pub mod memory;
pub mod receive;
pub mod send;
pub mod transport;
