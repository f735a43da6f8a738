//! Issues connection IDs, tokens and stateless reset tokens, with the keys that all workers share, and keeps the
//! generations of other processes on the same port.

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
