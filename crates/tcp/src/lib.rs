//! Serves the TCP listeners: HTTP/1.1 and HTTP/2 over TLS, for clients without HTTP/3 or in a network that blocks UDP.
//! `Alt-Svc` advertises HTTP/3 to these clients. Requests go to the same [`Handler`](litequic_exchange::Handler) on the
//! same worker, which does not depend on the protocol.
//!
//! hyper implements HTTP/1.1, h2 HTTP/2, tokio-rustls TLS. `http1` and `http2` have the checks that these libraries
//! lack, `request_head` the rules that both protocols share (docs/proxying.md has tables).
//!
//! The crate uses `litequic-exchange`, `litequic-resources` and the crates below these two. The program uses the crate.
#![expect(clippy::disallowed_types, reason = "hyper and h2 have their fields in it")]
// Slicing a string within a character panics.
#![cfg_attr(not(test), warn(clippy::string_slice))]
#![forbid(unsafe_code)]

mod acceptor;
mod body_discard;
mod connection_writes;
mod first_records;
pub mod http1;
pub mod http2;
mod http2_frames;
mod listener;
mod listener_alt_svc;
mod priorities;
mod proxy_header;
mod queue_limit;
mod redirect_listener;
mod refusal;
mod request_answer;
mod request_head;
mod response_buffer;
mod tcp_body;
mod tcp_connection;
mod tcp_lifecycle;
mod tcp_metrics;
mod tcp_phase;
mod tcp_worker;
mod tls_handshake;
mod tunnel_handoff;
mod write_timeout;

pub use listener::{serve_plain, serve_tls};
pub use redirect_listener::{HttpValidation, RedirectListener};
pub use request_head::check_fields as check_http2_fields;
pub use tcp_metrics::TcpMetrics;
pub use tcp_worker::{DeferredValue, HandshakeConfig, TcpTransportFn, TcpWorker};
