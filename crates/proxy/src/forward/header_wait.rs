//! Waits for a response's header: its timeouts, and the interim responses that are forwarded.

use crate::answer::Error;
use crate::connection::{ReceivedHead, ReceivedMessage, SendFailure, Upload};
use crate::message::response;
use crate::metrics::ProxyMetrics;
use crate::pool::Deadline;
use http::StatusCode;
use litequic_base::timers::{self, Timeout};
use litequic_config::Timeouts;
use litequic_exchange::{Fields, Head, InterimSender, name};
use std::{
    cell::Cell,
    future::poll_fn,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};
use tokio::time::Instant;

/// Silence of the origin after which litequic itself sends an expected 100 (Continue): many origins never do, and
/// clients wait about as long themselves (RFC 9110 §10.1.1).
const CONTINUE_AFTER: Duration = Duration::from_secs(1);

/// Outcome of waiting for a response's header.
pub(super) enum WaitOutcome {
    Response(ReceivedHead),
    Failed(SendFailure),
    Timeout(Error),
}

/// Forwards interim responses to the client as they come. 100 is sent once at most, and only to a client that waits for
/// it.
pub(crate) struct InterimForwarder<'a> {
    interim: &'a InterimSender,
    /// Flag that is set once the client no longer waits for 100; `None` if it never did. The request's body reads the
    /// flag too.
    continued: Option<Rc<Cell<bool>>>,
    metrics: &'a Arc<ProxyMetrics>,
}

impl<'a> InterimForwarder<'a> {
    /// A forwarder for the client that sent `head`, and a body if `has_body`: a client without a body waits for no 100.
    pub(crate) fn new(head: &Head, has_body: bool, interim: &'a InterimSender, metrics: &'a Arc<ProxyMetrics>) -> Self {
        let expects = |value: &[u8]| value.eq_ignore_ascii_case(b"100-continue");
        let is_expected = has_body && head.fields.get(name::EXPECT).is_some_and(expects);
        Self { interim, continued: is_expected.then(Rc::default), metrics }
    }

    fn forward_interim(&self, status: StatusCode, mut fields: Fields) {
        if status == StatusCode::CONTINUE && !self.end_expectation() {
            return;
        }
        response::translate_interim(&mut fields);
        if !self.interim.send_interim(status, fields) {
            self.metrics.limit_interim.increment();
        }
    }

    /// Whether the client still waits for 100.
    pub(super) fn awaits_continue(&self) -> bool {
        self.continued.as_ref().is_some_and(|continued| !continued.get())
    }

    /// The flag that is set once 100 is sent, if the client waits for it.
    pub(crate) fn continue_flag(&self) -> Option<Rc<Cell<bool>>> {
        self.continued.clone().filter(|_| self.awaits_continue())
    }

    /// Notes that the client no longer waits for 100. Returns whether it did.
    fn end_expectation(&self) -> bool {
        self.continued.as_ref().is_some_and(|continued| !continued.replace(true))
    }

    /// Sends 100 in the origin's place, if none was sent.
    fn send_continue(&self) {
        if self.end_expectation() {
            self.interim.send_interim(StatusCode::CONTINUE, Fields::new());
        }
    }
}

/// Waits for the response's header, which `poll_sent` polls, with one timer for all timeouts: when it fires, the
/// timeout that has passed is found, or the timer is set for the next.
///
/// # Cancel safety
///
/// Dropping the future gives up the response.
pub(crate) async fn wait_for_header(
    mut poll_sent: impl FnMut(&mut Context<'_>) -> Poll<Result<ReceivedMessage, SendFailure>>,
    upload: Option<&Upload>,
    interims: &InterimForwarder<'_>,
    timeouts: &Timeouts,
    deadline: Option<Deadline>,
    metrics: &ProxyMetrics,
) -> WaitOutcome {
    let started = timers::turn_time();
    // A client whose body comes does not wait.
    let expected_by =
        || (interims.awaits_continue() && !upload.is_some_and(Upload::was_taken)).then(|| started + CONTINUE_AFTER);
    let since = |now| Upload::server_wait_start(upload, started, || now);
    let header_by = |now| since(now) + timeouts.response_header;
    let next = |now| {
        let others = [expected_by(), deadline.map(Deadline::ends_at)];
        others.into_iter().flatten().fold(header_by(now), Instant::min)
    };
    let is_plain = upload.is_none() && deadline.is_none() && !interims.awaits_continue();
    let mut timer =
        if is_plain { Timeout::new(timeouts.response_header) } else { Timeout::with_deadline(next(started)) };
    poll_fn(|cx| {
        while let Poll::Ready(received) = poll_sent(cx) {
            match received {
                Ok(ReceivedMessage::Interim(status, fields)) => interims.forward_interim(status, fields),
                Ok(ReceivedMessage::Response(parts)) => return Poll::Ready(WaitOutcome::Response(parts)),
                Err(failure) => return Poll::Ready(WaitOutcome::Failed(failure)),
            }
        }
        while timer.poll_elapsed(cx).is_ready() {
            let now = Instant::now();
            if let Some(passed) = deadline.and_then(|deadline| deadline.check_passed(now, metrics)) {
                return Poll::Ready(WaitOutcome::Timeout(passed.error_after_wait(since(now))));
            }
            if header_by(now) <= now {
                metrics.timeout_response_header.increment();
                return Poll::Ready(WaitOutcome::Timeout(Error::ResponseTimeout));
            }
            if expected_by().is_some_and(|by| by <= now) {
                interims.send_continue();
            }
            timer.reset_deadline(next(now));
        }
        Poll::Pending
    })
    .await
}
