//! The replica that this process is, and the secrets that replicas share.

use super::start_error::StartError;
use litequic_config::Config;
use litequic_quic::{Replica, Secrets, ServerIdKey};

/// The keys of tokens, tickets and cookies: of the file that the configuration names, or random ones.
///
/// # Errors
///
/// [`StartError::Secret`], [`StartError::NoReplica`] or [`StartError::Random`].
pub(super) fn secrets(config: &Config) -> Result<Secrets, StartError> {
    let replica = replica(config);
    match &config.listen.secret_file {
        Some(path) => Ok(Secrets::load(path)?.of_replica(replica.ok_or(StartError::NoReplica)?)),
        // No other process has the secret.
        None => Ok(Secrets::random().map_err(|_| StartError::Random)?.of_replica(replica.unwrap_or_default())),
    }
}

/// The key that balancers decrypt connection IDs with, if there is one.
///
/// # Errors
///
/// [`StartError::ServerIdKey`].
pub(super) fn server_id_key(config: &Config) -> Result<Option<ServerIdKey>, StartError> {
    let path = config.listen.server_id.as_ref().and_then(|server_id| server_id.key_file.as_ref());
    Ok(path.map(|path| ServerIdKey::load(path)).transpose()?)
}

/// The replica that this process is: by its server ID, or as configured, or by the host's name. `None` if the host has
/// none.
pub(super) fn replica(config: &Config) -> Option<Replica> {
    if let Some(server_id) = &config.listen.server_id {
        // No name has a space.
        return Some(Replica::named(format!("server ID {}", server_id.digits())));
    }
    config.listen.replica.as_deref().map(Replica::named).or_else(Replica::of_host)
}
