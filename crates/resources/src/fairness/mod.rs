//! Pools of slots that clients share. [`Fair`] gives one client a whole pool while no other client waits, and divides a
//! pool evenly between sources once others wait (docs/adr/0034-fair-pools.md). Pure: the caller passes the time.

mod fair;
mod source;
mod tree;
mod victims;

pub use fair::{Fair, Next, Place, Slot, Waited};
pub use source::Source;
pub use tree::{Branches, Excess};
pub use victims::Victims;
