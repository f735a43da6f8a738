//! Makes litequic's own responses in place of the origin's: one table from error to status, `Proxy-Status` error type
//! (RFC 9209 §2.3) and message. No response names an internal address.

use super::pages::StaticPage;
use http::StatusCode;
use litequic_exchange::{Body, BodyError, Response, name};

/// `Retry-After` of an overload, in seconds: a full pool empties within a response's time, soon but not at once.
const OVERLOAD_RETRY_AFTER: u32 = 1;

/// Reason for litequic's own response in place of the origin's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Error {
    // Errors of the client.
    #[error("the request has no host")]
    NoAuthority,
    #[error("CONNECT is not supported")]
    Tunnel,
    #[error("a switch to this protocol is not allowed here")]
    NoSuchTunnel,
    #[error("no route matches the request")]
    NoRoute,
    #[error("the request's path is ambiguous: an origin could read it as another route's")]
    AmbiguousPath,
    #[error("access from this address is not allowed")]
    AddressDenied,
    #[error("a name and a password are required")]
    NoPassword,
    #[error("a client certificate is required")]
    NoCertificate,
    #[error("the auth server's answer neither grants nor denies access")]
    AuthAnswer,
    #[error("too many requests")]
    TooManyRequests {
        /// Seconds, at least one.
        retry_after: u32,
    },
    #[error("in maintenance")]
    Maintenance {
        /// Seconds, at least one.
        retry_after: u32,
    },
    #[error("a field's name contains a character other than letters, digits and -")]
    AmbiguousField,
    #[error("the request's path is too long")]
    PathTooLong,
    #[error("the request's body is larger than allowed")]
    BodyTooLarge,
    #[error("timed out waiting for the request's body")]
    ClientTooSlow,
    // Errors of the operator, or of the load.
    #[error("too many passwords are being verified")]
    PasswordQueue,
    #[error("the limit of open tunnels is reached")]
    TunnelLimit,
    #[error("all connections to the origin are busy, and the queue is full")]
    QueueFull,
    #[error("timed out waiting for a free connection to the origin")]
    QueueTimeout,
    #[error("the request was slow: its connection to the origin was needed for another client")]
    Evicted,
    #[error("litequic stops")]
    Stopping,
    #[error("no file descriptor is free for a connection to the origin")]
    NoDescriptor,
    // Errors of the origin.
    #[error("cannot resolve the origin's name")]
    Resolve,
    #[error("the origin refused the connection")]
    Refused,
    #[error("the origin is unreachable")]
    Unreachable,
    #[error("cannot connect to the origin")]
    Connect,
    #[error("timed out connecting to the origin")]
    ConnectTimeout,
    #[error("litequic rejected the origin's certificate")]
    TlsCertificate,
    #[error("the origin rejected the TLS handshake")]
    TlsAlert,
    #[error("TLS with the origin failed")]
    TlsProtocol,
    #[error("the origin closed the connection before it answered")]
    Terminated,
    #[error("the origin closed the connection within the response's header")]
    Incomplete,
    #[error("the origin closed the connection within the response's body")]
    Truncated,
    #[error("the origin's response is not valid HTTP")]
    Protocol,
    #[error("the origin's response has an unsupported transfer coding")]
    TransferCoding,
    #[error("the Content-Length of the origin's response is too large")]
    ContentLength,
    #[error("the header of the origin's response is too large")]
    HeaderTooLarge,
    #[error("the origin switched protocols without a request")]
    Upgrade,
    #[error("the origin did not switch to the requested protocol")]
    SwitchFailed,
    #[error("timed out waiting for the origin's response")]
    ResponseTimeout,
    #[error("the request timed out")]
    RequestTimeout {
        /// Whether a server took most of the time.
        servers: bool,
    },
}

impl Error {
    /// Whether no part of the request was sent: another server may get the request.
    pub(crate) const fn is_before_sending(self) -> bool {
        self.is_connecting() || matches!(self, Self::QueueFull)
    }

