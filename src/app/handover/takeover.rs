//! Makes a process begin to serve: creates its handover server, and steers packets and connections to it.

use super::inherited_state::InheritedState;
use super::predecessor::Predecessor;
use super::server::{HandoverListener, HandoverServer};
use crate::app::metrics::ProcessMetrics;
use crate::app::sockets::ProcessSockets;
use crate::app::start_error::StartError;
use litequic_base::lifecycle::{Lifecycle, ProcessPhase, panic_if_requested};
use litequic_config::Config;
use litequic_net::{Steering, SteeringMask};
use std::sync::Arc;

impl InheritedState {
    /// Creates the handover server of `sockets`, for the successor of this process.
    ///
    /// # Errors
    ///
    /// [`StartError::Pipe`]
    pub(in crate::app) fn handover_server(
        &mut self,
        sockets: ProcessSockets,
        metrics: &Arc<ProcessMetrics>,
    ) -> Result<HandoverServer, StartError> {
        // Connection IDs have at most 20 bytes.
        let byte = |place: usize| u8::try_from(place).unwrap_or(u8::MAX);
        let layout = self.ids.layout();
        let hashed = layout.hashed_range().map(|hashed| byte(hashed.start)..byte(hashed.end));
        let steering = Steering {
            id_len: byte(layout.id_len()),
            first_byte: layout.first_byte(),
            issuer_offset: byte(layout.issuer_offset()),
            mask: hashed.map(|hashed| SteeringMask { key: self.ids.issuer_mask_key(), hashed }),
        };
        let ProcessSockets { groups, tcp, redirects, admin, probes, .. } = sockets;
        let operator = [admin, probes].into_iter().flatten();
        let operator = operator.filter_map(|listener| Some((listener.local_addr().ok()?, vec![listener])));
        let listeners = tcp.0.into_iter().chain(redirects.0).chain(operator).collect();
        HandoverServer::new(self, steering, groups, listeners, Arc::clone(metrics)).map_err(StartError::Pipe)
    }
}

/// Makes this process serve, and replaces `predecessor` if there is one.
///
/// # Errors
///
/// [`StartError::TakeOver`], [`StartError::Bind`] or [`StartError::Handover`]: this process must end.
pub(in crate::app) async fn take_over(
    mut server: HandoverServer,
    predecessor: Option<&mut Predecessor>,
    config: &Config,
    lifecycle: &Lifecycle,
) -> Result<HandoverListener, StartError> {
    let path = config.admin.handover.as_ref();
    let failed = |source| StartError::Handover { path: path.cloned().unwrap_or_default(), source };
    path.map_or(Ok(()), |path| server.bind_socket(path)).map_err(failed)?;
    let publish = |server: &mut HandoverServer| path.map_or(Ok(()), |path| server.publish_socket(path)).map_err(failed);
    match predecessor {
        None => {
            if let Err(error) = server.steer() {
                tracing::warn!(
                    %error,
                    "the kernel does not steer packets by connection ID: connections of clients that change their address will end"
                );
            }
            publish(&mut server)?;
            lifecycle.advance_phase(ProcessPhase::Ready);
        }
        Some(predecessor) => {
            predecessor.wait_for_go().await?;
            panic_if_requested("takeover");
            server.steer()?;
            lifecycle.advance_phase(ProcessPhase::Ready);
            predecessor.confirm_ready().await?;
            if let Err(error) = publish(&mut server) {
                // This process serves, and the predecessor drains already: an error must not end it.
                tracing::error!(%error, "no other process can take over from this one: admin.handover is unavailable");
            }
        }
    }
    Ok(server.spawn_server(lifecycle.watch_phase()))
}
