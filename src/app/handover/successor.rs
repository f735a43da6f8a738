//! Identifies the process that has connected to take over, and ends it if the handover fails.

use super::protocol::{REFUSED, send_bytes};
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

/// Time that a refused process gets to end, before it is killed: while it runs, its sockets are in the groups, and
/// those of another process would not be at the expected positions.
const EVICTION_TIMEOUT: Duration = Duration::from_secs(10);
/// Timeout from the close of a process's stream to the close of its other sockets.
const END_TIMEOUT: Duration = Duration::from_secs(5);
/// Time between two polls for the end of a process.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Process at the other end of the Unix socket.
pub(super) struct Successor {
    pub(super) stream: UnixStream,
    process: Option<Pid>,
    /// Handle of the process (pidfd_open(2), from Linux 5.3 on), which stays valid if the number is used again; or the
    /// error of opening it.
    handle: Result<OwnedFd, Errno>,
}

impl Successor {
    pub(super) fn new(stream: UnixStream) -> Self {
        let process = stream.peer_cred().ok().and_then(|peer| peer.pid()).and_then(Pid::from_raw);
        let handle = match process {
            Some(process) if process == getpid() => Err(Errno::PERM),
            Some(process) => pidfd_open(process, PidfdFlags::empty()),
            // The process has no number in this PID namespace.
            None => Err(Errno::SRCH),
        };
        Self { stream, process, handle }
    }

    /// Number of the process. `None` in another PID namespace.
    pub(super) fn successor_id(&self) -> Option<u32> {
        self.process.and_then(|process| u32::try_from(process.as_raw_nonzero().get()).ok())
    }

    /// Sends REFUSED to the process, and returns when it has ended. A process that still runs after
    /// [`EVICTION_TIMEOUT`] is killed; if that is not permitted, an error is logged, and its end is awaited.
    pub(super) async fn evict_successor(mut self) {
        let told = async {
            // An error means that the process has ended, or does not read.
            let _ = send_bytes(&mut self.stream, &[REFUSED]).await;
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
        // The kernel closes the stream of a process that ends before its sockets.
        if let Ok(handle) = &self.handle {
            let _ = timeout(END_TIMEOUT, wait_for_exit(handle)).await;
        }
    }

    fn kill_process(&self) -> io::Result<()> {
        let handle = self.handle.as_ref().map_err(|error| *error)?;
        Ok(pidfd_send_signal(handle, Signal::KILL)?)
    }
}

/// Returns when the process of `handle` has ended: only then the handle is readable (pidfd_open(2)).
async fn wait_for_exit(handle: &OwnedFd) {
    let mut ended = [PollFd::new(handle, PollFlags::IN)];
    while poll(&mut ended, Some(&Timespec::default())) == Ok(0) {
        sleep(POLL_INTERVAL).await;
    }
}

/// Returns when the other end of `stream` is closed. Messages that still arrive are discarded.
async fn wait_for_close(stream: &mut UnixStream) {
    while stream.read_u8().await.is_ok() {}
}
