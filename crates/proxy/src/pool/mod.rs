//! Pools of connections to the servers of origins: one a worker and server, with a queue, exchanges that give way to
//! requests that wait, and what all pools of a worker share.

mod capacity;
mod deadline;
mod resources;
mod server_pool;

pub use capacity::{Capacity, Derived};
pub(crate) use deadline::{Deadline, Passed};
pub(crate) use resources::{ReservedRest, Resources, RestBudget};
pub(crate) use server_pool::{Needs, Pool, PooledConnection, PooledResponse};
