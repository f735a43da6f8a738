//! Connects to a collector, and sends one export: protobuf over HTTP/1.1, or gRPC over HTTP/2. A collector's response
//! is bounded in time and size, and redirects are not followed.
#![expect(clippy::disallowed_types, reason = "hyper and h2 have their fields in it")]

use super::{
    otlp::{
        PartialSuccess, grpc_message, grpc_payload, is_retryable_code, partial_success, printable_message, retry_info,
    },
    trace_setting::SpanDestination,
};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::{
    body::Incoming,
    client::conn::{http1, http2},
};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use litequic_base::connect_host::{ConnectHostError, connect_host};
use litequic_config::TraceProtocol;
use rustls::pki_types::ServerName;
use std::{
    io,
    time::{Duration, SystemTime},
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    task::JoinSet,
    time::timeout,
};
use tokio_rustls::TlsConnector;

/// Maximum number of bytes that are read of a response's body.
const MAX_ANSWER: usize = 64 * 1024;
/// Maximum size of a response's header, in bytes.
const MAX_HEADER: usize = 64 * 1024;
/// Path of the method `Export` (opentelemetry/proto/collector/trace/v1/trace_service.proto).
const GRPC_PATH: &str = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";
const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
const GRPC_DETAILS: HeaderName = HeaderName::from_static("grpc-status-details-bin");
const AGENT: HeaderValue = HeaderValue::from_static(concat!("litequic/", env!("CARGO_PKG_VERSION")));

#[derive(Debug, PartialEq, Eq)]
pub(super) enum ExportOutcome {
    /// The collector accepted the request, except the spans that it rejected.
    Accepted(PartialSuccess),
    /// The request is to be sent again, after a time if the collector named one: there was no response, or a retryable
    /// one.
    Again { after: Option<Duration>, problem: String },
    /// The collector rejected the request.
    Refused(String),
}

/// Open connection to a collector, closed when dropped.
pub(super) struct CollectorConnection {
    sender: RequestSender,
    _driver: JoinSet<()>,
}

enum RequestSender {
    Http1(http1::SendRequest<ExportBody>),
    Http2(http2::SendRequest<ExportBody>),
}

litequic_base::partial_debug!(CollectorConnection);

trait CollectorStream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> CollectorStream for S {}

