//! Upgrade: a new process takes over from a running one, and no request is lost (docs/adr/0020).
//!
//! The two meet at the Unix socket of `admin.handover`. A process that starts first looks for a running one there.
//!
//! ```text
//! old                                       new
//!   │ ◄──────────────── connects ─────────── │  its configuration and certificates are good
//!   │ ──── offer: sockets, secret ─────────► │  joins the groups, starts its workers
//!   │ ◄─────── VERSION, its own; PREPARED ── │
//!   │ ──── GO ─────────────────────────────► │  steers what is new to itself, accepts connections
//!   │ ◄──────────────── READY ────────────── │
//!   │ ──── DONE ───────────────────────────► │  is found at admin.handover from now on
//!   │ drains, and ends                       │
//! ```
//!
//! Until READY the old process serves as before, and continues for good if the new one ends: it steers back, which
//! undoes all that the new one may have done. One that hangs is sent REFUSED, and killed if that does not end it: no
//! other process can take over while its sockets are in the groups. The new process, and those after it, get a
//! descriptor of a pipe whose other end only the old process holds: it reports when that process has ended, and its
//! place in the groups is free.

mod beginning;
mod keeper;
mod offer;
mod predecessor;
mod successor;

pub(super) use beginning::{Beginning, take_over};
pub(super) use keeper::HandoverListener;
pub(super) use predecessor::Predecessor;

use keeper::HandoverServer;
use litequic_quic::Layout;
use offer::OfferError;
use predecessor::FoundPredecessor;
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
const PREPARED: u8 = b'P';
/// "Take over."
const GO: u8 = b'G';
/// "I serve."
const READY: u8 = b'R';
/// "I know, and the service manager too."
const DONE: u8 = b'D';
/// "I go on, and you end."
const REFUSED: u8 = b'N';

/// How long a new process may take from the offer to its workers' start.
const PREPARE_DEADLINE: Duration = Duration::from_secs(60);
/// How long the other side may take to send its next message, when it has nothing to do before.
const ANSWER_DEADLINE: Duration = Duration::from_secs(10);

/// Why a new process cannot take over. The old one goes on.
#[derive(Debug, thiserror::Error)]
#[error("cannot take over from the process at admin.handover = {path:?}: {reason}")]
pub struct HandoverError {
    path: PathBuf,
    reason: Reason,
}

#[derive(Debug, thiserror::Error)]
enum Reason {
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
    fn at(path: &Path) -> impl Fn(Self) -> HandoverError {
        let path = path.to_owned();
        move |reason| HandoverError { path: path.clone(), reason }
    }
}

/// A process that drains. Its pipe ends when it does.
pub(super) struct Older {
    generation: u8,
    pipe: OwnedFd,
}

impl Older {
    fn generation(&self) -> u8 {
        self.generation
    }
}

async fn say(stream: &mut UnixStream, word: u8) -> Result<(), Reason> {
    // It waits for one that reads nothing alone.
    Ok(timeout(ANSWER_DEADLINE, stream.write_all(&[word])).await.map_err(|_| Reason::Late)??)
}

async fn hear(stream: &mut UnixStream, word: u8, deadline: Duration) -> Result<(), Reason> {
    let heard = timeout(deadline, stream.read_u8()).await.map_err(|_| Reason::Late)??;
    match heard {
        REFUSED => Err(Reason::Refused),
        heard if heard == word => Ok(()),
        _ => Err(Reason::Word),
    }
}

async fn say_version(stream: &mut UnixStream, version: &str) -> Result<(), Reason> {
    let version = version.get(..usize::from(u8::MAX)).unwrap_or(version);
    let Ok(length) = u8::try_from(version.len()) else { return Ok(()) };
    let said = [&[VERSION, length], version.as_bytes()].concat();
    Ok(timeout(ANSWER_DEADLINE, stream.write_all(&said)).await.map_err(|_| Reason::Late)??)
}

/// Waits for PREPARED. Returns the version that came before it, if one did.
async fn prepared(stream: &mut UnixStream) -> Result<Option<String>, Reason> {
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
fn is_trusted(stream: &UnixStream) -> Result<(), Reason> {
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
