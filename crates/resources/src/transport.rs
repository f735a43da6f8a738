//! What HTTP/3 reads from its client's transport: how far each request stream may go (RFC 9000 §4.1), and how the
//! client behaves below HTTP/3. QUIC implements the traits; docs/adr/0009-queue-within-the-peers-window.md says why
//! HTTP/3 needs them.

use crate::{receive::ReceiveAccount, send::path::WriteAllowance};
use litequic_exchange::priority::Priority;
use std::task::{Context, Poll, Waker};

/// What HTTP/3 requests of an endpoint's connections below it.
pub trait Transport {
    /// Opens the window of a request stream that was just accepted on a connection, both by s2n-quic's IDs. Called once
    /// for each stream, in the order of accepting.
    fn open_send_window(&self, connection: u64, stream: u64) -> Box<dyn SendWindow>;

    /// The account of what comes on a connection, by s2n-quic's ID; `None` if the connection is gone.
    fn receive_account(&self, connection: u64) -> Option<ReceiveAccount>;

    /// Whether the streams of a connection, by s2n-quic's ID, are served by their priorities.
    fn is_connection_ordered(&self, connection: u64) -> bool;

    /// Sets the priority of a request stream because its client has changed it, by s2n-quic's IDs. Returns whether it
    /// was another; `None` if the stream is not open.
    fn update_priority(&self, connection: u64, stream: u64, priority: Priority) -> Option<bool>;

    /// Reports how the client of a connection, by s2n-quic's ID, behaves below HTTP/3.
    fn connection_alerts(&self, connection: u64) -> Box<dyn ConnectionAlerts>;
}

/// How a connection's client behaves below HTTP/3.
pub trait ConnectionAlerts {
    /// Returns the next alert. The last task that polls is woken.
    fn poll_alert(&self, cx: &mut Context<'_>) -> Poll<Alert>;
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
    fn send_limit(&self) -> u64;

    /// Wakes `waker` when the limit has risen or the client has asked to send no more. The last one registered counts.
    fn register_waker(&self, waker: &Waker);

    /// Whether the client has asked to send no more (STOP_SENDING), as far as the frame was seen: QUIC may reject its
    /// packet.
    fn is_stopped(&self) -> bool;

    /// Whether the connection's streams are served by their priorities.
    fn is_ordered(&self) -> bool;

    /// The stream's priority.
    fn stream_priority(&self) -> Priority;

    /// Sets the priority of a request, unless its client has changed it already.
    fn begin_priority(&self, priority: Priority);

    /// Sets the stream's priority.
    fn set_stream_priority(&self, priority: Priority);

    /// Whether `length` bytes may be handed over at once on top of `sent` bytes, as nothing competes with them. They
    /// are to be handed over then. Behind bytes that are the last of the response no more are handed over.
    fn may_send_at_once(&self, sent: u64, length: u64, is_last: bool) -> bool;

    /// Bytes of `ready` that the path can use, on top of `sent` bytes of which `outstanding` are not acknowledged. A
    /// stream that is served by its priority waits for its turn from then on if there are none, and no more if none are
    /// ready.
    fn write_allowance(&self, sent: u64, outstanding: u64, ready: u64) -> WriteAllowance;

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
