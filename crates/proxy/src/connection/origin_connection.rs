//! Sends requests and reads responses by HTTP/1.1 on a connection to an origin: holds its socket, the unread bytes, and
//! the progress of request and response. A connection is polled by its user, and has no task
//! ([0050](../../../../docs/adr/0050-http1-client.md)); `http1` has the rules of the messages.

use super::field_spelling::FieldSpelling;
use super::request_body::{Upload, UploadProgress};
use super::socket::{FIRST_READ, OriginSocket};
use super::tls::TlsFailure;
use crate::metrics::ProxyMetrics;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use http::{Method, StatusCode};
use http_body::{Frame, SizeHint};
use litequic_exchange::{
    BodyCapacity, BodyError, FieldName, FieldNameRef, Fields, Head, Traceparent, WholeBody,
    field_syntax::is_field_value,
    http1::{self, BodyDecoder, BodyPiece, HeadError, HeadLines, MessageFraming},
    http2::{MAX_INTERIM, StreamFailure},
    name,
};
use litequic_resources::descriptors::Descriptor;
use litequic_telemetry::WakeCause;
use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    io::{self, IoSlice},
    mem::{self, MaybeUninit},
    net::{Shutdown, SocketAddr},
    pin::Pin,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll, Waker, ready},
    time::Duration,
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_util::io::poll_read_buf;

/// Most bytes of one read. Large reads make few system calls and feed long GSO trains.
const MAX_READ: usize = 256 * 1024;
/// Most pieces of a request's body in one write, each with the two parts of its chunk.
const MAX_PIECES: usize = 16;
/// Bytes of a request's body, and one piece more, that are held until the socket accepts them.
const MAX_UNSENT: usize = 256 * 1024;
/// Most writes in one poll, so that other tasks get their turn.
const MAX_WRITES: usize = 16;
/// Most parts of one write, a head among them.
const MAX_PARTS: usize = 3 * MAX_PIECES + 2;

/// Reads of session tickets on an idle connection after which the server counts as one that does not stop sending.
const MAX_IDLE_READS: usize = 4;

/// Part of the idle time that an origin announces in which no request is sent any more: a round trip, lost packets
/// included.
const MAX_KEEP_ALIVE_MARGIN: Duration = Duration::from_secs(1);

/// Field lines that are added to a response's head for the client: a date, a cookie, the route's fields.
const ADDED_FIELDS: usize = 4;
/// Bytes of the added field lines.
const ADDED_TEXT: usize = 128;

