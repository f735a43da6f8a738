//! Holds the state of one request's stream on an HTTP/2 connection to a server (RFC 9113 §5.1): its windows, and the
//! part of the response that was received and not read.

use super::{DEFAULT_WINDOW, HeadFault, Http2ErrorCode};
use crate::{Fields, WholeBody};
use bytes::{Bytes, BytesMut};
use http::{Method, StatusCode};
use std::{collections::VecDeque, mem, task::Waker};

/// Most bytes of a window: more is never in flight to a reader that keeps up.
const MAX_STREAM_WINDOW: usize = 4 * 1024 * 1024;
/// Bytes in front of a short body that a front end may write its own header over.
const HEADER_ROOM: usize = 512;

/// Failure of one stream. The connection goes on, unless it has failed too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum StreamFailure {
    /// The server has not processed the request (RFC 9113 §8.7): REFUSED_STREAM, or a stream above the last one of
    /// GOAWAY. Any request may be sent again.
    #[error("the origin did not process the request")]
    Unprocessed,
    /// RST_STREAM.
    #[error("the origin reset the stream: {0}")]
    Reset(Http2ErrorCode),
    /// An invalid header or trailer section.
    #[error(transparent)]
    Head(HeadFault),
    /// Content that is longer or shorter than `Content-Length`, or where none may be.
    #[error("the response's content is malformed")]
    Malformed,
    /// More interim responses than [`super::MAX_INTERIM`].
    #[error("the origin sent too many interim responses")]
    Interims,
    /// The connection has ended.
    #[error("the connection to the origin ended")]
    Closed,
}

/// Part of a response that is expected next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReceivePhase {
    /// The final response's header, or an interim one's.
    Head,
    /// Content or trailers.
    Content,
    /// END_STREAM was received.
    Ended,
}

/// Received content that was not read.
#[derive(Debug)]
enum UnreadContent {
    /// The first piece, which may be the whole content.
    First(WholeBody),
    Pieces(BytesMut),
}

/// State of one stream.
#[derive(Debug)]
pub(super) struct ClientStream {
    /// Bytes that the server still accepts.
    pub(super) send_window: i64,
    /// Bytes that the server may still send.
    pub(super) receive_window: i64,
    pub(super) phase: ReceivePhase,
    /// Whether END_STREAM was sent, or the rest of the request is dropped.
    pub(super) is_sent: bool,
    /// Whether the request's method is HEAD.
    is_head: bool,
    /// Whether a frame of the response was received.
    pub(super) has_answered: bool,
    pub(super) interim_count: u32,
    /// Bytes of `Content-Length` that were not received.
    owed: Option<u64>,
    /// Interim responses that were not read.
    pub(super) interims: VecDeque<(StatusCode, Fields)>,
    /// Header of the final response, if it was not read.
    pub(super) head: Option<(StatusCode, Fields)>,
    unread: UnreadContent,
    pub(super) trailers: Option<Fields>,
    pub(super) failure: Option<StreamFailure>,
    /// Task that reads the response.
    pub(super) reader: Option<Waker>,
    /// Task that sends the request's body.
    pub(super) sender: Option<Waker>,
}

const _: () = assert!(size_of::<ClientStream>() <= 320);

impl ClientStream {
    pub(super) fn new(method: &Method, send_window: i64) -> Self {
        Self {
            send_window,
            receive_window: DEFAULT_WINDOW.into(),
            phase: ReceivePhase::Head,
            is_sent: false,
            is_head: *method == Method::HEAD,
            has_answered: false,
            interim_count: 0,
            owed: None,
            interims: VecDeque::new(),
            head: None,
            unread: UnreadContent::Pieces(BytesMut::new()),
            trailers: None,
            failure: None,
            reader: None,
            sender: None,
        }
    }

    /// Whether the stream counts for SETTINGS_MAX_CONCURRENT_STREAMS.
    pub(super) fn is_open(&self) -> bool {
        self.failure.is_none() && (!self.is_sent || self.phase != ReceivePhase::Ended)
    }

    /// Whether the request's end was not sent, and the server wants it.
    pub(super) const fn sends(&self) -> bool {
        !self.is_sent && self.failure.is_none()
    }

