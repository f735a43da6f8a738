//! What a client is told when litequic answers in the origin's place: one table from error to status, `Proxy-Status`
//! error type (RFC 9209 §2.3) and message. None of it names an inner address.

use super::forwarded::REQUEST_ID;
use crate::exchange::{Body, Response};
use bytes::Bytes;
use http::{HeaderName, HeaderValue, StatusCode, header};

const PROXY_STATUS: HeaderName = HeaderName::from_static("proxy-status");
/// A full pool empties within a response's time: soon, but not at once.
const RETRY_AFTER: HeaderValue = HeaderValue::from_static("1");

/// Why a request gets litequic's answer instead of the origin's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Error {
    // The client's.
    #[error("the request names no host")]
    NoAuthority,
    #[error("litequic is no tunnel")]
    Tunnel,
    #[error("no route leads there")]
    NoRoute,
    #[error("this takes a client certificate")]
    NoCertificate,
    #[error("the request's body is larger than allowed")]
    BodyTooLarge,
    #[error("the request's body did not come in time")]
    ClientTooSlow,
    // The operator's, or the load's.
    #[error("all connections to the origin are busy, and so is the queue for them")]
    QueueFull,
    #[error("no connection to the origin became free in time")]
    QueueTimeout,
    // The origin's.
    #[error("the origin's name could not be looked up")]
    Resolve,
    #[error("the origin refused the connection")]
    Refused,
    #[error("the origin cannot be reached")]
    Unreachable,
    #[error("the origin could not be connected to")]
    Connect,
    #[error("the origin did not accept the connection in time")]
    ConnectTimeout,
    #[error("the origin closed the connection before it answered")]
    Terminated,
    #[error("the origin's answer ended within its header")]
    Incomplete,
    #[error("the origin's answer is not valid HTTP")]
    Protocol,
    #[error("the origin's answer uses a transfer coding that cannot be passed on")]
    TransferCoding,
    #[error("the header of the origin's answer is too large")]
    HeaderTooLarge,
    #[error("the origin switched protocols without being asked")]
    Upgrade,
    #[error("the origin did not answer in time")]
    ResponseTimeout,
    #[error("the request was not done in time")]
    RequestTimeout,
}

impl Error {
    /// Status and RFC 9209 error type.
    pub(super) const fn table(self) -> (StatusCode, &'static str) {
        match self {
            Self::NoAuthority => (StatusCode::BAD_REQUEST, "http_request_error"),
            Self::Tunnel => (StatusCode::NOT_IMPLEMENTED, "http_request_denied"),
            Self::NoRoute => (StatusCode::NOT_FOUND, "destination_not_found"),
            Self::NoCertificate => (StatusCode::FORBIDDEN, "http_request_denied"),
            Self::BodyTooLarge => (StatusCode::PAYLOAD_TOO_LARGE, "http_request_denied"),
            Self::ClientTooSlow => (StatusCode::REQUEST_TIMEOUT, "http_request_error"),
            Self::QueueFull | Self::QueueTimeout => (StatusCode::SERVICE_UNAVAILABLE, "connection_limit_reached"),
            Self::Resolve => (StatusCode::BAD_GATEWAY, "dns_error"),
            Self::Refused => (StatusCode::BAD_GATEWAY, "connection_refused"),
            Self::Unreachable => (StatusCode::BAD_GATEWAY, "destination_ip_unroutable"),
            Self::Connect => (StatusCode::BAD_GATEWAY, "destination_unavailable"),
            Self::ConnectTimeout => (StatusCode::BAD_GATEWAY, "connection_timeout"),
            Self::Terminated => (StatusCode::BAD_GATEWAY, "connection_terminated"),
            Self::Incomplete => (StatusCode::BAD_GATEWAY, "http_response_incomplete"),
            Self::Protocol => (StatusCode::BAD_GATEWAY, "http_protocol_error"),
            Self::TransferCoding => (StatusCode::BAD_GATEWAY, "http_response_transfer_coding"),
            Self::HeaderTooLarge => (StatusCode::BAD_GATEWAY, "http_response_header_section_size"),
            Self::Upgrade => (StatusCode::BAD_GATEWAY, "http_upgrade_failed"),
            Self::ResponseTimeout | Self::RequestTimeout => (StatusCode::GATEWAY_TIMEOUT, "http_response_timeout"),
        }
    }

    /// The answer: short, plain text, with the request's `id` in the body, in `Proxy-Status` and in `X-Request-ID`.
    pub(super) fn response(self, id: &HeaderValue) -> Response {
        let (status, kind) = self.table();
        let id_text = id.to_str().unwrap_or_default();
        let reason = status.canonical_reason().unwrap_or_default();
        let body = format!("{} {reason}: {self}\nrequest {id_text}\n", status.as_u16());
        let proxy_status = format!("litequic; error={kind}; details=\"request {id_text}\"");

        let length = body.len();
        let mut response = Response::new(Body::from(body));
        *response.status_mut() = status;
        let fields = response.headers_mut();
        fields.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
        fields.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
        // What went wrong now need not go wrong again.
        fields.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        fields.insert(REQUEST_ID, id.clone());
        if let Ok(value) = HeaderValue::from_maybe_shared(Bytes::from(proxy_status)) {
            fields.insert(PROXY_STATUS, value);
        }
        if status == StatusCode::SERVICE_UNAVAILABLE {
            fields.insert(header::RETRY_AFTER, RETRY_AFTER);
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_carries_the_requests_id_three_times() {
        let response = Error::QueueFull.response(&HeaderValue::from_static("7f3a"));
        let field = |name: &str| response.headers().get(name).unwrap().to_str().unwrap();
        assert_eq!(response.status(), 503);
        assert_eq!(field("retry-after"), "1");
        assert_eq!(field("x-request-id"), "7f3a");
        assert_eq!(field("proxy-status"), "litequic; error=connection_limit_reached; details=\"request 7f3a\"");
        let size = http_body::Body::size_hint(response.body()).exact().unwrap();
        assert_eq!(field("content-length"), size.to_string());
    }

    #[test]
    fn only_a_full_pool_says_when_to_come_back() {
        let response = Error::Refused.response(&HeaderValue::from_static("7f3a"));
        assert_eq!(response.status(), 502);
        assert!(!response.headers().contains_key("retry-after"));
    }
}
