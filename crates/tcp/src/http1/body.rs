//! A request's body as hyper delivers it.

use super::{Http1Requests, expectation::Gate};
use crate::{body::Incoming, linger::Discarding};
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use litequic_exchange::BodyError;
use std::{
    error::Error as _,
    io,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, ready},
};

pub(super) struct Http1Received {
    incoming: hyper::body::Incoming,
    /// hyper delivers one piece a turn of what came at once: the state that knows whether there is more.
    pipeline: Rc<Http1Requests>,
    /// Closed while the client waits for 100 (Continue).
    gate: Option<Gate>,
}

impl Http1Received {
    /// The body, which is not read before `gate` is open.
    pub(super) const fn new(incoming: hyper::body::Incoming, pipeline: Rc<Http1Requests>, gate: Option<Gate>) -> Self {
        Self { incoming, pipeline, gate }
    }
}

impl Incoming for Http1Received {
    fn has_more(&self) -> bool {
        !self.pipeline.is_drained()
    }

    fn is_held_back(&self) -> bool {
        self.gate.is_some()
    }

    fn poll_open(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let Some(gate) = &self.gate {
            ready!(gate.poll_open(cx));
            self.gate = None;
        }
        Poll::Ready(())
    }

    /// The guard discards it.
    fn discard(self, _: Discarding) {}
}

impl Body for Http1Received {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        Pin::new(&mut self.incoming).poll_frame(cx).map_err(|error| cause(&error))
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}

/// The cause of hyper's error: the guard's, or that the client is gone.
fn cause(error: &hyper::Error) -> BodyError {
    let mut source = error.source();
    while let Some(inner) = source {
        if inner.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::InvalidData) {
            return BodyError::Malformed;
        }
        source = inner.source();
    }
    BodyError::Cancelled
}
