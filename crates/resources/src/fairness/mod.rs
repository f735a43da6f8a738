//! Divides pools of slots between clients. [`FairPool`] gives one client a whole pool while no other client waits, and
//! divides a pool evenly between sources once others wait (docs/adr/0034-fair-pools.md). Pure: the caller passes the
//! time.

mod client_source;
mod eviction_order;
mod fair_pool;
mod source_tree;

pub use client_source::ClientSource;
pub use eviction_order::EvictionOrder;
pub use fair_pool::{FairPool, NextRequest, PoolSlot, QueueOutcome, QueuePlace};
pub use source_tree::{SlotExcess, SourceBranches};
