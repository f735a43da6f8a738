//! Identifies this process as a replica, and loads the secrets that replicas share.

use super::start_error::StartError;
use litequic_config::Config;
use litequic_quic::{Replica, Secrets, ServerIdKey};

/// Keys of tokens, tickets and cookies: from the file that the configuration names, or random ones.
///
/// # Errors
///
/// [`StartError::Secret`], [`StartError::NoReplica`] or [`StartError::Random`].
pub(super) fn load_secrets(config: &Config) -> Result<Secrets, StartError> {
    let replica = own_replica(config);
    let (mut secrets, replica) = match &config.listen.secret_file {
        Some(path) => (Secrets::from_secret_file(path)?, replica.ok_or(StartError::NoReplica)?),
        // A random secret is shared with no other process.
        None => (Secrets::from_random().map_err(|_| StartError::Random)?, replica.unwrap_or_default()),
    };
    secrets.replica = replica;
    Ok(secrets)
}

/// Key by which load balancers decrypt connection IDs, if there is one.
///
/// # Errors
///
/// [`StartError::ServerIdKey`].
pub(super) fn load_server_id_key(config: &Config) -> Result<Option<ServerIdKey>, StartError> {
    let path = config.listen.server_id.as_ref().and_then(|server_id| server_id.key_file.as_ref());
    Ok(path.map(|path| ServerIdKey::from_key_file(path)).transpose()?)
}

/// This process as a replica: by its server ID, by the configuration, or by the host's name. `None` if the host has no
/// name.
pub(super) fn own_replica(config: &Config) -> Option<Replica> {
    if let Some(server_id) = &config.listen.server_id {
        // No host name has a space, and so none can equal this name.
        return Some(Replica::with_name(format!("server ID {}", server_id.hex_digits())));
    }
    config.listen.replica.as_deref().map(Replica::with_name).or_else(Replica::from_host)
}
