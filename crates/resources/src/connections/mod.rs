//! The connections of a worker's clients: which are admitted, what each of them holds, which end when memory is short
//! or another one needs the place, and the lists that an operator asks for.

mod admission;
mod list;
mod registry;

pub use admission::ConnectionPool;
pub use list::{CloseWalk, ListRows, ListWalk, OpenWalk, WorkerList};
pub use registry::{EvictionReason, MemoryAccount, MemoryAccounts, Motion};
