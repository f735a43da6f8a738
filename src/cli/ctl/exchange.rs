//! Sends a request to a running litequic and receives its whole answer.

use super::{
    CtlRequest,
    admin_address::{self, AdminAddress, FoundAdmin},
    failure::CtlFailure,
};
use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode, header};
use http_body_util::{BodyExt, Empty, LengthLimitError, Limited};
use hyper_util::rt::TokioIo;
use litequic_admin::{self as admin, Token};
use std::{
    error::Error as _,
    io::{self},
};
use tokio::io::{AsyncRead, AsyncWrite};

/// Maximum size of an answer: more than any litequic sends.
const MAX_ANSWER_BYTES: usize = 16 << 20;

pub(super) struct AdminAnswer {
    pub(super) status: StatusCode,
    pub(super) body: Bytes,
    /// Process ID and configuration file.
    pub(super) process: Option<String>,
}

/// Reason for which a request has no answer.
pub(super) enum NoAnswer {
    /// No connection could be opened.
    NotReached(io::Error),
    /// The answer is another program's.
    NotLitequic,
    /// The connection was closed before a response.
    Closed,
    /// The connection failed, or the answer is too long.
    Cut(String),
}

impl NoAnswer {
    /// Converts the reason to a failure for the user.
    pub(super) fn into_ctl_failure(self, found: &FoundAdmin) -> CtlFailure {
        let place = &found.place;
        match self {
            Self::NotReached(error) => place.connect_failure(&error),
            Self::NotLitequic => admin_address::not_litequic_failure(place, &found.missed),
            Self::Closed => CtlFailure::unavailable(place, "the connection was closed without an answer"),
            Self::Cut(error) => CtlFailure::unavailable(place, error),
        }
    }

    /// Reason for an exchange that failed before a response.
    pub(super) fn from_hyper_error(error: &hyper::Error) -> Self {
        // These bytes are not HTTP/1.1: a TLS alert, for example.
        if error.is_parse() || error.is_parse_too_large() {
            return Self::NotLitequic;
        }
        let source = error.source().and_then(|source| source.downcast_ref::<io::Error>());
        let is_closed = error.is_incomplete_message() || error.is_canceled() || error.is_closed();
        match source.map(io::Error::kind) {
            Some(io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe) => Self::Closed,
            _ if is_closed => Self::Closed,
            _ => Self::Cut(source.map_or_else(|| error.to_string(), ToString::to_string)),
        }
    }
}

/// Builds `request` to the litequic at `place`.
pub(super) fn build_request(
    place: &AdminAddress,
    request: &CtlRequest,
    token: Option<&Token>,
) -> Result<Request<Empty<Bytes>>, NoAnswer> {
    let CtlRequest { method, path, query } = request;
    let path = query.as_ref().map_or_else(|| (*path).to_owned(), |query| format!("{path}?{query}"));
    let mut request = Request::builder().method(method).uri(path).header(header::HOST, place.host_header());
    if let Some(token) = token.filter(|_| place.takes_token()) {
        request = request.header(header::AUTHORIZATION, token.authorization_value());
    }
    request.body(Empty::new()).map_err(|error| NoAnswer::Cut(error.to_string()))
}

/// Reason for a connection that failed by itself: without an error of the kernel, the bytes received were not HTTP/1.1.
pub(super) fn connection_error(error: &hyper::Error) -> NoAnswer {
    match NoAnswer::from_hyper_error(error) {
        NoAnswer::Cut(_) if error.source().is_none_or(|source| !source.is::<io::Error>()) => NoAnswer::NotLitequic,
        other => other,
    }
}

/// Process ID and configuration file of the litequic that answered.
pub(super) fn answered_process(headers: &HeaderMap) -> Option<String> {
    headers.get(admin::PROCESS_FIELD).map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
}

/// Sends `request`, and returns the answer.
pub(super) async fn exchange_answer<S>(stream: S, request: Request<Empty<Bytes>>) -> Result<AdminAnswer, NoAnswer>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let failed = |error: hyper::Error| NoAnswer::from_hyper_error(&error);
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(failed)?;
    let answer = async {
        let answer = sender.send_request(request).await.map_err(failed)?;
        if answer.headers().get(header::SERVER).is_none_or(|server| server != admin::SERVER_FIELD) {
            return Err(NoAnswer::NotLitequic);
        }
        let (status, process) = (answer.status(), answered_process(answer.headers()));
        let body = Limited::new(answer.into_body(), MAX_ANSWER_BYTES).collect().await;
        let body = body.map_err(|error| match error.downcast_ref::<LengthLimitError>() {
            Some(_) => NoAnswer::Cut(format!("the answer has more than {} MiB", MAX_ANSWER_BYTES >> 20)),
            None => NoAnswer::Cut(format!("the answer was cut off: {error}")),
        });
        Ok(AdminAnswer { status, body: body?.to_bytes(), process })
    };
    // The answer is complete before the connection's task may end.
    tokio::pin!(answer, connection);
    tokio::select! {
        biased;
        answer = &mut answer => match answer {
            // The connection's own error names the cause.
            Err(NoAnswer::Closed) => {
                Err(connection.await.err().map_or(NoAnswer::Closed, |error| connection_error(&error)))
            }
            other => other,
        },
        ended = &mut connection => match ended {
            Ok(()) => answer.await,
            Err(error) => Err(connection_error(&error)),
        },
    }
}
