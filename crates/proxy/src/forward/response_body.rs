//! Passes a response's body to the client: trailers, timeouts, and the return of the connection at the end.

use super::open_exchange::{BodyRead, OpenExchange, finish_exchange};
use super::transfer::Transfer;
use crate::answer::Error;
use crate::connection::{Upload, UploadProgress};
use crate::message::{StreamingCall, grpc, response};
use crate::metrics::ProxyMetrics;
use crate::origin::Ticket;
use crate::pool::Deadline;
use crate::rules::RuleSet;
use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use litequic_base::timers::{self, DeadlineTimer};
use litequic_exchange::{Body, BodyError, Fields, RequestRecord};
use std::{
    pin::Pin,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};
use tokio::time::Instant;

/// Result of polling a response's body.
type PolledFrame = Poll<Option<Result<Frame<Bytes>, BodyError>>>;

/// A response's body. Its end returns the connection to the pool; any other end closes it.
pub(super) struct ResponseBody {
    transfer: Rc<Transfer>,
    /// Rules of the route, for trailers.
    rules: Option<Arc<RuleSet>>,
    /// Longest time between two reads.
    idle: Duration,
    deadline: Option<Deadline>,
    timer: DeadlineTimer,
    /// The streaming call whose response this is, if it is one.
    call: Option<StreamingCall>,
    metrics: Arc<ProxyMetrics>,
}

impl ResponseBody {
    /// Wraps the body of a response that comes over `open`'s connection, which is returned at once if the body is
    /// complete. `ahead` is the part that was polled.
    #[expect(clippy::too_many_arguments, reason = "the parts of one response")]
    pub(crate) fn wrap_body(
        mut open: OpenExchange,
        ahead: Poll<Option<Frame<Bytes>>>,
        upload: Option<Rc<Upload>>,
        record: &RequestRecord,
        rules: Option<&Arc<RuleSet>>,
        idle: Duration,
        deadline: Option<Deadline>,
        call: Option<StreamingCall>,
        metrics: &Arc<ProxyMetrics>,
    ) -> Body {
        let ahead = match ahead {
            Poll::Pending => None,
            Poll::Ready(None) => {
                finish_exchange(open, upload.as_ref());
                return Body::empty();
            }
            Poll::Ready(Some(frame)) if open.connection.is_end_stream() => match frame.into_data() {
                Ok(data) => {
                    finish_exchange(open, upload.as_ref());
                    return Body::from(data);
                }
                Err(frame) => Some(frame),
            },
            Poll::Ready(Some(frame)) => Some(frame),
        };
        if upload.is_some() {
            open.connection.keep_sending();
        }
        let room = open.connection.response_capacity();
        let transfer = Transfer::new(open, ahead, upload, record.clone());
        let (rules, metrics) = (rules.cloned(), Arc::clone(metrics));
        Body::from_bounded_stream(
            room,
            Self { transfer, rules, idle, deadline, timer: DeadlineTimer::default(), call, metrics },
        )
    }

    /// Returns the connection of a complete response, unless the request's body is still being sent.
    fn finish_body(&self) {
        if let Some(open) = self.transfer.close_source() {
            finish_exchange(open, self.transfer.upload.as_ref());
        }
    }

    /// Closes the connection, and ends the body with `error`. The client's stream is dropped with this body: before
    /// that the front end must have set the error code of the stream.
    fn fail_body(&self, error: BodyError) -> PolledFrame {
        self.end_broken_body(error, Error::from_broken_body(error), |_| {})
    }

    /// Closes the connection, as `count` reports at the server's ticket, and ends the body with `error`. A client of
    /// gRPC gets `answer` in trailers: it takes a reset for a failure of its own call alone, and does not call again.
    fn end_broken_body(&self, error: BodyError, answer: Option<Error>, count: impl FnOnce(&Ticket)) -> PolledFrame {
        let has_trailers = self.call.is_some_and(|call| call.is_grpc) && self.transfer.size_hint().exact().is_none();
        if let Some(open) = self.transfer.close_source() {
            count(&open.ticket);
        }
        let Some(answer) = answer.filter(|_| has_trailers) else { return Poll::Ready(Some(Err(error))) };
        self.transfer.record.record_broken_body(error);
        let fields = grpc::status_fields(self.metrics.explain_eviction(answer));
        self.metrics.record_grpc_status(&fields, &self.transfer.record);
        Poll::Ready(Some(Ok(Frame::trailers(fields.into()))))
    }

