//! Serves one request stream, from its first byte to the acknowledgement of its last.

use super::{
    error_code::ErrorCode,
    frame::MessagePart,
    http3_worker::Http3Connection,
    message::{self, Rejection},
    qpack::{self, DecodeError},
    request_outcome::{RequestFault, RequestOutcome, ResponseFailure, StreamSendError, reset_code},
    request_receiver::{RequestBody, RequestReceiver},
    response_writer::ResponseWriter,
};
use crate::http3_metrics::Http3Metrics;
use http::{Method, StatusCode};
use litequic_base::{lifecycle::panic_if_requested, timers};
use litequic_exchange::{
    Abort, Body, Client, DecodedFields, Exchange, Fields, Handler, InterimReceiver, InterimSender, RecordGuard,
    Request, RequestEnd, RequestRecord, Response, name, rarely_has_body, terms::Terms,
};
use litequic_resources::transport::SendWindow;
use s2n_quic::stream::BidirectionalStream;
use std::{
    future::{Future, poll_fn},
    pin::{Pin, pin},
    rc::Rc,
    sync::Arc,
    task::Poll,
    time::Duration,
};
use tokio::time::{self, Instant};

/// Longest wait for the end of a request that should have no body but whose stream is open, so that the origin does not
/// get an empty chunked body. Some clients send FIN in a packet of its own.
const FIN_TIMEOUT: Duration = Duration::from_millis(20);
/// Serves the request on `stream`.
pub(super) async fn serve_request<H: Handler>(
    stream: BidirectionalStream,
    window: Box<dyn SendWindow>,
    connection: Rc<Http3Connection<H>>,
) {
    let front = &*connection.worker;
    let metrics = &front.metrics;
    panic_if_requested("request");
    let client = connection.current_client();
    let recording = front.records.begin_record(|| Rc::clone(&client));
    let _guard = RequestGuard::new(&connection, &recording);
    let record = &recording.0;
    let (receive, send) = stream.split();
    let outcome = RequestOutcome::new();
    let terms = connection.worker.current_terms();
    let receiver = RequestReceiver::new(receive, terms.limits.max_header_bytes, Rc::clone(&outcome), &connection);
    let sender = connection.open_sender(send, window, terms.minimum_download_rate());
    let mut writer = ResponseWriter::new(sender, &connection, outcome, record);

    // The future keeps values that are borrowed, matched, or passed on to another future as long as they are in scope.
    // The request is in no such scope, so that one which waits for its origin is in memory once.
    let result = 'served: {
        let (request, stream) = match read_request(receiver, &client, &connection, &terms, record).await {
            Ok(accepted) => accepted,
            Err(refusal) => {
                // Boxed, like tunnels: a future that is rarely needed would enlarge that of each request.
                break 'served Box::pin(writer.answer_refused(refusal)).await;
            }
        };
        metrics.requests.increment();
        let (exchange, queue, method) = writer.begin_exchange(request, stream.is_some(), client);
        let response = {
            let answer = pin!(connection.handler.handle(exchange));
            writer.await_response(answer, &queue).await
        };
        match response {
            Ok(response) => writer.relay_response(response, stream, &method).await,
            Err(failure) => Err(failure),
        }
    };
    let result = match result {
        Ok(()) => writer.sender.finish_stream(&recording).await.map_err(ResponseFailure::Send),
        Err(failure) => {
            if matches!(failure, ResponseFailure::Response) && writer.outcome.fault.get().is_none() {
                writer.sender.wait_acknowledged().await;
            }
            writer.reset_after_failure(writer.outcome.fault.get().map_or(failure, ResponseFailure::Request));
            Err(failure)
        }
    };
    let fault = writer.outcome.fault.get();
    recording.set_end(classify_end(fault, &result));
    writer.outcome.recycle_outcome();
    if let Some(RequestFault::Connection(code)) = fault {
        connection.close_for_violation(code);
    }
    match (fault, result) {
        (Some(RequestFault::Stream(ErrorCode::MessageError)), _) => metrics.malformed_requests.increment(),
        (Some(RequestFault::Cancelled), _) | (_, Err(ResponseFailure::Send(StreamSendError::Stopped))) => {
            connection.count_stream_reset();
        }
        (_, Err(ResponseFailure::Send(StreamSendError::TimedOut))) => {
            metrics.shared.timeout_send.increment();
            metrics.shared.streams_reset_by_proxy.increment();
        }
        (_, Err(ResponseFailure::Send(StreamSendError::TooSlow))) => {
            metrics.shared.limit_download_rate.increment();
            metrics.shared.streams_reset_by_proxy.increment();
        }
        (_, Err(_)) => metrics.shared.streams_reset_by_proxy.increment(),
        (_, Ok(())) => {}
    }
}