thread_local! {
    /// Scratch for reads, which are copied out in their exact size: memory that stays in the processor's cache.
    static READ: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    /// Scratch for the head that is being written.
    static HEAD: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// A connection to an origin. Dropping it closes it.
#[derive(Debug)]
pub(crate) struct OriginConnection {
    /// Borrowed for one call at a time.
    socket: RefCell<OriginSocket>,
    /// Address of the server, over TCP.
    pub(crate) address: Option<SocketAddr>,
    /// Most bytes of one read, so that a response is buffered only as far as its client reads it.
    pub(crate) read_capacity: BodyCapacity,
    /// Number of bytes received in all, modulo 2^64.
    pub(crate) received: Cell<u64>,
    /// TLS failure after the handshake.
    failure: RefCell<Option<TlsFailure>>,
    write_failed: Cell<bool>,
    /// Whether the request has lost the connection to another client's.
    is_evicted: Cell<bool>,
    outgoing: RefCell<OutgoingRequest>,
    incoming: RefCell<IncomingResponse>,
    /// Spelling of the names of requests' fields; lower case by default.
    pub(crate) spelling: Option<Rc<FieldSpelling>>,
    /// Task that reads the response while another one sends the request's body.
    reader: RefCell<Option<Waker>>,
    metrics: Arc<ProxyMetrics>,
    /// Dropped after the counted socket.
    _descriptor: Descriptor,
}

const _: () = assert!(size_of::<OriginConnection>() <= 600);

/// State of sending a request.
#[derive(Debug, Default)]
struct OutgoingRequest {
    state: RequestSendState,
    /// Bytes that the socket has not accepted.
    queue: VecDeque<Bytes>,
    /// The request's body, as long as more of it may come.
    upload: Option<Rc<Upload>>,
    traceparent: Option<Traceparent>,
    is_chunked: bool,
    /// Names of trailers that the head has declared.
    trailers: Vec<FieldName>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum RequestSendState {
    /// No byte was written.
    #[default]
    Unsent,
    /// The head was written, or is in the queue.
    Begun,
    /// The socket has accepted the whole request.
    Sent,
    /// The request's body has failed.
    Failed,
}

/// Bytes that were read and not parsed yet.
#[derive(Debug)]
enum UnreadBytes {
    /// The bytes of one read, of which a whole body may be made.
    One(WholeBody),
    Shared(Bytes),
}

/// State of reading a response.
#[derive(Debug)]
struct IncomingResponse {
    /// Bytes that were read and not parsed yet: the beginning of a head, or the bytes behind one.
    unread: UnreadBytes,
    /// Memory for large reads.
    buffer: BytesMut,
    decoder: BodyDecoder,
    has_head: bool,
    /// Whether the connection may be used after the response.
    is_persistent: bool,
    /// Time in seconds after which the origin closes the idle connection, if the last head announced one.
    keep_alive: Option<u32>,
    interims: u32,
    /// Bytes of an incomplete head that were parsed.
    parsed: usize,
    /// Size of the next read, which grows while reads are full.
    next: usize,
    /// Whether the last read was less than half of `next`.
    was_small: bool,
}

impl Default for IncomingResponse {
    fn default() -> Self {
        Self {
            unread: UnreadBytes::default(),
            buffer: BytesMut::new(),
            decoder: BodyDecoder::new(MessageFraming::None),
            has_head: false,
            is_persistent: false,
            keep_alive: None,
            interims: 0,
            parsed: 0,
            next: FIRST_READ,
            was_small: false,
        }
    }
}

/// An interim or final response of the origin.
#[derive(Debug)]
pub(crate) enum ReceivedMessage {
    /// An interim response: another response follows.
    Interim(StatusCode, Fields),
    /// The head of the final response, or of a 101.
    Response(ReceivedHead),
}

#[derive(Debug)]
pub(crate) struct ReceivedHead {
    pub(crate) status: StatusCode,
    /// Whether the version is HTTP/1.0 rather than HTTP/1.1.
    pub(crate) is_http_10: bool,
    pub(crate) fields: Fields,
}

/// Failure to get a response.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SendFailure {
    /// The origin closed the connection, or sent bytes without a request, before any byte of the request was written.
    #[error("the connection was not idle before the request")]
    Unsent,
    #[error("the origin closed the connection before its response")]
    Closed,
    #[error("the connection failed before the response: {0}")]
    Io(io::Error),
    #[error(transparent)]
    Head(#[from] HeadError),
    #[error("the origin sent more than {MAX_INTERIM} interim responses")]
    Interims,
    #[error("the request's body failed")]
    Body,
    /// A stream of an HTTP/2 connection.
    #[error(transparent)]
    Stream(StreamFailure),
    /// [`OriginConnection::evict_request`].
    #[error("the connection was needed for another client")]
    Evicted,
}

impl OriginConnection {
    pub(crate) fn new(
        socket: OriginSocket,
        address: Option<SocketAddr>,
        descriptor: Descriptor,
        metrics: &Arc<ProxyMetrics>,
    ) -> Self {
        metrics.wake.note_cause(WakeCause::Origin);
        Self {
            socket: RefCell::new(socket),
            address,
            read_capacity: Rc::new(Cell::new(FIRST_READ)),
            received: Cell::new(0),
            failure: RefCell::default(),
            write_failed: Cell::new(false),
            is_evicted: Cell::new(false),
            outgoing: RefCell::default(),
            incoming: RefCell::default(),
            spelling: None,
            reader: RefCell::default(),
            metrics: Arc::clone(metrics),
            _descriptor: descriptor,
        }
    }

    /// Prepares a request with the body `upload`, to be sent by [`Self::poll_response`] with `traceparent` in its
    /// header.
    pub(crate) fn prepare_request(&self, upload: Option<Rc<Upload>>, traceparent: Option<Traceparent>) {
        self.read_capacity.set(FIRST_READ);
        self.outgoing.replace(OutgoingRequest { upload, traceparent, ..OutgoingRequest::default() });
        self.incoming.replace(IncomingResponse::default());
    }

    /// Sends the request with this `head`, and reads until an interim response or the final one's head has come.
    pub(crate) fn poll_response(
        &self,
        head: &Head,
        cx: &mut Context<'_>,
    ) -> Poll<Result<ReceivedMessage, SendFailure>> {
        if self.is_evicted.get() {
            return Poll::Ready(Err(SendFailure::Evicted));
        }
        let state = self.outgoing.borrow().state;
        if state == RequestSendState::Unsent {
            // This also registers the task for bytes that come later.
            if !self.poll_quiet(cx) {
                return Poll::Ready(Err(SendFailure::Unsent));
            }
            return match self.poll_send_head(head, cx) {
                Poll::Ready(Err(_)) => Poll::Ready(Err(SendFailure::Body)),
                _ => Poll::Pending,
            };
        }
        // Reading comes first: an origin may answer, and close, without reading all of the body.
        let received = self.poll_receive(head.method == Method::HEAD, cx);
        if received.is_pending()
            && state != RequestSendState::Sent
            && let Poll::Ready(Err(_)) = self.poll_send(cx)
        {
            return Poll::Ready(Err(SendFailure::Body));
        }
        received
    }

    fn poll_receive(&self, is_head: bool, cx: &mut Context<'_>) -> Poll<Result<ReceivedMessage, SendFailure>> {
        let mut incoming = self.incoming.borrow_mut();
        loop {
            if let Some(received) = incoming.take_head(is_head)? {
                return Poll::Ready(Ok(received));
            }
            match ready!(self.poll_fill(&mut incoming, cx)) {
                Ok(0) => return Poll::Ready(Err(SendFailure::Closed)),
                Ok(_) => {}
                Err(error) => return Poll::Ready(Err(SendFailure::Io(error))),
            }
        }
    }

    /// Reads the next piece of the response's body. With `sends` this also sends the request's body; otherwise another
    /// task does.
    pub(crate) fn poll_frame(
        &self,
        sends: bool,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if sends && !self.is_sent() {
            // A failure is noted in the state.
            let _ = self.poll_send(cx);
        }
        if self.outgoing.borrow().state == RequestSendState::Failed {
            return Poll::Ready(Some(Err(BodyError::Truncated)));
        }
        let mut incoming = self.incoming.borrow_mut();
        loop {
            if let Some(frame) = incoming.take_frame().transpose() {
                return Poll::Ready(Some(frame));
            }
            if incoming.decoder.is_body_done() {
                return Poll::Ready(None);
            }
            match self.poll_fill(&mut incoming, cx) {
                Poll::Pending => {
                    if !sends {
                        self.reader.replace(Some(cx.waker().clone()));
                    }
                    return Poll::Pending;
                }
                Poll::Ready(Ok(0)) if incoming.decoder.end_at_close() => {}
                Poll::Ready(Ok(0)) => return Poll::Ready(Some(Err(BodyError::Truncated))),
                Poll::Ready(Ok(_)) => {}
                Poll::Ready(Err(error)) => {
                    tracing::debug!(%error, "a connection to the origin ended");
                    return Poll::Ready(Some(Err(BodyError::Truncated)));
                }
            }
        }
    }

    /// The body of the response if all of it came with the head, and the request is sent: no more I/O is needed then.
    pub(crate) fn take_whole_body(&self) -> Option<WholeBody> {
        if self.is_sent() { self.incoming.borrow_mut().take_unread_body() } else { None }
    }

    /// Whether the response's body has no more bytes or trailers.
    pub(crate) fn is_end_stream(&self) -> bool {
        let incoming = self.incoming.borrow();
        incoming.decoder.is_body_done() && !incoming.decoder.has_trailers()
    }

    /// Remaining size of the response's body.
    pub(crate) fn size_hint(&self) -> SizeHint {
        self.incoming.borrow().decoder.remaining_body_bytes().map_or_else(SizeHint::default, SizeHint::with_exact)
    }

    /// Time for which the idle connection may be used: the announced one less a second, or less half of a shorter one,
    /// so that no request meets the origin's FIN; `None` if the origin announced nothing.
    pub(crate) fn announced_idle_time(&self) -> Option<Duration> {
        let announced = Duration::from_secs(self.incoming.borrow().keep_alive?.into());
        Some(announced.saturating_sub(MAX_KEEP_ALIVE_MARGIN.min(announced / 2)))
    }

    /// Whether another request may use the connection, as far as is known without a system call: the last request is
    /// sent, its response is read and not the last one of the connection, and no other bytes came.
    pub(crate) fn is_reusable(&self) -> bool {
        let incoming = self.incoming.borrow();
        incoming.is_persistent
            && incoming.decoder.is_body_done()
            && incoming.unread.unparsed_bytes().is_empty()
            && self.is_sent()
            && !self.write_failed.get()
            && self.socket.borrow().is_fully_read()
    }

    /// Whether the socket has accepted the whole request.
    pub(crate) fn is_sent(&self) -> bool {
        self.outgoing.borrow().state == RequestSendState::Sent
    }

    /// Whether the idle connection has received neither bytes nor its end. If so, the task is woken by either.
    pub(crate) fn poll_quiet(&self, cx: &mut Context<'_>) -> bool {
        with_read_scratch(|scratch| self.poll_read(cx, &mut ReadBuf::new(scratch))).is_pending()
    }

    /// Sends the rest of the request. Ready once the socket has accepted all of it, or the body has failed; pending for
    /// ever if the socket accepts no more.
    fn poll_send(&self, cx: &mut Context<'_>) -> Poll<Result<(), BodyError>> {
        let mut outgoing = self.outgoing.borrow_mut();
        for _ in 0..MAX_WRITES {
            if outgoing.check_body_failed() {
                return Poll::Ready(Err(BodyError::Cancelled));
            }
            if outgoing.state == RequestSendState::Sent || self.write_failed.get() {
                break;
            }
            if outgoing.queue.is_empty() {
                outgoing.queue_body(cx)?;
            }
            if outgoing.queue.is_empty() && outgoing.upload.is_some() {
                return Poll::Pending;
            }
            if !outgoing.queue.is_empty() {
                let written = ready!(self.poll_write_parts(&[], &outgoing.queue, cx));
                outgoing.advance_queue(written);
            }
            if outgoing.queue.is_empty() && outgoing.upload.is_none() {
                ready!(self.poll_flush(cx));
                outgoing.state = RequestSendState::Sent;
            }
        }
        if outgoing.state == RequestSendState::Sent {
            return Poll::Ready(Ok(()));
        }
        if !self.write_failed.get() {
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }

    /// Writes the head, with the part of the body that has come.
    fn poll_send_head(&self, head: &Head, cx: &mut Context<'_>) -> Poll<Result<(), BodyError>> {
        let mut text = HEAD.take();
        text.clear();
        let fields = head.fields.iter().map(|line| (line.name_str(), line.value));
        http1::write_request_head(&mut text, head.method.as_str(), head.target_bytes(), fields);
        {
            let mut outgoing = self.outgoing.borrow_mut();
            if let Some(traceparent) = &outgoing.traceparent {
                http1::append_head_field(&mut text, "traceparent", &traceparent.to_bytes());
            }
            if let Some(spelling) = &self.spelling {
                spelling.respell_names(&mut text);
            }
            outgoing.begin_head(head);
            outgoing.queue_body(cx)?;
            let written = match self.poll_write_parts(&text, &outgoing.queue, cx) {
                Poll::Ready(written) => written,
                Poll::Pending => 0,
            };
            if let Some(rest) = text.get(written..).filter(|rest| !rest.is_empty()) {
                outgoing.queue.push_front(Bytes::copy_from_slice(rest));
            } else {
                outgoing.advance_queue(written.saturating_sub(text.len()));
            }
        }
        HEAD.set(text);
        self.poll_send(cx)
    }

    /// Sends the rest of the request while no task reads the response: a client may read no response before it has sent
    /// everything. Ready once everything is sent.
    pub(crate) fn poll_send_alone(&self, cx: &mut Context<'_>) -> Poll<()> {
        if ready!(self.poll_send(cx)).is_err() {
            // The origin must not wait for the rest, even if its response is not read.
            self.shut_down();
            if let Some(reader) = self.reader.take() {
                reader.wake();
            }
        }
        Poll::Ready(())
    }

    /// Ends the request, whose response's header has not come, for another client's request:
    /// [`Self::poll_response`] fails.
    pub(crate) fn evict_request(&self) {
        self.is_evicted.set(true);
        // This also wakes the task of the request.
        self.shut_down();
    }

    fn shut_down(&self) {
        // A socket that is not connected any more is shut down.
        let _ = self.socket.borrow().with_raw_socket(|socket| socket.shutdown(Shutdown::Both));
    }

    /// Writes the beginning of `head` and `queue`, and returns the number of bytes.
    ///
    /// An origin may answer and close without reading the whole request. Its response is read even so: a write never
    /// fails but waits, and reading returns the connection's outcome.
    fn poll_write_parts(&self, head: &[u8], queue: &VecDeque<Bytes>, cx: &mut Context<'_>) -> Poll<usize> {
        if queue.is_empty() {
            // Most requests come here: the array below is not worth its memory.
            return self.accepted_bytes(ready!(self.poll_write(&[IoSlice::new(head)], cx)));
        }
        let mut parts = [IoSlice::new(&[]); MAX_PARTS];
        let all = (!head.is_empty()).then_some(head).into_iter().chain(queue.iter().map(|part| &**part));
        let mut count = 0;
        for (part, slot) in all.zip(&mut parts) {
            *slot = IoSlice::new(part);
            count += 1;
        }
        self.accepted_bytes(ready!(self.poll_write(parts.get(..count).unwrap_or_default(), cx)))
    }

    /// Turns the failure of a write into a wait.
    fn accepted_bytes(&self, written: io::Result<usize>) -> Poll<usize> {
        match written {
            Ok(0) => self.record_write_failure(&io::ErrorKind::WriteZero.into()),
            Ok(written) => return Poll::Ready(written),
            Err(error) => self.record_write_failure(&error),
        }
        Poll::Pending
    }

    /// Waits until TLS holds no bytes that the socket has not accepted.
    fn poll_flush(&self, cx: &mut Context<'_>) -> Poll<()> {
        match ready!(self.with_socket(|socket| socket.poll_flush(cx))) {
            Ok(()) => return Poll::Ready(()),
            Err(error) => self.record_write_failure(&error),
        }
        Poll::Pending
    }

    fn record_write_failure(&self, error: &io::Error) {
        tracing::debug!(%error, "the origin stopped reading the request");
        self.write_failed.set(true);
    }

    /// Reads more of the response.
    fn poll_fill(&self, incoming: &mut IncomingResponse, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let room = self.read_capacity.get().clamp(1, incoming.next);
        // One byte more shows bytes behind the response together with its end.
        let left = incoming.decoder.remaining_body_bytes().filter(|_| incoming.has_head);
        let needed = left.map_or(usize::MAX, |left| usize::try_from(left).unwrap_or(usize::MAX).saturating_add(1));
        let read = if room.min(needed) <= FIRST_READ || !incoming.has_head {
            with_read_scratch(|scratch| {
                let mut buf = ReadBuf::new(scratch.get_mut(..room.min(FIRST_READ)).unwrap_or_default());
                let read = ready!(self.poll_read(cx, &mut buf))?;
                incoming.unread.append_read(buf.filled());
                Poll::Ready(io::Result::Ok(read))
            })
        } else {
            let most = room.min(needed);
            let buffer = &mut incoming.buffer;
            if buffer.capacity() < most {
                buffer.reserve(most);
            }
            let read = self.read_counted(most, |socket| poll_read_buf(socket, cx, &mut (&mut *buffer).limit(most)));
            if read.is_ready() {
                incoming.unread = UnreadBytes::Shared(buffer.split().freeze());
            }
            read
        };
        let read = ready!(read)?;
        incoming.adapt_read_size(read);
        Poll::Ready(Ok(read))
    }

    /// Reads into `buf`, and returns the number of bytes.
    pub(crate) fn poll_read(&self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<usize>> {
        let (room, before) = (buf.remaining(), buf.filled().len());
        self.read_counted(room, |socket| {
            ready!(socket.poll_read(cx, buf))?;
            Poll::Ready(Ok(buf.filled().len().saturating_sub(before)))
        })
    }

    /// Reads at most `room` bytes by `read`, and counts its system call.
    fn read_counted(
        &self,
        room: usize,
        read: impl FnOnce(Pin<&mut OriginSocket>) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        let result = self.with_socket(read);
        self.note_wake(&result);
        if let Poll::Ready(Err(error)) = &result {
            TlsFailure::record_failure(error, &self.failure, &self.metrics);
        }
        if let Poll::Ready(Ok(read)) = result {
            if !self.socket.borrow().is_tls_socket() {
                self.metrics.syscalls_origin_read.increment();
            }
            if read == 0 && room > 0 && self.write_failed.get() {
                // The failed write consumed the socket's error. Without this a reset would look like an orderly end,
                // and a body that lasts until the end like a whole one.
                return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
            }
            self.received.set(self.received.get().wrapping_add(read as u64));
        }
        result
    }

    /// Writes the beginning of `parts`, and counts the system call.
    pub(crate) fn poll_write(&self, parts: &[IoSlice<'_>], cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let mut socket = self.socket.borrow_mut();
        let result = Pin::new(&mut *socket).poll_write_vectored(cx, parts);
        if !socket.is_tls_socket() && result.is_ready() {
            self.metrics.syscalls_origin_write.increment();
        }
        drop(socket);
        self.note_wake(&result);
        result
    }

    /// Calls `act` with the socket.
    pub(crate) fn with_socket<T>(&self, act: impl FnOnce(Pin<&mut OriginSocket>) -> T) -> T {
        act(Pin::new(&mut *self.socket.borrow_mut()))
    }

    /// Leaves HTTP after a 101, the last head, and returns the bytes behind it. `None` if the request was not sent
    /// completely.
    pub(crate) fn leave_http(&self) -> Option<Bytes> {
        self.is_sent().then(|| mem::take(&mut self.incoming.borrow_mut().unread).into_bytes())
    }

    /// Resets the connection when it is dropped (socket(7), SO_LINGER with no time); a Unix socket is only closed.
    pub(crate) fn reset_on_drop(&self) {
        let socket = self.socket.borrow();
        if !matches!(*socket, OriginSocket::Unix(_)) {
            // An error means that the socket is gone already.
            let _ = socket.with_raw_socket(|socket| socket.set_linger(Some(Duration::ZERO)));
        }
    }

    /// TLS failure after the handshake.
    pub(crate) fn tls_session_failure(&self) -> Option<TlsFailure> {
        self.failure.borrow().clone()
    }

    /// Whether neither bytes nor the connection's end are ready to be read at this moment: the runtime polls for them
    /// only between two turns of a worker, and a request sent meanwhile would be lost, or get bytes that are not its
    /// response. One system call, or more if TLS has sent session tickets or key updates.
    pub(crate) fn peek_quiet(&self) -> bool {
        let mut socket = self.socket.borrow_mut();
        if !socket.is_fully_read() {
            return false;
        }
        for _ in 0..MAX_IDLE_READS {
            self.metrics.syscalls_origin_look.increment();
            let peeked = socket.with_raw_socket(|socket| socket.peek(&mut [MaybeUninit::uninit()]));
            if let Err(error) = peeked {
                return error.kind() == io::ErrorKind::WouldBlock;
            }
            let OriginSocket::Tls(stream) = &mut *socket else { return false };
            if !stream.take_idle_records() {
                return false;
            }
        }
        false
    }

    /// Notes a read or write that succeeds, which may be what the worker waited for.
    fn note_wake<T>(&self, result: &Poll<T>) {
        if result.is_ready() {
            self.metrics.wake.note_cause(WakeCause::Origin);
        }
    }
}

fn with_read_scratch<T>(act: impl FnOnce(&mut [u8]) -> T) -> T {
    READ.with_borrow_mut(|buffer| {
        if buffer.is_empty() {
            buffer.resize(FIRST_READ, 0);
        }
        act(buffer)
    })
}

impl OutgoingRequest {
    fn begin_head(&mut self, head: &Head) {
        self.state = RequestSendState::Begun;
        let Some(upload) = &self.upload else { return };
        self.is_chunked = upload.is_chunked();
        if upload.is_empty() {
            self.upload = None;
        } else if self.is_chunked {
            let names = head.fields.list_members(name::TRAILER).filter_map(|name| str::from_utf8(name).ok());
            self.trailers =
                names.map(|text| FieldNameRef::from_lower_case_token(&text.to_ascii_lowercase()).into()).collect();
        }
    }

    /// Queues the part of the body that has come, up to the bounds.
    fn queue_body(&mut self, cx: &mut Context<'_>) -> Result<(), BodyError> {
        let (mut pieces, mut bytes) = (0, 0_usize);
        while pieces < MAX_PIECES
            && bytes < MAX_UNSENT
            && let Some(upload) = &self.upload
        {
            let frame = match upload.poll_frame(cx) {
                Poll::Pending => break,
                Poll::Ready(None) => {
                    if self.is_chunked {
                        self.queue.push_back(Bytes::from_static(CHUNKED_END));
                    }
                    self.upload = None;
                    break;
                }
                Poll::Ready(Some(Ok(frame))) => frame,
                Poll::Ready(Some(Err(error))) => {
                    self.state = RequestSendState::Failed;
                    self.upload = None;
                    return Err(error);
                }
            };
            match frame.into_data() {
                Ok(data) if data.is_empty() => {}
                Ok(data) => {
                    pieces += 1;
                    bytes = bytes.saturating_add(data.len());
                    if self.is_chunked {
                        self.queue.push_back(http1::format_chunk_line(data.len()).into());
                        self.queue.push_back(data);
                        self.queue.push_back(Bytes::from_static(http1::CHUNK_END));
                    } else {
                        self.queue.push_back(data);
                    }
                }
                Err(frame) => {
                    let fields = frame.into_trailers().map(Fields::from).unwrap_or_default();
                    let all = upload.is_streaming();
                    let is_declared = |name| all || self.trailers.iter().any(|declared| declared.as_name_ref() == name);
                    let declared = fields.iter().filter(|line| is_declared(line.name_ref()));
                    let mut text = http1::LAST_CHUNK.to_vec();
                    http1::write_fields(&mut text, declared.map(|line| (line.name_str(), line.value)));
                    self.queue.push_back(text.into());
                    self.upload = None;
                }
            }
        }
        Ok(())
    }

    /// Whether the request's body has failed, perhaps while the socket accepts no bytes.
    fn check_body_failed(&mut self) -> bool {
        if self.upload.as_ref().is_some_and(|upload| matches!(upload.progress(), UploadProgress::Failed(_))) {
            self.state = RequestSendState::Failed;
            self.upload = None;
        }
        self.state == RequestSendState::Failed
    }

    /// Removes the first `bytes` from the queue, which the socket has accepted.
    fn advance_queue(&mut self, mut bytes: usize) {
        while let Some(part) = self.queue.front_mut() {
            if part.len() > bytes {
                part.advance(bytes);
                return;
            }
            bytes = bytes.saturating_sub(part.len());
            self.queue.pop_front();
        }
    }
}

/// End of a chunked body without trailers.
const CHUNKED_END: &[u8] = b"0\r\n\r\n";

impl Default for UnreadBytes {
    fn default() -> Self {
        Self::Shared(Bytes::new())
    }
}

impl UnreadBytes {
    fn unparsed_bytes(&self) -> &[u8] {
        match self {
            Self::One(bytes) => bytes.as_ref(),
            Self::Shared(bytes) => bytes,
        }
    }

    fn into_bytes(self) -> Bytes {
        match self {
            Self::One(bytes) => bytes.into_bytes(),
            Self::Shared(bytes) => bytes,
        }
    }

    /// Appends the bytes of a read.
    fn append_read(&mut self, bytes: &[u8]) {
        let unread = self.unparsed_bytes();
        // Unread bytes are the beginning of a head that comes in parts.
        *self = Self::One(if unread.is_empty() {
            WholeBody::from_received(bytes)
        } else {
            WholeBody::from_received(&[unread, bytes].concat())
        });
    }

    /// Drops the first `bytes`, and the memory if none are left.
    fn skip_bytes(&mut self, bytes: usize) {
        match self {
            Self::One(unread) => unread.skip_front(bytes),
            Self::Shared(unread) => unread.advance(bytes),
        }
        if self.unparsed_bytes().is_empty() {
            *self = Self::default();
        }
    }

    /// Removes and returns the first `bytes`.
    fn split_to(&mut self, bytes: usize) -> Bytes {
        let mut unread = mem::take(self).into_bytes();
        let first = unread.split_to(bytes);
        *self = Self::Shared(unread);
        first
    }
}

impl IncomingResponse {
    /// The whole body, if it has a length and is all that was read.
    fn take_unread_body(&mut self) -> Option<WholeBody> {
        let UnreadBytes::One(unread) = &mut self.unread else { return None };
        let length = unread.len();
        if !self.has_head || length == 0 || self.decoder.remaining_body_bytes() != Some(length as u64) {
            return None;
        }
        self.decoder.decode_piece(unread.as_ref());
        Some(mem::take(unread))
    }

    /// Adapts the size of the next read to one of `read` bytes.
    fn adapt_read_size(&mut self, read: usize) {
        let half = self.next / 2;
        if read >= self.next {
            self.next = self.next.saturating_mul(2).min(MAX_READ);
            self.was_small = false;
        } else if read < half && self.was_small {
            self.next = half.max(FIRST_READ);
            self.was_small = false;
        } else {
            self.was_small = read < half;
        }
    }

    /// Parses the head at the beginning of the unread bytes, if it is complete; `is_head` for a response to HEAD.
    fn take_head(&mut self, is_head: bool) -> Result<Option<ReceivedMessage>, SendFailure> {
        let unread = self.unread.unparsed_bytes();
        if unread.is_empty() || self.parsed > 0 && http1::is_head_incomplete(unread, self.parsed) {
            return Ok(None);
        }
        let mut lines = HeadLines::default();
        let Some(head) = http1::parse_response_head(unread, &mut lines)? else {
            self.parsed = unread.len();
            return Ok(None);
        };
        let status = StatusCode::from_u16(head.status).map_err(|_| HeadError::Status)?;
        let mut fields = Fields::with_capacity(head.parsed_fields().len() + ADDED_FIELDS, head.length + ADDED_TEXT);
        for (name, value) in head.parsed_fields() {
            // A head with control characters in a value is rejected by the parser.
            fields.append_any_case(name.as_bytes(), value);
        }
        let received = if head.is_interim() {
            self.interims = self.interims.saturating_add(1);
            if self.interims > MAX_INTERIM {
                return Err(SendFailure::Interims);
            }
            ReceivedMessage::Interim(status, fields)
        } else {
            self.decoder = BodyDecoder::new(head.body_framing(is_head)?);
            self.has_head = true;
            self.is_persistent = head.is_persistent() && status != StatusCode::SWITCHING_PROTOCOLS;
            self.keep_alive = head.keep_alive_seconds();
            ReceivedMessage::Response(ReceivedHead { status, is_http_10: head.is_http_10, fields })
        };
        let length = head.length;
        self.unread.skip_bytes(length);
        self.parsed = 0;
        Ok(Some(received))
    }

    /// The next piece of the body, or its trailers, of the unread bytes.
    fn take_frame(&mut self) -> Result<Option<Frame<Bytes>>, BodyError> {
        let BodyPiece { skipped, data } =
            self.decoder.decode_piece(self.unread.unparsed_bytes()).ok_or(BodyError::Malformed)?;
        self.unread.skip_bytes(skipped);
        if data == 0 {
            let Some(trailers) = self.decoder.take_trailers() else { return Ok(None) };
            let fields = trailer_fields(&trailers).ok_or(BodyError::Malformed)?;
            return Ok(Some(Frame::trailers(fields.into())));
        }
        let data = self.unread.split_to(data);
        let ahead = self.decoder.skip_framing(self.unread.unparsed_bytes());
        self.unread.skip_bytes(ahead);
        if self.decoder.is_body_done() {
            // An idle connection holds no memory.
            self.buffer = BytesMut::new();
        }
        Ok(Some(Frame::data(data)))
    }
}

/// The fields of `trailers`; `None` if they are too many, or a value is invalid.
fn trailer_fields(trailers: &http1::ChunkedTrailers) -> Option<Fields> {
    let (mut fields, mut is_valid) = (Fields::new(), true);
    let is_whole = trailers.for_each_trailer(|name, value| {
        is_valid &= is_field_value(value);
        fields.append_any_case(name.as_bytes(), value);
    });
    (is_whole && is_valid).then_some(fields)
}

#[cfg(test)]
mod tests {
    use super::*;
    use litequic_resources::descriptors::{Descriptors, ProxySide};
    use socket2::SockRef;
    use std::future::poll_fn;
    use tokio::{
        io::AsyncWriteExt,
        net::{TcpListener, TcpStream},
        time::timeout,
    };

    #[tokio::test]
    async fn a_reset_after_a_failed_write_is_not_an_orderly_end() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (mut peer, _) = listener.accept().await.unwrap();
        peer.write_all(b"hello").await.unwrap();
        SockRef::from(&peer).set_linger(Some(Duration::ZERO)).unwrap();
        drop(peer);

        let descriptor = Arc::<Descriptors>::default().take_descriptor(ProxySide::Origins).unwrap();
        let connection = OriginConnection::new(OriginSocket::Tcp(socket), None, descriptor, &Arc::default());
        while !connection.write_failed.get() {
            // Once the reset has come a write never ends, and does not report the failure either.
            let written = poll_fn(|cx| connection.poll_write_parts(b"more", &VecDeque::new(), cx));
            let _ = timeout(Duration::from_millis(1), written).await;
        }
        let (mut seen, mut buffer) = (0, [0; 64]);
        let error = loop {
            match poll_fn(|cx| connection.poll_read(cx, &mut ReadBuf::new(&mut buffer))).await {
                Ok(read) => {
                    assert!(read > 0, "an orderly end");
                    seen += read as u64;
                }
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
        assert_eq!(connection.received.get(), seen);
    }

    #[test]
    fn reads_grow_while_they_are_full_and_shrink_after_two_small_ones() {
        let mut incoming = IncomingResponse::default();
        for (read, next) in [
            (FIRST_READ, 2 * FIRST_READ),
            (2 * FIRST_READ, 4 * FIRST_READ),
            (10, 4 * FIRST_READ),
            (3 * FIRST_READ, 4 * FIRST_READ),
            (10, 4 * FIRST_READ),
            (10, 2 * FIRST_READ),
            (10, 2 * FIRST_READ),
            (10, FIRST_READ),
            (10, FIRST_READ),
            (10, FIRST_READ),
        ] {
            incoming.adapt_read_size(read);
            assert_eq!(incoming.next, next, "after {read}");
        }
        for _ in 0..10 {
            incoming.adapt_read_size(incoming.next);
        }
        assert_eq!(incoming.next, MAX_READ);
    }
}