    /// Waits for the origin until a timeout.
    fn wait_for_origin(&mut self, cx: &mut Context<'_>) -> PolledFrame {
        let waiting = self.transfer.origin_wait_start();
        // An origin that answered early may want the rest of the request before it continues.
        let since = Upload::server_wait_start(self.transfer.upload.as_ref().map(Rc::as_ref), waiting, Instant::now);
        let passed = ready!(self.poll_timeout(cx, since));
        self.end_broken_body(BodyError::TimedOut, Some(passed), |ticket| {
            // In a streaming call silence is no fault of the server.
            if passed.is_servers_fault() && (self.call.is_none() || passed != Error::ResponseTimeout) {
                ticket.report_failed();
            }
        })
    }

    /// Fails a body whose connection ended early, or that is invalid.
    fn on_response_broken(&self, error: BodyError) -> PolledFrame {
        // A request's body that fails ends the response, too.
        if let Some(UploadProgress::Failed(cause)) = self.transfer.upload.as_ref().map(|upload| upload.progress()) {
            return self.fail_body(cause);
        }
        tracing::debug!(%error, "the origin's response was cut off");
        self.metrics.origin_errors.increment();
        self.end_broken_body(error, Error::from_broken_body(error), Ticket::report_connection_broken)
    }

    /// Passes a piece of the body, or its trailers.
    fn pass_frame(&self, frame: Frame<Bytes>) -> PolledFrame {
        let counting = self.deadline.filter(|_| timers::grace_deadline().is_none());
        if let Some(passed) = counting.and_then(|deadline| deadline.check_passed(Instant::now(), &self.metrics)) {
            return self.end_broken_body(BodyError::TimedOut, Some(passed.error_without_server()), |_| {});
        }
        let frame = match frame.into_trailers() {
            Ok(trailers) => {
                let mut fields = Fields::from(trailers);
                if self.call.is_some_and(|call| call.is_grpc) {
                    self.metrics.record_grpc_status(&fields, &self.transfer.record);
                }
                let rules = self.rules.as_deref();
                response::filter_response_trailers(&mut fields, |name| {
                    rules.is_some_and(|rules| rules.response.replaces(name))
                });
                // Some clients end the connection for an empty field section.
                if fields.is_empty() {
                    self.finish_body();
                    return Poll::Ready(None);
                }
                Frame::trailers(fields.into())
            }
            Err(frame) => frame,
        };
        if frame.is_trailers() || self.transfer.is_end_stream() {
            self.finish_body();
        } else {
            self.transfer.on_delivered(frame.data_ref().map_or(0, Bytes::len));
        }
        Poll::Ready(Some(Ok(frame)))
    }

    /// Ready once a deadline has passed, which is counted.
    fn poll_timeout(&mut self, cx: &mut Context<'_>, since: Instant) -> Poll<Error> {
        let idle = since + self.idle;
        let next = self.deadline.map_or(idle, |deadline| deadline.ends_at().min(idle));
        ready!(self.timer.poll_deadline(next, cx));
        let deadline = self.deadline.filter(|_| next != idle);
        Poll::Ready(match deadline.and_then(|deadline| deadline.check_passed(Instant::now(), &self.metrics)) {
            None => {
                self.metrics.timeout_response_body.increment();
                Error::ResponseTimeout
            }
            Some(passed) => passed.error_after_wait(since),
        })
    }
}

impl HttpBody for ResponseBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match self.transfer.poll_source(cx) {
            BodyRead::Wait => self.wait_for_origin(cx),
            BodyRead::End => {
                self.finish_body();
                Poll::Ready(None)
            }
            BodyRead::Frame(frame) => self.pass_frame(frame),
            BodyRead::Broken(error) => self.on_response_broken(error),
            BodyRead::Failed(error) => self.fail_body(error),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.transfer.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.transfer.size_hint()
    }
}

impl Drop for ResponseBody {
    fn drop(&mut self) {
        // This closes the connection, if it is still leased, and drops the client's stream.
        drop(self.transfer.close_source());
        if let Some(upload) = self.transfer.upload.as_ref() {
            upload.cancel_upload();
        }
    }
}
