//! Makes a process begin to serve: binds its handover socket, and steers packets and connections to it.

use super::predecessor::Predecessor;
use super::server::{HandoverListener, HandoverServer};
use crate::app::service;
use crate::app::start_error::StartError;
use litequic_base::lifecycle::{Lifecycle, ProcessPhase, panic_if_requested};
use litequic_config::Config;
use std::path::{Path, PathBuf};

/// Socket at which the successor of this process takes over.
#[derive(Debug)]
pub(in crate::app) struct HandoverPath {
    pub(super) path: PathBuf,
    /// Whether this is `admin.handover`, at which every new process looks for a running one, rather than a socket of
    /// this process alone, for the process that it starts itself.
    pub(super) is_shared: bool,
}

impl HandoverPath {
    /// Returns the path by `config`, or one beside the admin socket `admin`, if there is one. `None` as well where the
    /// end of this process would end its service, successor included.
    pub(in crate::app) fn choose_path(config: &Config, admin: Option<&Path>) -> Option<Self> {
        if let Some(path) = &config.admin.handover {
            return Some(Self { path: path.clone(), is_shared: true });
        }
        let process = std::process::id();
        let is_first = process == CONTAINER_PROCESS || service::ends_with_process();
        let path = admin.filter(|_| !is_first)?.with_file_name(format!("handover-{process}.sock"));
        Some(Self { path, is_shared: false })
    }

    /// Binds the socket of `server` under another name. `None` if that of this process alone cannot be bound.
    ///
    /// # Errors
    ///
    /// [`StartError::Handover`]
    fn bind_for(self, server: &mut HandoverServer) -> Result<Option<PathBuf>, StartError> {
        match (server.bind_socket(&self), self.path) {
            (Ok(()), path) => Ok(Some(path)),
            (Err(source), path) if self.is_shared => Err(StartError::Handover { path, source }),
            (Err(error), path) => {
                tracing::warn!(path = %path.display(), %error, "no hot upgrade: set admin.handover");
                Ok(None)
            }
        }
    }
}

/// Number of the first process of a container, with which the container ends.
const CONTAINER_PROCESS: u32 = 1;

/// Makes this process serve, and replaces `predecessor` if there is one. Returns the path of the socket for its own
/// successor as well.
///
/// # Errors
///
/// [`StartError::TakeOver`], [`StartError::Bind`] or [`StartError::Handover`]: this process must end.
pub(in crate::app) async fn take_over(
    mut server: HandoverServer,
    predecessor: Option<&mut Predecessor>,
    path: Option<HandoverPath>,
    lifecycle: &Lifecycle,
) -> Result<(HandoverListener, Option<PathBuf>), StartError> {
    let path = path.map_or(Ok(None), |path| path.bind_for(&mut server))?;
    let failed = |source| StartError::Handover { path: path.clone().unwrap_or_default(), source };
    let publish = |server: &mut HandoverServer| {
        path.as_deref().map_or(Ok(()), |path| server.publish_socket(path)).map_err(failed)
    };
    match predecessor {
        None => {
            if let Err(error) = server.steer_all_groups() {
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
            server.steer_all_groups()?;
            lifecycle.advance_phase(ProcessPhase::Ready);
            predecessor.confirm_ready().await?;
            if let Err(error) = publish(&mut server) {
                // This process serves, and the predecessor drains already: an error must not end it.
                tracing::error!(%error, "no other process can take over from this one: its socket is unavailable");
            }
        }
    }
    Ok((server.spawn_server(lifecycle.watch_phase()), path))
}
