//! Foundation of litequic's crates: code that any of them may use, and that knows nothing of HTTP or QUIC.
//!
//! This crate uses no other crate of litequic; all others use it.
// Slicing a string panics within a character.
#![cfg_attr(not(test), warn(clippy::string_slice))]
#![forbid(unsafe_code)]

pub mod connect_host;
pub mod free_list;
pub mod group_digits;
pub mod half_sip_hash;
pub mod lifecycle;
pub mod log_writer;
pub mod named_enum;
pub mod network;
pub mod partial_debug;
pub mod proxy_header;
pub mod relaxed_cell;
pub mod short_duration;
pub mod tcp_keepalive;
pub mod timers;
pub mod token_bucket;
