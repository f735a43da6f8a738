//! The TCP listeners: HTTP/1.1 and HTTP/2 over TLS, for clients without HTTP/3 or in a network that blocks UDP.
//! `Alt-Svc` advertises HTTP/3 to them. Their requests go to the same [`Handler`](litequic_exchange::Handler) on the
//! same worker, which does not depend on the protocol.
//!
//! hyper implements HTTP/1.1, h2 HTTP/2, tokio-rustls TLS. `http1` and `http2` have the checks that those lack,
//! `request` the rules that both protocols share (docs/proxying.md has them as tables).
//!
//! It uses `litequic-exchange`, `litequic-resources` and the crates below them. The program uses it.
#![expect(clippy::disallowed_types, reason = "hyper and h2 have their fields in it")]
// It panics within a character.
#![cfg_attr(not(test), warn(clippy::string_slice))]
#![forbid(unsafe_code)]

mod accept;
mod alt_svc;
mod answer;
mod body;
mod connection;
mod first_records;
mod frames;
mod front;
mod handshake;
pub mod http1;
pub mod http2;
mod io;
mod life;
mod linger;
mod listener;
mod metrics;
mod phase;
mod priorities;
mod proxy_header;
mod queue_limit;
mod redirect;
mod refusal;
mod request;
mod share;
mod tunnel;
mod writes;

pub use front::{DeferredValue, HandshakeConfig, TcpTransportFn, TcpWorker};
pub use listener::{serve_plain, serve_tls};
pub use metrics::TcpMetrics;
pub use proxy_header::parse_proxy_header as proxy_header_addresses;
pub use redirect::{HttpValidation, RedirectListener};
pub use request::check_fields as check_http2_fields;
