//! The body of an admin answer: whole, or lines of a log as they come.

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

/// A body.
pub(super) enum AdminResponseBody {
    /// Bytes that are there; none once they were taken.
    Whole(Bytes),
    /// Lines as they come.
    Lines(QlogLines, Option<StreamedResponse>),
}

/// An answer that is being streamed, until this is dropped.
pub(super) struct StreamedResponse {
    activity: Arc<ConnectionActivity>,
    streams: Arc<AtomicBool>,
}

impl StreamedResponse {
    /// The answer of a connection whose `activity` it is, and which `streams` from now on.
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
    /// Whether it is made of lines as they come.
    pub(super) const fn is_streamed(&self) -> bool {
        matches!(self, Self::Lines(..))
    }

    /// Has `streaming` dropped with the body, if that is streamed.
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
