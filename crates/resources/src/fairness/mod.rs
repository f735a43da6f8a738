//! Pools of slots that clients share. [`Fair`] gives one client a whole pool while no other client waits, and divides a
//! pool evenly between sources once others wait (docs/adr/0034-fair-pools.md). Pure: the caller passes the time.

mod fair;
mod source;
mod tree;
mod victims;

pub use fair::{FairPool, NextRequest, PoolSlot, QueueOutcome, QueuePlace};
pub use source::ClientSource;
pub use tree::{SlotExcess, SourceBranches};
pub use victims::EvictionOrder;
