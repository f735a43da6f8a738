//! Pools of connections to the servers of origins: one a worker and server, with a queue, exchanges that give way to
//! requests that wait, and what all pools of a worker share.

mod capacity;
mod deadline;
mod pool_resources;
mod server_pool;

pub use capacity::{Capacity, DerivedLimits};
pub(crate) use deadline::{Deadline, PassedDeadline};
pub(crate) use pool_resources::{PoolResources, SpoolBudget, SpoolReservation};
pub(crate) use server_pool::{ConnectionNeeds, PooledConnection, PooledResponse, ServerPool};