/// Returns the size of the future that serves a request, in bytes.
pub fn request_future_size<H: Handler>() -> usize {
    const fn output_size<A, B, C, F>(_: fn(A, B, C) -> F) -> usize {
        size_of::<F>()
    }
    output_size(serve_request::<H>)
}

/// Returns the end of a request for its record. If the client resets the rest of a request that was answered, the
/// response is complete.
fn classify_end(fault: Option<RequestFault>, result: &Result<(), ResponseFailure>) -> RequestEnd {
    match (fault, result) {
        (Some(RequestFault::Stream(_) | RequestFault::Connection(_)), _) => RequestEnd::Malformed,
        (Some(RequestFault::Cancelled), Err(_)) | (_, Err(ResponseFailure::Send(StreamSendError::Stopped))) => {
            RequestEnd::Cancelled
        }
        (_, Err(ResponseFailure::Send(StreamSendError::TimedOut | StreamSendError::TooSlow))) => RequestEnd::Stalled,
        (_, Err(ResponseFailure::Evicted)) => RequestEnd::Evicted,
        (_, Err(_)) => RequestEnd::Failed,
        (_, Ok(())) => RequestEnd::Complete,
    }
}

/// Counts a request as open, and measures its duration, until this guard is dropped. Records then that the request
/// ended with its connection, if litequic closed the connection for another client or for the operator.
struct RequestGuard<'a, H> {
    connection: &'a Http3Connection<H>,
    recording: &'a RecordGuard,
    begun: Instant,
}

impl<'a, H> RequestGuard<'a, H> {
    fn new(connection: &'a Http3Connection<H>, recording: &'a RecordGuard) -> Self {
        connection.worker.metrics.shared.requests_open.increment();
        Self { connection, recording, begun: timers::turn_time() }
    }
}

impl<H> Drop for RequestGuard<'_, H> {
    fn drop(&mut self) {
        let shared = &self.connection.worker.metrics.shared;
        if let Some(end) = self.connection.lifecycle.request_end() {
            self.recording.set_end(end);
            shared.streams_reset_by_proxy.increment();
        }
        shared.requests_open.decrement();
        shared.request_duration.observe_time(timers::turn_time().saturating_duration_since(self.begun));
    }
}

