//! Defines a message body: empty, bytes in memory, a stream of frames, or a tunnel.

use super::{byte_counter::ByteCounter, client_deadline::DeadlineSwitch, tunnel::Tunnel, whole_body::WholeBody};
use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use std::{
    cell::Cell,
    fmt, mem,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll},
};

/// A request's or response's body. The body belongs to one worker and is not `Send`.
///
/// The [`SizeHint`] is exact where the length is known before the body (a `Content-Length`, or no body at all).
#[derive(Default)]
pub struct Body {
    kind: BodyKind,
    /// Counts the bytes of the body when its consumer takes them.
    counter: Option<ByteCounter>,
}

const _: () = assert!(size_of::<Body>() <= 48);

#[derive(Default)]
enum BodyKind {
    #[default]
    Empty,
    Full(Bytes),
    /// The whole body was received together with the header.
    Whole(WholeBody),
    Stream {
        source: Pin<Box<dyn HttpBody<Data = Bytes, Error = BodyError>>>,
        control: StreamControl,
    },
    Tunnel(Box<Tunnel>),
}

/// Control that the consumer of a streamed body has over its source.
enum StreamControl {
    None,
    /// The limit of a response's next piece.
    Capacity(BodyCapacity),
    /// The switch of the deadline of a request's client.
    Deadline(DeadlineSwitch),
}

/// Limit of the next piece of a body, in bytes. The consumer of a body sets the limit, and the reader of an origin
/// obeys it, so that no more is in memory than was requested.
pub type BodyCapacity = Rc<Cell<usize>>;

/// The reason why a body is incomplete.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BodyError {
    /// The sender reset the stream, or its connection is gone.
    #[error("the sender cancelled the body")]
    Cancelled,
    /// The body violates the protocol: longer or shorter than its `Content-Length`, bad chunk, bad frame.
    #[error("the body is malformed")]
    Malformed,
    /// The body is longer than the limit allows.
    #[error("the body is larger than allowed")]
    TooLarge,
    /// No byte arrived before the timeout.
    #[error("timed out waiting for the body")]
    TimedOut,
    /// The connection closed before the body's end.
    #[error("the body was cut short")]
    Truncated,
    /// litequic ended the exchange: another client's request needed the connection to the origin.
    #[error("the connection to the origin was needed for another client")]
    Evicted,
}

impl Body {
    /// Creates a body of no bytes.
    pub const fn empty() -> Self {
        Self::from_kind(BodyKind::Empty)
    }

    /// Creates a body that streams from `source`.
    pub fn from_stream(source: impl HttpBody<Data = Bytes, Error = BodyError> + 'static) -> Self {
        Self::from_kind(BodyKind::Stream { source: Box::pin(source), control: StreamControl::None })
    }

    /// Creates a request's body that streams from `source`, the deadline of whose client `switch` stops.
    pub fn from_upload(
        switch: DeadlineSwitch,
        source: impl HttpBody<Data = Bytes, Error = BodyError> + 'static,
    ) -> Self {
        Self::from_kind(BodyKind::Stream { source: Box::pin(source), control: StreamControl::Deadline(switch) })
    }

    /// Stops the deadline of the body's client: silence is no fault of this one.
    pub fn stop_client_deadline(&self) {
        if let BodyKind::Stream { control: StreamControl::Deadline(switch), .. } = &self.kind {
            switch.stop_deadline();
        }
    }

    /// Creates a body that streams from `source`, whose pieces are no longer than `room` allows.
    pub fn from_bounded_stream(
        room: BodyCapacity,
        source: impl HttpBody<Data = Bytes, Error = BodyError> + 'static,
    ) -> Self {
        Self::from_kind(BodyKind::Stream { source: Box::pin(source), control: StreamControl::Capacity(room) })
    }

    const fn from_kind(kind: BodyKind) -> Self {
        Self { kind, counter: None }
    }

