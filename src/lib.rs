//! litequic terminates HTTP/3 and forwards HTTP/1.1, in plaintext or over TLS, to an unmodified origin.
//!
//! A request's path: `litequic-net` receives datagrams, `litequic-quic` turns them into connections, `litequic-http3`
//! into requests; `litequic-tcp` serves clients without HTTP/3. `litequic-exchange` is the interface between these
//! front ends and `litequic-proxy`, which sends the request to the origin. [`app`] connects them; [`cli`] starts it.
//! `docs/architecture.md` has the picture.
// Slicing a string panics within a character.
#![cfg_attr(not(test), warn(clippy::string_slice))]
#![forbid(unsafe_code)]

pub mod app;
pub mod cli;
