//! Decodes a field section into trailers (RFC 9114 §4.1, RFC 9110 §6.5).

use super::{Rejection, field_checks};
use litequic_exchange::{DecodedFields, Fields, field_syntax::may_be_trailer};

/// Decodes trailers from their fields.
///
/// Fields that decide framing, routing, authentication or how a message is handled are dropped, as a recipient that
/// merges trailers into its header could be misled (RFC 9110 §6.5.1). The caller checks whether the others were
/// declared.
///
/// # Errors
///
/// [`Rejection::Malformed`] for pseudo-headers, connection-specific fields, bad names and values.
pub fn decode_trailers(decoded: DecodedFields) -> Result<Fields, Rejection> {
    decoded.into_fields(|line| {
        if line.id.is_pseudo() {
            return Err(Rejection::Malformed("pseudo-header in trailers"));
        }
        field_checks::check_field(&line)?;
        if field_checks::CONNECTION_SPECIFIC.contains_id(line.id) {
            return Err(field_checks::CONNECTION_FIELD);
        }
        // A token is ASCII.
        Ok(str::from_utf8(line.name).is_ok_and(may_be_trailer))
    })
}

#[cfg(test)]
mod tests {
    use super::super::test_support::{is_malformed_result, literal_fields};
    use super::*;
    use litequic_exchange::FieldNameRef;

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
            assert!(is_malformed_result(&decode_trailers(literal_fields(&[field]))), "{field:?}");
        }
    }

    #[test]
    fn fields_that_mean_something_only_before_the_body_are_dropped() {
        for name in
            ["content-length", "host", "te", "trailer", "authorization", "cookie", "set-cookie", "x-forwarded-for"]
        {
            let kept = decode_trailers(literal_fields(&[(name, "1"), ("x-checksum", "2")])).unwrap();
            assert_eq!(
                (kept.len(), kept.get(FieldNameRef::from_lower_case_token("x-checksum"))),
                (1, Some(&b"2"[..])),
                "{name}"
            );
        }
        assert_eq!(decode_trailers(literal_fields(&[("grpc-status", "0"), ("grpc-message", "")])).unwrap().len(), 2);
    }
}