/// A request that does not reach the handler.
enum RefusedRequest {
    RequestFault(RequestFault),
    /// Status, reason, and the request's method, which decides whether the response may have a body.
    Status(StatusCode, &'static str, Method),
}

/// Reads and checks the request's header. Returns the stream as well, for a tunnel.
async fn read_request<H>(
    mut receiver: RequestReceiver,
    client: &Client,
    connection: &Http3Connection<H>,
    terms: &Terms,
    record: &RequestRecord,
) -> Result<(Request, Option<Box<RequestBody>>), RefusedRequest> {
    let front = &*connection.worker;
    let header = poll_fn(|cx| receiver.poll_part(cx));
    let Ok(part) = timers::timeout(terms.timeouts.request_header, header).await else {
        front.metrics.shared.timeout_request_header.increment();
        let why = "timed out waiting for the request's header";
        return Err(RefusedRequest::Status(StatusCode::REQUEST_TIMEOUT, why, UNKNOWN_METHOD));
    };
    let section = match part.map_err(RefusedRequest::RequestFault)? {
        Some(MessagePart::Header(section)) => section,
        Some(MessagePart::HeaderTooLarge) => {
            front.metrics.shared.limit_header_bytes.increment();
            return Err(header_too_large());
        }
        // The stream's rules allow nothing before the header, and no end without one.
        Some(_) | None => return Err(RefusedRequest::RequestFault(RequestFault::Stream(ErrorCode::RequestIncomplete))),
    };
    let fields = qpack::decode_section(&section, &terms.field_limits).map_err(|error| match error {
        DecodeError::Failed(_) => {
            RefusedRequest::RequestFault(RequestFault::Connection(ErrorCode::QpackDecompressionFailed))
        }
        DecodeError::TooManyBytes => {
            front.metrics.shared.limit_header_bytes.increment();
            header_too_large()
        }
        DecodeError::TooManyFields => {
            front.metrics.shared.limit_headers.increment();
            header_too_large()
        }
    })?;
    let method = request_method(&fields);
    record.update_facts(|facts| fields.iter().for_each(|line| facts.record_field(line.name, line.value)));
    let request = message::decode_request(fields, connection.terms.has_tunnels, &connection.authority);
    let message::DecodedRequest { head, content_length } = request.map_err(|rejection| match rejection {
        Rejection::Malformed(_) => RefusedRequest::RequestFault(RequestFault::Stream(ErrorCode::MessageError)),
        Rejection::Status(status, why) => RefusedRequest::Status(status, why, method),
    })?;
    if !(front.covers)(client, head.host()) {
        return Err(RefusedRequest::Status(
            StatusCode::MISDIRECTED_REQUEST,
            "this connection does not serve that host",
            head.method,
        ));
    }
    let metrics = &front.metrics;
    let stream = |receiver| RequestBody::new(receiver, terms.field_limits, Arc::clone(metrics), record.clone());
    if head.upgrade.is_some() {
        receiver.message.expect_data_only();
        return Ok((Request { head, body: Body::empty() }, Some(Box::new(stream(receiver)))));
    }
    let start = read_body_start(&mut receiver, content_length, &head.method, terms, metrics).await;
    let body = match start {
        Ok(BodyStart::Empty) => Body::empty(),
        Ok(BodyStart::Stream(ahead)) => {
            stream(receiver).into_handler_body(ahead, content_length, terms.minimum_upload_rate())
        }
        Err(RequestFault::TimedOut) => {
            let why = "timed out waiting for the request's body";
            return Err(RefusedRequest::Status(StatusCode::REQUEST_TIMEOUT, why, head.method));
        }
        Err(fault) => return Err(RefusedRequest::RequestFault(fault)),
    };
    Ok((Request { head, body }, None))
}

fn header_too_large() -> RefusedRequest {
    RefusedRequest::Status(
        StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
        "the request's header is larger than allowed",
        UNKNOWN_METHOD,
    )
}

/// Placeholder for a method that was not read: the response may have a body.
const UNKNOWN_METHOD: Method = Method::GET;

/// Returns the method of a request that may be rejected.
fn request_method(fields: &DecodedFields) -> Method {
    let line = fields.iter().find(|line| line.id == name::METHOD.id());
    line.and_then(|line| Method::from_bytes(line.value).ok()).unwrap_or(UNKNOWN_METHOD)
}

/// The beginning of a request's body.
enum BodyStart {
    Empty,
    /// A body, with the part that was read ahead.
    Stream(Option<MessagePart>),
}

/// Reads until it is known whether the request has a body: there is none if the stream ends with the header. A body of
/// no bytes is read to its end here, as nothing else reads it. Late bytes make the request malformed, and must do so
/// before the origin gets it.
async fn read_body_start(
    receiver: &mut RequestReceiver,
    expected: Option<u64>,
    method: &Method,
    terms: &Terms,
    metrics: &Arc<Http3Metrics>,
) -> Result<BodyStart, RequestFault> {
    if expected == Some(0) {
        let ended =
            timers::timeout(terms.timeouts.request_body, receiver.read_empty_body(&terms.field_limits, metrics)).await;
        return match ended {
            Ok(ended) => ended.map(|()| BodyStart::Empty),
            Err(_) => {
                metrics.shared.timeout_request_body.increment();
                Err(RequestFault::TimedOut)
            }
        };
    }
    let mut ahead = None;
    if expected.is_none() && !receiver.is_finished() {
        let limit = if rarely_has_body(method) { FIN_TIMEOUT } else { Duration::ZERO };
        match time::timeout(limit, poll_fn(|cx| receiver.poll_part(cx))).await {
            Ok(Ok(Some(part))) => ahead = Some(part),
            Ok(Ok(None)) => return Ok(BodyStart::Empty),
            Ok(Err(fault)) => return Err(fault),
            Err(_) => {}
        }
    }
    if ahead.is_none() && receiver.is_finished() {
        return match expected {
            Some(_) => Err(RequestFault::Stream(ErrorCode::MessageError)),
            None => Ok(BodyStart::Empty),
        };
    }
    Ok(BodyStart::Stream(ahead))
}

impl<H: Handler> ResponseWriter<'_, H> {
    /// Answers a request that does not reach the handler.
    async fn answer_refused(&mut self, refusal: RefusedRequest) -> Result<(), ResponseFailure> {
        match refusal {
            RefusedRequest::RequestFault(fault) => {
                self.outcome.set_fault(fault);
                Err(ResponseFailure::Request(fault))
            }
            RefusedRequest::Status(status, why, method) => {
                self.record.record_error("http_request_error");
                let mut response = Response::with_reason(status, why, "litequic; error=http_request_error");
                self.connection.handler.complete_rejection(&self.connection.current_client(), &mut response);
                self.relay_checked_response(response, &method).await
            }
        }
    }

