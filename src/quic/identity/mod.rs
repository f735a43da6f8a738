//! What names an endpoint's connections, and proves it: connection IDs, stateless reset tokens, the keys that all
//! workers share, and the generations of other processes on the same port.

pub(super) mod connection_id;
pub(super) mod retry_id;
pub(super) mod stateless_reset;

mod generations;
mod replica;
mod secrets;

pub use connection_id::{Layout, LayoutError, MAX_WORKERS, ServerId, WorkerIndex};
pub use generations::Generations;
pub use replica::Replica;
pub use secrets::{SecretError, Secrets};
