//! Tracks the responses of a connection on their way to the kernel. hyper, h2 and TLS queue bytes: a response counts as
//! begun once the kernel has the first byte of its header, and as complete once it has the last byte of its body.

use super::http2_frames::{ResponseFrame, SentFrameScanner};
use crate::tcp_metrics::TcpMetrics;
use http::StatusCode;
use litequic_exchange::RequestRecord;
use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, BTreeSet, VecDeque, btree_map::Entry},
    io::IoSlice,
    os::fd::RawFd,
    sync::Arc,
    task::{Context, Poll, Waker},
};

/// Stream number for HTTP/1.1, and for bytes of HTTP/2 on no stream.
pub(super) const NO_STREAM: u32 = 0;

/// Largest number of slices in one write of hyper. A write with this number may leave others behind.
const MAX_WRITE_SLICES: usize = 64;

/// A response that waits for the kernel.
pub(super) trait OpenResponse {
    /// Completes the response: the kernel has all its bytes. A response that is dropped without this call was cut off.
    fn complete_response(self);
}

/// For streams that are not a connection's own, on which no response is tracked.
impl OpenResponse for () {
    fn complete_response(self) {}
}

/// The header of a response. If it is dropped before [`QueuedHead::record_sent_head`] is called, it did not reach the
/// kernel, and nothing is recorded.
#[derive(Debug)]
pub(super) struct QueuedHead {
    status: StatusCode,
    /// Off for an interim response.
    record: RequestRecord,
}

impl QueuedHead {
    /// Creates the header of a final response, whose status goes to `record`.
    pub(super) const fn from_final_status(status: StatusCode, record: RequestRecord) -> Self {
        Self { status, record }
    }

    fn record_sent_head(self, metrics: &TcpMetrics) {
        metrics.shared.count_response(self.status);
        self.record.record_response_status(self.status);
    }
}

/// The state of a connection's last write.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum WriteState {
    #[default]
    Done,
    /// The kernel accepts nothing more.
    Blocked,
    /// The client took nothing in time, so that the connection ends.
    Stalled,
}

/// Writes of one connection, shared by the stream that performs them and the requests that wait for them.
pub(super) struct ConnectionWrites<R> {
    pub(super) write: Cell<WriteState>,
    /// hyper or h2 has begun to close the connection, which ends by itself.
    pub(super) closing: Cell<bool>,
    /// Small writes are collected, as h2 is about to make more of them.
    pub(super) collects: Cell<bool>,
    /// Collected bytes are to be flushed.
    pub(super) has_collected: Cell<bool>,
    /// Descriptor of the connection's socket, while it is open.
    pub(super) socket: Cell<Option<RawFd>>,
    /// Largest number of bytes in h2 while responses compete, by the path's rate. For HTTP/2, if responses are sent by
    /// their priorities.
    pub(super) queue_limit: Cell<u64>,
    state: RefCell<ConnectionWritesState<R>>,
    metrics: Arc<TcpMetrics>,
}

struct ConnectionWritesState<R> {
    /// Bytes that TLS has accepted.
    accepted: u64,
    /// Bytes that the kernel has.
    written: u64,
    /// Headers, each with the offset behind its first byte.
    heads: VecDeque<(u64, QueuedHead)>,
    /// Responses, each with the offset of its end.
    ends: VecDeque<(u64, R)>,
    /// Over HTTP/1.1: responses that hyper has completely, and whose end may be in its buffer.
    buffered: Vec<R>,
    /// Over HTTP/2: streams whose response h2 has not written to its end, unless they were reset.
    streams: BTreeMap<u32, StreamResponse<R>>,
    /// Over HTTP/2: the newest opened stream.
    newest: u32,
    /// Over HTTP/2: streams that the client reset before they were opened, within one read.
    reset: BTreeSet<u32>,
    /// Over HTTP/2: the scanner of written frames.
    frames: Option<SentFrameScanner>,
    /// The writing side was closed, and all bytes before were written.
    is_shut_down: bool,
    /// The connection is gone.
    is_gone: bool,
}

/// A response over HTTP/2 of which h2 has a part, or the whole.
struct StreamResponse<R> {
    /// Statuses of interim responses before the final one.
    interim: Vec<StatusCode>,
    head: Option<QueuedHead>,
    /// Waker of the task that waits until the header is written.
    waiting: Option<Waker>,
    response: Option<R>,
    /// Offset of the end, if h2 wrote that before the response was handed over, as for a tunnel.
    end: Option<u64>,
}

