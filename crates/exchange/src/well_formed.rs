//! Makes responses and trailers of decoded field sections, if they are well-formed: HTTP/2 (RFC 9113 §8.2, §8.3) and
//! HTTP/3 (RFC 9114 §4.2, §4.3) require the same of fields. Pure.

use crate::{
    DecodedFields, DecodedLine, Fields, NameSet,
    field_syntax::{has_blank_edge, is_field_value, is_lower_case_token, may_be_trailer},
    name,
};
use http::StatusCode;

/// The reason why a message is malformed (RFC 9113 §8.1.1, RFC 9114 §4.1.2): its stream is to be reset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("malformed message: {0}")]
pub struct Malformed(pub &'static str);

/// A decoded and checked response, interim (1xx) or final.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecodedResponse {
    /// Status of the response.
    pub status: StatusCode,
    /// Checked fields of the header.
    pub fields: Fields,
    /// Length that the body must have in bytes, unless the request was HEAD or the status is 304.
    pub content_length: Option<u64>,
}

/// Decodes a response from the fields of its header (RFC 9113 §8.3.2, RFC 9114 §4.3.2).
///
/// # Errors
///
/// [`Malformed`]
pub fn decode_response(decoded: DecodedFields) -> Result<DecodedResponse, Malformed> {
    let (mut status, mut regular_seen) = (None, false);
    let mut fields = decoded.into_fields(|line| {
        if !line.id.is_pseudo() {
            regular_seen = true;
            return check_field(&line).map(|()| true);
        }
        if regular_seen {
            return Err(Malformed("pseudo-header after another field"));
        }
        if line.id != name::STATUS.id() {
            return Err(Malformed("a request's pseudo-header in a response"));
        }
        // A status has three digits, 100 to 999.
        let code = StatusCode::from_bytes(line.value);
        match status.replace(code.map_err(|_| Malformed(":status is not three digits"))?) {
            None => Ok(false),
            Some(_) => Err(Malformed("duplicate :status")),
        }
    })?;
    let status = status.ok_or(Malformed("no :status"))?;
    // There is no upgrade (RFC 9113 §8.6, RFC 9114 §4.5).
    if status == StatusCode::SWITCHING_PROTOCOLS {
        return Err(Malformed("status 101"));
    }
    check_connection_fields(&fields)?;
    let content_length = normalize_content_length(&mut fields)?;
    Ok(DecodedResponse { status, fields, content_length })
}

/// Decodes trailers from their fields (RFC 9113 §8.1, RFC 9114 §4.1).
///
/// Fields that decide framing, routing, authentication or how a message is handled are dropped, as a recipient that
/// merges trailers into its header could be misled (RFC 9110 §6.5.1). The caller checks whether the others were
/// declared.
///
/// # Errors
///
/// [`Malformed`] for pseudo-headers, connection-specific fields, bad names and values.
pub fn decode_trailers(decoded: DecodedFields) -> Result<Fields, Malformed> {
    decoded.into_fields(|line| {
        if line.id.is_pseudo() {
            return Err(Malformed("pseudo-header in trailers"));
        }
        check_field(&line)?;
        if CONNECTION_SPECIFIC.contains_id(line.id) {
            return Err(CONNECTION_FIELD);
        }
        // A token is ASCII.
        Ok(str::from_utf8(line.name).is_ok_and(may_be_trailer))
    })
}

/// Connection-specific fields (RFC 9113 §8.2.2, RFC 9114 §4.2).
pub const CONNECTION_SPECIFIC: NameSet = NameSet::from_names(&[
    name::CONNECTION,
    name::KEEP_ALIVE,
    name::PROXY_CONNECTION,
    name::TRANSFER_ENCODING,
    name::UPGRADE,
]);

const CONNECTION_FIELD: Malformed = Malformed("connection-specific field");

/// Checks a field that is not a pseudo-header: the name is a token in lower case, the value has no control characters
/// and no blanks at its edges.
///
/// # Errors
///
/// [`Malformed`]
#[inline]
pub fn check_field(line: &DecodedLine<'_>) -> Result<(), Malformed> {
    if !line.id.is_known() && !is_lower_case_token(line.name) {
        let is_pseudo = line.name.starts_with(b":");
        return Err(Malformed(if is_pseudo {
            "unknown pseudo-header"
        } else {
            "field name is not a token in lower case"
        }));
    }
    if has_blank_edge(line.value) {
        return Err(Malformed("field value with leading or trailing whitespace"));
    }
    if !is_field_value(line.value) {
        return Err(Malformed("field value with a control character"));
    }
    Ok(())
}

