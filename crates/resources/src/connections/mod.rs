//! Registers the connections of a worker's clients: admits them, counts the memory that each one holds, ends
//! connections when memory is short or another client needs the slot, and lists them for the operator.

mod admission;
mod connection_pools;
mod list;
mod registered_connection;
mod registry;
mod sent_rate;

pub use list::WorkerList;
pub use registered_connection::{ConnectionPool, EvictionReason, TrafficCounter};
pub use registry::{ConnectionEntry, ConnectionRegistry};