/// A part of a response that the kernel has.
enum WrittenStep<R> {
    Head(QueuedHead),
    End(R),
}

impl<R: OpenResponse> ConnectionWrites<R> {
    /// Whether the kernel accepts nothing more.
    pub(super) fn is_blocked(&self) -> bool {
        self.write.get() != WriteState::Done
    }

    /// Whether the client took nothing in time.
    pub(super) fn is_stalled(&self) -> bool {
        self.write.get() == WriteState::Stalled
    }

    pub(super) fn new(metrics: Arc<TcpMetrics>) -> Self {
        Self {
            write: Cell::default(),
            closing: Cell::default(),
            collects: Cell::default(),
            has_collected: Cell::default(),
            socket: Cell::default(),
            queue_limit: Cell::new(u64::MAX),
            state: RefCell::new(ConnectionWritesState {
                accepted: 0,
                written: 0,
                heads: VecDeque::new(),
                ends: VecDeque::new(),
                buffered: Vec::new(),
                streams: BTreeMap::new(),
                newest: NO_STREAM,
                reset: BTreeSet::new(),
                frames: None,
                is_shut_down: false,
                is_gone: false,
            }),
            metrics,
        }
    }

    /// Switches to HTTP/2: all written bytes are frames from now on.
    pub(super) fn expect_frames(&self) {
        self.state.borrow_mut().frames = Some(SentFrameScanner::default());
    }

    /// Tracks the response on `stream`, as h2 has accepted the request. A stream that the client has reset is not
    /// tracked: h2 may process the reset after the response was handed over, and then writes nothing of it.
    pub(super) fn open_stream(&self, stream: u32) {
        let ConnectionWritesState { streams, newest, reset, is_gone: over, .. } = &mut *self.state.borrow_mut();
        *newest = stream.max(*newest);
        if !*over && !reset.contains(&stream) {
            let response = StreamResponse { interim: Vec::new(), head: None, waiting: None, response: None, end: None };
            streams.insert(stream, response);
        }
        // Streams are accepted in the order of their numbers.
        *reset = reset.split_off(&stream.saturating_add(1));
    }

    /// Returns the newest stream that h2 has accepted.
    pub(super) fn newest_stream(&self) -> u32 {
        self.state.borrow().newest
    }

    /// Whether h2 has accepted a request on `stream`, and has not written its response to the end.
    pub(super) fn is_stream_open(&self, stream: u32) -> bool {
        self.state.borrow().streams.contains_key(&stream)
    }

    /// Returns the number of streams of which [`Self::is_stream_open`] is true.
    pub(super) fn open_stream_count(&self) -> usize {
        self.state.borrow().streams.len()
    }

    /// Queues the header of a response on `stream`. Over HTTP/1.1 only headers of pipelined requests may be in front of
    /// it in hyper's buffer: they count as begun together.
    pub(super) fn queue_head(&self, stream: u32, head: QueuedHead) {
        let state = &mut *self.state.borrow_mut();
        if stream == NO_STREAM {
            state.heads.push_back((state.accepted.saturating_add(1), head));
        } else if let Some(stream) = state.streams.get_mut(&stream) {
            stream.head = Some(head);
        }
    }

    /// Queues an interim response with `status` on `stream`.
    pub(super) fn queue_interim_head(&self, stream: u32, status: StatusCode) {
        if let Some(stream) = self.state.borrow_mut().streams.get_mut(&stream) {
            stream.interim.push(status);
        }
    }

    /// Ready once the header of the response on `stream` is written, or if none is queued.
    pub(super) fn poll_stream_head_written(&self, stream: u32, cx: &Context<'_>) -> Poll<()> {
        match self.state.borrow_mut().streams.get_mut(&stream) {
            Some(waiting) if waiting.head.is_some() => {
                waiting.waiting = Some(cx.waker().clone());
                Poll::Pending
            }
            _ => Poll::Ready(()),
        }
    }

