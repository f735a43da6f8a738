//! The companion of HTTP/3: HTTP/1.1 and HTTP/2 over TLS, for clients that have not heard of HTTP/3 yet or whose network
//! lets no UDP pass. `Alt-Svc` tells them of it. One more front door of the same house: what it accepts goes to the same
//! [`Handler`](crate::exchange::Handler) on the same worker, and nothing behind it knows by which door a request came.
//!
//! hyper speaks both protocols, tokio-rustls TLS. `http1` and `http2` have what those leave open, `request` the rules that
//! both protocols share (docs/proxying.md has them as tables).

mod answer;
mod body;
mod connection;
mod front;
mod handshake;
pub mod http1;
pub mod http2;
mod io;
mod linger;
mod listener;
mod metrics;
mod proxy_header;
mod redirect;
mod refusal;
mod request;
mod share;
mod tunnel;

pub use front::{Budgets, ChooseTls, Covers, Front};
pub use listener::{serve_plain, serve_tls};
pub use metrics::Metrics;
pub use proxy_header::addresses as proxy_header_addresses;
pub use redirect::Redirect;
pub use request::check_fields as check_http2_fields;