/// Error of an export without a response.
#[derive(Debug, thiserror::Error)]
enum ExportError {
    #[error("cannot resolve {0}: {1}")]
    Lookup(String, io::Error),
    #[error("cannot connect to the collector: {0}")]
    Connect(io::Error),
    #[error("the TLS handshake failed: {0}")]
    Tls(io::Error),
    #[error("{0} is not a valid name for a certificate")]
    Name(String),
    #[error("the collector did not answer: {}", causes(.0))]
    Http(hyper::Error),
    #[error("the request is invalid: {0}")]
    Request(#[from] http::Error),
}

/// Formats an error with its causes, which hyper's own text lacks.
fn causes(error: &hyper::Error) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

/// Body of an export: the whole message.
pub(super) type ExportBody = Full<Bytes>;

/// Sends `message` to `destination`, over the connection `open` or a new one. Returns the connection if it may be
/// reused.
///
/// # Cancel safety
///
/// Dropping the future closes the connection; the collector may have accepted the spans.
pub(super) async fn export_spans(
    open: Option<CollectorConnection>,
    destination: &SpanDestination,
    message: ExportBody,
) -> (Option<CollectorConnection>, ExportOutcome) {
    let limit = destination.timeout;
    let answered = async {
        if let Some(open) = open {
            // The collector may have closed the connection meanwhile. The request's fate is unknown then, and it is
            // sent again.
            if let Ok(answered) = send_export(open, destination, message.clone()).await {
                return Ok(answered);
            }
        }
        send_export(connect_collector(destination).await?, destination, message).await
    };
    let (connection, response) = match timeout(limit, answered).await {
        Ok(Ok(answered)) => answered,
        Ok(Err(error)) => return (None, ExportOutcome::Again { after: None, problem: error.to_string() }),
        Err(_) => {
            let problem = format!("no answer within {}", humantime::format_duration(limit));
            return (None, ExportOutcome::Again { after: None, problem });
        }
    };
    let (head, body) = response.into_parts();
    let body = CollectorAnswer::read_answer(body, limit).await;
    let exported = match destination.endpoint.protocol {
        TraceProtocol::Http => http_outcome(head.status, &head.headers, &body.bytes),
        TraceProtocol::Grpc => {
            let fields = if head.headers.contains_key(GRPC_STATUS) { &head.headers } else { &body.trailers };
            grpc_outcome(head.status, fields, &body.bytes)
        }
    };
    (Some(connection).filter(|_| body.is_whole), exported)
}

/// Sends a request, and waits for the header of the response.
async fn send_export(
    mut connection: CollectorConnection,
    destination: &SpanDestination,
    message: ExportBody,
) -> Result<(CollectorConnection, Response<Incoming>), ExportError> {
    let request = build_export_request(destination, message)?;
    let response = match &mut connection.sender {
        RequestSender::Http1(sender) => {
            sender.ready().await.map_err(ExportError::Http)?;
            sender.send_request(request).await
        }
        RequestSender::Http2(sender) => {
            sender.ready().await.map_err(ExportError::Http)?;
            sender.send_request(request).await
        }
    };
    Ok((connection, response.map_err(ExportError::Http)?))
}

/// Body of a collector's response, as far as it was read.
#[derive(Default)]
struct CollectorAnswer {
    bytes: Bytes,
    trailers: HeaderMap,
    is_whole: bool,
}

impl CollectorAnswer {
    /// Reads at most [`MAX_ANSWER`] bytes within `limit`. The status of a response over HTTP/1.1 is known by then, so a
    /// failure only decides about the connection.
    async fn read_answer(body: Incoming, limit: Duration) -> Self {
        match timeout(limit, Limited::new(body, MAX_ANSWER).collect()).await {
            Ok(Ok(body)) => {
                let trailers = body.trailers().cloned().unwrap_or_default();
                Self { trailers, bytes: body.to_bytes(), is_whole: true }
            }
            Ok(Err(_)) | Err(_) => Self::default(),
        }
    }
}

fn build_export_request(
    destination: &SpanDestination,
    message: ExportBody,
) -> Result<Request<ExportBody>, http::Error> {
    let endpoint = &destination.endpoint;
    let mut request = Request::new(message);
    *request.method_mut() = Method::POST;
    let content_type = match destination.endpoint.protocol {
        TraceProtocol::Http => {
            *request.uri_mut() = endpoint.http_path().parse::<Uri>()?;
            request.headers_mut().insert(header::HOST, HeaderValue::from_str(&endpoint.authority)?);
            "application/x-protobuf"
        }
        TraceProtocol::Grpc => {
            let scheme = if endpoint.is_https { "https" } else { "http" };
            let authority = &*endpoint.authority;
            *request.uri_mut() =
                Uri::builder().scheme(scheme).authority(authority).path_and_query(GRPC_PATH).build()?;
            *request.version_mut() = http::Version::HTTP_2;
            request.headers_mut().insert(header::TE, HeaderValue::from_static("trailers"));
            "application/grpc"
        }
    };
    let fields = request.headers_mut();
    fields.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    fields.insert(header::USER_AGENT, AGENT);
    for (name, value) in &destination.headers {
        fields.insert(name, value.clone());
    }
    Ok(request)
}

/// Statuses after which a request is sent again (OTLP/HTTP, Retryable response codes).
const RETRYABLE: [StatusCode; 4] = [
    StatusCode::TOO_MANY_REQUESTS,
    StatusCode::BAD_GATEWAY,
    StatusCode::SERVICE_UNAVAILABLE,
    StatusCode::GATEWAY_TIMEOUT,
];

fn http_outcome(status: StatusCode, fields: &HeaderMap, body: &[u8]) -> ExportOutcome {
    if status.is_success() {
        return ExportOutcome::Accepted(partial_success(body));
    }
    if RETRYABLE.contains(&status) {
        let after = fields.get(header::RETRY_AFTER).and_then(|value| retry_after_delay(value, SystemTime::now()));
        return ExportOutcome::Again { after, problem: format!("answered {status}") };
    }
    if status.is_redirection() {
        return ExportOutcome::Refused(format!("answered {status}: redirects are not followed"));
    }
    // The body is a `google.rpc.Status`, or text. A text parses to an empty message.
    let is_text = fields.get(header::CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"text/plain"));
    let words = if is_text { printable_message(body) } else { String::new() };
    let words = if words.is_empty() { words } else { format!(": {words}") };
    ExportOutcome::Refused(format!("answered {status}{words}"))
}

