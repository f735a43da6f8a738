//! A response's body: its trailers, its timeouts, and the connection's fate at its end.

use super::{
    deadline::Deadline,
    pool::Lease,
    request_body::{Progress, Upload},
    server::Ticket,
};
use crate::{
    exchange::{Body, BodyError},
    proxy::{Metrics, response, rules::Rules},
    suspension,
};
use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use hyper::body::Incoming;
use std::{
    pin::Pin,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};
use tokio::time::{Instant, Sleep, sleep_until};

/// What the reader of a body learns.
type Polled = Poll<Option<Result<Frame<Bytes>, BodyError>>>;

/// A response's body. Its end gives the connection back; anything else closes it.
pub(super) struct ResponseBody {
    incoming: Incoming,
    lease: Option<Lease>,
    ticket: Ticket,
    upload: Option<Rc<Upload>>,
    /// The route's, for trailers.
    rules: Option<Arc<Rules>>,
    /// Between two reads.
    idle: Duration,
    /// Of the whole exchange.
    deadline: Option<Deadline>,
    /// Since when the origin is waited for.
    waiting: Option<Instant>,
    /// One timer a body, made at the first wait and set again only when it fires too early.
    timer: Option<Pin<Box<Sleep>>>,
    metrics: Arc<Metrics>,
}

impl ResponseBody {
    /// The body of a response that came over `lease`, which is given back at once if there is no body.
    #[expect(clippy::too_many_arguments, reason = "what one response comes by")]
    pub(super) fn wrap(
        incoming: Incoming,
        lease: Lease,
        ticket: Ticket,
        upload: Option<Rc<Upload>>,
        rules: Option<&Arc<Rules>>,
        idle: Duration,
        deadline: Option<Deadline>,
        metrics: &Arc<Metrics>,
    ) -> Body {
        let (rules, metrics) = (rules.cloned(), Arc::clone(metrics));
        let room = lease.room();
        let (lease, waiting, timer) = (Some(lease), None, None);
        let mut this = Self { incoming, lease, ticket, upload, rules, idle, deadline, waiting, timer, metrics };
        if this.incoming.is_end_stream() {
            this.finish();
            return Body::empty();
        }
        if let (Some(lease), Some(upload)) = (&mut this.lease, &this.upload)
            && upload.progress() != Progress::Done
        {
            lease.keep_sending();
        }
        Body::stream_within(room, this)
    }

    /// The response is complete: another request may use the connection, unless this one's body is still being sent.
    fn finish(&mut self) {
        self.ticket.went_well();
        let sent = self.upload.as_ref().is_none_or(|upload| upload.progress() == Progress::Done);
        if let Some(lease) = self.lease.take().filter(|_| sent) {
            lease.give_back();
        }
        self.cancel();
    }

    /// Closes the connection, if it is still leased, and drops the client's stream.
    fn cancel(&mut self) {
        self.lease = None;
        if let Some(upload) = self.upload.take() {
            upload.cancel();
        }
    }

    /// Closes the connection. The client's stream is dropped with this: the front end must have set by then the code
    /// with which it is stopped.
    fn fail(&mut self, error: BodyError) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        self.lease = None;
        Poll::Ready(Some(Err(error)))
    }

    /// The origin has sent nothing more yet.
    fn wait(&mut self, cx: &mut Context<'_>) -> Polled {
        let waiting = *self.waiting.get_or_insert_with(Instant::now);
        // An origin that answered early may want the rest of the request before it continues.
        let since = Upload::server_since(self.upload.as_deref(), waiting, Instant::now);
        match self.poll_timeout(cx, since) {
            Poll::Ready(()) => self.fail(BodyError::TimedOut),
            Poll::Pending => Poll::Pending,
        }
    }

    /// The connection ended before the response, or the response is invalid.
    fn broke_off(&mut self, error: &hyper::Error) -> Polled {
        // A request's body that fails ends the response, too.
        if let Some(Progress::Failed(cause)) = self.upload.as_deref().map(Upload::progress) {
            return self.fail(cause);
        }
        tracing::debug!(%error, "the origin's response was cut off");
        self.metrics.origin_errors.increment();
        self.ticket.failed();
        self.fail(BodyError::Truncated)
    }

    /// A piece of the body, or its trailers.
    fn came(&mut self, frame: Frame<Bytes>) -> Polled {
        self.waiting = None;
        let over = self.deadline.is_some_and(|deadline| deadline.is_over(Instant::now()));
        if over && suspension::grace().is_none() {
            self.metrics.timeout_request.increment();
            return self.fail(BodyError::TimedOut);
        }
        let frame = match frame.into_trailers() {
            Ok(mut fields) => {
                response::trailers(&mut fields, self.rules.as_deref());
                Frame::trailers(fields)
            }
            Err(frame) => frame,
        };
        if frame.is_trailers() || self.incoming.is_end_stream() {
            self.finish();
        }
        Poll::Ready(Some(Ok(frame)))
    }

    /// Whether a deadline has passed, and the counter of it.
    fn poll_timeout(&mut self, cx: &mut Context<'_>, since: Instant) -> Poll<()> {
        let idle = since + self.idle;
        let next = self.deadline.map_or(idle, |deadline| deadline.at().min(idle));
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(next)));
        if timer.deadline() > next {
            timer.as_mut().reset(next);
        }
        while suspension::poll_elapsed(timer.as_mut(), cx).is_ready() {
            if timer.deadline() >= next {
                let servers = match self.deadline.filter(|_| next != idle) {
                    None => {
                        self.metrics.timeout_response_body.increment();
                        true
                    }
                    Some(deadline) => {
                        self.metrics.timeout_request.increment();
                        deadline.passed(since, Instant::now()).is_servers()
                    }
                };
                if servers {
                    self.ticket.failed();
                }
                return Poll::Ready(());
            }
            timer.as_mut().reset(next);
        }
        Poll::Pending
    }
}

impl HttpBody for ResponseBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = &mut *self;
        let Some(lease) = &mut this.lease else { return Poll::Ready(None) };
        match lease.poll_frame(&mut this.incoming, cx) {
            Poll::Pending => this.wait(cx),
            Poll::Ready(None) => {
                this.finish();
                Poll::Ready(None)
            }
            Poll::Ready(Some(Err(error))) => this.broke_off(&error),
            Poll::Ready(Some(Ok(frame))) => this.came(frame),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.lease.is_none() || self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}

impl Drop for ResponseBody {
    fn drop(&mut self) {
        self.cancel();
    }
}
