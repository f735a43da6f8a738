//! The process that has connected to take over, as the running one sees it: its identity, and that it ends if it fails
//! to.

use super::protocol::{REFUSED, send_byte};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    process::{Pid, PidfdFlags, Signal, getpid, pidfd_open, pidfd_send_signal},
};
use std::{io, os::fd::OwnedFd, time::Duration};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::UnixStream,
    time::{sleep, timeout},
};

/// How long a process that was refused may take to end. Then it is killed: as long as it runs, its sockets are in the
/// groups, and those of another would not be at the places expected.
const EVICTION_TIMEOUT: Duration = Duration::from_secs(10);
/// How long one that closed its stream may take to close its sockets, too.
const END_TIMEOUT: Duration = Duration::from_secs(5);
/// Time between two looks whether it has.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// A process at the other end of the Unix socket.
pub(super) struct Successor {
    pub(super) stream: UnixStream,
    process: Option<Pid>,
    /// Handle of the process, which refers to no other one even if its number is used again (pidfd_open(2)), from Linux
    /// 5.3 on; or why there is none.
    handle: Result<OwnedFd, Errno>,
}

impl Successor {
    pub(super) fn new(stream: UnixStream) -> Self {
        let process = stream.peer_cred().ok().and_then(|peer| peer.pid()).and_then(Pid::from_raw);
        let handle = match process {
            Some(process) if process == getpid() => Err(Errno::PERM),
            Some(process) => pidfd_open(process, PidfdFlags::empty()),
            // It has no number in this PID namespace.
            None => Err(Errno::SRCH),
        };
        Self { stream, process, handle }
    }

    /// Number of the process. `None` in another PID namespace.
    pub(super) fn successor_id(&self) -> Option<u32> {
        self.process.and_then(|process| u32::try_from(process.as_raw_nonzero().get()).ok())
    }

    /// Sends it REFUSED, and returns when it has ended. One that still runs after [`EVICTION_DEADLINE`] is killed; if
    /// that is not permitted, this is logged, and waited for.
    pub(super) async fn evict_successor(mut self) {
        let told = async {
            // Errors mean that it has ended, or does not read.
            let _ = send_byte(&mut self.stream, REFUSED).await;
            let _ = self.stream.shutdown().await;
            wait_for_close(&mut self.stream).await;
        };
        if timeout(EVICTION_TIMEOUT, told).await.is_err() {
            let process = self.successor_id();
            match self.kill_process() {
                Ok(()) => tracing::error!(process, "killed a new process that hung"),
                Err(error) => {
                    tracing::error!(process, %error, "cannot kill a new process that hangs: no upgrade is possible until it ends");
                }
            }
            wait_for_close(&mut self.stream).await;
        }
        // The stream is among the first that the kernel closes for a process that ends, and the sockets after it.
        if let Ok(handle) = &self.handle {
            let _ = timeout(END_TIMEOUT, wait_for_exit(handle)).await;
        }
    }

    /// Ends it at once.
    fn kill_process(&self) -> io::Result<()> {
        let handle = self.handle.as_ref().map_err(|error| *error)?;
        Ok(pidfd_send_signal(handle, Signal::KILL)?)
    }
}

/// Returns when the process of `handle` has ended: only then it can be read (pidfd_open(2)).
async fn wait_for_exit(handle: &OwnedFd) {
    let mut ended = [PollFd::new(handle, PollFlags::IN)];
    while poll(&mut ended, Some(&Timespec::default())) == Ok(0) {
        sleep(POLL_INTERVAL).await;
    }
}

/// Returns when the other end of `stream` is closed. Messages that come now are too late.
async fn wait_for_close(stream: &mut UnixStream) {
    while stream.read_u8().await.is_ok() {}
}
