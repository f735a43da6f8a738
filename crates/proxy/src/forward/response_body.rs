//! A response's body: its trailers, its timeouts, and what becomes of the connection at its end.

use super::open::{Open, Read, finish};
use super::transfer::Transfer;
use crate::connection::{Progress, Upload};
use crate::message::response;
use crate::metrics::Metrics;
use crate::origin::Ticket;
use crate::pool::Deadline;
use crate::rules::Rules;
use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use litequic_base::timers;
use litequic_exchange::{Body, BodyError, Fields, Record};
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
    transfer: Rc<Transfer>,
    /// The route's, for trailers.
    rules: Option<Arc<Rules>>,
    /// Time between two reads.
    idle: Duration,
    /// Deadline of the whole exchange.
    deadline: Option<Deadline>,
    /// One timer a body, made at the first wait and set again only when it fires too early.
    timer: Option<Pin<Box<Sleep>>>,
    metrics: Arc<Metrics>,
}

impl ResponseBody {
    /// The body of a response that came over `open`'s connection, which is given back at once if the body is complete.
    /// `ahead` is what was polled of it.
    #[expect(clippy::too_many_arguments, reason = "what one response comes by")]
    pub(crate) fn wrap(
        mut open: Open,
        ahead: Poll<Option<Frame<Bytes>>>,
        upload: Option<Rc<Upload>>,
        record: &Record,
        rules: Option<&Arc<Rules>>,
        idle: Duration,
        deadline: Option<Deadline>,
        metrics: &Arc<Metrics>,
    ) -> Body {
        let ahead = match ahead {
            Poll::Pending => None,
            Poll::Ready(None) => {
                finish(open, upload.as_ref());
                return Body::empty();
            }
            Poll::Ready(Some(frame)) if open.connection.is_end_stream() => match frame.into_data() {
                Ok(data) => {
                    finish(open, upload.as_ref());
                    return Body::from(data);
                }
                Err(frame) => Some(frame),
            },
            Poll::Ready(Some(frame)) => Some(frame),
        };
        if upload.is_some() {
            open.connection.keep_sending();
        }
        let room = open.connection.room();
        let transfer = Transfer::new(open, ahead, upload, record.clone());
        let (rules, metrics) = (rules.cloned(), Arc::clone(metrics));
        Body::stream_within(room, Self { transfer, rules, idle, deadline, timer: None, metrics })
    }

    /// The response is complete: another request may use the connection, unless this one's body is still being sent.
    fn finish(&self) {
        if let Some(open) = self.transfer.close() {
            finish(open, self.transfer.upload());
        }
    }

    /// Closes the connection. The client's stream is dropped with this: the front end must have set by then the code
    /// with which it is stopped.
    fn fail(&self, error: BodyError) -> Polled {
        drop(self.transfer.close());
        Poll::Ready(Some(Err(error)))
    }

    /// The server has failed the exchange, as `count` notes at its ticket.
    fn fail_by_server(&self, error: BodyError, count: impl FnOnce(&Ticket)) -> Polled {
        if let Some(open) = self.transfer.close() {
            count(&open.ticket);
        }
        Poll::Ready(Some(Err(error)))
    }

    /// The origin has sent nothing more yet.
    fn wait(&mut self, cx: &mut Context<'_>) -> Polled {
        let waiting = self.transfer.wait();
        // An origin that answered early may want the rest of the request before it continues.
        let since = Upload::server_since(self.transfer.upload().map(Rc::as_ref), waiting, Instant::now);
        match self.poll_timeout(cx, since) {
            Poll::Ready(true) => self.fail_by_server(BodyError::TimedOut, Ticket::failed),
            Poll::Ready(false) => self.fail(BodyError::TimedOut),
            Poll::Pending => Poll::Pending,
        }
    }

    /// The connection ended before the response, or the response is invalid.
    fn broke_off(&self, error: BodyError) -> Polled {
        // A request's body that fails ends the response, too.
        if let Some(Progress::Failed(cause)) = self.transfer.upload().map(|upload| upload.progress()) {
            return self.fail(cause);
        }
        tracing::debug!(%error, "the origin's response was cut off");
        self.metrics.origin_errors.increment();
        self.fail_by_server(error, Ticket::broke)
    }

    /// A piece of the body, or its trailers.
    fn came(&self, frame: Frame<Bytes>) -> Polled {
        let counting = self.deadline.filter(|_| timers::grace().is_none());
        if counting.is_some_and(|deadline| deadline.passed(Instant::now(), &self.metrics).is_some()) {
            return self.fail(BodyError::TimedOut);
        }
        let frame = match frame.into_trailers() {
            Ok(trailers) => {
                let mut fields = Fields::from(trailers);
                let rules = self.rules.as_deref();
                response::trailers(&mut fields, |name| rules.is_some_and(|rules| rules.response.replaces(name)));
                Frame::trailers(fields.into())
            }
            Err(frame) => frame,
        };
        if frame.is_trailers() || self.transfer.is_end_stream() {
            self.finish();
        } else {
            self.transfer.gave(frame.data_ref().map_or(0, Bytes::len));
        }
        Poll::Ready(Some(Ok(frame)))
    }

    /// Ready once a deadline has passed, which is counted: whether it is the server's fault.
    fn poll_timeout(&mut self, cx: &mut Context<'_>, since: Instant) -> Poll<bool> {
        let idle = since + self.idle;
        let next = self.deadline.map_or(idle, |deadline| deadline.at().min(idle));
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(next)));
        if timer.deadline() > next {
            timer.as_mut().reset(next);
        }
        while timers::poll_elapsed(timer.as_mut(), cx).is_ready() {
            if timer.deadline() >= next {
                let deadline = self.deadline.filter(|_| next != idle);
                let servers = match deadline.and_then(|deadline| deadline.passed(Instant::now(), &self.metrics)) {
                    None => {
                        self.metrics.timeout_response_body.increment();
                        true
                    }
                    Some(passed) => passed.after(since).is_servers(),
                };
                return Poll::Ready(servers);
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
        match self.transfer.poll(cx) {
            Read::Wait => self.wait(cx),
            Read::End => {
                self.finish();
                Poll::Ready(None)
            }
            Read::Frame(frame) => self.came(frame),
            Read::Broken(error) => self.broke_off(error),
            Read::Failed(error) => self.fail(error),
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
        // Closes the connection, if it is still leased, and drops the client's stream.
        drop(self.transfer.close());
        if let Some(upload) = self.transfer.upload() {
            upload.cancel();
        }
    }
}
