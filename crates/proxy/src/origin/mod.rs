//! An origin and its servers: the choice of one for each request, their health by checks and by requests.

mod check;
mod server;
mod state;
mod ticket;

pub use check::{Check, ServerState, probe};
pub(crate) use check::{Checked, check_all};
pub(crate) use state::{Origin, RoutedOrigin};
pub(crate) use ticket::Ticket;
