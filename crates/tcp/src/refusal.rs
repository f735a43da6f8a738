//! Defines the reason why a request does not reach the handler, and the response to its client.

use crate::tcp_metrics::TcpMetrics;
use http::StatusCode;

/// A response in the handler's place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{why} ({status})")]
pub(super) struct Refusal {
    pub(super) status: StatusCode,
    pub(super) why: &'static str,
    /// The limit that was reached, if it is counted.
    pub(super) limit: Option<RefusalLimit>,
}

/// A limit of requests in the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RefusalLimit {
    HeaderBytes,
    Headers,
    HeaderTime,
}

impl RefusalLimit {
    /// Counts that this limit was reached.
    pub(super) fn count_reached(self, metrics: &TcpMetrics) {
        match self {
            Self::HeaderBytes => metrics.shared.limit_header_bytes.increment(),
            Self::Headers => metrics.shared.limit_headers.increment(),
            Self::HeaderTime => metrics.shared.timeout_request_header.increment(),
        }
    }
}

impl Refusal {
    pub(super) const fn new(status: StatusCode, why: &'static str) -> Self {
        Self { status, why, limit: None }
    }

    /// Creates a refusal with status 400.
    pub(super) const fn bad_request(why: &'static str) -> Self {
        Self::new(StatusCode::BAD_REQUEST, why)
    }

    /// Creates a refusal with status 501.
    pub(super) const fn not_implemented(why: &'static str) -> Self {
        Self::new(StatusCode::NOT_IMPLEMENTED, why)
    }

    /// Creates a refusal with status 431.
    pub(super) const fn fields_too_large(limit: RefusalLimit) -> Self {
        let (status, why) =
            (StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "the request's header is larger than allowed");
        Self { status, why, limit: Some(limit) }
    }

    /// Creates a refusal with status 414.
    pub(super) const fn uri_too_long() -> Self {
        let (status, why) = (StatusCode::URI_TOO_LONG, "the request's target is longer than allowed");
        Self { status, why, limit: Some(RefusalLimit::HeaderBytes) }
    }

    /// Creates a refusal with status 408.
    pub(super) const fn request_timeout() -> Self {
        let (status, why) = (StatusCode::REQUEST_TIMEOUT, "timed out waiting for the request's header");
        Self { status, why, limit: Some(RefusalLimit::HeaderTime) }
    }
}

/// Converts a status and a reason of the rules that all protocols share.
impl From<(StatusCode, &'static str)> for Refusal {
    fn from((status, why): (StatusCode, &'static str)) -> Self {
        match status {
            StatusCode::URI_TOO_LONG => Self::uri_too_long(),
            StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE => Self::fields_too_large(RefusalLimit::Headers),
            _ => Self::new(status, why),
        }
    }
}
