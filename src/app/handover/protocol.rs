//! The messages between the two processes, and how they fail.

use super::offer::OfferError;
use litequic_quic::Layout;
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

/// "My version is", with its length and itself: to processes that ask for it.
const VERSION: u8 = b'V';
/// "My workers run; nothing comes to them yet."
pub(super) const PREPARED: u8 = b'P';
/// "Take over."
pub(super) const GO: u8 = b'G';
/// "I serve."
pub(super) const READY: u8 = b'R';
/// "I know, and the service manager too."
pub(super) const DONE: u8 = b'D';
/// "I go on, and you end."
pub(super) const REFUSED: u8 = b'N';

/// How long a new process may take from the offer to its workers' start.
const PREPARE_DEADLINE: Duration = Duration::from_secs(60);
/// How long the other side may take to send its next message, when it has nothing to do before.
pub(super) const ANSWER_DEADLINE: Duration = Duration::from_secs(10);

/// Why a new process cannot take over. The old one goes on.
#[derive(Debug, thiserror::Error)]
#[error("cannot take over from the process at admin.handover = {path:?}: {reason}")]
pub struct HandoverError {
    path: PathBuf,
    reason: Reason,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum Reason {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("cannot use its offer: {0}")]
    Offer(#[from] OfferError),
    #[error("its connection IDs have another layout ({0}; this configuration has {1}): restart")]
    Layout(Layout, Layout),
    #[error("it runs as user {0}, which is neither this process' user nor root")]
    Stranger(u32),
    #[error("it did not answer in time")]
    Late,
    #[error("it sent an unexpected message")]
    Word,
    #[error("it timed out, and continues to serve")]
    Refused,
}

impl Reason {
    pub(super) fn at(path: &Path) -> impl Fn(Self) -> HandoverError {
        let path = path.to_owned();
        move |reason| HandoverError { path: path.clone(), reason }
    }
}

/// A process that drains. Its pipe ends when it does.
pub(crate) struct Older {
    pub(super) generation: u8,
    pub(super) pipe: OwnedFd,
}

impl Older {
    pub(super) fn generation(&self) -> u8 {
        self.generation
    }
}

pub(super) async fn say(stream: &mut UnixStream, word: u8) -> Result<(), Reason> {
    // It waits for one that reads nothing alone.
    Ok(timeout(ANSWER_DEADLINE, stream.write_all(&[word])).await.map_err(|_| Reason::Late)??)
}

pub(super) async fn hear(stream: &mut UnixStream, word: u8, deadline: Duration) -> Result<(), Reason> {
    let heard = timeout(deadline, stream.read_u8()).await.map_err(|_| Reason::Late)??;
    match heard {
        REFUSED => Err(Reason::Refused),
        heard if heard == word => Ok(()),
        _ => Err(Reason::Word),
    }
}

pub(super) async fn say_version(stream: &mut UnixStream, version: &str) -> Result<(), Reason> {
    let version = version.get(..usize::from(u8::MAX)).unwrap_or(version);
    let Ok(length) = u8::try_from(version.len()) else { return Ok(()) };
    let said = [&[VERSION, length], version.as_bytes()].concat();
    Ok(timeout(ANSWER_DEADLINE, stream.write_all(&said)).await.map_err(|_| Reason::Late)??)
}

/// Waits for PREPARED. Returns the version that came before it, if one did.
pub(super) async fn prepared(stream: &mut UnixStream) -> Result<Option<String>, Reason> {
    let heard = async {
        let mut version = None;
        loop {
            match stream.read_u8().await? {
                PREPARED => return Ok(version),
                VERSION if version.is_none() => {
                    let mut text = vec![0; stream.read_u8().await?.into()];
                    stream.read_exact(&mut text).await?;
                    // Another process' text goes into the log.
                    text.retain(u8::is_ascii_graphic);
                    version = Some(String::from_utf8_lossy(&text).into_owned());
                }
                _ => return Err(Reason::Word),
            }
        }
    };
    timeout(PREPARE_DEADLINE, heard).await.map_err(|_| Reason::Late)?
}

/// Whether the process at the other end may get the secret and the sockets: it is of the same user, or root's.
pub(super) fn is_trusted(stream: &UnixStream) -> Result<(), Reason> {
    let other = stream.peer_cred()?.uid();
    if other == 0 || other == rustix::process::geteuid().as_raw() { Ok(()) } else { Err(Reason::Stranger(other)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_new_process_says_its_version_or_none_before_it_is_prepared() {
        for (said, expected) in [
            (&b"P"[..], Some(None)),
            (b"V\x051.2.3P", Some(Some("1.2.3"))),
            (b"V\x051\n\x1b.2P", Some(Some("1.2"))),
            (b"V\x00P", Some(Some(""))),
            (b"V\x011V\x012P", None),
            (b"G", None),
            (b"V\x051.2", None),
        ] {
            let (mut new, mut old) = UnixStream::pair().unwrap();
            new.write_all(said).await.unwrap();
            drop(new);
            let heard = prepared(&mut old).await.ok();
            assert_eq!(heard, expected.map(|version| version.map(str::to_owned)), "{said:?}");
        }
        let (mut new, mut old) = UnixStream::pair().unwrap();
        say_version(&mut new, "10.20.30-rc.1").await.unwrap();
        say(&mut new, PREPARED).await.unwrap();
        assert_eq!(prepared(&mut old).await.unwrap().as_deref(), Some("10.20.30-rc.1"));
    }
}
