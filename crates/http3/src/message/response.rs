//! Decodes a field section into a response, with a client's checks (RFC 9114 §4.3.2).

use super::{Rejection, field_checks};
use http::{Response, StatusCode, Version};
use litequic_exchange::{DecodedFields, Fields, name};

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

impl DecodedResponse {
    /// Converts the head into a response with `body`.
    pub fn into_response<B>(self, body: B) -> Response<B> {
        let mut response = Response::new(body);
        *response.status_mut() = self.status;
        *response.headers_mut() = self.fields.into();
        *response.version_mut() = Version::HTTP_3;
        response
    }
}

/// Decodes a response from the fields of its header.
///
/// # Errors
///
/// [`Rejection::Malformed`] alone.
pub fn decode_response(decoded: DecodedFields) -> Result<DecodedResponse, Rejection> {
    let (mut status, mut regular_seen) = (None, false);
    let mut fields = decoded.into_fields(|line| {
        if !line.id.is_pseudo() {
            regular_seen = true;
            return field_checks::check_field(&line).map(|()| true);
        }
        if regular_seen {
            return Err(Rejection::Malformed("pseudo-header after another field"));
        }
        if line.id != name::STATUS.id() {
            return Err(Rejection::Malformed("a request's pseudo-header in a response"));
        }
        // A status has three digits, 100 to 999.
        let code = StatusCode::from_bytes(line.value);
        match status.replace(code.map_err(|_| Rejection::Malformed(":status is not three digits"))?) {
            None => Ok(false),
            Some(_) => Err(Rejection::Malformed("duplicate :status")),
        }
    })?;
    let status = status.ok_or(Rejection::Malformed("no :status"))?;
    // HTTP/3 has no upgrade (RFC 9114 §4.5).
    if status == StatusCode::SWITCHING_PROTOCOLS {
        return Err(Rejection::Malformed("status 101"));
    }
    field_checks::check_connection_fields(&fields)?;
    let content_length = field_checks::normalize_content_length(&mut fields)?;
    Ok(DecodedResponse { status, fields, content_length })
}

#[cfg(test)]
mod tests {
    use super::super::test_support::{is_malformed_result, literal_fields};
    use super::*;

    #[test]
    fn a_response_has_one_status_of_three_digits_before_its_fields() {
        for code in ["100", "103", "200", "304", "404", "599", "999"] {
            let head = decode_response(literal_fields(&[(":status", code), ("content-length", "3")])).unwrap();
            assert_eq!((head.status.as_str(), head.content_length), (code, Some(3)));
            assert_eq!(head.into_response(()).version(), Version::HTTP_3);
        }
        let table: [&[(&str, &str)]; 14] = [
            &[],
            &[("a", "b")],
            &[(":status", "")],
            &[(":status", "20")],
            &[(":status", "2000")],
            &[(":status", "099")],
            &[(":status", "+20")],
            &[(":status", "101")],
            &[(":status", "200"), (":status", "200")],
            &[("a", "b"), (":status", "200")],
            &[(":status", "200"), (":path", "/")],
            &[(":status", "200"), ("connection", "close")],
            &[(":status", "200"), ("content-length", "1"), ("content-length", "1")],
            &[(":status", "200"), ("A", "b")],
        ];
        for all in table {
            assert!(is_malformed_result(&decode_response(literal_fields(all))), "{all:?}");
        }
    }
}