/// Checks that no field is connection-specific, and that `TE` has no value but `trailers`.
///
/// # Errors
///
/// [`Malformed`]
#[inline]
pub fn check_connection_fields(fields: &Fields) -> Result<(), Malformed> {
    if fields.names.intersects(CONNECTION_SPECIFIC) {
        return Err(CONNECTION_FIELD);
    }
    if fields.all_values(name::TE).any(|value| !value.eq_ignore_ascii_case(b"trailers")) {
        return Err(Malformed("TE other than trailers"));
    }
    Ok(())
}

/// Returns the Content-Length in `fields`, and rewrites the field without leading zeros (RFC 9110 §8.6).
///
/// # Errors
///
/// [`Malformed`] if there are several, or one that is not a decimal number.
#[inline]
pub fn normalize_content_length(fields: &mut Fields) -> Result<Option<u64>, Malformed> {
    let Some(value) = fields.get(name::CONTENT_LENGTH) else { return Ok(None) };
    if fields.all_values(name::CONTENT_LENGTH).nth(1).is_some() {
        return Err(Malformed("more than one Content-Length"));
    }
    let length = parse_decimal(value).ok_or(Malformed("Content-Length is not a decimal number"))?;
    if value.len() > 1 && value.starts_with(b"0") {
        fields.set_number_field(name::CONTENT_LENGTH, length);
    }
    Ok(Some(length))
}

/// Parses a number that consists of digits alone: no sign, list or blank.
fn parse_decimal(text: &[u8]) -> Option<u64> {
    let digits = |text: &[u8]| !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    if !digits(text) {
        return None;
    }
    str::from_utf8(text).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FieldNameRef, http2, terms::FieldLimits};

    /// Decoded fields of literals.
    fn literal_fields(all: &[(&str, &str)]) -> DecodedFields {
        let string = |text: &str| [&[u8::try_from(text.len()).unwrap()], text.as_bytes()].concat();
        let line = |(name, value): &(&str, &str)| [vec![0], string(name), string(value)].concat();
        let block: Vec<u8> = all.iter().flat_map(line).collect();
        http2::decode_block(&block, &FieldLimits::NONE).unwrap()
    }

    #[test]
    fn a_response_has_one_status_of_three_digits_before_its_fields() {
        for code in ["100", "103", "200", "304", "404", "599", "999"] {
            let head = decode_response(literal_fields(&[(":status", code), ("content-length", "03")])).unwrap();
            assert_eq!((head.status.as_str(), head.content_length), (code, Some(3)));
            assert_eq!(head.fields.get(name::CONTENT_LENGTH), Some(&b"3"[..]));
        }
        let table: [&[(&str, &str)]; 22] = [
            &[],
            &[("a", "b")],
            &[(":status", "")],
            &[(":status", "20")],
            &[(":status", "2000")],
            &[(":status", "099")],
            &[(":status", "+20")],
            &[(":status", " 200")],
            &[(":status", "101")],
            &[(":status", "200"), (":status", "200")],
            &[("a", "b"), (":status", "200")],
            &[(":status", "200"), (":path", "/")],
            &[(":status", "200"), (":other", "")],
            &[(":status", "200"), ("connection", "close")],
            &[(":status", "200"), ("te", "gzip")],
            &[(":status", "200"), ("content-length", "1"), ("content-length", "1")],
            &[(":status", "200"), ("content-length", "+1")],
            &[(":status", "200"), ("content-length", "99999999999999999999")],
            &[(":status", "200"), ("A", "b")],
            &[(":status", "200"), ("", "b")],
            &[(":status", "200"), ("a b", "c")],
            &[(":status", "200"), ("a", "b\0")],
        ];
        for all in table {
            assert!(decode_response(literal_fields(all)).is_err(), "{all:?}");
        }
    }

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
            assert!(decode_trailers(literal_fields(&[field])).is_err(), "{field:?}");
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
