//! The start of a process: with what it takes over from the process before, or with nothing; and how it begins to
//! serve.

use super::keeper::{HandoverListener, HandoverServer};
use super::predecessor::{FoundPredecessor, Predecessor};
use super::protocol::Older;
use crate::app::{
    metrics::Metrics,
    replica::{secrets, server_id_key},
    sockets::{Inherited, Sockets},
    start_error::StartError,
};
use litequic_base::lifecycle::{Lifecycle, Phase, panic_if_asked};
use litequic_config::Config;
use litequic_net::{Steering, SteeringMask};
use litequic_proxy::Maintenance;
use litequic_quic::{Generations, IdScheme, Layout, Secrets};
use litequic_telemetry::clients::DenyList;
use std::sync::Arc;

/// What this process takes over.
pub(in crate::app) struct Beginning {
    pub(in crate::app) inherited: Inherited,
    pub(in crate::app) generation: u8,
    pub(in crate::app) secrets: Arc<Secrets>,
    /// How connection IDs are made.
    pub(in crate::app) ids: Arc<IdScheme>,
    pub(in crate::app) predecessor: Option<Predecessor>,
    pub(in crate::app) older: Vec<Older>,
    /// Generations of `older`, known before the first packet.
    pub(in crate::app) others: Arc<Generations>,
    /// Routes that are in maintenance there.
    pub(in crate::app) maintenance: Maintenance,
    /// Networks whose clients are denied there.
    pub(in crate::app) denied: DenyList,
    /// What was ordered of HTTP/3 there.
    pub(in crate::app) http3: Option<bool>,
}

impl Beginning {
    /// Asks the running process, if there is one; otherwise takes what was `passed`.
    ///
    /// # Errors
    ///
    /// [`StartError::TakeOver`], or those of [`secrets`] and [`server_id_key`].
    pub(in crate::app) async fn find(config: &Config, passed: Inherited) -> Result<Self, StartError> {
        let found = match &config.admin.handover {
            Some(path) => Predecessor::find(path).await?,
            None => None,
        };
        let own = secrets(config)?;
        let key = server_id_key(config)?;
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
                let own_layout = Layout::of(config.listen.server_id.as_ref());
                if layout != own_layout {
                    // The kernel steers by one layout alone.
                    return Err(predecessor.has_another_layout(layout, own_layout).into());
                }
                let ids = scheme(mask)?;
                // The clients of the predecessor have its reset tokens.
                let replica = replica.unwrap_or_else(|| own.replica().clone());
                if replica != *own.replica() {
                    let (own, replica) = (own.replica().name(), replica.name());
                    tracing::info!(
                        own,
                        replica,
                        "stateless reset tokens stay those of the replica before; a restart changes them"
                    );
                }
                let secrets = match secret {
                    // Not of a file: this process' would be another.
                    Some(secret) if config.listen.secret_file.is_none() => Secrets::handed_over(secret),
                    _ => own,
                }
                .of_replica(replica);
                let predecessor = Some(predecessor);
                let others = Arc::new(Generations::of(older.iter().map(Older::generation)));
                let secrets = Arc::new(secrets);
                Self { inherited, generation, secrets, ids, predecessor, older, others, maintenance, denied, http3 }
            }
        })
    }

    /// The handover server of `sockets` for the process after this one.
    ///
    /// # Errors
    ///
    /// [`StartError::Pipe`]
    pub(in crate::app) fn handover_server(
        &mut self,
        sockets: Sockets,
        metrics: &Arc<Metrics>,
    ) -> Result<HandoverServer, StartError> {
        // At most 20 bytes.
        let byte = |place: usize| u8::try_from(place).unwrap_or(u8::MAX);
        let layout = self.ids.layout();
        let hashed = layout.hashed().map(|hashed| byte(hashed.start)..byte(hashed.end));
        let steering = Steering {
            id_len: byte(layout.id_len()),
            first_byte: layout.first_byte(),
            issuer_offset: byte(layout.issuer_offset()),
            mask: hashed.map(|hashed| SteeringMask { key: self.ids.mask(), hashed }),
        };
        let Sockets { groups, tcp, redirects, admin, probes, .. } = sockets;
        let operator = [admin, probes].into_iter().flatten();
        let operator = operator.filter_map(|listener| Some((listener.local_addr().ok()?, vec![listener])));
        let listeners = tcp.0.into_iter().chain(redirects.0).chain(operator).collect();
        HandoverServer::new(self, steering, groups, listeners, Arc::clone(metrics)).map_err(StartError::Pipe)
    }
}

/// Serves from now on: in the place of `predecessor`, where there is one.
///
/// # Errors
///
/// [`StartError::TakeOver`], [`StartError::Bind`] or [`StartError::Handover`]: this process is to end.
pub(in crate::app) async fn take_over(
    mut server: HandoverServer,
    predecessor: Option<&mut Predecessor>,
    config: &Config,
    lifecycle: &Lifecycle,
) -> Result<HandoverListener, StartError> {
    let path = config.admin.handover.as_ref();
    let failed = |source| StartError::Handover { path: path.cloned().unwrap_or_default(), source };
    path.map_or(Ok(()), |path| server.bind(path)).map_err(failed)?;
    let publish = |server: &mut HandoverServer| path.map_or(Ok(()), |path| server.publish(path)).map_err(failed);
    match predecessor {
        None => {
            if let Err(error) = server.steer() {
                tracing::warn!(
                    %error,
                    "the kernel does not steer packets by connection ID: connections of clients that change their address will end"
                );
            }
            publish(&mut server)?;
            lifecycle.advance(Phase::Ready);
        }
        Some(predecessor) => {
            predecessor.give_way().await?;
            panic_if_asked("takeover");
            server.steer()?;
            lifecycle.advance(Phase::Ready);
            predecessor.let_go().await?;
            if let Err(error) = publish(&mut server) {
                // It serves, and the one before is on its way out.
                tracing::error!(%error, "no other process can take over from this one: admin.handover is unavailable");
            }
        }
    }
    Ok(server.start(lifecycle.watch()))
}
