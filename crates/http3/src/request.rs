//! One request stream, from its first byte to the acknowledgement of its last.

use super::{
    error::Code,
    frame::{Endpoint, MessageStream, Part},
    front::Connection,
    message::{self, Rejection},
    outcome::{Failure, RequestFault, RequestOutcome, code},
    qpack::{self, DecodeError},
    receive::{Receiver, RequestBody},
    response::{header, own, respond},
    send::Sender,
    send_error::SendError,
    tunnel,
};
use crate::metrics::Metrics;
use http::{Method, StatusCode};
use litequic_base::{lifecycle::panic_if_asked, timers};
use litequic_exchange::{
    Abort, Body, Client, DecodedFields, Exchange, Fields, Handler, Interim, InterimQueue, Record, Recording, Request,
    RequestEnd, Response, has_rarely_a_body, name, terms::Terms,
};
use litequic_resources::{receive::Taken, transport::SendWindow};
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

/// A request that should have no body but whose stream is still open: how long its end is waited for, so that the
/// origin does not get an empty chunked body. Some clients send FIN in a packet of its own.
const FIN_WAIT: Duration = Duration::from_millis(20);
/// Serves the request on `stream`.
pub(super) async fn serve<H: Handler>(
    stream: BidirectionalStream,
    window: Box<dyn SendWindow>,
    connection: Rc<Connection<H>>,
) {
    let front = &*connection.front;
    let metrics = &front.metrics;
    metrics.shared.requests_open.increment();
    panic_if_asked("request");
    let _guard = RequestGuard(&connection, timers::now());
    let client = connection.client();
    let recording = front.records.begin(|| Rc::clone(&client));
    let _cut = Cut(&connection, &recording);
    let record = recording.record();
    let (receive, send) = stream.split();
    let outcome = RequestOutcome::new();
    let terms = connection.front.terms();
    let message = MessageStream::new(Endpoint::Client, terms.limits.max_header_bytes as usize);
    let receiver = Receiver::new(
        receive,
        message,
        Rc::clone(&outcome),
        Rc::clone(&connection.life),
        Rc::clone(&connection.lingering),
        Taken::new(connection.memory.received.clone()),
        connection.memory.holder.motion(),
    );
    let mut sender = connection.sender(send, window, terms.download_pace());

    // This future holds what is borrowed, matched, or passed on to another one as long as that is in scope: a request
    // is neither, so that one that waits for its origin is in memory once.
    let result = 'served: {
        let (request, stream) = match accept(receiver, &client, &connection, &terms, record).await {
            Ok(accepted) => accepted,
            Err(refusal) => {
                // Boxed, as tunnels are: a future that is rarely needed makes that of each request larger.
                break 'served Box::pin(refuse(refusal, &mut sender, &connection, &outcome, record)).await;
            }
        };
        metrics.requests.increment();
        let (exchange, queue, method) = begin(request, stream.is_some(), client, &mut sender, &connection, record);
        let response = {
            let answer = pin!(connection.handler.handle(exchange));
            answered(answer, &queue, &mut sender, &connection, &outcome).await
        };
        match response {
            Ok(response) => relay(response, stream, &method, &mut sender, &connection, &outcome, record).await,
            Err(failure) => Err(failure),
        }
    };
    let result = match result {
        Ok(()) => sender.finish(&recording).await.map_err(Failure::Send),
        Err(failure) => {
            if matches!(failure, Failure::Response) && outcome.fault().is_none() {
                sender.settle().await;
            }
            abandon(&mut sender, outcome.fault().map_or(failure, Failure::Request), &outcome);
            Err(failure)
        }
    };
    let fault = outcome.fault();
    recording.ended(end(fault, &result));
    outcome.give_back();
    if let Some(RequestFault::Connection(code)) = fault {
        connection.fail(code);
    }
    match (fault, result) {
        (Some(RequestFault::Stream(Code::MessageError)), _) => metrics.malformed_requests.increment(),
        (Some(RequestFault::Cancelled), _) | (_, Err(Failure::Send(SendError::Stopped))) => {
            connection.count_reset();
        }
        (_, Err(Failure::Send(SendError::TimedOut))) => {
            metrics.shared.timeout_send.increment();
            metrics.shared.streams_reset_by_proxy.increment();
        }
        (_, Err(Failure::Send(SendError::TooSlow))) => {
            metrics.shared.limit_download_rate.increment();
            metrics.shared.streams_reset_by_proxy.increment();
        }
        (_, Err(_)) => metrics.shared.streams_reset_by_proxy.increment(),
        (_, Ok(())) => {}
    }
}

