//! Adapts a request's body as h2 delivers it.

use super::{stream_tasks::StreamTasks, unread_frames::StreamFrames};
use crate::{body_discard::BodyDiscard, http2_frames::data_frame_overhead, tcp_body::IncomingBody};
use bytes::Bytes;
use h2::RecvStream;
use http::{HeaderMap, header};
use http_body::{Body, Frame, SizeHint};
use litequic_exchange::BodyError;
use litequic_resources::receive::{ReceiveAccount, UploadDetector};
use std::{
    pin::Pin,
    rc::Weak,
    task::{Context, Poll, ready},
};

/// A request's body on a stream. h2 does not reset the stream before the body is dropped.
pub(super) struct Http2IncomingBody {
    stream: RecvStream,
    /// Number of bytes that are still to come, if the length was announced. h2 resets a stream of another length.
    left: Option<u64>,
    data_ended: bool,
    taken: UploadDetector,
    frames: StreamFrames,
    tasks: Weak<StreamTasks>,
}

impl Http2IncomingBody {
    /// Creates the body behind `head` on `stream`.
    pub(super) fn new(
        stream: RecvStream,
        head: &HeaderMap,
        account: ReceiveAccount,
        frames: StreamFrames,
        tasks: Weak<StreamTasks>,
    ) -> Self {
        let left = head.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
        Self { stream, left, data_ended: false, taken: UploadDetector::new(account), frames, tasks }
    }
}

impl IncomingBody for Http2IncomingBody {
    /// h2 delivers all data that has arrived.
    fn has_more_data(&self) -> bool {
        false
    }

    fn discard_rest(self, discarding: BodyDiscard) {
        // Without tasks the connection has ended.
        if let Some(tasks) = self.tasks.upgrade() {
            tasks.spawn_task(discarding.discard_upload_rest(self));
        }
    }
}

impl Body for Http2IncomingBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if !self.data_ended {
            match ready!(self.stream.poll_data(cx)) {
                Some(Ok(data)) => {
                    let bytes = data.len() as u64;
                    // An error means that the stream is gone.
                    let _ = self.stream.flow_control().release_capacity(data.len());
                    self.taken.count_body_bytes(bytes);
                    self.frames.count_frame_read(data_frame_overhead(data.len()));
                    self.left = self.left.map(|left| left.saturating_sub(bytes));
                    return Poll::Ready(Some(Ok(Frame::data(data))));
                }
                Some(Err(_)) => return Poll::Ready(Some(Err(BodyError::Cancelled))),
                None => self.data_ended = true,
            }
        }
        let trailers = ready!(self.stream.poll_trailers(cx)).map_err(|_| BodyError::Cancelled);
        Poll::Ready(trailers.map(|trailers| trailers.map(Frame::trailers)).transpose())
    }

    fn is_end_stream(&self) -> bool {
        self.stream.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.left.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}
