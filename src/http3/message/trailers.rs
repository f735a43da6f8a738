//! Decodes a field section into trailers (RFC 9114 §4.1, RFC 9110 §6.5).

use super::{
    Rejection,
    field::{self, Name},
};
use crate::{exchange::field::may_trail, http3::qpack::Field};
use http::HeaderMap;

/// Decodes trailers from their fields.
///
/// Fields that decide framing, routing, authentication or how a message is handled are dropped, as a recipient
/// that merges trailers into its header could be misled by them (RFC 9110 §6.5.1). Whether the rest was declared is
/// for the caller to check.
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
        if may_trail(name.as_str()) {
            field::append(&mut trailers, name, value)?;
        }
    }
    Ok(trailers)
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
