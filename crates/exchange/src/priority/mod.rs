//! Priorities of responses (RFC 9218): what clients and origins signal, and the order in which a connection sends.
//! Pure.
//!
//! - [`field`]: the value of a `Priority` field, and of PRIORITY_UPDATE frames,
//! - [`signals`]: what a connection's client has signalled, and when,
//! - [`weight`]: urgencies by weights of HTTP/2,
//! - [`order`]: which of a connection's streams hands over its bytes next.

pub mod field;
mod header;
pub mod order;
mod response_priority;
pub mod signals;
pub mod weight;

pub use field::{PriorityParameters, parse_priority, parse_priority_values};
pub use header::read_priority_field;
pub use order::{NextTurn, PriorityOrder, SendList};
pub use response_priority::{MAX_URGENCY, Priority};
pub use signals::{PrioritySignals, UpdateOutcome};
pub use weight::urgency_from_weight;
