//! Runs the client's side of an HTTP/2 connection (RFC 9113): the server's bytes in, requests and responses by stream,
//! and bytes to be written out. Pure: it has no socket and no clock, and calls the wakers of tasks that wait.

use super::client_stream::{ClientStream, ReceivePhase, StreamFailure};
use super::output_queue::OutputQueue;
use super::{
    DEFAULT_MAX_FRAME_LEN, DEFAULT_WINDOW, FRAME_HEADER_LEN, HeadFault, Http2ErrorCode, Http2FrameHeader,
    LARGEST_FRAME_LEN, MAX_WINDOW, PREFACE, flag, kind, parse_settings, read_response_head, read_response_trailers,
    setting, write_field_block, write_goaway, write_header_frames, write_ping_ack, write_request, write_rst_stream,
    write_settings, write_settings_ack, write_window_update,
};
use crate::{FieldNameRef, Fields, Head, WholeBody, name, terms::FieldLimits};
use Http2ErrorCode::{
    CompressionError, EnhanceYourCalm, FlowControlError, FrameSizeError, NoError, ProtocolError, StreamClosed,
};
use bytes::Bytes;
use http::StatusCode;
use std::{
    io::IoSlice,
    mem,
    task::{Context, Poll},
};

/// Most interim responses to one request (RFC 9110 §15.2).
pub const MAX_INTERIM: u32 = 1_000;
/// Largest payload of a frame that is sent, whatever the server allows: a larger one delays other streams.
const MAX_SENT_FRAME: u32 = 64 * 1024;
/// Largest encoded header section that is kept; a longer one is skipped, and its stream fails.
const MAX_BLOCK: usize = 64 * 1024;
/// Largest encoded header section at all: more ends the connection.
const MAX_SKIPPED_BLOCK: usize = 1024 * 1024;
/// Most frames in an interval that bring no exchange forward, such as PING, SETTINGS and empty DATA.
const MAX_IDLE_FRAMES: u32 = 10_000;
/// Bytes that wait to be written above which no body is sent.
const MAX_OUTPUT: usize = 256 * 1024;
/// Bytes that wait to be written above which a server may send no frame that has to be acknowledged, such as PING: it
/// does not read. More than the headers of many requests at once.
const MAX_UNREAD_OUTPUT: usize = 4 * 1024 * 1024;
/// Most interim responses of a stream that are kept until they are read; others are dropped.
const MAX_UNREAD_INTERIM: usize = 16;

/// Fault of the server that ends the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{reason} ({code})")]
pub struct ConnectionFault {
    /// Error that GOAWAY reports to the server.
    pub code: Http2ErrorCode,
    /// The rule that was broken.
    pub reason: &'static str,
}

const fn fault(code: Http2ErrorCode, reason: &'static str) -> ConnectionFault {
    ConnectionFault { code, reason }
}

/// End of a connection that the server has announced by GOAWAY.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GoAway {
    /// Last stream that the server may have processed.
    pub last_stream: u32,
    /// Reason.
    pub code: Http2ErrorCode,
}

/// Client's side of a connection.
#[derive(Debug)]
pub struct ClientConnection {
    output: OutputQueue,
    /// Open streams, and those whose response is not read, by their ascending IDs.
    streams: Vec<(u32, Box<ClientStream>)>,
    next_id: u32,
    /// Number of streams that count for the server's limit.
    pub open_streams: u32,
    /// SETTINGS of the server; `None` before they were received.
    settings: Option<PeerSettings>,
    /// Bytes that the server allows on all streams together.
    pub send_window: i64,
    receive_window: i64,
    /// The server's last GOAWAY, or litequic's own.
    pub go_away: Option<GoAway>,
    /// Fault that ended the connection, if any did.
    pub fault: Option<ConnectionFault>,
    frame: FrameState,
    /// Encoded header section whose END_HEADERS is awaited.
    block: Option<HeaderBlock>,
    idle_frames: u32,
    limits: FieldLimits,
}

#[derive(Debug, Clone, Copy)]
struct PeerSettings {
    max_streams: u32,
    initial_window: i64,
    max_frame: u32,
}

impl Default for PeerSettings {
    /// Initial values (RFC 9113 §6.5.2).
    fn default() -> Self {
        Self { max_streams: u32::MAX, initial_window: DEFAULT_WINDOW.into(), max_frame: DEFAULT_MAX_FRAME_LEN }
    }
}

