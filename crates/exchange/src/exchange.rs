//! Passes one request from a front end to its handler, and names how that can fail.

use super::client::Client;
use super::head::{Request, Response};
use super::interim_channel::InterimSender;
use super::request_record::RequestRecord;
use http::Method;
use std::{future::Future, rc::Rc};

/// Whether a request with `method` rarely has a body, so that its end is not waited for.
pub fn rarely_has_body(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS | Method::DELETE)
}

/// One request with its client, its channel of interim responses, and its record.
#[derive(Debug)]
pub struct Exchange {
    /// The request, as checked by the front end.
    pub request: Request,
    /// The client that sent the request.
    pub client: Rc<Client>,
    /// The channel of interim (1xx) responses.
    pub interim: InterimSender,
    /// The record of the request's outcome.
    pub record: RequestRecord,
}

const _: () = assert!(size_of::<Exchange>() <= 256);

/// Serves requests, as the proxy does. Tests have handlers of their own.
pub trait Handler: 'static {
    /// Answers one request.
    ///
    /// The response's body may go on after the future is done, and the request's body may be read until the response's
    /// body ends.
    ///
    /// # Errors
    ///
    /// [`Abort`] when no response can be given: the front end resets the stream.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future or the response's body cancels the exchange. The front end does so when the client is gone.
    fn handle(&self, exchange: Exchange) -> impl Future<Output = Result<Response, Abort>>;

    /// Adds fields to a response with which the front end rejects a request of `client` itself. The handler does not
    /// see that request.
    fn complete_rejection(&self, client: &Client, response: &mut Response) {
        let _ = (client, response);
    }
}

/// The reason why an exchange ends without a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Abort {
    /// The request's body failed while it was forwarded: the client reset it, or it violated the protocol. The front
    /// end knows the cause.
    #[error("the request's body failed")]
    Request,
    /// litequic failed, not the client or the origin.
    #[error("internal error")]
    Internal,
}
