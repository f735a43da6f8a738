//! Pools connections to the servers of origins: one pool for each worker and server, with a queue, exchanges that are
//! preempted for waiting requests, and resources that all pools of a worker share.

mod capacity;
mod deadline;
mod http2_pool;
mod pool_resources;
mod server_pool;

pub use capacity::{Capacity, DerivedLimits};
pub(crate) use deadline::{Deadline, PassedDeadline};
pub(crate) use pool_resources::{PoolResources, SpoolBudget, SpoolReservation};
pub(crate) use server_pool::{ConnectionNeeds, PooledConnection, PooledResponse, ServerPool};
