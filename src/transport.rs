//! What HTTP/3 reads from its client's transport: how far each request stream may go (RFC 9000 §4.1), and how the
//! client behaves below HTTP/3. QUIC implements the traits; docs/adr/0009-queue-within-the-peers-window.md says why
//! HTTP/3 needs them.

use crate::{budget::path::WriteAllowance, receive_budget::ReceiveAccount};
use std::task::{Context, Poll, Waker};

/// What HTTP/3 requests of an endpoint's connections below it.
pub trait Transport {
    /// Opens the window of a request stream that was just accepted on a connection, both by s2n-quic's IDs. Called once
    /// for each stream, in the order of accepting.
    fn open(&self, connection: u64, stream: u64) -> Box<dyn SendWindow>;

    /// The account of what comes on a connection, by s2n-quic's ID; `None` if the connection is gone.
    fn account(&self, connection: u64) -> Option<ReceiveAccount>;

    /// Reports how the client of a connection, by s2n-quic's ID, behaves below HTTP/3.
    fn alerts(&self, connection: u64) -> Box<dyn ConnectionAlerts>;
}

/// How a connection's client behaves below HTTP/3.
pub trait ConnectionAlerts {
    /// Returns the next alert. The last task that polls is woken.
    fn poll(&self, cx: &mut Context<'_>) -> Poll<Alert>;
}

/// Alerts of [`ConnectionAlerts`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Alert {
    /// The client sends more frames that move no data than it may.
    Flood,
    /// The client moved for the last time that the transport can follow.
    LastAddress,
    /// The client sent STOP_SENDING for a unidirectional stream of litequic's: its control stream, as it opens no
    /// other.
    CriticalStreamStopped,
}

/// One request stream's window, dropped at the stream's end.
pub trait SendWindow {
    /// Bytes that may be sent on the stream in all. The limit only rises.
    fn limit(&self) -> u64;

    /// Wakes `waker` when the limit has risen or the client has asked to send no more. The last one registered counts.
    fn register(&self, waker: &Waker);

    /// Bytes of `ready` that the path can use, on top of `sent` bytes of which `outstanding` are not acknowledged.
    fn room(&self, sent: u64, outstanding: u64, ready: u64) -> WriteAllowance;

    /// Bytes that the client takes within a round trip, as its acknowledgements have shown; 0 before, and while none
    /// come.
    fn earned_window(&self) -> u64;

    /// `sent` bytes in all were handed to QUIC.
    fn on_queued(&self, sent: u64);

    /// Wakes the waker registered once more, when QUIC has sent most of what [`room`](Self::room) found to be too much.
    fn wait_until_sent(&self);

    /// Wakes the waker registered once more, when the client has acknowledged about `bytes`, or all that is in flight.
    fn wait_until_acknowledged(&self, bytes: u64);
}