    /// Returns the exchange of `request`, the receiver of its interim responses, and its method.
    fn begin_exchange(
        &self,
        request: Request,
        is_tunnel: bool,
        client: Rc<Client>,
    ) -> (Exchange, InterimReceiver, Method) {
        let method = request.head.method.clone();
        let priorities = &self.connection.priorities;
        priorities.set_request_priority(&*self.sender.window, &request.head.fields, is_tunnel, self.record);
        let (interim, queue) = InterimSender::open_channel();
        (Exchange { request, client, interim, record: self.record.clone() }, queue, method)
    }

    /// Sends the handler's response to a request with this `method`.
    async fn relay_response(
        &mut self,
        response: Response,
        stream: Option<Box<RequestBody>>,
        method: &Method,
    ) -> Result<(), ResponseFailure> {
        // A malformed request gets no response, whatever the origin answered.
        if let Some(fault @ (RequestFault::Stream(_) | RequestFault::Connection(_))) = self.outcome.fault.get() {
            return Err(ResponseFailure::Request(fault));
        }
        if let (StatusCode::SWITCHING_PROTOCOLS, Some(stream)) = (response.status, stream) {
            let Response { status, fields, body } = response;
            // A tunnel's response is a 101 with a tunnel as the body.
            let tunnel = body.into_tunnel().map_err(|_| ResponseFailure::Aborted)?;
            if !self.connection.accepts_section(Some(StatusCode::OK), &fields) {
                // The client gets a 502 instead, and no tunnel.
                let response = Response { status, fields, body: Body::empty() };
                return self.relay_checked_response(response, method).await;
            }
            return Box::pin(self.serve_tunnel(fields, tunnel, *stream)).await;
        }
        self.relay_checked_response(response, method).await
    }

    /// Waits for the handler's response `answer`. Sends the interim responses of `queue` meanwhile.
    async fn await_response(
        &mut self,
        mut answer: Pin<&mut impl Future<Output = Result<Response, Abort>>>,
        queue: &InterimReceiver,
    ) -> Result<Response, ResponseFailure> {
        let mut answered = None;
        loop {
            let next = poll_fn(|cx| {
                if answered.is_none()
                    && let Poll::Ready(response) = answer.as_mut().poll(cx)
                {
                    answered = Some(response);
                }
                // Interim responses of the origin are sent before its final one.
                if let Some((status, fields)) = queue.take_interim() {
                    return Poll::Ready(HandlerEvent::Interim(status, fields));
                }
                match answered.take() {
                    Some(response) => Poll::Ready(HandlerEvent::Final(response)),
                    None => self.sender.poll_stopped(cx).map(|()| HandlerEvent::Stopped),
                }
            });
            match next.await {
                // Interim responses are advisory: one that is larger than the client accepts is left out.
                HandlerEvent::Interim(status, fields) if !self.connection.accepts_section(Some(status), &fields) => {}
                HandlerEvent::Interim(status, fields) => {
                    self.send_header(status, &fields).await?;
                    self.connection.worker.metrics.shared.count_response(status);
                }
                HandlerEvent::Final(response) => return response.map_err(|_| ResponseFailure::Aborted),
                HandlerEvent::Stopped => {
                    // Set before the handler drops the request's body, which sends STOP_SENDING.
                    self.outcome.stop_code.set(reset_code(ResponseFailure::Send(StreamSendError::Stopped)));
                    return Err(ResponseFailure::Send(StreamSendError::Stopped));
                }
            }
        }
    }

    /// Resets the stream with the code of the failure.
    fn reset_after_failure(&mut self, failure: ResponseFailure) {
        if matches!(failure, ResponseFailure::Request(RequestFault::Connection(_))) {
            return; // the connection's close says it
        }
        self.outcome.stop_code.set(reset_code(failure));
        self.sender.reset_stream(reset_code(failure));
    }
}

/// An event while the handler runs.
enum HandlerEvent {
    Interim(StatusCode, Fields),
    Final(Result<Response, Abort>),
    Stopped,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A handler without responses.
    struct Silent;

    impl Handler for Silent {
        async fn handle(&self, _: Exchange) -> Result<Response, Abort> {
            Err(Abort::Internal)
        }
    }

    /// Returns the size of the future of a function with three arguments, in bytes.
    fn size_of_future<A, B, C, F: Future>(_: fn(A, B, C) -> F) -> usize {
        size_of::<F>()
    }

    #[test]
    fn a_request_takes_no_more_memory_in_http3_than_it_needs() {
        let size = size_of_future(serve_request::<Silent>);
        assert!(size <= 4 << 10, "{size} bytes");
    }
}
