//! The ground of litequic's crates: what each of them may use, and what knows nothing of HTTP or QUIC.
//!
//! It uses no other crate of litequic. All others use it.
// It panics within a character.
#![cfg_attr(not(test), warn(clippy::string_slice))]
#![forbid(unsafe_code)]

pub mod half_sip_hash;
pub mod lifecycle;
pub mod log_writer;
pub mod network;
pub mod relaxed_cell;
pub mod timers;
pub mod token_bucket;
