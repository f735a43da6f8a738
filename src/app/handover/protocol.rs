//! Sends and receives the messages between the two processes of a handover, and defines their errors.

use super::offer::OfferError;
use litequic_quic::IdLayout;
use std::{
    io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::UnixStream,
    time::timeout,
};

/// "My workers run; no packets arrive here yet.", followed by length and text of the version.
const PREPARED: u8 = b'P';
/// "Take over."
pub(super) const GO: u8 = b'G';
/// "I serve."
pub(super) const READY: u8 = b'R';
/// "I know, and the service manager does too."
pub(super) const DONE: u8 = b'D';
/// "I continue, and you end."
pub(super) const REFUSED: u8 = b'N';

/// Timeout from the offer to the start of the new process's workers.
const PREPARE_TIMEOUT: Duration = Duration::from_secs(60);
/// Timeout of a message that the other side can send at once.
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// A new process cannot take over; the old one continues.
#[derive(Debug, thiserror::Error)]
#[error("cannot take over from the process at the handover socket {path:?}: {reason}")]
pub struct HandoverError {
    path: PathBuf,
    reason: HandoverFailure,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum HandoverFailure {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("the offer of that process cannot be used: {0}")]
    Offer(#[from] OfferError),
    #[error("its connection IDs have a different layout ({0}; this configuration has {1}), which needs a restart")]
    Layout(IdLayout, IdLayout),
    #[error("it runs as user {0}, which is neither the user of this process nor root")]
    OtherUser(u32),
    #[error("it did not answer in time")]
    TimedOut,
    #[error("it sent an unexpected message")]
    UnexpectedMessage,
    #[error("it timed out, and continues to serve")]
    Refused,
}

impl HandoverFailure {
    pub(super) fn with_path(path: &Path) -> impl Fn(Self) -> HandoverError {
        let path = path.to_owned();
        move |reason| HandoverError { path: path.clone(), reason }
    }
}

/// A process that drains; the end of the process closes the pipe.
pub(crate) struct OlderProcess {
    pub(super) generation: u8,
    pub(super) pipe: OwnedFd,
}

pub(super) async fn send_bytes(stream: &mut UnixStream, bytes: &[u8]) -> Result<(), HandoverFailure> {
    // Only a process that reads nothing makes this wait.
    Ok(timeout(ANSWER_TIMEOUT, stream.write_all(bytes)).await.map_err(|_| HandoverFailure::TimedOut)??)
}

pub(super) async fn expect_byte(stream: &mut UnixStream, word: u8) -> Result<(), HandoverFailure> {
    let heard = timeout(ANSWER_TIMEOUT, stream.read_u8()).await.map_err(|_| HandoverFailure::TimedOut)??;
    match heard {
        REFUSED => Err(HandoverFailure::Refused),
        heard if heard == word => Ok(()),
        _ => Err(HandoverFailure::UnexpectedMessage),
    }
}

/// Sends that this process is prepared, with its version.
pub(super) async fn send_prepared(stream: &mut UnixStream, version: &str) -> Result<(), HandoverFailure> {
    let length = u8::try_from(version.len()).unwrap_or(u8::MAX);
    let version = version.as_bytes().get(..length.into()).unwrap_or_default();
    send_bytes(stream, &[&[PREPARED, length], version].concat()).await
}

/// Receives [`PREPARED`], and the version of the process that sends it.
pub(super) async fn receive_prepared(stream: &mut UnixStream) -> Result<String, HandoverFailure> {
    let heard = async {
        if stream.read_u8().await? != PREPARED {
            return Err(HandoverFailure::UnexpectedMessage);
        }
        let mut text = vec![0; stream.read_u8().await?.into()];
        stream.read_exact(&mut text).await?;
        // The version goes to the log, and may be of any process of this user.
        text.retain(u8::is_ascii_graphic);
        Ok(String::from_utf8_lossy(&text).into_owned())
    };
    timeout(PREPARE_TIMEOUT, heard).await.map_err(|_| HandoverFailure::TimedOut)?
}

/// Returns an error unless the process at the other end may get the secret and the sockets: one of the same user, or of
/// root.
pub(super) fn check_peer_user(stream: &UnixStream) -> Result<(), HandoverFailure> {
    let other = stream.peer_cred()?.uid();
    if other == 0 || other == rustix::process::geteuid().as_raw() {
        Ok(())
    } else {
        Err(HandoverFailure::OtherUser(other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_prepared_process_sends_its_version() {
        for (said, expected) in [
            (&b"P\x051.2.3"[..], Some("1.2.3")),
            (b"P\x051\n\x1b.2", Some("1.2")),
            (b"P\x00", Some("")),
            (b"P", None),
            (b"G", None),
            (b"P\x051.2", None),
        ] {
            let (mut new, mut old) = UnixStream::pair().unwrap();
            new.write_all(said).await.unwrap();
            drop(new);
            let heard = receive_prepared(&mut old).await.ok();
            assert_eq!(heard.as_deref(), expected, "{said:?}");
        }
        for (version, expected) in [("10.20.30-rc.1", "10.20.30-rc.1"), (&"1".repeat(300), &"1".repeat(255))] {
            let (mut new, mut old) = UnixStream::pair().unwrap();
            send_prepared(&mut new, version).await.unwrap();
            assert_eq!(receive_prepared(&mut old).await.unwrap(), expected);
        }
    }
}
