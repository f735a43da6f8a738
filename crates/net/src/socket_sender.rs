//! Sends gathered datagrams in one call with any backend, or waits for the socket.

use super::{
    flush::{FlushState, GsoState, MessageSink, SendBlocked, SendEvent, SendResult},
    sys::register_interest,
};
use crate::{
    datagram::{MAX_SEGMENTS, OutgoingBatch, Transmit},
    metrics::SocketMetrics,
};
use std::{
    io,
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

/// Delay before another attempt when a queue below the socket was full: no event reports its end, and tokio's timers
/// are no shorter.
const QUEUE_DRAIN_DELAY: Duration = Duration::from_millis(1);

/// Passes messages to the kernel by one backend's system call.
pub(super) trait SendBackend: Send + 'static {
    /// Has the kernel try the first messages of `outgoing`, at least one, without waiting, and appends their outcomes
    /// to `outcomes`, which is empty. The kernel keeps no pointer. Counts the system calls.
    fn send_first_messages(
        &mut self,
        socket: &UdpSocket,
        outgoing: &OutgoingBatch,
        outcomes: &mut Vec<SendResult>,
        metrics: &SocketMetrics,
    );
}

/// The sending half of a socket.
pub struct SocketSender {
    system: BackendSocket,
    flush: FlushState,
    waiting: WritableWait,
}

/// Wait of a socket whose buffer or queue was full.
enum WritableWait {
    Nothing,
    /// Registered only while waiting: otherwise the kernel would report every packet sent.
    Writable(AsyncFd<UdpSocket>),
    Time(Pin<Box<Sleep>>),
    /// The registration failed.
    Failed(io::Error),
}

/// Socket, backend and metrics of a sender.
struct BackendSocket {
    socket: UdpSocket,
    call: Box<dyn SendBackend>,
    metrics: Arc<SocketMetrics>,
}

impl SocketSender {
    pub(super) fn new(socket: UdpSocket, call: impl SendBackend, gso: bool, metrics: Arc<SocketMetrics>) -> Self {
        let system = BackendSocket { socket, call: Box::new(call), metrics };
        Self { system, flush: FlushState::new(gso), waiting: WritableWait::Nothing }
    }
}

impl Transmit for SocketSender {
    fn max_segments(&self) -> usize {
        if self.flush.gso_state() == GsoState::Off { 1 } else { MAX_SEGMENTS }
    }

    fn transmit(&mut self, outgoing: &mut OutgoingBatch) {
        let Self { system, flush, waiting } = self;
        *waiting = match flush.flush_batch(outgoing, system) {
            None => WritableWait::Nothing,
            Some(blocked) => {
                match blocked {
                    SendBlocked::Buffer => system.metrics.send_blocked_buffer.increment(),
                    SendBlocked::Below => system.metrics.send_blocked_below.increment(),
                }
                WritableWait::from_blocked(blocked, &system.socket)
            }
        };
    }

    fn poll_writable(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.waiting.poll(cx)
    }
}

impl WritableWait {
    fn from_blocked(blocked: SendBlocked, socket: &UdpSocket) -> Self {
        match blocked {
            SendBlocked::Buffer => {
                let registered = socket.try_clone().and_then(|socket| register_interest(socket, Interest::WRITABLE));
                registered.map_or_else(Self::Failed, Self::Writable)
            }
            SendBlocked::Below => Self::Time(Box::pin(sleep(QUEUE_DRAIN_DELAY))),
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

impl MessageSink for BackendSocket {
    fn send_first(&mut self, outgoing: &OutgoingBatch, outcomes: &mut Vec<SendResult>) {
        self.call.send_first_messages(&self.socket, outgoing, outcomes, &self.metrics);
    }

    fn record_event(&mut self, event: SendEvent) {
        let metrics = &self.metrics;
        match event {
            SendEvent::Sent(message) => {
                let count = message.count as u64;
                metrics.send_messages.increment();
                metrics.datagrams_sent.increment_by(count);
                metrics.datagram_bytes_sent.increment_by(message.len as u64);
                if count > 1 {
                    metrics.gso_messages.increment();
                    metrics.gso_segments.increment_by(count);
                }
            }
            SendEvent::TooLarge(message) => metrics.datagrams_dropped_too_large.increment_by(message.count as u64),
            SendEvent::Refused(message, errno) => {
                metrics.datagrams_dropped_refused.increment_by(message.count as u64);
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

litequic_base::partial_debug!(SocketSender { flush });

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::poll;
    use std::{future::poll_fn, pin::pin};
    use tokio::time::{Instant, timeout};

    #[tokio::test]
    async fn a_socket_with_room_again_becomes_writable() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_nonblocking(true).unwrap();
        // A duplicate of the socket stays registered for reading.
        let _reading = register_interest(socket.try_clone().unwrap(), Interest::READABLE).unwrap();
        for _ in 0..3 {
            let mut waiting = WritableWait::from_blocked(SendBlocked::Buffer, &socket);
            timeout(Duration::from_secs(5), poll_fn(|cx| waiting.poll(cx))).await.unwrap().unwrap();
            assert!(matches!(waiting, WritableWait::Nothing));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_queue_below_the_socket_has_a_millisecond_to_drain() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let start = Instant::now();
        let mut waiting = WritableWait::from_blocked(SendBlocked::Below, &socket);
        assert!(poll!(pin!(poll_fn(|cx| waiting.poll(cx)))).is_pending());
        poll_fn(|cx| waiting.poll(cx)).await.unwrap();
        assert!(start.elapsed() >= QUEUE_DRAIN_DELAY);
    }
}
