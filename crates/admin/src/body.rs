//! Body of an admin response: complete, or qlog lines as they are written.

use super::{connection_slots::ConnectionActivity, qlog::QlogLines};
use bytes::Bytes;
use futures_util::stream;
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Instant,
};

pub(super) type AdminResponseBody = UnsyncBoxBody<Bytes, Infallible>;

/// Body of complete bytes.
pub(super) fn whole_body(bytes: Bytes) -> AdminResponseBody {
    Full::new(bytes).boxed_unsync()
}

/// Body of the lines of a qlog, as they are written.
pub(super) fn lines_body(mut lines: QlogLines) -> AdminResponseBody {
    let frames = stream::poll_fn(move |cx| lines.poll_recv(cx).map(|lines| lines.map(|lines| Ok(Frame::data(lines)))));
    StreamBody::new(frames).boxed_unsync()
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

    /// Returns `body`, which drops the mark when it is dropped.
    pub(super) fn attach_to(self, body: AdminResponseBody) -> AdminResponseBody {
        let attached = body.map_frame(move |frame| {
            let _streamed = &self;
            frame
        });
        attached.boxed_unsync()
    }
}

impl Drop for StreamedResponse {
    fn drop(&mut self) {
        self.streams.store(false, Relaxed);
        self.activity.set_answering(false, Instant::now());
    }
}
