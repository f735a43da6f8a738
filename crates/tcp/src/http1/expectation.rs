//! Handles `Expect: 100-continue` over HTTP/1.1 (RFC 9110 §10.1.1). The request's body is not read before the handler
//! sends 100. hyper sends 100 when the body is polled for the first time, unless it has the final response by then.

use http::{StatusCode, Version, header, request};
use litequic_exchange::{Fields, InterimReceiver, InterimSender};
use std::{
    cell::Cell,
    rc::Rc,
    task::{Context, Poll},
};

/// A request's expectation of 100 (Continue). The default is none.
#[derive(Debug, Default)]
pub(super) struct ContinueExpectation(Option<(InterimSender, Rc<Cell<bool>>)>);

/// Gate of a request's body, closed until the handler sends 100.
#[derive(Debug)]
pub(super) struct BodyGate {
    queue: InterimReceiver,
    continued: Rc<Cell<bool>>,
}

impl ContinueExpectation {
    /// Creates the expectation of the request with the head `parts`, and the gate of its body. There is no gate if the
    /// client does not wait, as bytes of the body `came` already.
    pub(super) fn new(parts: &request::Parts, came: bool) -> (Self, Option<BodyGate>) {
        let expects = parts.version == Version::HTTP_11
            && parts
                .headers
                .get(header::EXPECT)
                .is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"100-continue"));
        if !expects || came {
            return (Self::default(), None);
        }
        let (interim, queue) = InterimSender::open_continue_channel();
        let continued = Rc::new(Cell::new(false));
        (Self(Some((interim, Rc::clone(&continued)))), Some(BodyGate { queue, continued }))
    }

    /// Returns the handler's end of the channel of interim responses.
    pub(super) fn interim_sender(&self) -> InterimSender {
        self.0.as_ref().map(|(interim, _)| interim.clone()).unwrap_or_default()
    }

    /// Ends the expectation, as the final response is known, and opens the gate. Returns true if the client still waits
    /// for a 100 that it will not get. As it may send its body or not, the connection cannot serve another request
    /// then.
    pub(super) fn finish_expectation(self) -> bool {
        let Some((interim, continued)) = self.0 else { return false };
        if !continued.get() {
            interim.send_interim(StatusCode::CONTINUE, Fields::new());
        }
        !continued.get()
    }
}

impl BodyGate {
    /// Ready once the body may be read.
    pub(super) fn poll_gate_open(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.queue.poll_interim(cx).map(|_| self.continued.set(true))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::task::noop_waker;

    fn parts(version: Version, expect: &str) -> request::Parts {
        let request = http::Request::builder().version(version).header(header::EXPECT, expect);
        request.body(()).unwrap().into_parts().0
    }

    #[test]
    fn a_body_is_held_back_until_its_client_may_send_it() {
        let waker = noop_waker();
        let mut cx = Context::from_waker(&waker);
        let (expectation, gate) = ContinueExpectation::new(&parts(Version::HTTP_11, "100-Continue"), false);
        let (interim, gate) = (expectation.interim_sender(), gate.unwrap());
        // This is more than the channel holds.
        for _ in 0..20 {
            assert!(interim.send_interim(StatusCode::EARLY_HINTS, Fields::new()));
        }
        assert!(gate.poll_gate_open(&mut cx).is_pending());
        interim.send_interim(StatusCode::CONTINUE, Fields::new());
        assert!(gate.poll_gate_open(&mut cx).is_ready());
        assert!(!expectation.finish_expectation(), "the client has its 100");
    }

    #[test]
    fn a_final_response_ends_the_wait() {
        let waker = noop_waker();
        let mut cx = Context::from_waker(&waker);
        let (expectation, gate) = ContinueExpectation::new(&parts(Version::HTTP_11, "100-continue"), false);
        assert!(expectation.finish_expectation());
        assert!(gate.unwrap().poll_gate_open(&mut cx).is_ready());
    }

    #[test]
    fn a_body_without_expectation_or_already_sent_is_not_held_back() {
        for (version, expect, came) in [
            (Version::HTTP_10, "100-continue", false),
            (Version::HTTP_11, "100", false),
            (Version::HTTP_11, "100-continue", true),
        ] {
            let (expectation, gate) = ContinueExpectation::new(&parts(version, expect), came);
            assert!(gate.is_none() && !expectation.finish_expectation(), "{version:?} {expect} {came}");
        }
    }
}
