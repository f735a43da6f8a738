//! A field section into trailers (RFC 9114 §4.1, RFC 9110 §6.5).

use super::{
    Rejection,
    field::{self, Name},
};
use crate::http3::qpack::Field;
use http::{HeaderMap, HeaderName};

/// Makes trailers of their fields.
///
/// Fields that decide framing, routing, authentication or how a message is handled are dropped, as a recipient
/// that merges trailers into its header could be misled by them (RFC 9110 §6.5.1). Whether the rest was declared is
/// for others to check.
///
/// # Errors
///
/// [`Rejection::Malformed`] for pseudo-headers, connection-specific fields, bad names and values.
pub fn trailers(fields: Vec<Field>) -> Result<HeaderMap, Rejection> {
    let mut trailers = HeaderMap::with_capacity(fields.len());
    for Field { name, value } in fields {
        let Name::Regular(name) = field::name(name)? else {
            return Err(Rejection::Malformed("pseudo-header in trailers"));
        };
        let value = field::value(value)?;
        if field::is_connection_specific(&name) {
            return Err(Rejection::Malformed("connection-specific field"));
        }
        if is_allowed(&name) {
            field::append(&mut trailers, name, value)?;
        }
    }
    Ok(trailers)
}

/// False for fields that mean something only before the body.
pub(super) fn is_allowed(name: &HeaderName) -> bool {
    !field::is_connection_specific(name)
        && !matches!(
            name.as_str(),
            // framing, routing, content format
            "content-length" | "content-encoding" | "content-type" | "content-range" | "host" | "te" | "trailer"
                // request modifiers
                | "cache-control" | "expect" | "max-forwards" | "pragma" | "range"
                | "if-match" | "if-none-match" | "if-modified-since" | "if-unmodified-since" | "if-range"
                // authentication and state
                | "authorization" | "proxy-authorization" | "proxy-authenticate" | "www-authenticate"
                | "authentication-info" | "proxy-authentication-info" | "cookie" | "set-cookie"
                // response control
                | "age" | "date" | "expires" | "location" | "retry-after" | "vary" | "warning"
                // who asks, which proxies believe
                | "forwarded" | "via" | "client-cert" | "client-cert-chain" | "early-data"
        )
        && !name.as_str().starts_with("x-forwarded-")
}
