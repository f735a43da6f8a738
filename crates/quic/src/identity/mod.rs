//! What names an endpoint's connections, and proves it: connection IDs, stateless reset tokens, the keys that all
//! workers share, and the generations of other processes on the same port.

pub(super) mod connection_id;
pub(super) mod retry_id;
pub(super) mod stateless_reset;

mod generations;
mod layout;
mod quic_lb;
mod replica;
mod scheme;
mod secrets;

pub use connection_id::{ConnectionIdFormat, MAX_WORKERS, WorkerIndex};
pub use generations::Generations;
pub use layout::IdLayout;
pub use quic_lb::{ServerIdKey, ServerIdKeyError};
pub use replica::Replica;
pub use scheme::IdScheme;
pub(super) use scheme::ServerIdOwner;
pub use secrets::{SecretError, Secrets};
