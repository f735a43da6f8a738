//! Holds an origin and its servers: the choice of one for each request, their health by checks and by requests.

mod health_check;
mod http2_health;
mod ticket;
mod worker_origin;
mod worker_server;

pub use health_check::{CheckSummary, ServerState, probe_origin_server};
pub(crate) use health_check::{CheckTarget, check_servers};
pub(crate) use ticket::Ticket;
pub(crate) use worker_origin::{RoutedOrigin, WorkerOrigin};