    /// Whether the server is at fault, as opposed to the load or the client.
    pub(crate) const fn is_servers_fault(self) -> bool {
        self.is_connecting() || matches!(self, Self::ResponseTimeout | Self::RequestTimeout { servers: true })
    }

    const fn is_connecting(self) -> bool {
        matches!(self, Self::Resolve | Self::Refused | Self::Unreachable | Self::Connect | Self::ConnectTimeout)
            || self.is_tls_failure()
    }

    pub(crate) const fn is_tls_failure(self) -> bool {
        matches!(self, Self::TlsCertificate | Self::TlsAlert | Self::TlsProtocol)
    }

    /// The error of a body that broke after the response had begun; `None` if the request is at fault, and the front
    /// end says so.
    pub(crate) const fn from_broken_body(error: BodyError) -> Option<Self> {
        match error {
            BodyError::Truncated => Some(Self::Truncated),
            BodyError::Evicted => Some(Self::Evicted),
            BodyError::TimedOut => Some(Self::ResponseTimeout),
            BodyError::TooLarge => Some(Self::BodyTooLarge),
            BodyError::Cancelled | BodyError::Malformed => None,
        }
    }

    /// Status, and error type of RFC 9209.
    pub(crate) const fn status_and_kind(self) -> (StatusCode, &'static str) {
        match self {
            Self::NoAuthority | Self::AmbiguousField | Self::AmbiguousPath => {
                (StatusCode::BAD_REQUEST, "http_request_error")
            }
            Self::Tunnel | Self::NoSuchTunnel => (StatusCode::NOT_IMPLEMENTED, "http_request_denied"),
            Self::NoRoute => (StatusCode::NOT_FOUND, "destination_not_found"),
            Self::AddressDenied | Self::NoCertificate => (StatusCode::FORBIDDEN, "http_request_denied"),
            Self::NoPassword => (StatusCode::UNAUTHORIZED, "http_request_denied"),
            Self::TooManyRequests { .. } => (StatusCode::TOO_MANY_REQUESTS, "http_request_denied"),
            // RFC 9209 §2.3.4: the intermediary considers the next hop to be unavailable.
            Self::Maintenance { .. } => (StatusCode::SERVICE_UNAVAILABLE, "destination_unavailable"),
            Self::PathTooLong => (StatusCode::URI_TOO_LONG, "http_request_error"),
            Self::BodyTooLarge => (StatusCode::PAYLOAD_TOO_LARGE, "http_request_denied"),
            Self::ClientTooSlow => (StatusCode::REQUEST_TIMEOUT, "http_request_error"),
            Self::QueueFull
            | Self::QueueTimeout
            | Self::NoDescriptor
            | Self::TunnelLimit
            | Self::PasswordQueue
            | Self::Evicted
            | Self::Stopping => (StatusCode::SERVICE_UNAVAILABLE, "connection_limit_reached"),
            Self::Resolve => (StatusCode::BAD_GATEWAY, "dns_error"),
            Self::Refused => (StatusCode::BAD_GATEWAY, "connection_refused"),
            Self::Unreachable => (StatusCode::BAD_GATEWAY, "destination_ip_unroutable"),
            Self::Connect => (StatusCode::BAD_GATEWAY, "destination_unavailable"),
            Self::ConnectTimeout => (StatusCode::BAD_GATEWAY, "connection_timeout"),
            Self::TlsCertificate => (StatusCode::BAD_GATEWAY, "tls_certificate_error"),
            Self::TlsAlert => (StatusCode::BAD_GATEWAY, "tls_alert_received"),
            Self::TlsProtocol => (StatusCode::BAD_GATEWAY, "tls_protocol_error"),
            Self::Terminated => (StatusCode::BAD_GATEWAY, "connection_terminated"),
            Self::Incomplete | Self::Truncated => (StatusCode::BAD_GATEWAY, "http_response_incomplete"),
            Self::Protocol | Self::ContentLength | Self::AuthAnswer => (StatusCode::BAD_GATEWAY, "http_protocol_error"),
            Self::TransferCoding => (StatusCode::BAD_GATEWAY, "http_response_transfer_coding"),
            Self::HeaderTooLarge => (StatusCode::BAD_GATEWAY, "http_response_header_section_size"),
            Self::Upgrade | Self::SwitchFailed => (StatusCode::BAD_GATEWAY, "http_upgrade_failed"),
            Self::ResponseTimeout | Self::RequestTimeout { .. } => {
                (StatusCode::GATEWAY_TIMEOUT, "http_response_timeout")
            }
        }
    }