/// Outcome of a gRPC call, whose status is in `fields`: the header of a response without a body, or the trailers.
fn grpc_outcome(status: StatusCode, fields: &HeaderMap, body: &[u8]) -> ExportOutcome {
    let code = fields.get(GRPC_STATUS).and_then(|value| value.to_str().ok()?.trim().parse::<u32>().ok());
    let Some(code) = code else {
        // The response does not come from the service (gRPC, HTTP to gRPC Status Code Mapping).
        let problem = format!("answered HTTP status {status} without grpc-status");
        return match RETRYABLE.contains(&status) || status.is_success() {
            true => ExportOutcome::Again { after: None, problem },
            false => ExportOutcome::Refused(problem),
        };
    };
    let after = fields.get(GRPC_DETAILS).and_then(|details| retry_info(details.as_bytes()));
    let words = fields.get(GRPC_MESSAGE).map_or_else(String::new, |value| grpc_message(value.as_bytes()));
    let problem = format!("answered gRPC status {code}: {words}");
    match code {
        0 => ExportOutcome::Accepted(grpc_payload(body).map(partial_success).unwrap_or_default()),
        code if is_retryable_code(code, after.is_some()) => ExportOutcome::Again { after, problem },
        _ => ExportOutcome::Refused(problem),
    }
}

/// Delay that `Retry-After` asks for (RFC 9110 §10.2.3).
fn retry_after_delay(value: &HeaderValue, now: SystemTime) -> Option<Duration> {
    let value = value.to_str().ok()?.trim();
    let until = || Some(httpdate::parse_http_date(value).ok()?.duration_since(now).unwrap_or_default());
    value.parse().ok().map(Duration::from_secs).or_else(until)
}

async fn connect_collector(destination: &SpanDestination) -> Result<CollectorConnection, ExportError> {
    let endpoint = &destination.endpoint;
    let stream = connect_host(&endpoint.host, endpoint.port).await.map_err(|error| match error {
        ConnectHostError::Lookup(error) => ExportError::Lookup(endpoint.host.clone(), error),
        ConnectHostError::Connect(error) => ExportError::Connect(error),
    })?;
    // A small batch is one segment, and its response is awaited.
    let _ = stream.set_nodelay(true);
    let stream: Box<dyn CollectorStream> = match &destination.tls {
        None => Box::new(stream),
        Some(tls) => {
            let name =
                ServerName::try_from(endpoint.host.clone()).map_err(|_| ExportError::Name(endpoint.host.clone()))?;
            let connector = TlsConnector::from(tls.config.clone());
            Box::new(connector.connect(name, stream).await.map_err(ExportError::Tls)?)
        }
    };
    let mut driver = JoinSet::new();
    let stream = TokioIo::new(stream);
    // A failure of the task fails the request, too, so its result is dropped.
    let sender = match destination.endpoint.protocol {
        TraceProtocol::Http => {
            let mut builder = http1::Builder::new();
            builder.max_buf_size(MAX_HEADER);
            let (sender, connection) = builder.handshake(stream).await.map_err(ExportError::Http)?;
            driver.spawn(async move { drop(connection.await) });
            RequestSender::Http1(sender)
        }
        TraceProtocol::Grpc => {
            let mut builder = http2::Builder::new(TokioExecutor::new());
            builder.timer(TokioTimer::new()).max_header_list_size(MAX_HEADER_LIST);
            let (sender, connection) = builder.handshake(stream).await.map_err(ExportError::Http)?;
            driver.spawn(async move { drop(connection.await) });
            RequestSender::Http2(sender)
        }
    };
    Ok(CollectorConnection { sender, _driver: driver })
}