/// Progress of parsing frames.
#[derive(Debug)]
enum FrameState {
    /// The beginning of a frame's header.
    Header([u8; FRAME_HEADER_LEN], usize),
    /// A frame whose payload is collected.
    Payload(Http2FrameHeader, Vec<u8>),
    /// DATA without padding, of which this number of bytes is to come.
    Data(Http2FrameHeader, usize),
}

impl Default for FrameState {
    fn default() -> Self {
        Self::Header([0; FRAME_HEADER_LEN], 0)
    }
}

/// Header section in several frames (RFC 9113 §4.3).
#[derive(Debug)]
struct HeaderBlock {
    stream: u32,
    ends_stream: bool,
    bytes: Vec<u8>,
    /// Number of bytes of the section so far, kept or skipped.
    length: usize,
}

impl ClientConnection {
    /// A connection whose preface (RFC 9113 §3.4) is ready to be written. Header sections of responses are bounded by
    /// `limits`.
    pub fn new(limits: FieldLimits) -> Self {
        let mut output = OutputQueue::default();
        let out = &mut output.tail;
        out.extend_from_slice(PREFACE);
        write_settings(
            out,
            &[
                (setting::HEADER_TABLE_SIZE, 0),
                (setting::ENABLE_PUSH, 0),
                (setting::MAX_HEADER_LIST_SIZE, u32::try_from(limits.bytes).unwrap_or(u32::MAX)),
            ],
        );
        // A stream's window alone bounds what is unread, so that no response stops another one.
        write_window_update(out, 0, MAX_WINDOW.saturating_sub(DEFAULT_WINDOW));
        Self {
            output,
            streams: Vec::new(),
            next_id: 1,
            open_streams: 0,
            settings: None,
            send_window: DEFAULT_WINDOW.into(),
            receive_window: MAX_WINDOW.into(),
            go_away: None,
            fault: None,
            frame: FrameState::default(),
            block: None,
            idle_frames: 0,
            limits,
        }
    }

    /// Whether the server's SETTINGS were received, so that its limit of streams is known.
    pub const fn has_settings(&self) -> bool {
        self.settings.is_some()
    }

    /// Most streams that the server allows at a time.
    pub fn peer_stream_limit(&self) -> u32 {
        self.settings.map_or(0, |settings| settings.max_streams)
    }

    /// Whether no stream is left, nor a response that is not read.
    pub const fn is_idle(&self) -> bool {
        self.streams.is_empty()
    }

    /// Whether another stream may be opened.
    pub fn accepts_streams(&self) -> bool {
        self.go_away.is_none()
            && self.fault.is_none()
            && self.next_id < MAX_WINDOW
            && self.open_streams < self.peer_stream_limit()
    }

    fn stream_index(&self, id: u32) -> Option<usize> {
        self.streams.binary_search_by_key(&id, |(id, _)| *id).ok()
    }

    fn stream_mut(&mut self, id: u32) -> Option<&mut ClientStream> {
        let index = self.stream_index(id)?;
        self.streams.get_mut(index).map(|(_, stream)| &mut **stream)
    }

    fn stream(&self, id: u32) -> Option<&ClientStream> {
        self.streams.get(self.stream_index(id)?).map(|(_, stream)| &**stream)
    }

