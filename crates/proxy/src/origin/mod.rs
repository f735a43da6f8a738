//! An origin and its servers: the choice of one for each request, their health by checks and by requests.

mod check;
mod server;
mod state;
mod ticket;

pub use check::{CheckSummary, ServerState, probe_origin_server};
pub(crate) use check::{CheckTarget, check_servers};
pub(crate) use state::{RoutedOrigin, WorkerOrigin};
pub(crate) use ticket::Ticket;