    /// Queues the end of the response on `stream`, which hyper or h2 has completely. The response is complete once the
    /// kernel has it.
    pub(super) fn queue_response_end(&self, stream: u32, response: R) {
        let complete = {
            let ConnectionWritesState {
                streams,
                frames,
                buffered,
                ends,
                written,
                is_shut_down: shut,
                is_gone: over,
                ..
            } = &mut *self.state.borrow_mut();
            if *over {
                Err(response)
            } else if frames.is_none() && *shut {
                Ok(response)
            } else if frames.is_none() {
                buffered.push(response);
                return;
            } else {
                match streams.get_mut(&stream).map(|waiting| waiting.end) {
                    // h2 has reset the stream.
                    None => Err(response),
                    Some(None) => {
                        streams.entry(stream).and_modify(|waiting| waiting.response = Some(response));
                        return;
                    }
                    Some(Some(end)) => {
                        streams.remove(&stream);
                        if end > *written {
                            ends.push_back((end, response));
                            return;
                        }
                        Ok(response)
                    }
                }
            }
        };
        // A response that was cut off is dropped.
        if let Ok(response) = complete {
            response.complete_response();
        }
    }

    /// Handles the client's reset of `stream`, which h2 may not have processed yet.
    pub(super) fn on_client_reset(&self, stream: u32) {
        {
            let ConnectionWritesState { newest, reset, .. } = &mut *self.state.borrow_mut();
            if stream > *newest {
                reset.insert(stream);
            }
        }
        self.drop_response(stream);
    }

    /// Drops the response on `stream`, of which no more is written after a reset by the client or litequic.
    pub(super) fn drop_response(&self, stream: u32) {
        let forgotten = (stream != NO_STREAM).then(|| self.state.borrow_mut().streams.remove(&stream));
        drop(forgotten);
    }