    /// Counts the bytes in `counter` when they are taken. A tunnel has counters of its own
    /// ([`Tunnel::with_byte_counters`]).
    #[must_use]
    pub fn with_byte_counter(mut self, counter: &ByteCounter) -> Self {
        if !self.is_empty() {
            self.counter = Some(counter.clone());
        }
        self
    }

    /// Limits the next pieces to `bytes`. The limit applies to bytes that are not read from the origin yet, not to
    /// those in memory.
    pub fn set_piece_limit(&self, bytes: u64) {
        if let BodyKind::Stream { control: StreamControl::Capacity(room), .. } = &self.kind {
            room.set(usize::try_from(bytes).unwrap_or(usize::MAX));
        }
    }

    /// Creates the body of a 101 response: `tunnel` carries bytes both ways. As an [`HttpBody`] it is empty.
    pub fn from_tunnel(tunnel: Tunnel) -> Self {
        Self::from_kind(BodyKind::Tunnel(Box::new(tunnel)))
    }

    /// Returns the tunnel, if the body is one.
    ///
    /// # Errors
    ///
    /// The body, if it is no tunnel.
    pub fn into_tunnel(self) -> Result<Tunnel, Self> {
        match self.kind {
            BodyKind::Tunnel(tunnel) => Ok(*tunnel),
            kind => Err(Self { kind, counter: self.counter }),
        }
    }

    /// Takes a body that was received whole with its header, and leaves an empty one.
    pub fn take_buffered_body(&mut self) -> Option<WholeBody> {
        match mem::take(&mut self.kind) {
            BodyKind::Whole(body) => {
                if let Some(counter) = &self.counter {
                    counter.add_bytes(body.len());
                }
                Some(body)
            }
            kind => {
                self.kind = kind;
                None
            }
        }
    }

    /// Whether the body was created empty. A stream is never empty, even if it ends at once.
    pub const fn is_empty(&self) -> bool {
        matches!(self.kind, BodyKind::Empty)
    }
}

impl From<Bytes> for Body {
    fn from(bytes: Bytes) -> Self {
        Self::from_kind(if bytes.is_empty() { BodyKind::Empty } else { BodyKind::Full(bytes) })
    }
}

impl From<WholeBody> for Body {
    fn from(body: WholeBody) -> Self {
        Self::from_kind(if body.is_empty() { BodyKind::Empty } else { BodyKind::Whole(body) })
    }
}

impl From<String> for Body {
    fn from(text: String) -> Self {
        Bytes::from(text).into()
    }
}

impl From<&'static str> for Body {
    fn from(text: &'static str) -> Self {
        Bytes::from_static(text.as_bytes()).into()
    }
}

impl HttpBody for Body {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let next = match &mut self.kind {
            BodyKind::Empty | BodyKind::Tunnel(_) => Poll::Ready(None),
            BodyKind::Full(bytes) => {
                let bytes = mem::take(bytes);
                self.kind = BodyKind::Empty;
                Poll::Ready(Some(Ok(Frame::data(bytes))))
            }
            BodyKind::Whole(body) => {
                let bytes = mem::take(body).into_bytes();
                self.kind = BodyKind::Empty;
                Poll::Ready(Some(Ok(Frame::data(bytes))))
            }
            BodyKind::Stream { source, .. } => source.as_mut().poll_frame(cx),
        };
        if let (Some(counter), Poll::Ready(Some(Ok(frame)))) = (&self.counter, &next)
            && let Some(data) = frame.data_ref()
        {
            counter.add_bytes(data.len());
        }
        next
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            BodyKind::Empty | BodyKind::Tunnel(_) => true,
            BodyKind::Full(_) | BodyKind::Whole(_) => false,
            BodyKind::Stream { source, .. } => source.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            BodyKind::Empty | BodyKind::Tunnel(_) => SizeHint::with_exact(0),
            BodyKind::Full(bytes) => SizeHint::with_exact(bytes.len() as u64),
            BodyKind::Whole(body) => SizeHint::with_exact(body.len() as u64),
            BodyKind::Stream { source, .. } => source.size_hint(),
        }
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Body({:?})", self.size_hint())
    }
}