/// Bytes of the future that serves a request.
pub fn request_size<H: Handler>() -> usize {
    const fn of<A, B, C, F>(_: fn(A, B, C) -> F) -> usize {
        size_of::<F>()
    }
    of(serve::<H>)
}

/// How a request ended, for its record. A client that resets the rest of its request once it was answered has its
/// complete response.
fn end(fault: Option<RequestFault>, result: &Result<(), Failure>) -> RequestEnd {
    match (fault, result) {
        (Some(RequestFault::Stream(_) | RequestFault::Connection(_)), _) => RequestEnd::Malformed,
        (Some(RequestFault::Cancelled), Err(_)) | (_, Err(Failure::Send(SendError::Stopped))) => RequestEnd::Cancelled,
        (_, Err(Failure::Send(SendError::TimedOut | SendError::TooSlow))) => RequestEnd::Stalled,
        (_, Err(Failure::Evicted)) => RequestEnd::Evicted,
        (_, Err(_)) => RequestEnd::Failed,
        (_, Ok(())) => RequestEnd::Complete,
    }
}

/// Counts a request as open as long as this exists, and how long that was.
struct RequestGuard<'a, H: Handler>(&'a Connection<H>, Instant);

impl<H: Handler> Drop for RequestGuard<'_, H> {
    fn drop(&mut self) {
        self.0.front.metrics.shared.requests_open.decrement();
        self.0.front.metrics.shared.request_duration.observe(timers::now().saturating_duration_since(self.1));
    }
}

/// Records that a request ended with its connection, if litequic ended that for another client or for the operator.
struct Cut<'a, H: Handler>(&'a Connection<H>, &'a Recording);

impl<H: Handler> Drop for Cut<'_, H> {
    fn drop(&mut self) {
        let Self(connection, recording) = self;
        if let Some(end) = connection.life.request_end() {
            recording.ended(end);
            connection.front.metrics.shared.streams_reset_by_proxy.increment();
        }
    }
}

