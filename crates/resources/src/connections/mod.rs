//! The connections of a worker's clients: which are admitted, what each of them holds, which end when memory is short
//! or another one needs the place, and the lists that an operator asks for.

mod admission;
mod connection_pools;
mod list;
mod registered_connection;
mod registry;
mod sent_rate;

pub use list::{CloseScan, ListRows, ListScan, OpenScan, WorkerList};
pub use registered_connection::{ConnectionPool, EvictionReason, TrafficCounter};
pub use registry::{ConnectionEntry, ConnectionRegistry};