    /// Counts the first `bytes` of `slices`, which TLS has accepted.
    pub(super) fn on_bytes_accepted(&self, slices: &[IoSlice<'_>], bytes: usize) {
        // Dropped after the borrow, as dropping a response calls this type again.
        let mut cut_off = Vec::new();
        let state = &mut *self.state.borrow_mut();
        let ConnectionWritesState { accepted, heads, ends, buffered, streams, frames, .. } = state;
        let before = *accepted;
        *accepted = before.saturating_add(bytes as u64);
        let Some(frames) = frames else {
            let is_all =
                slices.len() < MAX_WRITE_SLICES && slices.iter().map(|slice| slice.len()).sum::<usize>() == bytes;
            if is_all {
                ends.extend(buffered.drain(..).map(|response| (*accepted, response)));
            }
            return;
        };
        let mut left = bytes;
        for slice in slices {
            let written = slice.get(..left.min(slice.len())).unwrap_or_default();
            left = left.saturating_sub(written.len());
            frames.scan_written(written, |stream, offset, sent| match sent {
                ResponseFrame::Head => {
                    let Some(stream) = streams.get_mut(&stream) else { return };
                    let head = if stream.interim.is_empty() {
                        stream.waiting.take().into_iter().for_each(Waker::wake);
                        stream.head.take()
                    } else {
                        Some(QueuedHead::from_final_status(stream.interim.remove(0), RequestRecord::default()))
                    };
                    heads.extend(head.map(|head| (offset.saturating_add(1), head)));
                }
                ResponseFrame::End => {
                    let Entry::Occupied(mut waiting) = streams.entry(stream) else { return };
                    match waiting.get_mut().response.take() {
                        None => waiting.get_mut().end = Some(offset),
                        Some(response) => {
                            ends.push_back((offset, response));
                            waiting.remove();
                        }
                    }
                }
                ResponseFrame::Reset => cut_off.extend(streams.remove(&stream)),
            });
        }
    }

    /// Reports that the buffers of hyper and TLS are empty: over HTTP/1.1 the kernel has all responses.
    pub(super) fn on_flushed(&self) {
        let state = &mut *self.state.borrow_mut();
        let accepted = state.accepted;
        state.ends.extend(state.buffered.drain(..).map(|response| (accepted, response)));
    }

    /// Reports that the writing side is closed.
    pub(super) fn on_shut_down(&self) {
        self.on_flushed();
        self.state.borrow_mut().is_shut_down = true;
    }

    /// Whether a header or a response waits for the kernel.
    pub(super) fn has_waiting(&self) -> bool {
        let state = self.state.borrow();
        !state.heads.is_empty() || !state.ends.is_empty()
    }

    /// Counts and records all parts that the kernel has: every accepted byte but `unsent` ones.
    pub(super) fn complete_written(&self, unsent: u64) {
        {
            let state = &mut *self.state.borrow_mut();
            state.written = state.written.max(state.accepted.saturating_sub(unsent));
        }
        // Outside the borrow, as completing a response calls this type again.
        while let Some(done) = self.pop_written_step() {
            match done {
                WrittenStep::Head(head) => head.record_sent_head(&self.metrics),
                WrittenStep::End(response) => response.complete_response(),
            }
        }
    }

    fn pop_written_step(&self) -> Option<WrittenStep<R>> {
        let ConnectionWritesState { written, heads, ends, .. } = &mut *self.state.borrow_mut();
        if heads.front().is_some_and(|(offset, _)| *offset <= *written) {
            return heads.pop_front().map(|(_, head)| WrittenStep::Head(head));
        }
        ends.pop_front_if(|(offset, _)| *offset <= *written).map(|(_, response)| WrittenStep::End(response))
    }

    /// Drops everything that waits, as the connection is gone.
    pub(super) fn on_connection_gone(&self) {
        let (heads, ends, buffered, streams);
        {
            let state = &mut *self.state.borrow_mut();
            state.is_gone = true;
            heads = std::mem::take(&mut state.heads);
            ends = std::mem::take(&mut state.ends);
            buffered = std::mem::take(&mut state.buffered);
            streams = std::mem::take(&mut state.streams);
        }
        // A response reports its record when it is dropped. Headers are dropped first, so that the record does not wait
        // for them.
        drop(heads);
        drop((ends, buffered, streams));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http2_frames::frame_bytes;
    use std::rc::Rc;

    /// A response that records its end.
    struct Noted {
        name: &'static str,
        ends: Rc<RefCell<Vec<(&'static str, bool)>>>,
        complete: bool,
    }

    impl OpenResponse for Noted {
        fn complete_response(mut self) {
            self.complete = true;
        }
    }

    impl Drop for Noted {
        fn drop(&mut self) {
            self.ends.borrow_mut().push((self.name, self.complete));
        }
    }

    #[derive(Default)]
    struct Test {
        metrics: Arc<TcpMetrics>,
        ends: Rc<RefCell<Vec<(&'static str, bool)>>>,
    }

    impl Test {
        fn writes(&self) -> ConnectionWrites<Noted> {
            ConnectionWrites::new(Arc::clone(&self.metrics))
        }

        fn response(&self, name: &'static str) -> Noted {
            Noted { name, ends: Rc::clone(&self.ends), complete: false }
        }

        /// Returns the number of responses that began, and those that ended, each with whether the kernel has all of
        /// it.
        fn seen(&self) -> (u64, Vec<(&'static str, bool)>) {
            (self.metrics.shared.responses_2xx.get(), self.ends.borrow_mut().drain(..).collect())
        }
    }

    fn head() -> QueuedHead {
        QueuedHead::from_final_status(StatusCode::OK, RequestRecord::default())
    }

    #[test]
    fn http1_responses_count_at_the_kernels_first_and_last_byte() {
        let test = Test::default();
        let writes = test.writes();
        // hyper has it, and TLS nothing.
        writes.queue_head(NO_STREAM, head());
        writes.complete_written(0);
        assert_eq!(test.seen(), (0, vec![]));
        // TLS has a part of it, the kernel nothing, then a byte.
        let bytes = [0; 100];
        writes.on_bytes_accepted(&[IoSlice::new(&bytes)], 60);
        writes.complete_written(60);
        assert_eq!(test.seen(), (0, vec![]));
        writes.complete_written(59);
        assert_eq!(test.seen(), (1, vec![]));
        // hyper has the rest in its buffer.
        writes.queue_response_end(NO_STREAM, test.response("first"));
        writes.complete_written(0);
        assert_eq!(test.seen(), (1, vec![]));
        writes.on_bytes_accepted(&[IoSlice::new(&bytes[..30]), IoSlice::new(&bytes[..10])], 40);
        writes.queue_head(NO_STREAM, head());
        writes.complete_written(1);
        assert_eq!(test.seen(), (1, vec![]));
        writes.complete_written(0);
        assert_eq!(test.seen(), (1, vec![("first", true)]));
        // The next one has no byte there when the connection ends.
        writes.queue_response_end(NO_STREAM, test.response("second"));
        writes.on_bytes_accepted(&[IoSlice::new(&bytes)], 100);
        writes.complete_written(100);
        writes.on_connection_gone();
        assert_eq!(test.seen(), (1, vec![("second", false)]));
        writes.queue_response_end(NO_STREAM, test.response("late"));
        assert_eq!(test.seen(), (1, vec![("late", false)]));
    }

    #[test]
    fn http1_responses_without_further_bytes_complete_on_flush_or_shutdown() {
        let test = Test::default();
        let writes = test.writes();
        writes.queue_response_end(NO_STREAM, test.response("flushed"));
        writes.on_flushed();
        writes.complete_written(0);
        writes.on_shut_down();
        writes.queue_response_end(NO_STREAM, test.response("tunnel"));
        assert_eq!(test.seen(), (0, vec![("flushed", true), ("tunnel", true)]));
    }

    #[test]
    fn over_http2_frames_show_which_response_is_written() {
        let test = Test::default();
        let writes = test.writes();
        writes.expect_frames();
        let write = |bytes: &[u8]| writes.on_bytes_accepted(&[IoSlice::new(bytes)], bytes.len());
        for stream in [1, 3, 5, 7, 9] {
            writes.open_stream(stream);
            writes.queue_head(stream, head());
        }
        writes.queue_interim_head(1, StatusCode::EARLY_HINTS);
        writes.queue_response_end(1, test.response("one"));
        writes.queue_response_end(5, test.response("five"));
        writes.queue_response_end(7, test.response("seven"));
        // An interim response, the header of another stream, and the whole of a third.
        write(&[frame_bytes(1, 4, 1, 10), frame_bytes(1, 4, 3, 10), frame_bytes(1, 5, 5, 10)].concat());
        writes.complete_written(0);
        assert_eq!((test.metrics.shared.responses_1xx.get(), test.seen()), (1, (2, vec![("five", true)])));
        // The final header, and all but a byte of the body.
        let body = [frame_bytes(1, 4, 1, 10), frame_bytes(0, 1, 1, 50)].concat();
        write(&body[..body.len() - 1]);
        writes.complete_written(0);
        assert_eq!(test.seen(), (3, vec![]));
        write(&body[body.len() - 1..]);
        writes.complete_written(0);
        assert_eq!(test.seen(), (3, vec![("one", true)]));
        // Reset by litequic, and by the client, before its header is written; a tunnel that ends before its request
        // does.
        write(&[frame_bytes(3, 0, 7, 4), frame_bytes(1, 4, 9, 10), frame_bytes(0, 1, 9, 0)].concat());
        writes.complete_written(0);
        assert_eq!(test.seen(), (4, vec![("seven", false)]));
        writes.queue_response_end(9, test.response("nine"));
        writes.drop_response(3);
        writes.queue_response_end(3, test.response("three"));
        assert_eq!(test.seen(), (4, vec![("nine", true), ("three", false)]));
    }

    #[test]
    fn a_reset_read_before_request_or_response_ends_the_request() {
        let test = Test::default();
        let writes = test.writes();
        writes.expect_frames();
        // Before the request is accepted: h2 has not processed the reset when the response is handed over.
        writes.on_client_reset(3);
        writes.open_stream(1);
        writes.open_stream(3);
        writes.open_stream(5);
        writes.queue_head(3, head());
        writes.queue_response_end(3, test.response("three"));
        // Before its response.
        writes.on_client_reset(1);
        writes.queue_head(1, head());
        writes.queue_response_end(1, test.response("one"));
        writes.queue_head(5, head());
        writes.queue_response_end(5, test.response("five"));
        assert_eq!(test.seen(), (0, vec![("three", false), ("one", false)]));
        let five = frame_bytes(1, 5, 5, 10);
        writes.on_bytes_accepted(&[IoSlice::new(&five)], five.len());
        writes.complete_written(0);
        assert_eq!(test.seen(), (1, vec![("five", true)]));
        let state = writes.state.borrow();
        assert!(state.streams.is_empty() && state.reset.is_empty());
    }

    #[test]
    fn a_failure_waits_for_a_header_that_h2_has_not_written() {
        let test = Test::default();
        let writes = test.writes();
        writes.expect_frames();
        let context = Context::from_waker(Waker::noop());
        writes.open_stream(1);
        assert!(writes.poll_stream_head_written(1, &context).is_ready());
        writes.queue_head(1, head());
        assert!(writes.poll_stream_head_written(1, &context).is_pending());
        let header = frame_bytes(1, 4, 1, 10);
        writes.on_bytes_accepted(&[IoSlice::new(&header)], 5);
        assert!(writes.poll_stream_head_written(1, &context).is_pending());
        writes.on_bytes_accepted(&[IoSlice::new(&header[5..])], header.len() - 5);
        assert!(writes.poll_stream_head_written(1, &context).is_ready());
    }
}