    /// Opens a stream for the request `head`, whose scheme is `scheme`, with the field `extra`, and without a body if
    /// `is_end`. Returns the stream's ID; `None` if the connection accepts no further stream.
    pub fn begin_stream(
        &mut self,
        head: &Head,
        scheme: &str,
        extra: Option<(FieldNameRef<'_>, &[u8])>,
        is_end: bool,
    ) -> Option<u32> {
        if !self.accepts_streams() {
            return None;
        }
        let id = self.next_id;
        self.next_id = id.saturating_add(2);
        let authority = head.fields.get(name::HOST).unwrap_or_else(|| head.authority().as_bytes());
        let fields = head.fields.iter().map(|line| (line.name_ref(), line.value)).chain(extra);
        write_header_frames(&mut self.output.tail, id, is_end, DEFAULT_MAX_FRAME_LEN, |out| {
            write_request(out, head.method.as_str(), scheme, authority, head.target_bytes(), fields);
        });
        let initial_window = self.settings.unwrap_or_default().initial_window;
        let mut stream = Box::new(ClientStream::new(&head.method, initial_window));
        stream.is_sent = is_end;
        self.streams.push((id, stream));
        self.open_streams = self.open_streams.saturating_add(1);
        Some(id)
    }

    /// Number of bytes of its body that a request may send now. 0 registers the task, which is woken once it may send
    /// more.
    pub fn poll_upload_window(&mut self, id: u32, cx: &Context<'_>) -> usize {
        let window = if self.output.len() >= MAX_OUTPUT { 0 } else { self.send_window };
        let Some(stream) = self.stream_mut(id) else { return 0 };
        let capacity = usize::try_from(window.min(stream.send_window)).unwrap_or_default();
        if capacity == 0 {
            stream.sender = Some(cx.waker().clone());
        }
        capacity
    }

    /// Sends the beginning of `piece`, as far as the windows allow.
    pub fn send_piece(&mut self, id: u32, piece: &mut Bytes) {
        let max_frame = self.settings.unwrap_or_default().max_frame.min(MAX_SENT_FRAME) as usize;
        self.idle_frames = 0;
        while !piece.is_empty() {
            let window = self.send_window;
            // A request that was reset gets nothing more.
            let Some(stream) = self.stream_mut(id).filter(|stream| stream.sends()) else { return };
            let capacity = usize::try_from(window.min(stream.send_window)).unwrap_or_default();
            let length = piece.len().min(max_frame).min(capacity);
            if length == 0 {
                return;
            }
            let sent = u32::try_from(length).unwrap_or(u32::MAX);
            stream.send_window = stream.send_window.saturating_sub(sent.into());
            self.send_window = self.send_window.saturating_sub(sent.into());
            Http2FrameHeader { length: sent, kind: kind::DATA, flags: 0, stream: id }.write(&mut self.output.tail);
            self.output.push_body_piece(piece.split_to(length));
        }
    }

    /// Ends the request with `trailers`, or without any.
    pub fn finish_request(&mut self, id: u32, trailers: Option<&Fields>) {
        // A request whose response has failed was reset, or its server wants no more of it.
        if self.is_request_sent(id) {
            return;
        }
        let Some(stream) = self.stream_mut(id) else { return };
        stream.is_sent = true;
        let is_closed = !stream.is_open();
        match trailers.filter(|trailers| !trailers.is_empty()) {
            Some(trailers) => {
                let fields = trailers.iter().map(|line| (line.name_ref(), line.value));
                write_header_frames(&mut self.output.tail, id, true, DEFAULT_MAX_FRAME_LEN, |out| {
                    write_field_block(out, fields);
                });
            }
            None => Http2FrameHeader { length: 0, kind: kind::DATA, flags: flag::END_STREAM, stream: id }
                .write(&mut self.output.tail),
        }
        if is_closed {
            self.open_streams = self.open_streams.saturating_sub(1);
        }
    }

    /// Reads the next response's header: interim responses, and the final one.
    pub fn poll_message(&mut self, id: u32, cx: &Context<'_>) -> Poll<Result<(StatusCode, Fields), StreamFailure>> {
        let Some(stream) = self.stream_mut(id) else { return Poll::Ready(Err(StreamFailure::Closed)) };
        if let Some(message) = stream.interims.pop_front().or_else(|| stream.head.take()) {
            return Poll::Ready(Ok(message));
        }
        if let Some(failure) = stream.failure {
            return Poll::Ready(Err(failure));
        }
        stream.reader = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Reads the response's content that was received, for a reader that accepts `capacity` more bytes behind it.
    /// `None` at its end, where [`Self::take_response_trailers`] may have trailers.
    pub fn poll_content(
        &mut self,
        id: u32,
        capacity: usize,
        cx: &Context<'_>,
    ) -> Poll<Option<Result<Bytes, StreamFailure>>> {
        let Some(stream) = self.stream_mut(id) else { return Poll::Ready(Some(Err(StreamFailure::Closed))) };
        let content = stream.take_content();
        let increment = stream.enlarge_window(capacity);
        let polled = match content {
            Some(content) => Poll::Ready(Some(Ok(content))),
            None => match stream.failure {
                Some(failure) => Poll::Ready(Some(Err(failure))),
                None if stream.phase == ReceivePhase::Ended => Poll::Ready(None),
                None => {
                    stream.reader = Some(cx.waker().clone());
                    Poll::Pending
                }
            },
        };
        if increment > 0 {
            write_window_update(&mut self.output.tail, id, increment);
        }
        polled
    }

    /// Removes the response's trailers.
    pub fn take_response_trailers(&mut self, id: u32) -> Option<Fields> {
        self.stream_mut(id)?.trailers.take()
    }

    /// Removes the response's content, if all of it was received at once.
    pub fn take_whole_content(&mut self, id: u32) -> Option<WholeBody> {
        self.stream_mut(id)?.take_whole_piece()
    }

    /// Whether neither content nor trailers are left.
    pub fn is_response_read(&self, id: u32) -> bool {
        self.stream(id).is_some_and(|stream| {
            stream.phase == ReceivePhase::Ended
                && stream.failure.is_none()
                && stream.trailers.is_none()
                && stream.unread_content_length() == 0
        })
    }

    /// Number of bytes of the response's content that were not read, if it is known.
    pub fn remaining_content(&self, id: u32) -> Option<u64> {
        self.stream(id)?.remaining_length()
    }

    /// Whether the whole request was handed to the connection, or the server wants no more of it.
    pub fn is_request_sent(&self, id: u32) -> bool {
        self.stream(id).is_none_or(|stream| !stream.sends())
    }

    /// Whether a frame of the response was received.
    pub fn has_response_begun(&self, id: u32) -> bool {
        self.stream(id).is_some_and(|stream| stream.has_answered)
    }

    /// Removes a stream. One that is not complete is cancelled by RST_STREAM. Returns whether that was sent.
    pub fn remove_stream(&mut self, id: u32) -> bool {
        let Some(index) = self.stream_index(id) else { return false };
        let (_, stream) = self.streams.remove(index);
        if !stream.is_open() {
            return false;
        }
        self.open_streams = self.open_streams.saturating_sub(1);
        if self.fault.is_some() {
            return false;
        }
        write_rst_stream(&mut self.output.tail, id, Http2ErrorCode::Cancel);
        true
    }

    /// Ends a request whose response is awaited: reading it fails with [`StreamFailure::Closed`].
    pub fn cancel_stream(&mut self, id: u32) {
        self.fail_stream(id, StreamFailure::Closed, Http2ErrorCode::Cancel);
    }

    /// Begins another interval, a second or longer, of the limit of frames without progress.
    pub const fn begin_interval(&mut self) {
        self.idle_frames = 0;
    }

    /// Number of bytes that wait to be written.
    pub fn output_length(&self) -> usize {
        self.output.len()
    }

    /// Fills `slices` with the bytes to be written, and returns the number of slices that are filled.
    pub fn fill_output<'c>(&'c self, slices: &mut [IoSlice<'c>]) -> usize {
        self.output.fill_slices(slices)
    }

    /// Notes that the first `bytes` were written.
    pub fn on_output_written(&mut self, bytes: usize) {
        let was_full = self.output.len() >= MAX_OUTPUT;
        self.output.skip_written(bytes);
        if was_full && self.output.len() < MAX_OUTPUT {
            self.wake_senders();
        }
    }

    fn wake_senders(&mut self) {
        for (_, stream) in &mut self.streams {
            if stream.send_window > 0
                && let Some(sender) = stream.sender.take()
            {
                sender.wake();
            }
        }
    }

    /// Ends the connection by GOAWAY (RFC 9113 §6.8): the client opens no more streams.
    pub fn begin_close(&mut self) {
        if self.go_away.is_none() && self.fault.is_none() {
            write_goaway(&mut self.output.tail, 0, NoError);
            self.go_away = Some(GoAway { last_stream: u32::MAX, code: NoError });
        }
    }

    /// Notes that the connection has ended: all streams that are not complete fail.
    pub fn on_closed(&mut self) {
        self.fault.get_or_insert(fault(NoError, "the connection ended"));
        self.fail_streams(|_| Some(StreamFailure::Closed));
    }

    fn fail_streams(&mut self, failure: impl Fn(u32) -> Option<StreamFailure>) {
        for (id, stream) in &mut self.streams {
            if stream.failure.is_none()
                && stream.is_open()
                && let Some(failure) = failure(*id)
            {
                if stream.phase == ReceivePhase::Ended {
                    // The response is complete: only the rest of the request is lost.
                    stream.is_sent = true;
                } else {
                    stream.failure = Some(failure);
                }
                self.open_streams = self.open_streams.saturating_sub(1);
                stream.wake_tasks();
            }
        }
    }

    /// Processes bytes of the server.
    ///
    /// # Errors
    ///
    /// The fault that ends the connection. GOAWAY is ready to be written then, and all streams have failed.
    pub fn receive(&mut self, input: &[u8]) -> Result<(), ConnectionFault> {
        let received = self.receive_frames(input);
        if let Err(fault) = received {
            self.fault = Some(fault);
            write_goaway(&mut self.output.tail, 0, fault.code);
            self.fail_streams(|_| Some(StreamFailure::Closed));
        }
        received
    }

    fn receive_frames(&mut self, input: &[u8]) -> Result<(), ConnectionFault> {
        let mut at = 0;
        while let Some(rest) = input.get(at..).filter(|rest| !rest.is_empty()) {
            match mem::take(&mut self.frame) {
                FrameState::Header(mut bytes, filled) => {
                    let missing = FRAME_HEADER_LEN.saturating_sub(filled).min(rest.len());
                    for (slot, byte) in bytes.iter_mut().skip(filled).zip(rest.iter().take(missing)) {
                        *slot = *byte;
                    }
                    at = at.saturating_add(missing);
                    let filled = filled.saturating_add(missing);
                    if filled < FRAME_HEADER_LEN {
                        self.frame = FrameState::Header(bytes, filled);
                        break;
                    }
                    let header = Http2FrameHeader::parse_frame_header(&bytes);
                    let begun = self.begin_frame(header, &bytes)?;
                    if header.length == 0 {
                        // No byte is to come.
                        self.on_frame(header, &[])?;
                    } else {
                        self.frame = begun;
                    }
                }
                FrameState::Payload(header, mut payload) => {
                    let length = header.length as usize;
                    let missing = length.saturating_sub(payload.len());
                    let part = rest.get(..missing.min(rest.len())).unwrap_or_default();
                    at = at.saturating_add(part.len());
                    if part.len() == length {
                        self.on_frame(header, part)?;
                    } else {
                        payload.extend_from_slice(part);
                        if payload.len() == length {
                            self.on_frame(header, &payload)?;
                        } else {
                            self.frame = FrameState::Payload(header, payload);
                        }
                    }
                }
                FrameState::Data(header, missing) => {
                    let part = rest.get(..missing.min(rest.len())).unwrap_or_default();
                    let before = input.get(..at).unwrap_or_default();
                    at = at.saturating_add(part.len());
                    let left = missing.saturating_sub(part.len());
                    self.on_content(header.stream, before, part, left == 0 && header.flags & flag::END_STREAM != 0)?;
                    if left > 0 {
                        self.frame = FrameState::Data(header, left);
                    }
                }
            }
        }
        Ok(())
    }

    /// Checks a frame's header (RFC 9113 §4.1).
    fn begin_frame(
        &mut self,
        header: Http2FrameHeader,
        bytes: &[u8; FRAME_HEADER_LEN],
    ) -> Result<FrameState, ConnectionFault> {
        if self.settings.is_none() && (header.kind != kind::SETTINGS || header.flags & flag::ACK != 0) {
            return Err(if bytes.starts_with(b"HTTP/1.") {
                fault(ProtocolError, "the server speaks HTTP/1.1: see origin.protocol")
            } else {
                fault(ProtocolError, "the server's first frame is not SETTINGS")
            });
        }
        if header.length > DEFAULT_MAX_FRAME_LEN {
            return Err(fault(FrameSizeError, "a frame is larger than allowed"));
        }
        let is_continuation = header.kind == kind::CONTINUATION;
        let continues = |block: &HeaderBlock| is_continuation && block.stream == header.stream;
        if self.block.as_ref().map_or(is_continuation, |block| !continues(block)) {
            return Err(fault(ProtocolError, "CONTINUATION is missing or unexpected"));
        }
        if header.kind != kind::DATA {
            return Ok(FrameState::Payload(header, Vec::new()));
        }
        let length = i64::from(header.length);
        self.receive_window = self.receive_window.saturating_sub(length);
        if self.receive_window < 0 {
            return Err(fault(FlowControlError, "the connection's window is exceeded"));
        }
        let used = i64::from(MAX_WINDOW).saturating_sub(self.receive_window);
        if used > self.receive_window {
            self.receive_window = MAX_WINDOW.into();
            write_window_update(&mut self.output.tail, 0, u32::try_from(used).unwrap_or(MAX_WINDOW));
        }
        self.check_stream_id(header.stream)?;
        if let Some(stream) = self.stream_mut(header.stream) {
            stream.receive_window = stream.receive_window.saturating_sub(length);
            if stream.receive_window < 0 {
                return Err(fault(FlowControlError, "a stream's window is exceeded"));
            }
        }
        Ok(if header.flags & flag::PADDED == 0 {
            FrameState::Data(header, header.length as usize)
        } else {
            FrameState::Payload(header, Vec::new())
        })
    }

    /// Rejects a stream that the client has not opened.
    const fn check_stream_id(&self, id: u32) -> Result<(), ConnectionFault> {
        if id == 0 || id.is_multiple_of(2) || id >= self.next_id {
            return Err(fault(ProtocolError, "a frame names a stream that is not open"));
        }
        Ok(())
    }

    fn count_stalled_frame(&mut self) -> Result<(), ConnectionFault> {
        self.idle_frames = self.idle_frames.saturating_add(1);
        if self.output.len() > MAX_UNREAD_OUTPUT {
            return Err(fault(EnhanceYourCalm, "the server does not read"));
        }
        if self.idle_frames > MAX_IDLE_FRAMES {
            return Err(fault(EnhanceYourCalm, "too many frames without a response"));
        }
        Ok(())
    }

    /// Handles a whole frame; of DATA only padded ones come here.
    fn on_frame(&mut self, header: Http2FrameHeader, payload: &[u8]) -> Result<(), ConnectionFault> {
        let Http2FrameHeader { kind, flags, stream: id, .. } = header;
        let size = fault(FrameSizeError, "a frame has an invalid length");
        match kind {
            kind::DATA => {
                let content = strip_padding(flags, payload)?;
                if content.is_empty() {
                    self.count_stalled_frame()?;
                }
                return self.on_content(id, &[], content, flags & flag::END_STREAM != 0);
            }
            kind::HEADERS => {
                self.check_stream_id(id)?;
                let mut block = strip_padding(flags, payload)?;
                if flags & flag::PRIORITY != 0 {
                    block = block.get(5..).ok_or(size)?;
                }
                let ends_stream = flags & flag::END_STREAM != 0;
                if flags & flag::END_HEADERS != 0 {
                    return self.on_section(id, block, ends_stream);
                }
                self.count_stalled_frame()?;
                let block = HeaderBlock { stream: id, ends_stream, bytes: block.to_vec(), length: block.len() };
                self.block = Some(block);
                return Ok(());
            }
            kind::CONTINUATION => return self.on_continuation(flags, payload),
            kind::PUSH_PROMISE => {
                return Err(fault(ProtocolError, "PUSH_PROMISE is disabled"));
            }
            _ => {}
        }
        self.count_stalled_frame()?;
        match kind {
            kind::RST_STREAM => {
                self.check_stream_id(id)?;
                let code = payload.first_chunk().filter(|_| payload.len() == 4).ok_or(size)?;
                self.on_reset(id, Http2ErrorCode::from_wire(u32::from_be_bytes(*code)));
            }
            kind::WINDOW_UPDATE => {
                let increment = payload.first_chunk().filter(|_| payload.len() == 4).ok_or(size)?;
                self.on_window_update(id, i64::from(u32::from_be_bytes(*increment) & 0x7fff_ffff))?;
            }
            kind::SETTINGS | kind::PING | kind::GOAWAY if id != 0 => {
                return Err(fault(ProtocolError, "a frame of the connection names a stream"));
            }
            kind::SETTINGS if flags & flag::ACK == 0 => self.on_settings(payload)?,
            kind::SETTINGS if !payload.is_empty() => return Err(size),
            kind::PING => {
                let opaque = payload.first_chunk().filter(|_| payload.len() == 8).ok_or(size)?;
                if flags & flag::ACK == 0 {
                    write_ping_ack(&mut self.output.tail, opaque);
                }
            }
            kind::GOAWAY => {
                let (last, rest) = payload.split_first_chunk().ok_or(size)?;
                let code = Http2ErrorCode::from_wire(u32::from_be_bytes(*rest.first_chunk().ok_or(size)?));
                self.on_go_away(GoAway { last_stream: u32::from_be_bytes(*last) & 0x7fff_ffff, code });
            }
            // PRIORITY is obsolete; unknown frames are ignored (RFC 9113 §5.5).
            _ => {}
        }
        Ok(())
    }

    fn on_continuation(&mut self, flags: u8, payload: &[u8]) -> Result<(), ConnectionFault> {
        self.count_stalled_frame()?;
        let Some(mut block) = self.block.take() else { return Ok(()) };
        block.length = block.length.saturating_add(payload.len());
        if block.length > MAX_SKIPPED_BLOCK {
            return Err(fault(EnhanceYourCalm, "a header section does not end"));
        }
        if block.length <= MAX_BLOCK {
            block.bytes.extend_from_slice(payload);
        }
        if flags & flag::END_HEADERS == 0 {
            self.block = Some(block);
            return Ok(());
        }
        if block.length > MAX_BLOCK {
            self.fail_stream(block.stream, StreamFailure::Head(HeadFault::TooLarge), EnhanceYourCalm);
            return Ok(());
        }
        self.on_section(block.stream, &block.bytes, block.ends_stream)
    }

    /// Handles a whole header section. The static table alone is used, so that one of a closed stream is skipped.
    fn on_section(&mut self, id: u32, block: &[u8], ends_stream: bool) -> Result<(), ConnectionFault> {
        let limits = self.limits;
        let Some(stream) = self.stream_mut(id).filter(|stream| stream.failure.is_none()) else {
            return self.count_stalled_frame();
        };
        stream.has_answered = true;
        let failure = match stream.phase {
            ReceivePhase::Head => match read_response_head(block, &limits) {
                Ok(head) if head.status.is_informational() && ends_stream => Some(StreamFailure::Malformed),
                Ok(head) if head.status.is_informational() => {
                    stream.interim_count = stream.interim_count.saturating_add(1);
                    if stream.interims.len() < MAX_UNREAD_INTERIM {
                        stream.interims.push_back((head.status, head.fields));
                    }
                    (stream.interim_count > MAX_INTERIM).then_some(StreamFailure::Interims)
                }
                Ok(head) => {
                    stream.on_final_head(head.status, head.content_length);
                    stream.head = Some((head.status, head.fields));
                    None
                }
                Err(error) => Some(StreamFailure::Head(error)),
            },
            ReceivePhase::Content if !ends_stream => Some(StreamFailure::Malformed),
            ReceivePhase::Content => match read_response_trailers(block, &limits) {
                Ok(trailers) => {
                    stream.trailers = Some(trailers).filter(|trailers| !trailers.is_empty());
                    None
                }
                Err(error) => Some(StreamFailure::Head(error)),
            },
            ReceivePhase::Ended => {
                return Err(fault(StreamClosed, "a header section follows END_STREAM"));
            }
        };
        if let Some(StreamFailure::Head(HeadFault::Compression(reason))) = failure {
            return Err(fault(CompressionError, reason));
        }
        stream.wake_reader();
        self.idle_frames = 0;
        match failure {
            Some(failure) => self.fail_stream(id, failure, ProtocolError),
            None if ends_stream => self.finish_response(id),
            None => {}
        }
        Ok(())
    }

    fn on_content(&mut self, id: u32, before: &[u8], content: &[u8], ends_stream: bool) -> Result<(), ConnectionFault> {
        let Some(stream) = self.stream_mut(id).filter(|stream| stream.failure.is_none()) else { return Ok(()) };
        let noted = match stream.phase {
            ReceivePhase::Head => Err(StreamFailure::Malformed),
            ReceivePhase::Content if content.is_empty() => Ok(()),
            ReceivePhase::Content => stream.append_content(before, content),
            ReceivePhase::Ended => {
                return Err(fault(StreamClosed, "DATA follows END_STREAM"));
            }
        };
        if noted.is_ok() && !content.is_empty() {
            self.idle_frames = 0;
        }
        match noted {
            Err(failure) => self.fail_stream(id, failure, ProtocolError),
            Ok(()) if ends_stream => self.finish_response(id),
            Ok(()) => {
                if let Some(stream) = self.stream_mut(id) {
                    stream.wake_reader();
                }
            }
        }
        Ok(())
    }

    /// Notes the end of a response.
    fn finish_response(&mut self, id: u32) {
        let Some(stream) = self.stream_mut(id) else { return };
        if let Err(failure) = stream.on_end() {
            return self.fail_stream(id, failure, ProtocolError);
        }
        stream.wake_reader();
        if !stream.is_open() {
            self.open_streams = self.open_streams.saturating_sub(1);
        }
    }

    /// Ends a stream by a fault of the server (RFC 9113 §5.4.2).
    fn fail_stream(&mut self, id: u32, failure: StreamFailure, code: Http2ErrorCode) {
        if let Some(stream) = self.stream_mut(id)
            && stream.is_open()
        {
            stream.failure = Some(failure);
            stream.wake_tasks();
            self.open_streams = self.open_streams.saturating_sub(1);
            write_rst_stream(&mut self.output.tail, id, code);
        }
    }

    fn on_reset(&mut self, id: u32, code: Http2ErrorCode) {
        let Some(stream) = self.stream_mut(id).filter(|stream| stream.is_open()) else { return };
        if stream.phase == ReceivePhase::Ended {
            // The response is complete, and the server wants no more of the request (RFC 9113 §8.1).
            stream.is_sent = true;
        } else {
            stream.failure = Some(match code {
                Http2ErrorCode::RefusedStream if !stream.has_answered => StreamFailure::Unprocessed,
                _ => StreamFailure::Reset(code),
            });
        }
        stream.wake_tasks();
        self.open_streams = self.open_streams.saturating_sub(1);
    }

    fn on_window_update(&mut self, id: u32, increment: i64) -> Result<(), ConnectionFault> {
        if increment == 0 {
            return Err(fault(ProtocolError, "WINDOW_UPDATE has an increment of 0"));
        }
        let overflow = fault(FlowControlError, "a window is larger than 2^31-1");
        if id == 0 {
            self.send_window = self.send_window.saturating_add(increment);
            if self.send_window > i64::from(MAX_WINDOW) {
                return Err(overflow);
            }
            self.wake_senders();
            return Ok(());
        }
        self.check_stream_id(id)?;
        let Some(stream) = self.stream_mut(id) else { return Ok(()) };
        stream.send_window = stream.send_window.saturating_add(increment);
        if stream.send_window > i64::from(MAX_WINDOW) {
            return Err(overflow);
        }
        if let Some(sender) = stream.sender.take() {
            sender.wake();
        }
        Ok(())
    }

    fn on_settings(&mut self, payload: &[u8]) -> Result<(), ConnectionFault> {
        let mut settings = self.settings.unwrap_or_default();
        let before = settings.initial_window;
        let values = parse_settings(payload);
        for (id, value) in values.ok_or(fault(FrameSizeError, "SETTINGS have an invalid length"))? {
            match id {
                setting::ENABLE_PUSH if value != 0 => {
                    return Err(fault(ProtocolError, "the server sets SETTINGS_ENABLE_PUSH"));
                }
                setting::MAX_CONCURRENT_STREAMS => settings.max_streams = value,
                setting::INITIAL_WINDOW_SIZE if value > MAX_WINDOW => {
                    return Err(fault(FlowControlError, "SETTINGS_INITIAL_WINDOW_SIZE is too large"));
                }
                setting::INITIAL_WINDOW_SIZE => settings.initial_window = value.into(),
                setting::MAX_FRAME_SIZE => {
                    settings.max_frame = Some(value)
                        .filter(|size| (DEFAULT_MAX_FRAME_LEN..=LARGEST_FRAME_LEN).contains(size))
                        .ok_or(fault(ProtocolError, "SETTINGS_MAX_FRAME_SIZE is out of range"))?;
                }
                _ => {}
            }
        }
        self.settings = Some(settings);
        let change = settings.initial_window.saturating_sub(before);
        for (_, stream) in &mut self.streams {
            stream.send_window = stream.send_window.saturating_add(change);
            if stream.send_window > i64::from(MAX_WINDOW) {
                return Err(fault(FlowControlError, "a window is larger than 2^31-1"));
            }
        }
        if change > 0 {
            self.wake_senders();
        }
        write_settings_ack(&mut self.output.tail);
        Ok(())
    }

    fn on_go_away(&mut self, go_away: GoAway) {
        // A later GOAWAY may lower the last stream, not raise it (RFC 9113 §6.8).
        let last_stream = self.go_away.map_or(u32::MAX, |before| before.last_stream).min(go_away.last_stream);
        self.go_away = Some(GoAway { last_stream, ..go_away });
        self.fail_streams(|id| (id > last_stream).then_some(StreamFailure::Unprocessed));
    }
}

/// The payload without its padding (RFC 9113 §6.1).
fn strip_padding(flags: u8, payload: &[u8]) -> Result<&[u8], ConnectionFault> {
    if flags & flag::PADDED == 0 {
        return Ok(payload);
    }
    let invalid = fault(ProtocolError, "padding is longer than its frame");
    let (length, rest) = payload.split_first().ok_or(invalid)?;
    rest.len().checked_sub(usize::from(*length)).and_then(|length| rest.get(..length)).ok_or(invalid)
}