/// Why a request does not reach the handler.
enum Refusal {
    RequestFault(RequestFault),
    /// The last is the method, which decides whether the answer may have a body.
    Status(StatusCode, &'static str, Method),
}

/// Reads and checks the request's header. For a tunnel it returns the stream.
async fn accept<H>(
    mut receiver: Receiver,
    client: &Client,
    connection: &Connection<H>,
    terms: &Terms,
    record: &Record,
) -> Result<(Request, Option<Box<RequestBody>>), Refusal> {
    let front = &*connection.front;
    let header = poll_fn(|cx| receiver.poll_part(cx));
    let Ok(part) = timers::timeout(terms.timeouts.request_header, header).await else {
        front.metrics.shared.timeout_request_header.increment();
        let why = "the request's header did not come in time";
        return Err(Refusal::Status(StatusCode::REQUEST_TIMEOUT, why, UNKNOWN));
    };
    let section = match part.map_err(Refusal::RequestFault)? {
        Some(Part::Header(section)) => section,
        Some(Part::HeaderTooLarge) => {
            front.metrics.shared.limit_header_bytes.increment();
            return Err(too_large());
        }
        // By the stream's rules nothing comes before the header, and the stream does not end without one.
        Some(_) | None => return Err(Refusal::RequestFault(RequestFault::Stream(Code::RequestIncomplete))),
    };
    let fields = qpack::decode(&section, &terms.field_limits).map_err(|error| match error {
        DecodeError::Failed(_) => Refusal::RequestFault(RequestFault::Connection(Code::QpackDecompressionFailed)),
        DecodeError::TooManyBytes => {
            front.metrics.shared.limit_header_bytes.increment();
            too_large()
        }
        DecodeError::TooManyFields => {
            front.metrics.shared.limit_headers.increment();
            too_large()
        }
    })?;
    let method = method(&fields);
    record.note(|facts| fields.iter().for_each(|line| facts.field(line.name, line.value)));
    let request = message::request(fields, connection.terms.has_tunnels, &connection.authority);
    let message::RequestHead { head, content_length } = request.map_err(|rejection| match rejection {
        Rejection::Malformed(_) => Refusal::RequestFault(RequestFault::Stream(Code::MessageError)),
        Rejection::Status(status, why) => Refusal::Status(status, why, method),
    })?;
    if !(front.covers)(client, head.host()) {
        return Err(Refusal::Status(
            StatusCode::MISDIRECTED_REQUEST,
            "this connection is not for that host",
            head.method,
        ));
    }
    if head.upgrade.is_some() {
        receiver.expect_data_alone();
        let metrics = Arc::clone(&front.metrics);
        let stream = RequestBody::new(receiver, None, None, None, terms.field_limits, metrics, record.clone());
        return Ok((Request { head, body: Body::empty() }, Some(Box::new(stream))));
    }
    let start = start_body(&mut receiver, content_length, &head.method, terms, &front.metrics).await;
    let body = match start {
        Ok(BodyStart::Empty) => Body::empty(),
        Ok(BodyStart::Stream(ahead)) => Body::stream(RequestBody::new(
            receiver,
            ahead,
            content_length,
            Some(terms.upload_pace()),
            terms.field_limits,
            Arc::clone(&front.metrics),
            record.clone(),
        )),
        Err(RequestFault::TimedOut) => {
            let why = "the request's body did not end in time";
            return Err(Refusal::Status(StatusCode::REQUEST_TIMEOUT, why, head.method));
        }
        Err(fault) => return Err(Refusal::RequestFault(fault)),
    };
    Ok((Request { head, body }, None))
}

fn too_large() -> Refusal {
    Refusal::Status(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "the request's header is larger than allowed", UNKNOWN)
}

/// Placeholder for a method that was not read: the answer has a body.
const UNKNOWN: Method = Method::GET;

/// The method of a request that may be rejected.
fn method(fields: &DecodedFields) -> Method {
    let line = fields.iter().find(|line| line.id == name::METHOD.id());
    line.and_then(|line| Method::from_bytes(line.value).ok()).unwrap_or(UNKNOWN)
}

/// How a request's body begins.
enum BodyStart {
    Empty,
    /// With what was read ahead of it.
    Stream(Option<Part>),
}

/// Reads up to where the request is known to have a body or none: it has none if the stream ends with the header. A
/// body of no bytes is passed on when it has ended, as it is never read: late bytes make the request malformed, and
/// must do so before the origin gets it.
async fn start_body(
    receiver: &mut Receiver,
    expected: Option<u64>,
    method: &Method,
    terms: &Terms,
    metrics: &Arc<Metrics>,
) -> Result<BodyStart, RequestFault> {
    if expected == Some(0) {
        let ended =
            timers::timeout(terms.timeouts.request_body, receiver.empty_body(&terms.field_limits, metrics)).await;
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
        let patience = if has_rarely_a_body(method) { FIN_WAIT } else { Duration::ZERO };
        match time::timeout(patience, poll_fn(|cx| receiver.poll_part(cx))).await {
            Ok(Ok(Some(part))) => ahead = Some(part),
            Ok(Ok(None)) => return Ok(BodyStart::Empty),
            Ok(Err(fault)) => return Err(fault),
            Err(_) => {}
        }
    }
    if ahead.is_none() && receiver.is_finished() {
        return match expected {
            Some(_) => Err(RequestFault::Stream(Code::MessageError)),
            None => Ok(BodyStart::Empty),
        };
    }
    Ok(BodyStart::Stream(ahead))
}

/// Answers a request that does not reach the handler.
async fn refuse<H: Handler>(
    refusal: Refusal,
    sender: &mut Sender,
    connection: &Connection<H>,
    outcome: &RequestOutcome,
    record: &Record,
) -> Result<(), Failure> {
    match refusal {
        Refusal::RequestFault(fault) => {
            outcome.note(fault);
            Err(Failure::Request(fault))
        }
        Refusal::Status(status, why, method) => {
            record.error("http_request_error");
            let mut response = own(status, why, "litequic; error=http_request_error");
            connection.handler.complete_rejection(&connection.client(), &mut response);
            respond(response, &method, sender, connection, outcome, record).await
        }
    }
}

/// The exchange that begins with `request`, the queue of its interim responses, and its method.
fn begin<H>(
    request: Request,
    is_tunnel: bool,
    client: Rc<Client>,
    sender: &mut Sender,
    connection: &Connection<H>,
    record: &Record,
) -> (Exchange, InterimQueue, Method) {
    let method = request.head.method.clone();
    connection.priorities.request(sender.window(), &request.head.fields, is_tunnel, record);
    let (interim, queue) = Interim::channel();
    (Exchange { request, client, interim, record: record.clone() }, queue, method)
}

/// Sends the handler's answer to a request of this `method`.
async fn relay<H: Handler>(
    response: Response,
    stream: Option<Box<RequestBody>>,
    method: &Method,
    sender: &mut Sender,
    connection: &Connection<H>,
    outcome: &RequestOutcome,
    record: &Record,
) -> Result<(), Failure> {
    // A malformed request gets no response, whatever the origin answered.
    if let Some(fault @ (RequestFault::Stream(_) | RequestFault::Connection(_))) = outcome.fault() {
        return Err(Failure::Request(fault));
    }
    if let (StatusCode::SWITCHING_PROTOCOLS, Some(stream)) = (response.status, stream) {
        let Response { status, fields, body } = response;
        // A tunnel is a 101 with one.
        let tunnel = body.into_tunnel().map_err(|_| Failure::Aborted)?;
        if !connection.takes(Some(StatusCode::OK), &fields) {
            // The client gets a 502 instead, and no tunnel.
            let response = Response { status, fields, body: Body::empty() };
            return respond(response, method, sender, connection, outcome, record).await;
        }
        return Box::pin(tunnel::serve(fields, tunnel, *stream, sender, connection, outcome, record)).await;
    }
    respond(response, method, sender, connection, outcome, record).await
}

/// The handler's response, `answer`, behind the interim responses of `queue`, which are sent.
async fn answered<H: Handler>(
    mut answer: Pin<&mut impl Future<Output = Result<Response, Abort>>>,
    queue: &InterimQueue,
    sender: &mut Sender,
    connection: &Connection<H>,
    outcome: &RequestOutcome,
) -> Result<Response, Failure> {
    let mut answered = None;
    loop {
        let next = poll_fn(|cx| {
            if answered.is_none()
                && let Poll::Ready(response) = answer.as_mut().poll(cx)
            {
                answered = Some(response);
            }
            // Interim responses of the origin are sent before its final one.
            if let Some((status, fields)) = queue.take() {
                return Poll::Ready(NextResponse::Interim(status, fields));
            }
            match answered.take() {
                Some(response) => Poll::Ready(NextResponse::Final(response)),
                None => sender.poll_stopped(cx).map(|()| NextResponse::Stopped),
            }
        });
        match next.await {
            // Interim responses are advisory: one that is larger than the client accepts is left out.
            NextResponse::Interim(status, fields) if !connection.takes(Some(status), &fields) => {}
            NextResponse::Interim(status, fields) => {
                sender.send(header(status, &fields)?).await.map_err(Failure::Send)?;
                connection.front.metrics.shared.count_response(status);
            }
            NextResponse::Final(response) => return response.map_err(|_| Failure::Aborted),
            NextResponse::Stopped => {
                // Before the handler drops the request's body.
                outcome.stop_with(code(Failure::Send(SendError::Stopped)));
                return Err(Failure::Send(SendError::Stopped));
            }
        }
    }
}

/// The next event of a request while its handler runs.
enum NextResponse {
    Interim(StatusCode, Fields),
    Final(Result<Response, Abort>),
    Stopped,
}

/// Resets the stream, with the code of the failure.
fn abandon(sender: &mut Sender, failure: Failure, outcome: &RequestOutcome) {
    if matches!(failure, Failure::Request(RequestFault::Connection(_))) {
        return; // the connection's close says it
    }
    outcome.stop_with(code(failure));
    sender.reset(code(failure));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Handles nothing.
    struct Silent;

    impl Handler for Silent {
        async fn handle(&self, _: Exchange) -> Result<Response, Abort> {
            Err(Abort::Internal)
        }
    }

    /// Bytes of the future that a function of three arguments returns.
    fn size_of_future<A, B, C, F: Future>(_: fn(A, B, C) -> F) -> usize {
        size_of::<F>()
    }

    #[test]
    fn a_request_takes_no_more_memory_in_http3_than_it_needs() {
        let size = size_of_future(serve::<Silent>);
        assert!(size <= 4 << 10, "{size} bytes");
    }
}
