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
    let mut trailers = field::map(fields.len())?;
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

#[cfg(test)]
mod tests {
    use super::super::test_support::{fields, malformed};
    use super::*;

    #[test]
    fn pseudo_headers_and_bad_fields_in_trailers_are_malformed() {
        for field in [
            (":path", "/"),
            (":status", "200"),
            (":unknown", ""),
            ("connection", "close"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "x"),
            ("X", "y"),
            ("x", "y\r\n"),
            ("x", " y"),
            ("content-length", "\0"),
        ] {
            assert!(malformed(&trailers(fields(&[field]))), "{field:?}");
        }
    }

    #[test]
    fn more_fields_than_a_map_can_hold_are_malformed() {
        let many: Vec<(String, &str)> = (0..40_000).map(|n| (format!("x{n}"), "y")).collect();
        let many: Vec<(&str, &str)> = many.iter().map(|(name, value)| (name.as_str(), *value)).collect();
        assert!(malformed(&trailers(fields(&many))));
    }

    #[test]
    fn fields_that_mean_something_only_before_the_body_are_dropped() {
        for name in
            ["content-length", "host", "te", "trailer", "authorization", "cookie", "set-cookie", "x-forwarded-for"]
        {
            let kept = trailers(fields(&[(name, "1"), ("x-checksum", "2")])).unwrap();
            assert_eq!((kept.len(), kept["x-checksum"].as_bytes()), (1, &b"2"[..]), "{name}");
        }
        assert_eq!(trailers(fields(&[("grpc-status", "0"), ("grpc-message", "")])).unwrap().len(), 2);
    }
}