    pub(super) fn wake_tasks(&mut self) {
        for task in [self.reader.take(), self.sender.take()].into_iter().flatten() {
            task.wake();
        }
    }

    pub(super) fn wake_reader(&mut self) {
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }

    /// Notes the header of the final response, whose content has this length by its `Content-Length`.
    pub(super) fn on_final_head(&mut self, status: StatusCode, length: Option<u64>) {
        self.phase = ReceivePhase::Content;
        let has_no_content = self.is_head || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
        self.owed = if has_no_content { Some(0) } else { length };
    }

    /// Notes END_STREAM.
    pub(super) fn on_end(&mut self) -> Result<(), StreamFailure> {
        if self.owed.is_some_and(|owed| owed > 0) {
            return Err(StreamFailure::Malformed);
        }
        self.phase = ReceivePhase::Ended;
        self.owed = Some(0);
        Ok(())
    }

    /// Appends `content`, which stands behind `before` in the same read.
    pub(super) fn append_content(&mut self, before: &[u8], content: &[u8]) -> Result<(), StreamFailure> {
        if let Some(owed) = &mut self.owed {
            *owed = owed.checked_sub(content.len() as u64).ok_or(StreamFailure::Malformed)?;
        }
        match &mut self.unread {
            UnreadContent::Pieces(pieces) if pieces.is_empty() && pieces.capacity() == 0 => {
                self.unread = UnreadContent::First(WholeBody::with_header_room(before, content, HEADER_ROOM));
            }
            UnreadContent::Pieces(pieces) => pieces.extend_from_slice(content),
            UnreadContent::First(first) => {
                let mut pieces = BytesMut::with_capacity(first.len().saturating_add(content.len()));
                pieces.extend_from_slice(first.as_ref());
                pieces.extend_from_slice(content);
                self.unread = UnreadContent::Pieces(pieces);
            }
        }
        Ok(())
    }

    pub(super) fn unread_content_length(&self) -> usize {
        match &self.unread {
            UnreadContent::First(first) => first.len(),
            UnreadContent::Pieces(pieces) => pieces.len(),
        }
    }

    /// Number of bytes of the response's content that were not read, if it is known.
    pub(super) fn remaining_length(&self) -> Option<u64> {
        self.owed.map(|owed| owed.saturating_add(self.unread_content_length() as u64))
    }

    /// Removes the content that was not read; `None` if there is none.
    pub(super) fn take_content(&mut self) -> Option<Bytes> {
        match &mut self.unread {
            UnreadContent::Pieces(pieces) => (!pieces.is_empty()).then(|| pieces.split().freeze()),
            UnreadContent::First(first) => {
                let first = mem::take(first).into_bytes();
                // The capacity says that a piece was read: the next one is not the first.
                self.unread = UnreadContent::Pieces(BytesMut::with_capacity(1));
                (!first.is_empty()).then_some(first)
            }
        }
    }

    /// Removes the whole content, if all of it was received at once.
    pub(super) fn take_whole_piece(&mut self) -> Option<WholeBody> {
        match &mut self.unread {
            UnreadContent::First(first)
                if self.phase == ReceivePhase::Ended && self.trailers.is_none() && self.failure.is_none() =>
            {
                let whole = mem::take(first);
                self.unread = UnreadContent::Pieces(BytesMut::new());
                Some(whole)
            }
            _ => None,
        }
    }

    /// Enlarges the window for a reader that accepts `capacity` bytes, and returns the increment; 0 if a WINDOW_UPDATE
    /// is not worth it yet.
    pub(super) fn enlarge_window(&mut self, capacity: usize) -> u32 {
        if self.phase == ReceivePhase::Ended || self.failure.is_some() {
            return 0;
        }
        let wanted = capacity.clamp(DEFAULT_WINDOW as usize, MAX_STREAM_WINDOW) as i64;
        let promised = self.receive_window.saturating_add(self.unread_content_length() as i64);
        let missing = wanted.saturating_sub(promised);
        if missing < wanted / 2 {
            return 0;
        }
        self.receive_window = self.receive_window.saturating_add(missing);
        u32::try_from(missing).unwrap_or_default()
    }
}
