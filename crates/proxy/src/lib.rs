//! Sends requests to origins: chooses a route, rewrites the head, sends it over the origin's connection pool, and
//! answers in the origin's place when it cannot.
//!
//! One [`Proxy`] a worker: pools, queues and names are its own, and nothing here is shared with another worker but the
//! [`Routing`], which a reload replaces as a whole.
//!
//! A module uses those below it: `handler` has the stages of a request, `routing` the compiled configuration and the
//! choice of a route, `forward` a request's attempts and its response's body, `origin` the servers of an origin and the
//! health checks that the control thread makes for all, `pool` the connections to one server, `tunnel` those that have
//! switched protocols, `connection` one of them, `rules` the changes of a route, `access` the clients that may use it,
//! `address` the addresses of a server, `message` the heads of requests and responses, `balance` the choice of a
//! server, and `answer` litequic's own responses. `rules`, `message` and `balance` are pure, as are `routing::routes`
//! and `forward::retry`; `forward`, `pool`, `connection` and `address` have the sockets and the timers.
//!
//! Decisions: `TE: trailers` is forwarded; `Early-Data` is forwarded as it is (RFC 8470 §5.1); `Via` is not added (some
//! origins stop compressing for proxies); an origin that answers with HTTP/1.0 gets a connection a request; a 100
//! (Continue) comes from the origin, or after a second from litequic.
//!
//! This crate uses `litequic-exchange`, `litequic-resources` and the crates below them. The program uses it as the
//! front ends' [`Handler`](litequic_exchange::Handler).
// Indexing a string panics within a character.
#![cfg_attr(not(test), warn(clippy::string_slice))]
#![forbid(unsafe_code)]

mod access;
mod address;
mod answer;
mod balance;
mod connection;
mod forward;
mod handler;
mod message;
mod metrics;
mod origin;
mod pool;
mod routing;
mod rules;
#[cfg(test)]
mod tests;
mod tunnel;

pub use access::{Users, UsersError, create_user_line};
pub use answer::{PageError, Pages};
pub use balance::CookieKey;
pub use connection::TlsToOrigin;
pub use handler::{Proxy, convert_request_head, convert_response_head};
pub use metrics::{CheckMetrics, CheckMetricsTable, ProxyMetrics, RouteMetrics, RouteName, ServerMetrics, ServerName};
pub use origin::{CheckSummary, ServerState, probe_origin_server};
pub use pool::{Capacity, DerivedLimits};
pub use routing::{
    ActiveMaintenance, Maintenance, MaintenanceError, MaintenanceTarget, Routing, RoutingFiles, check_health,
};
