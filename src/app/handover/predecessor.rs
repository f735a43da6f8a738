//! Takes over from the running process: the side of the new process.

use super::HandoverError;
use super::offer::{HandoverOffer, OfferError};
use super::protocol::{
    ANSWER_TIMEOUT, DONE, GO, HandoverFailure, OlderProcess, READY, check_peer_user, expect_byte, send_bytes,
    send_prepared,
};
use crate::app::sockets::InheritedSockets;
use litequic_net::{self as net, Generation, SocketGroup};
use litequic_quic::IdLayout;
use std::{
    io::ErrorKind,
    mem,
    net::{TcpListener, UdpSocket},
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};
use tokio::{net::UnixStream, time::timeout};

/// The running process. If this is dropped before [`Predecessor::confirm_ready`], the running process continues and
/// treats the sockets of this process as closed.
pub(in crate::app) struct Predecessor {
    path: PathBuf,
    stream: UnixStream,
    /// Number of the running process. `None` in another PID namespace.
    pub(in crate::app) process: Option<i32>,
    /// Version of the running litequic, once its offer was received.
    version: String,
}

/// The running process and the content of the offer.
pub(super) struct FoundPredecessor {
    pub(super) predecessor: Predecessor,
    pub(super) inherited: InheritedSockets,
    /// Generation of this process.
    pub(super) generation: u8,
    /// The predecessor, and older processes that drain.
    pub(super) older: Vec<OlderProcess>,
    /// The rest of the offer.
    pub(super) offer: HandoverOffer,
}

impl Predecessor {
    /// Connects to a process that listens at `path`, and receives its offer. `None` if no process listens.
    ///
    /// # Errors
    ///
    /// [`HandoverError`], when there is a process without a usable offer.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes the connection: the other process continues.
    pub(super) async fn find_running(path: &Path) -> Result<Option<FoundPredecessor>, HandoverError> {
        let stream = match UnixStream::connect(path).await {
            Ok(stream) => stream,
            // There is no socket, or the process that bound it is gone.
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused) => {
                return Ok(None);
            }
            Err(error) => return Err(HandoverFailure::with_path(path)(error.into())),
        };
        let process = stream.peer_cred().ok().and_then(|peer| peer.pid()).filter(|process| *process > 0);
        let predecessor = Self { path: path.to_owned(), stream, process, version: String::new() };
        predecessor.receive_offer().await.map(Some).map_err(HandoverFailure::with_path(path))
    }

    async fn receive_offer(mut self) -> Result<FoundPredecessor, HandoverFailure> {
        check_peer_user(&self.stream)?;
        let (message, descriptors) = match timeout(ANSWER_TIMEOUT, net::receive_descriptors(&mut self.stream)).await {
            Ok(received) => received?,
            Err(_) => return Err(HandoverFailure::TimedOut),
        };
        let mut offer = HandoverOffer::decode_offer(&message)?;
        self.version.clone_from(&offer.version);
        tracing::info!(
            process = self.process,
            version = env!("CARGO_PKG_VERSION"),
            version_before = self.version,
            path = %self.path.display(),
            "taking over from the running process"
        );
        if descriptors.len() != offer.descriptor_count() {
            return Err(OfferError::Wrong("descriptors").into());
        }
        let mut descriptors = descriptors.into_iter();
        let mut groups = Vec::new();
        for group in mem::take(&mut offer.groups) {
            let sockets = descriptors.by_ref().take(group.sockets).map(UdpSocket::from).collect();
            let generations = group.generations.into_iter().map(Generation::from).collect();
            groups.push(SocketGroup::from_sockets(sockets, generations).map_err(|_| OfferError::Wrong("udp"))?);
        }
        let mut listeners = Vec::new();
        for one in mem::take(&mut offer.listeners) {
            listeners.push((one.address, descriptors.by_ref().take(one.count).map(TcpListener::from).collect()));
        }
        let generations = [offer.generation].into_iter().chain(mem::take(&mut offer.older));
        let older: Vec<OlderProcess> = generations
            .zip(descriptors)
            .map(|(generation, pipe): (u8, OwnedFd)| OlderProcess { generation, pipe })
            .collect();
        let generation = (1..=u8::MAX)
            .map(|more| offer.generation.wrapping_add(more))
            .find(|number| older.iter().all(|older| older.generation != *number))
            .ok_or(OfferError::Wrong("older"))?;
        let inherited = InheritedSockets { groups, listeners };
        Ok(FoundPredecessor { predecessor: self, inherited, generation, older, offer })
    }

    /// Error for connection IDs of the layout `layout` in the running process, and `own` in this one.
    pub(super) fn layout_error(&self, layout: IdLayout, own: IdLayout) -> HandoverError {
        HandoverFailure::with_path(&self.path)(HandoverFailure::Layout(layout, own))
    }

    /// Reports that this process is prepared, and waits for GO.
    ///
    /// # Errors
    ///
    /// [`HandoverError`]: the other process continues.
    pub(in crate::app) async fn wait_for_go(&mut self) -> Result<(), HandoverError> {
        let turn = async {
            send_prepared(&mut self.stream, env!("CARGO_PKG_VERSION")).await?;
            expect_byte(&mut self.stream, GO).await?;
            // If this process was suspended meanwhile, the other one may have timed out.
            match self.stream.try_read(&mut [0]) {
                Ok(1..) => Err(HandoverFailure::Refused),
                // If the other process ended after GO, this one takes over all the same.
                Ok(0) | Err(_) => Ok(()),
            }
        };
        turn.await.map_err(HandoverFailure::with_path(&self.path))
    }

    /// Reports that this process serves, and waits until the other one has notified the service manager. If the other
    /// process has ended by then, nothing changes.
    ///
    /// # Errors
    ///
    /// [`HandoverError`]: this process was too slow, and the other one continues.
    pub(in crate::app) async fn confirm_ready(&mut self) -> Result<(), HandoverError> {
        let end = async {
            send_bytes(&mut self.stream, &[READY]).await?;
            expect_byte(&mut self.stream, DONE).await
        };
        match end.await {
            Err(refused @ HandoverFailure::Refused) => return Err(HandoverFailure::with_path(&self.path)(refused)),
            Err(error) => tracing::warn!(%error, "the previous process ended during the takeover"),
            Ok(()) => {}
        }
        tracing::info!(
            process = self.process,
            version = env!("CARGO_PKG_VERSION"),
            version_before = self.version,
            "took over: the previous process drains and ends"
        );
        Ok(())
    }
}
