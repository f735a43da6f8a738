//! Adapts a request's body as hyper delivers it.

use super::{PipelineState, expectation::BodyGate};
use crate::{body_discard::BodyDiscard, tcp_body::IncomingBody};
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

pub(super) struct Http1IncomingBody {
    pub(super) incoming: hyper::body::Incoming,
    /// hyper delivers one piece a turn. This state tells whether more data has arrived.
    pub(super) pipeline: Rc<PipelineState>,
    /// `None` once the body may be read. Otherwise the client waits for 100 (Continue).
    pub(super) gate: Option<BodyGate>,
}

impl IncomingBody for Http1IncomingBody {
    fn has_more_data(&self) -> bool {
        !self.pipeline.is_drained.get()
    }

    fn is_held_back(&self) -> bool {
        self.gate.is_some()
    }

    fn poll_may_read(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let Some(gate) = &self.gate {
            ready!(gate.poll_gate_open(cx));
            self.gate = None;
        }
        Poll::Ready(())
    }

    /// The request guard discards the rest of the body.
    fn discard_rest(self, _: BodyDiscard) {}
}

impl Body for Http1IncomingBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        Pin::new(&mut self.incoming).poll_frame(cx).map_err(|error| hyper_body_error(&error))
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}

/// Returns the cause of hyper's error: an error of the guard, or the client is gone.
fn hyper_body_error(error: &hyper::Error) -> BodyError {
    let mut source = error.source();
    while let Some(inner) = source {
        if inner.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::InvalidData) {
            return BodyError::Malformed;
        }
        source = inner.source();
    }
    BodyError::Cancelled
}
