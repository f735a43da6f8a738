//! Orders responses by priority (RFC 9218): reads the signals of clients and origins, and selects the next stream to
//! send. Pure.
//!
//! - [`parameters`]: the value of a `Priority` field, and of PRIORITY_UPDATE frames,
//! - [`priority_signals`]: the signals of a connection's client,
//! - [`weight_urgency`]: urgencies by weights of HTTP/2,
//! - [`priority_order`]: the stream of a connection that hands over its bytes next.

pub mod parameters;
mod priority_field;
pub mod priority_order;
pub mod priority_signals;
mod response_priority;
pub mod weight_urgency;

pub use parameters::{PriorityParameters, parse_priority, parse_priority_values};
pub use priority_field::read_priority_field;
pub use priority_order::{NextTurn, PriorityOrder, SendList};
pub use priority_signals::{PrioritySignals, UpdateOutcome};
pub use response_priority::{MAX_URGENCY, Priority};
pub use weight_urgency::urgency_from_weight;
