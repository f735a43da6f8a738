//! Records the outcome of a request: a fault of the request, or the failure of its response, shared by the two halves
//! of the stream.

use super::error_code::ErrorCode;
use litequic_base::free_list::{FreeList, keep_free, take_free};
use std::{
    cell::{Cell, RefCell},
    rc::Rc,
};

/// A fault of a request, with the way in which the client learns of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RequestFault {
    /// The stream is reset with this code.
    Stream(ErrorCode),
    /// The connection is closed with this code.
    Connection(ErrorCode),
    /// The client reset the stream, or is gone.
    Cancelled,
    /// The client was too slow.
    TimedOut,
}

impl RequestFault {
    /// Returns the fault that `code` means for a request.
    pub(super) fn from_code(code: ErrorCode) -> Self {
        if code.is_stream_error() { Self::Stream(code) } else { Self::Connection(code) }
    }
}

/// The reason why nothing more can be sent on a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum StreamSendError {
    /// The client sent STOP_SENDING, or the connection is gone.
    #[error("the client cancelled the response")]
    Stopped,
    /// The client read no bytes for `timeouts.send`.
    #[error("timed out waiting for the client to read")]
    TimedOut,
    /// The client read fewer bytes a second than `limits.min_rate`.
    #[error("the client read too slowly")]
    TooSlow,
}

/// The reason why a request got no complete response.
#[derive(Debug, Clone, Copy)]
pub(super) enum ResponseFailure {
    Request(RequestFault),
    Send(StreamSendError),
    /// The response was cut off.
    Response,
    /// The tunnel was cut off, or was idle for too long.
    Tunnel,
    /// The tunnel made room for that of another client.
    Evicted,
    /// The handler returned no response.
    Aborted,
}

/// Returns the code for RESET_STREAM, and for STOP_SENDING beside it.
pub(super) fn reset_code(failure: ResponseFailure) -> ErrorCode {
    match failure {
        ResponseFailure::Request(RequestFault::Stream(code) | RequestFault::Connection(code)) => code,
        ResponseFailure::Request(RequestFault::Cancelled | RequestFault::TimedOut) => ErrorCode::RequestCancelled,
        ResponseFailure::Send(StreamSendError::Stopped | StreamSendError::TimedOut | StreamSendError::TooSlow)
        | ResponseFailure::Tunnel
        | ResponseFailure::Evicted => ErrorCode::RequestCancelled,
        ResponseFailure::Response | ResponseFailure::Aborted => ErrorCode::InternalError,
    }
}

/// The outcome that the two halves of a request share.
#[derive(Debug)]
pub(super) struct RequestOutcome {
    pub(super) fault: Cell<Option<RequestFault>>,
    /// Code for STOP_SENDING if the rest of the request is not read. H3_NO_ERROR as long as there is no fault (RFC 9114
    /// §4.1.1).
    pub(super) stop_code: Cell<ErrorCode>,
}

thread_local! {
    /// Outcomes of earlier requests, for reuse.
    static FREE_OUTCOMES: FreeList<Rc<RequestOutcome>> = const { RefCell::new(Vec::new()) };
}

impl RequestOutcome {
    pub(super) fn new() -> Rc<Self> {
        let new = || Rc::new(Self { fault: Cell::new(None), stop_code: Cell::new(ErrorCode::NoError) });
        take_free(&FREE_OUTCOMES).unwrap_or_else(new)
    }

    /// Keeps the outcome for another request, unless the request is still read.
    pub(super) fn recycle_outcome(self: Rc<Self>) {
        if Rc::strong_count(&self) > 1 {
            return;
        }
        self.fault.set(None);
        self.stop_code.set(ErrorCode::NoError);
        keep_free(&FREE_OUTCOMES, self);
    }

    /// Sets the fault, unless there is one already.
    pub(super) fn set_fault(&self, fault: RequestFault) {
        if self.fault.get().is_none() {
            self.fault.set(Some(fault));
            if let RequestFault::Stream(code) = fault {
                self.stop_code.set(code);
            }
        }
    }
}
