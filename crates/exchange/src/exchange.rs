//! One request from a front end to the handler that answers it, and how that can fail.

use super::client::Client;
use super::head::{Request, Response};
use super::interim_channel::InterimSender;
use super::request_record::RequestRecord;
use http::Method;
use std::{fmt, future::Future, rc::Rc};

/// Whether a request with `method` has a body so rarely that its end, if still to come, is not waited for.
pub fn rarely_has_body(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS | Method::DELETE)
}

/// One request.
#[derive(Debug)]
pub struct Exchange {
    /// The request as checked by the front end.
    pub request: Request,
    /// The client.
    pub client: Rc<Client>,
    /// The channel of interim (1xx) responses.
    pub interim: InterimSender,
    /// The record of its outcome.
    pub record: RequestRecord,
}

const _: () = assert!(size_of::<Exchange>() <= 256);

/// Serves requests. The proxy is one; tests have others.
pub trait Handler: 'static {
    /// Answers one request.
    ///
    /// The response's body may go on after the future is done, and the request's body may be read until the
    /// response's body ends.
    ///
    /// # Errors
    ///
    /// [`Abort`] when no response can be given: the front end resets the stream.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future, or the response's body, cancels the exchange: the client is gone.
    fn handle(&self, exchange: Exchange) -> impl Future<Output = Result<Response, Abort>>;

    /// Completes an answer of the front end's own to a request of `client` that it has rejected, and that the handler
    /// does not see.
    fn complete_rejection(&self, client: &Client, response: &mut Response) {
        let _ = (client, response);
    }
}

/// Why an exchange ends without a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Abort {
    /// The request's body failed while it was forwarded: the client reset it, or it violated the protocol. The front
    /// end has the cause.
    Request,
    /// litequic is at fault.
    Internal,
}

impl fmt::Display for Abort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Request => "the request's body failed",
            Self::Internal => "internal error",
        })
    }
}

impl std::error::Error for Abort {}