    /// The response: short, plain text, with the request's `id` in the body, in `Proxy-Status` and in `X-Request-ID`;
    /// or `page` in place of the text.
    pub(crate) fn error_response(self, id: &str, page: Option<&StaticPage>) -> Response {
        let (status, kind) = self.status_and_kind();
        let mut response = Response::new(status, Body::empty());
        match page {
            Some(page) => page.fill_error_page(&mut response),
            None => self.fill_error_text(id, &mut response),
        }
        let fields = &mut response.fields;
        fields.set_field(name::X_REQUEST_ID, id.as_bytes());
        let proxy_status = format!("litequic; error={kind}; details=\"request {id}\"");
        fields.set_field(name::PROXY_STATUS, proxy_status.as_bytes());
        match self {
            Self::TooManyRequests { retry_after } | Self::Maintenance { retry_after } => {
                fields.set_number_field(name::RETRY_AFTER, retry_after.into());
            }
            _ if status == StatusCode::SERVICE_UNAVAILABLE => {
                fields.set_number_field(name::RETRY_AFTER, OVERLOAD_RETRY_AFTER.into());
            }
            _ => {}
        }
        response
    }

    /// Sets a body of plain text.
    fn fill_error_text(self, id: &str, response: &mut Response) {
        let status = response.status;
        let reason = status.canonical_reason().unwrap_or_default();
        let body = format!("{} {reason}: {self}\nrequest {id}\n", status.as_u16());
        let fields = &mut response.fields;
        fields.set_field(name::CONTENT_TYPE, b"text/plain; charset=utf-8");
        fields.set_number_field(name::CONTENT_LENGTH, body.len() as u64);
        // The error may be temporary.
        fields.set_field(name::CACHE_CONTROL, b"no-store");
        response.body = body.into();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use litequic_exchange::FieldNameRef;

    #[test]
    fn an_answer_carries_the_requests_id_three_times() {
        let response = Error::QueueFull.error_response("7f3a", None);
        let field =
            |name| str::from_utf8(response.fields.get(FieldNameRef::from_lower_case_token(name)).unwrap()).unwrap();
        assert_eq!(response.status, 503);
        assert_eq!(field("retry-after"), "1");
        assert_eq!(field("x-request-id"), "7f3a");
        assert_eq!(field("proxy-status"), "litequic; error=connection_limit_reached; details=\"request 7f3a\"");
        let size = http_body::Body::size_hint(&response.body).exact().unwrap();
        assert_eq!(field("content-length"), size.to_string());
    }

    #[test]
    fn only_what_passes_says_when_to_come_back() {
        let retry_after = |response: &Response| response.fields.get(name::RETRY_AFTER).map(<[u8]>::to_vec);
        let limited = Error::TooManyRequests { retry_after: 7 };
        let response = limited.error_response("7f3a", None);
        assert_eq!((response.status.as_u16(), retry_after(&response)), (429, Some(b"7".to_vec())));
        let maintenance = Error::Maintenance { retry_after: 600 };
        let response = maintenance.error_response("7f3a", None);
        assert_eq!((response.status.as_u16(), retry_after(&response)), (503, Some(b"600".to_vec())));
        let response = Error::Refused.error_response("7f3a", None);
        assert_eq!((response.status.as_u16(), retry_after(&response)), (502, None));
    }
}
