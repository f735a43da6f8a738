//! Decides on the retry of a request that failed before its response. Pure.
//!
//! A request that was given to a connection is sent again only if the connection handed it back unsent, or was a reused
//! one that closed before a response byte, the method is idempotent and no body byte was taken (RFC 9110 §9.2.2, RFC
//! 9112 §9.3.1). Before that, a server that cannot be connected to is replaced by another: `connect_attempt`.

use http::Method;

/// Most retries of one request: one for a stale connection, one more on a connection made for it, which no origin has
/// had time to close.
pub(super) const MAX_RETRIES: u32 = 2;

/// Facts about a failed attempt.
#[derive(Debug, Clone, Copy)]
pub(super) struct AttemptFailure {
    /// Whether no byte of the request was written.
    pub(super) handed_back: bool,
    /// Whether the connection had served a request before.
    pub(crate) reused: bool,
    /// Whether the connection closed or failed, rather than returned an invalid response.
    pub(crate) closed: bool,
    /// Whether a byte has come since the request was sent.
    pub(crate) answered: bool,
    /// Whether a byte of the body was taken to be sent.
    pub(super) body_read: bool,
}

impl AttemptFailure {
    /// Whether the request met the end of an idle connection: not a failure of the server.
    pub(crate) const fn is_stale_connection(self) -> bool {
        self.reused && self.closed && !self.answered
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RetryDecision {
    /// Retry; `fresh` requires a connection made for the request.
    Again { fresh: bool },
    /// Answer 502.
    Fail,
}

/// Decides whether to retry after `failure` and `retries` earlier retries.
pub(crate) fn decide_retry(retries: u32, method: &Method, failure: AttemptFailure) -> RetryDecision {
    let unseen = failure.is_stale_connection() && !failure.body_read;
    if retries < MAX_RETRIES && (failure.handed_back || (unseen && is_idempotent(method))) {
        RetryDecision::Again { fresh: retries + 1 == MAX_RETRIES }
    } else {
        RetryDecision::Fail
    }
}

/// Whether `method` is idempotent (RFC 9110 §9.2.2). An unknown method is not.
pub(super) fn is_idempotent(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS | Method::TRACE | Method::PUT | Method::DELETE)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STALE: AttemptFailure =
        AttemptFailure { handed_back: false, reused: true, closed: true, answered: false, body_read: false };

    #[test]
    fn only_what_cannot_have_had_an_effect_is_sent_again() {
        let again = RetryDecision::Again { fresh: false };
        let fresh = RetryDecision::Again { fresh: true };
        for (what, retries, method, failure, expected) in [
            ("stale", 0, Method::GET, STALE, again),
            ("stale, the second time", 1, Method::GET, STALE, fresh),
            ("stale, too often", 2, Method::GET, STALE, RetryDecision::Fail),
            ("put", 0, Method::PUT, STALE, again),
            ("post", 0, Method::POST, STALE, RetryDecision::Fail),
            ("patch", 0, Method::PATCH, STALE, RetryDecision::Fail),
            ("unknown method", 0, Method::from_bytes(b"BREW").unwrap(), STALE, RetryDecision::Fail),
            ("first use", 0, Method::GET, AttemptFailure { reused: false, ..STALE }, RetryDecision::Fail),
            ("half an answer", 0, Method::GET, AttemptFailure { answered: true, ..STALE }, RetryDecision::Fail),
            ("body taken", 0, Method::PUT, AttemptFailure { body_read: true, ..STALE }, RetryDecision::Fail),
            ("garbage", 0, Method::GET, AttemptFailure { closed: false, ..STALE }, RetryDecision::Fail),
            ("post handed back", 0, Method::POST, AttemptFailure { handed_back: true, ..STALE }, again),
            (
                "handed back too often",
                2,
                Method::GET,
                AttemptFailure { handed_back: true, ..STALE },
                RetryDecision::Fail,
            ),
        ] {
            assert_eq!(decide_retry(retries, &method, failure), expected, "{what}");
        }
    }
}
