//! The start of a process: with what it takes over from the process before, or with nothing.

use super::predecessor::{FoundPredecessor, Predecessor};
use super::protocol::OlderProcess;
use crate::app::replica::{load_secrets, load_server_id_key};
use crate::app::sockets::InheritedSockets;
use crate::app::start_error::StartError;
use litequic_config::Config;
use litequic_proxy::Maintenance;
use litequic_quic::{Generations, IdLayout, IdScheme, Secrets};
use litequic_telemetry::clients::DenyList;
use std::sync::Arc;

/// What this process takes over.
pub(in crate::app) struct InheritedState {
    pub(in crate::app) inherited: InheritedSockets,
    pub(in crate::app) generation: u8,
    pub(in crate::app) secrets: Arc<Secrets>,
    /// How connection IDs are made.
    pub(in crate::app) ids: Arc<IdScheme>,
    pub(in crate::app) predecessor: Option<Predecessor>,
    pub(in crate::app) older: Vec<OlderProcess>,
    /// Generations of `older`, known before the first packet.
    pub(in crate::app) others: Arc<Generations>,
    /// Routes that are in maintenance there.
    pub(in crate::app) maintenance: Maintenance,
    /// Networks whose clients are denied there.
    pub(in crate::app) denied: DenyList,
    /// What was ordered of HTTP/3 there.
    pub(in crate::app) http3: Option<bool>,
}

impl InheritedState {
    /// Asks the running process, if there is one; otherwise takes what was `passed`.
    ///
    /// # Errors
    ///
    /// [`StartError::TakeOver`], or those of [`secrets`] and [`server_id_key`].
    pub(in crate::app) async fn from_running_process(
        config: &Config,
        passed: InheritedSockets,
    ) -> Result<Self, StartError> {
        let found = match &config.admin.handover {
            Some(path) => Predecessor::find_running(path).await?,
            None => None,
        };
        let own = load_secrets(config)?;
        let key = load_server_id_key(config)?;
        let scheme = |mask| {
            let scheme = IdScheme::new(config.listen.server_id.as_ref(), key, mask);
            scheme.map(Arc::new).map_err(|_| StartError::Random)
        };
        Ok(match found {
            None => Self {
                inherited: passed,
                generation: 0,
                secrets: Arc::new(own),
                ids: scheme(None)?,
                predecessor: None,
                older: Vec::new(),
                others: Arc::default(),
                maintenance: Maintenance::default(),
                denied: DenyList::default(),
                http3: None,
            },
            Some(FoundPredecessor {
                predecessor,
                inherited,
                generation,
                secret,
                replica,
                ids: (layout, mask),
                older,
                maintenance,
                denied,
                http3,
            }) => {
                let own_layout = IdLayout::from_server_id(config.listen.server_id.as_ref());
                if layout != own_layout {
                    // The kernel steers by one layout alone.
                    return Err(predecessor.layout_error(layout, own_layout).into());
                }
                let ids = scheme(mask)?;
                // The clients of the predecessor have its reset tokens.
                let replica = replica.unwrap_or_else(|| own.token_replica().clone());
                if replica != *own.token_replica() {
                    let (own, replica) = (own.token_replica().replica_name(), replica.replica_name());
                    tracing::info!(
                        own,
                        replica,
                        "stateless reset tokens stay those of the replica before; a restart changes them"
                    );
                }
                let secrets = match secret {
                    // Not of a file: this process' would be another.
                    Some(secret) if config.listen.secret_file.is_none() => Secrets::from_predecessor(secret),
                    _ => own,
                }
                .with_replica(replica);
                let predecessor = Some(predecessor);
                let others = Arc::new(Generations::from_numbers(older.iter().map(OlderProcess::generation)));
                let secrets = Arc::new(secrets);
                Self { inherited, generation, secrets, ids, predecessor, older, others, maintenance, denied, http3 }
            }
        })
    }
}
