//! Writes the error log of requests that litequic answers in place of their origins.

use crate::answer::Error;
use http::Method;
use litequic_exchange::Head;
use std::{net::IpAddr, str::EscapeDebug};
use tracing::{debug, field::display, info};

/// Most bytes of a host in the log: the longest name in DNS.
const MAX_LOGGED_HOST: usize = 255;
/// Most bytes of a path in the log.
const MAX_LOGGED_PATH: usize = 512;

/// Logs `error`, the response to the request with this ID and `head`. Errors that a client may cause at any rate have
/// level debug: they must not fill the log.
pub(crate) fn log_error(error: Error, request: &str, head: &Head, route: Option<&str>, client: Option<IpAddr>) {
    let client = client.map(display);
    match error {
        Error::TooManyRequests { .. } => debug!(request, "rate limit exceeded"),
        // The browser has no password yet, or a client guesses.
        Error::NoPassword => debug!(request, client, route, "no valid password"),
        Error::AddressDenied => debug!(request, client, route, "address denied"),
        // The operator's switch was logged.
        Error::Maintenance { .. } => debug!(request, "the route of the request is in maintenance"),
        // `log_ambiguous_path` logs this with the other route.
        Error::AmbiguousPath => {}
        _ => {
            let (method, host, path) = loggable_target(head);
            let status = error.status_and_kind().0.as_u16();
            info!(request, %error, status, %method, host, %path, route, "answered with litequic's own error response");
        }
    }
}

/// Logs that the path of a request could be read as one of `route`, which has other rules.
pub(super) fn log_ambiguous_path(request: &str, head: &Head, route: &str) {
    let (method, host, path) = loggable_target(head);
    info!(request, %method, host, %path, route, "answered 400: the origin could read the path as one of this route");
}

/// Method, host and path of a request: without the query, which may have secrets, and without characters that a
/// terminal obeys. Host and path are cut at a length that no usual one has.
fn loggable_target(head: &Head) -> (&Method, &str, EscapeDebug<'_>) {
    let (host, path) = (head.authority(), head.path_without_query());
    let host = host.get(..host.floor_char_boundary(MAX_LOGGED_HOST)).unwrap_or_default();
    let path = path.get(..path.floor_char_boundary(MAX_LOGGED_PATH)).unwrap_or_default();
    (&head.method, host, path.escape_debug())
}
