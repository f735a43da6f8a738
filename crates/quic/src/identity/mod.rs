//! What names an endpoint's connections, and proves it: connection IDs, stateless reset tokens, the keys that all
//! workers share, and the generations of other processes on the same port.

pub(super) mod connection_id;
pub(super) mod retry_ids;
pub(super) mod stateless_reset;

mod generations;
mod id_layout;
mod id_scheme;
mod quic_lb;
mod replica;
mod secrets;

pub use connection_id::{ConnectionIdFormat, MAX_WORKERS, WorkerIndex};
pub use generations::Generations;
pub use id_layout::IdLayout;
pub use id_scheme::IdScheme;
pub(super) use id_scheme::ServerIdOwner;
pub use quic_lb::{ServerIdKey, ServerIdKeyError};
pub use replica::Replica;
pub use secrets::{SecretError, Secrets};
