//! The sending half: gathered datagrams are sent in one call, by any backend, or wait for the socket.

use super::{
    flush::{Calls, Flush, Gso, SendBlocked, SendEvent, SendResult},
    sys::register,
};
use crate::{
    datagram::{MAX_SEGMENTS, Outgoing, Transmit},
    metrics::Metrics,
};
use std::{
    fmt, io,
    net::UdpSocket,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};
use tokio::{
    io::{Interest, unix::AsyncFd},
    time::{Sleep, sleep},
};

/// How long a queue below the socket has to drain, as there is no event for it: tokio's shortest wait.
const PAUSE: Duration = Duration::from_millis(1);

/// How a backend passes messages to the kernel.
pub(super) trait Call: Send + 'static {
    /// Has the kernel try the first messages of `outgoing`, one at least, without waiting, and puts into `outcomes`,
    /// which is empty, the outcome of each. The kernel keeps no pointer to any. Counts its system calls.
    fn send(&mut self, socket: &UdpSocket, outgoing: &Outgoing, outcomes: &mut Vec<SendResult>, metrics: &Metrics);
}

/// The sending half of a socket.
pub struct SocketSender {
    system: System,
    flush: Flush,
    waiting: Waiting,
}

/// The event that a socket waits for that did not take everything.
enum Waiting {
    Nothing,
    /// Registered for as long as it waits: otherwise the kernel would report every packet that was sent.
    Writable(AsyncFd<UdpSocket>),
    Time(Pin<Box<Sleep>>),
    /// The registration failed.
    Failed(io::Error),
}

/// The socket, and its metrics.
struct System {
    socket: UdpSocket,
    call: Box<dyn Call>,
    metrics: Arc<Metrics>,
}

impl SocketSender {
    pub(super) fn new(socket: UdpSocket, call: impl Call, gso: bool, metrics: Arc<Metrics>) -> Self {
        let system = System { socket, call: Box::new(call), metrics };
        Self { system, flush: Flush::new(gso), waiting: Waiting::Nothing }
    }
}

impl Transmit for SocketSender {
    fn max_segments(&self) -> usize {
        if self.flush.gso() == Gso::Off { 1 } else { MAX_SEGMENTS }
    }

    fn transmit(&mut self, outgoing: &mut Outgoing) {
        let Self { system, flush, waiting } = self;
        *waiting = match flush.flush(outgoing, system) {
            None => Waiting::Nothing,
            Some(blocked) => {
                match blocked {
                    SendBlocked::Buffer => system.metrics.send_blocked_buffer.increment(),
                    SendBlocked::Below => system.metrics.send_blocked_below.increment(),
                }
                Waiting::begin(blocked, &system.socket)
            }
        };
    }

    fn poll_writable(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.waiting.poll(cx)
    }
}

impl Waiting {
    fn begin(blocked: SendBlocked, socket: &UdpSocket) -> Self {
        match blocked {
            SendBlocked::Buffer => {
                let registered = socket.try_clone().and_then(|socket| register(socket, Interest::WRITABLE));
                registered.map_or_else(Self::Failed, Self::Writable)
            }
            SendBlocked::Below => Self::Time(Box::pin(sleep(PAUSE))),
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = match self {
            Self::Nothing => Ok(()),
            Self::Writable(socket) => ready!(socket.poll_write_ready(cx)).map(drop),
            Self::Time(pause) => {
                ready!(pause.as_mut().poll(cx));
                Ok(())
            }
            Self::Failed(error) => Err(io::Error::from(error.kind())),
        };
        *self = Self::Nothing;
        Poll::Ready(result)
    }
}

impl Calls for System {
    fn send(&mut self, outgoing: &Outgoing, outcomes: &mut Vec<SendResult>) {
        self.call.send(&self.socket, outgoing, outcomes, &self.metrics);
    }

    fn note(&mut self, event: SendEvent) {
        let metrics = &self.metrics;
        match event {
            SendEvent::Sent(message) => {
                let count = message.count as u64;
                metrics.send_messages.increment();
                metrics.datagrams_sent.add(count);
                metrics.datagram_bytes_sent.add(message.len as u64);
                if count > 1 {
                    metrics.gso_messages.increment();
                    metrics.gso_segments.add(count);
                }
            }
            SendEvent::TooLarge(message) => metrics.datagrams_dropped_too_large.add(message.count as u64),
            SendEvent::Refused(message, errno) => {
                metrics.datagrams_dropped_refused.add(message.count as u64);
                let error = io::Error::from_raw_os_error(errno);
                tracing::debug!(path = ?message.path, %error, "cannot send a datagram");
            }
            SendEvent::GsoOff(errno) => {
                if errno == libc::EIO {
                    metrics.io_degraded_gso_eio.increment();
                } else {
                    metrics.io_degraded_gso_einval.increment();
                }
                let error = io::Error::from_raw_os_error(errno);
                tracing::warn!(%error, "UDP segmentation (GSO) failed; disabled for this socket, no datagram was lost");
            }
        }
    }
}

impl fmt::Debug for SocketSender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender")
            .field("socket", &self.system.socket)
            .field("gso", &self.flush.gso())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::poll;
    use std::{future::poll_fn, pin::pin};
    use tokio::time::{Instant, timeout};

    #[tokio::test]
    async fn a_socket_that_has_room_again_says_so() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_nonblocking(true).unwrap();
        // The same socket once more: it is registered for reading all the time.
        let _reading = register(socket.try_clone().unwrap(), Interest::READABLE).unwrap();
        for _ in 0..3 {
            let mut waiting = Waiting::begin(SendBlocked::Buffer, &socket);
            timeout(Duration::from_secs(5), poll_fn(|cx| waiting.poll(cx))).await.unwrap().unwrap();
            assert!(matches!(waiting, Waiting::Nothing));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_queue_below_the_socket_has_a_millisecond_to_drain() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let start = Instant::now();
        let mut waiting = Waiting::begin(SendBlocked::Below, &socket);
        assert!(poll!(pin!(poll_fn(|cx| waiting.poll(cx)))).is_pending());
        poll_fn(|cx| waiting.poll(cx)).await.unwrap();
        assert!(start.elapsed() >= PAUSE);
    }
}
