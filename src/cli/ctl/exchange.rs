//! Sends a request to a running litequic and receives its answer.

use super::super::exit::Exit;
use super::{
    CtlRequest,
    admin_address::{self, AdminAddress, FoundAdmin},
    failure::CtlFailure,
};
use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Empty, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use litequic_admin::{self as admin, Token};
use serde::de::DeserializeOwned;
use std::{
    error::Error as _,
    io::{self},
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::timeout,
};

/// Timeout of a request: a reload, which reads files and checks certificates, takes longest.
pub(super) const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum size of an answer: more than any litequic sends.
const MAX_ANSWER_BYTES: usize = 16 << 20;

/// The running litequic that answers, and the proof of the right to control it.
pub(super) struct AdminClient {
    pub(super) found: FoundAdmin,
    pub(super) token: Option<Token>,
}

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
    fn into_ctl_failure(self, found: &FoundAdmin) -> CtlFailure {
        let place = &found.place;
        match self {
            Self::NotReached(error) => place.connect_failure(error),
            Self::NotLitequic => admin_address::not_litequic_failure(place, &found.missed),
            Self::Closed => CtlFailure::unavailable(place, "the connection was closed without an answer"),
            Self::Cut(error) => CtlFailure::unavailable(place, error),
        }
    }

    /// Reason for an exchange that failed before a response.
    fn from_hyper_error(error: &hyper::Error) -> Self {
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
fn connection_error(error: &hyper::Error) -> NoAnswer {
    match NoAnswer::from_hyper_error(error) {
        NoAnswer::Cut(_) if error.source().is_none_or(|source| !source.is::<io::Error>()) => NoAnswer::NotLitequic,
        other => other,
    }
}

/// Process ID and configuration file of the litequic that answered.
pub(super) fn answered_process(headers: &HeaderMap) -> Option<String> {
    headers.get(admin::PROCESS_FIELD).map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
}

/// Sends `request`, and returns the answer of a litequic, whose body is still to be read.
pub(super) async fn begin_exchange<S>(stream: S, request: Request<Empty<Bytes>>) -> Result<Response<Incoming>, NoAnswer>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let failed = |error: hyper::Error| NoAnswer::from_hyper_error(&error);
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(failed)?;
    let connection = tokio::spawn(connection);
    match sender.send_request(request).await {
        Ok(answer) if answer.headers().get(header::SERVER).is_some_and(|server| server == admin::SERVER_FIELD) => {
            Ok(answer)
        }
        Ok(_) => Err(NoAnswer::NotLitequic),
        // The connection's own error names the cause.
        Err(error) => Err(match connection.await {
            Ok(Err(error)) => connection_error(&error),
            _ => failed(error),
        }),
    }
}

impl AdminAnswer {
    /// Reads the body of `answer`.
    pub(super) async fn read_answer(answer: Response<Incoming>) -> Result<Self, NoAnswer> {
        let (status, process) = (answer.status(), answered_process(answer.headers()));
        let body = Limited::new(answer.into_body(), MAX_ANSWER_BYTES).collect().await;
        let body = body.map_err(|error| match error.downcast_ref::<LengthLimitError>() {
            Some(_) => NoAnswer::Cut(format!("the answer has more than {} MiB", MAX_ANSWER_BYTES >> 20)),
            None => NoAnswer::Cut(format!("the answer was cut off: {error}")),
        });
        Ok(Self { status, body: body?.to_bytes(), process })
    }
}

impl AdminClient {
    /// Sends `request`, and returns the answer, whose body is still to be read.
    pub(super) async fn begin_request(&self, request: &CtlRequest) -> Result<Response<Incoming>, NoAnswer> {
        let place = &self.found.place;
        let request = build_request(place, request, self.token.as_ref())?;
        begin_exchange(place.connect_admin().await.map_err(NoAnswer::NotReached)?, request).await
    }

    /// Returns the output of `exchange` within [`REQUEST_TIMEOUT`], or the failure for the user.
    pub(super) async fn finish_exchange<T>(
        &self,
        exchange: impl Future<Output = Result<T, NoAnswer>>,
    ) -> Result<T, CtlFailure> {
        match timeout(REQUEST_TIMEOUT, exchange).await {
            Ok(answer) => answer.map_err(|unanswered| unanswered.into_ctl_failure(&self.found)),
            Err(_) => {
                let why = format_args!("no answer within {REQUEST_TIMEOUT:?}");
                Err(CtlFailure::unavailable(&self.found.place, why))
            }
        }
    }

    /// Fetches a successful answer.
    pub(super) async fn fetch_success(&self, request: &CtlRequest) -> Result<AdminAnswer, CtlFailure> {
        let exchange = async { AdminAnswer::read_answer(self.begin_request(request).await?).await };
        let answer = self.finish_exchange(exchange).await?;
        if answer.status.is_success() {
            return Ok(answer);
        }
        let mut why = String::from_utf8_lossy(&answer.body).trim_end().to_owned();
        if let Some(process) = answer.process.filter(|_| request.method == Method::POST) {
            why = format!("process {process}: {why}");
        }
        Err(CtlFailure { exit: Exit::Status, why })
    }

    /// Fetches an answer, and parses it as JSON.
    pub(super) async fn fetch_json<T: DeserializeOwned>(&self, request: &CtlRequest) -> Result<T, CtlFailure> {
        let answer = self.fetch_success(request).await?;
        serde_json::from_slice(&answer.body).map_err(|error| {
            let why = format_args!("the answer is not a valid response to {}: {error}", request.path);
            CtlFailure::unavailable(&self.found.place, why)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_server_that_never_answers_is_given_up() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let place = AdminAddress::Tcp(listener.local_addr().unwrap().to_string());
        let client = AdminClient { found: FoundAdmin { place, missed: Vec::new() }, token: None };
        let failure = client.fetch_success(&CtlRequest::read("/healthz")).await.err().unwrap();
        assert_eq!(failure.why, format!("{}: no answer within 30s", client.found.place));
        assert_eq!(failure.exit, Exit::Unavailable);
    }
}
