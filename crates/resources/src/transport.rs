//! Traits by which HTTP/3 reads the state of its client's transport: the send limit of each request stream (RFC 9000
//! §4.1), and the client's conduct below HTTP/3. QUIC implements the traits;
//! docs/adr/0009-queue-within-the-peers-window.md says why HTTP/3 needs them.

use crate::{receive::ReceiveAccount, send::path::WriteAllowance};
use litequic_exchange::priority::Priority;
use std::task::{Context, Poll, Waker};

/// Transport of an endpoint's connections, as HTTP/3 uses it.
pub trait Transport {
    /// Opens the window of a request stream that was just accepted; `connection` and `stream` are s2n-quic's IDs.
    /// Called once for each stream, in the order of accepting.
    fn open_send_window(&self, connection: u64, stream: u64) -> Box<dyn SendWindow>;

    /// The receive account of the connection with s2n-quic's ID `connection`; `None` if the connection has ended.
    fn receive_account(&self, connection: u64) -> Option<ReceiveAccount>;

    /// Whether the streams of the connection with s2n-quic's ID `connection` are served by their priorities.
    fn is_connection_ordered(&self, connection: u64) -> bool;

    /// Sets the priority of a request stream because the client has changed it; `connection` and `stream` are
    /// s2n-quic's IDs. Returns whether the priority was another one; `None` if the stream is not open.
    fn update_priority(&self, connection: u64, stream: u64, priority: Priority) -> Option<bool>;

    /// Reports the conduct, below HTTP/3, of the client of the connection with s2n-quic's ID `connection`.
    fn connection_alerts(&self, connection: u64) -> Box<dyn ConnectionAlerts>;
}

/// Source of alerts about a client's conduct below HTTP/3.
pub trait ConnectionAlerts {
    /// Returns the next alert. The last task that polls is woken.
    fn poll_alert(&self, cx: &mut Context<'_>) -> Poll<Alert>;
}

/// Alert of [`ConnectionAlerts`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Alert {
    /// The client sends too many frames that move no data.
    Flood,
    /// The client changed its address, and the transport cannot follow another change.
    LastAddress,
    /// The client sent STOP_SENDING for litequic's only unidirectional stream: the control stream.
    CriticalStreamStopped,
}

/// Send window of one request stream, dropped at the stream's end.
pub trait SendWindow {
    /// Total number of bytes that may be sent on the stream. The limit only rises.
    fn send_limit(&self) -> u64;

    /// Wakes `waker` when the limit has risen or the client has sent STOP_SENDING. Replaces the waker that was
    /// registered before.
    fn register_waker(&self, waker: &Waker);

    /// Whether the client has sent STOP_SENDING, as far as litequic saw the frame: QUIC may reject its packet.
    fn is_stopped(&self) -> bool;

    /// Whether the connection's streams are served by their priorities.
    fn is_ordered(&self) -> bool;

    /// Priority of the stream.
    fn stream_priority(&self) -> Priority;

    /// Sets the priority of a new request, unless the client has changed it already.
    fn begin_priority(&self, priority: Priority);

    /// Sets the priority of the stream.
    fn set_stream_priority(&self, priority: Priority);

    /// Whether `length` bytes may be queued at once on top of `sent` bytes, as no other stream competes. If so, the
    /// caller must queue them. After bytes with `is_last`, the last of the response, nothing more may be queued.
    fn may_send_at_once(&self, sent: u64, length: u64, is_last: bool) -> bool;

    /// Number of the `ready` bytes that the path can use, on top of `sent` bytes of which `outstanding` are not
    /// acknowledged. If the result is none, a stream that is served by its priority waits for its turn from then on; it
    /// stops waiting if `ready` is 0.
    fn write_allowance(&self, sent: u64, outstanding: u64, ready: u64) -> WriteAllowance;

    /// Number of bytes that the client takes within a round trip, as its acknowledgements have shown; 0 before any
    /// come, and while none come.
    fn earned_window(&self) -> u64;

    /// Records that `sent` bytes in all were queued in QUIC.
    fn on_queued(&self, sent: u64);

    /// Wakes the registered waker once more, when QUIC has sent most of the bytes for which
    /// [`write_allowance`](Self::write_allowance) allowed no more.
    fn wait_until_sent(&self);

    /// Wakes the registered waker once more, when the client has acknowledged about `bytes` bytes, or all bytes in
    /// flight.
    fn wait_until_acknowledged(&self, bytes: u64);
}
