//! The connections of a worker's clients: which are admitted, what each of them holds, which end when memory is short
//! or another one needs the place, and the lists that an operator asks for.

mod account_state;
mod admission;
mod list;
mod places;
mod registry;
mod sent_rate;

pub use account_state::{ConnectionPool, EvictionReason, TrafficCounter};
pub use list::{CloseScan, ListRows, ListScan, OpenScan, WorkerList};
pub use registry::{ConnectionEntry, ConnectionRegistry};
