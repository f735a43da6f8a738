//! Collects the state that a starting process takes over from the running one, or begins without any.

use super::offer::OfferedIds;
use super::predecessor::{FoundPredecessor, Predecessor};
use super::protocol::OlderProcess;
use crate::app::replica::{load_secrets, load_server_id_key};
use crate::app::sockets::InheritedSockets;
use crate::app::start_error::StartError;
use litequic_config::{Config, ServerIdShape};
use litequic_proxy::Maintenance;
use litequic_quic::{Generations, IdLayout, IdScheme, Replica, Secrets};
use litequic_telemetry::clients::{DeniedNetwork, DenyList};
use std::{
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

/// State that this process takes over, or begins with.
pub(in crate::app) struct InheritedState {
    pub(in crate::app) inherited: InheritedSockets,
    pub(in crate::app) generation: u8,
    pub(in crate::app) secrets: Arc<Secrets>,
    /// Scheme of connection IDs.
    pub(in crate::app) ids: Arc<IdScheme>,
    pub(in crate::app) predecessor: Option<Predecessor>,
    pub(in crate::app) older: Vec<OlderProcess>,
    /// Generations of `older`, known before the first packet.
    pub(in crate::app) others: Arc<Generations>,
    /// Routes that are in maintenance in the previous process.
    pub(in crate::app) maintenance: Maintenance,
    /// Networks whose clients the previous process denies.
    pub(in crate::app) denied: DenyList,
    /// The operator's order for HTTP/3 in the previous process.
    pub(in crate::app) http3: Option<bool>,
}

impl InheritedState {
    /// Asks the running process at `predecessor`, the socket of the process that started this one, or at
    /// `admin.handover`; if there is none, begins with the sockets `passed`.
    ///
    /// # Errors
    ///
    /// [`StartError::TakeOver`], or those of [`load_secrets`] and [`load_server_id_key`].
    pub(in crate::app) async fn from_running_process(
        config: &Config,
        predecessor: Option<&Path>,
        passed: InheritedSockets,
    ) -> Result<Self, StartError> {
        let mut found = None;
        for path in predecessor.into_iter().chain(config.admin.handover.as_deref()) {
            // The process that started this one may be gone.
            found = Predecessor::find_running(path).await?;
            if found.is_some() {
                break;
            }
        }
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
            Some(FoundPredecessor { predecessor, inherited, generation, older, offer }) => {
                let (layout, mask) = offer.connection_ids.map_or_else(Default::default, |ids| {
                    let OfferedIds { encrypted, mask, nonce, server_id } = ids;
                    (IdLayout(Some(ServerIdShape { server_id, nonce, encrypted })), Some(mask))
                });
                let own_layout = IdLayout::from_server_id(config.listen.server_id.as_ref());
                if layout != own_layout {
                    // The kernel steers by one layout alone.
                    return Err(predecessor.layout_error(layout, own_layout).into());
                }
                let ids = scheme(mask)?;
                // Clients of the predecessor have reset tokens of its replica.
                let replica = Replica::with_name(offer.replica);
                if replica != own.replica {
                    let (own, replica) = (&own.replica.0, &replica.0);
                    tracing::info!(
                        own,
                        replica,
                        "stateless reset tokens are derived from the previous replica name until a restart"
                    );
                }
                let mut secrets = match offer.secret {
                    // The predecessor's secret is used only if none comes from a file: this process has read that file
                    // itself.
                    Some(secret) if config.listen.secret_file.is_none() => Secrets::from_predecessor(secret.0),
                    _ => own,
                };
                secrets.replica = replica;
                Self {
                    inherited,
                    generation,
                    secrets: Arc::new(secrets),
                    ids,
                    predecessor: Some(predecessor),
                    others: Arc::new(Generations::from_numbers(older.iter().map(|older| older.generation))),
                    older,
                    maintenance: offer.maintenance.into_iter().collect(),
                    denied: DenyList::from_networks(offer.denied.iter().filter_map(denied_network), Instant::now()),
                    http3: offer.http3,
                }
            }
        })
    }
}

/// Reads a denied network of an offer; `None` if only a younger version can read it.
fn denied_network((network, seconds): &(String, u64)) -> Option<DeniedNetwork> {
    Some(DeniedNetwork { network: network.parse().ok()?, left: Duration::from_secs(*seconds) })
}
