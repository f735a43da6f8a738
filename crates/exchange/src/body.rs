//! A message body that streams: nothing, a few bytes in memory, or frames from somewhere.

use super::{byte_counter::ByteCounter, tunnel::Tunnel, whole_body::WholeBody};
use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use std::{
    cell::Cell,
    fmt, mem,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll},
};

/// A request's or response's body. Belongs to one worker, so it is not `Send`.
///
/// Its [`SizeHint`] is exact where the length is known before the body (a `Content-Length`, or no body at all).
#[derive(Default)]
pub struct Body {
    kind: BodyKind,
    /// Counts its bytes as they are taken.
    counter: Option<ByteCounter>,
}

const _: () = assert!(size_of::<Body>() <= 48);

#[derive(Default)]
enum BodyKind {
    #[default]
    Empty,
    Full(Bytes),
    /// Has come whole with its header.
    Whole(WholeBody),
    Stream {
        source: Pin<Box<dyn HttpBody<Data = Bytes, Error = BodyError>>>,
        capacity: Option<BodyCapacity>,
    },
    Tunnel(Box<Tunnel>),
}

/// How many bytes the next piece of a body may have. The consumer of a body sets it, the reader of an origin respects
/// it: so that no more is in memory than was requested.
pub type BodyCapacity = Rc<Cell<usize>>;

/// Why a body is incomplete.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BodyError {
    /// The sender has reset the stream, or is gone.
    #[error("the sender cancelled the body")]
    Cancelled,
    /// The body violates the protocol: longer or shorter than its `Content-Length`, bad chunk, bad frame.
    #[error("the body is malformed")]
    Malformed,
    /// Longer than the limit allows.
    #[error("the body is larger than allowed")]
    TooLarge,
    /// No byte came in time.
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
    /// No body.
    pub const fn empty() -> Self {
        Self::from_kind(BodyKind::Empty)
    }

    /// A body that streams from `source`.
    pub fn from_stream(source: impl HttpBody<Data = Bytes, Error = BodyError> + 'static) -> Self {
        Self::from_kind(BodyKind::Stream { source: Box::pin(source), capacity: None })
    }

    /// A body that streams from `source`, whose pieces respect `room`.
    pub fn from_bounded_stream(
        room: BodyCapacity,
        source: impl HttpBody<Data = Bytes, Error = BodyError> + 'static,
    ) -> Self {
        Self::from_kind(BodyKind::Stream { source: Box::pin(source), capacity: Some(room) })
    }

    const fn from_kind(kind: BodyKind) -> Self {
        Self { kind, counter: None }
    }

    /// Counts the bytes in `counter` as they are taken. A tunnel counts by itself
    /// ([`Tunnel::counted`]).
    #[must_use]
    pub fn with_byte_counter(mut self, counter: &ByteCounter) -> Self {
        if !self.is_empty() {
            self.counter = Some(counter.clone());
        }
        self
    }

    /// Limits the next pieces to `bytes`. This applies to what is still to be read from an origin, not to what is in
    /// memory.
    pub fn set_piece_limit(&self, bytes: u64) {
        if let BodyKind::Stream { capacity: Some(room), .. } = &self.kind {
            room.set(usize::try_from(bytes).unwrap_or(usize::MAX));
        }
    }

    /// The body of a 101: no body, but bytes both ways. Read as a body it is empty.
    pub fn from_tunnel(tunnel: Tunnel) -> Self {
        Self::from_kind(BodyKind::Tunnel(Box::new(tunnel)))
    }

    /// The tunnel, or the body.
    ///
    /// # Errors
    ///
    /// It is not a tunnel.
    pub fn into_tunnel(self) -> Result<Tunnel, Self> {
        match self.kind {
            BodyKind::Tunnel(tunnel) => Ok(*tunnel),
            kind => Err(Self { kind, counter: self.counter }),
        }
    }

    /// All of a body that has come whole with its header, which leaves an empty one.
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

    /// True for a body that was created empty; a stream never counts as empty, even one that ends at once.
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
        match &self.kind {
            BodyKind::Empty => f.write_str("Body::Empty"),
            BodyKind::Full(bytes) => write!(f, "Body::Full({} bytes)", bytes.len()),
            BodyKind::Whole(body) => write!(f, "Body::Whole({} bytes)", body.len()),
            BodyKind::Tunnel(_) => f.write_str("Body::Tunnel"),
            BodyKind::Stream { source, .. } => write!(f, "Body::Stream({:?})", source.size_hint()),
        }
    }
}