/// [`MAX_HEADER`] as SETTINGS_MAX_HEADER_LIST_SIZE.
const MAX_HEADER_LIST: u32 = 64 * 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use http::Response;

    #[test]
    fn retry_after_is_a_date_or_seconds() {
        let now = httpdate::parse_http_date("Sun, 06 Nov 1994 08:49:37 GMT").unwrap();
        for (value, expected) in [
            ("7", Some(7)),
            (" 7 ", Some(7)),
            ("Sun, 06 Nov 1994 08:50:07 GMT", Some(30)),
            ("Sun, 06 Nov 1994 08:00:00 GMT", Some(0)),
            ("-1", None),
            ("soon", None),
        ] {
            let value = HeaderValue::from_static(value);
            assert_eq!(retry_after_delay(&value, now), expected.map(Duration::from_secs), "{value:?}");
        }
    }

    #[test]
    fn the_http_status_decides_about_a_retry() {
        let outcome = |status: u16| http_outcome(StatusCode::from_u16(status).unwrap(), &HeaderMap::new(), b"");
        for status in [200, 202, 204] {
            assert_eq!(outcome(status), ExportOutcome::Accepted(PartialSuccess::default()));
        }
        for status in [429, 502, 503, 504] {
            assert!(matches!(outcome(status), ExportOutcome::Again { .. }), "{status}");
        }
        for status in [301, 302, 307, 400, 401, 404, 413, 500, 501] {
            assert!(matches!(outcome(status), ExportOutcome::Refused(_)), "{status}");
        }
        let text = Response::builder().header("content-type", "text/plain; charset=utf-8").body(()).unwrap();
        let refused = http_outcome(StatusCode::UNAUTHORIZED, text.headers(), b"no\x1b token");
        assert_eq!(refused, ExportOutcome::Refused("answered 401 Unauthorized: no  token".into()));
    }

    #[test]
    fn the_grpc_status_decides_about_a_retry() {
        let outcome = |status: u16, fields: &[(&'static str, &'static str)]| {
            let fields =
                fields.iter().map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
            grpc_outcome(StatusCode::from_u16(status).unwrap(), &fields.collect(), b"\0\0\0\0\0")
        };
        assert_eq!(outcome(200, &[("grpc-status", "0")]), ExportOutcome::Accepted(PartialSuccess::default()));
        let unavailable = outcome(200, &[("grpc-status", "14"), ("grpc-message", "try%20later")]);
        assert_eq!(
            unavailable,
            ExportOutcome::Again { after: None, problem: "answered gRPC status 14: try later".into() }
        );
        assert!(matches!(outcome(200, &[("grpc-status", "8")]), ExportOutcome::Refused(_)));
        assert!(matches!(outcome(200, &[("grpc-status", "16")]), ExportOutcome::Refused(_)));
        assert!(matches!(outcome(200, &[]), ExportOutcome::Again { .. }), "it broke off");
        assert!(matches!(outcome(503, &[]), ExportOutcome::Again { .. }));
        assert!(matches!(outcome(404, &[]), ExportOutcome::Refused(_)));
    }
}
