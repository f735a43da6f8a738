//! Body of an admin response: complete, or qlog lines as they are written.

use super::{connection_slots::ConnectionActivity, qlog::QlogLines};
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use std::{
    convert::Infallible,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    task::{Context, Poll},
    time::Instant,
};

pub(super) enum AdminResponseBody {
    /// Complete bytes; empty after the response was sent.
    Whole(Bytes),
    /// Lines of a qlog as they are written.
    Lines(QlogLines, Option<StreamedResponse>),
}

/// Marks a connection's response as streamed until dropped.
pub(super) struct StreamedResponse {
    activity: Arc<ConnectionActivity>,
    streams: Arc<AtomicBool>,
}

impl StreamedResponse {
    /// Begins a streamed response of the connection with `activity`, and sets `streams` until it ends.
    pub(super) fn begin_streaming(activity: Arc<ConnectionActivity>, streams: Arc<AtomicBool>) -> Self {
        streams.store(true, Relaxed);
        Self { activity, streams }
    }
}

impl Drop for StreamedResponse {
    fn drop(&mut self) {
        self.streams.store(false, Relaxed);
        self.activity.set_answering(false, Instant::now());
    }
}

impl AdminResponseBody {
    /// Whether the body is streamed.
    pub(super) const fn is_streamed(&self) -> bool {
        matches!(self, Self::Lines(..))
    }

    /// Attaches `streaming` to a streamed body, which drops it at the end.
    pub(super) fn attach_stream(&mut self, streaming: StreamedResponse) {
        if let Self::Lines(_, kept) = self {
            *kept = Some(streaming);
        }
    }
}

impl Body for AdminResponseBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.get_mut() {
            Self::Whole(bytes) if bytes.is_empty() => Poll::Ready(None),
            Self::Whole(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            Self::Lines(lines, _) => lines.poll_recv(cx).map(|lines| lines.map(|lines| Ok(Frame::data(lines)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Whole(bytes) if bytes.is_empty())
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Self::Lines(..) => SizeHint::default(),
        }
    }
}
