//! The rules for any single field, and for Content-Length (RFC 9114 §4.2, RFC 9110 §5.5, §8.6).

use super::Rejection;
use crate::{
    exchange::field,
    http3::qpack::{FieldName, Pseudo},
};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, header};

/// The name of a field that is not a pseudo-header: a token in lower case.
pub(super) enum Name {
    Pseudo(Pseudo),
    Regular(HeaderName),
}

/// Checks a field's name.
pub(super) fn name(name: FieldName) -> Result<Name, Rejection> {
    match name {
        FieldName::Pseudo(pseudo) => Ok(Name::Pseudo(pseudo)),
        FieldName::Known(name) => Ok(Name::Regular(name)),
        FieldName::Raw(raw) if raw.first() == Some(&b':') => {
            Pseudo::from_name(&raw).map(Name::Pseudo).ok_or(Rejection::Malformed("unknown pseudo-header"))
        }
        FieldName::Raw(raw) if !field::is_lower_case_token(&raw) => Err(NOT_A_NAME),
        FieldName::Raw(raw) => HeaderName::from_lowercase(&raw).map(Name::Regular).map_err(|_| NOT_A_NAME),
    }
}

const NOT_A_NAME: Rejection = Rejection::Malformed("field name is not a token in lower case");

/// Checks the value of any field, pseudo-headers included.
///
/// The RFC forbids NUL, CR, LF and blanks at the edges.
pub(super) fn check_value(value: &[u8]) -> Result<(), Rejection> {
    if value.iter().any(|byte| matches!(byte, 0 | b'\r' | b'\n')) {
        return Err(Rejection::Malformed("field value with NUL, CR or LF"));
    }
    if field::has_blank_edge(value) {
        return Err(Rejection::Malformed("field value with a blank at its edge"));
    }
    Ok(())
}

/// The value of a field that is not a pseudo-header. A [`HeaderValue`] holds no control character.
pub(super) fn value(value: Bytes) -> Result<HeaderValue, Rejection> {
    if field::has_blank_edge(&value) {
        return Err(Rejection::Malformed("field value with a blank at its edge"));
    }
    HeaderValue::from_maybe_shared(value).map_err(|_| Rejection::Malformed("field value with a control character"))
}

/// True if a [`HeaderName`] is a token: it may hold a quotation mark besides.
pub(super) fn is_token(name: &HeaderName) -> bool {
    field::is_token(name.as_str().as_bytes())
}

/// True for connection-specific fields (RFC 9114 §4.2).
pub(super) fn is_connection_specific(name: &HeaderName) -> bool {
    matches!(name.as_str(), "connection" | "keep-alive" | "proxy-connection" | "transfer-encoding" | "upgrade")
}

/// Fields that room is made for at once at most: all crumbs of `cookie` become one field, and there may be more of them
/// than a [`HeaderMap`] holds.
const MOST_AT_ONCE: usize = 1024;

/// An empty map with room for `fields` fields. There is a number of them beyond which a [`HeaderMap`] panics.
pub(super) fn map(fields: usize) -> Result<HeaderMap, Rejection> {
    HeaderMap::try_with_capacity(fields.min(MOST_AT_ONCE)).map_err(|_| TOO_MANY)
}

const TOO_MANY: Rejection = Rejection::Malformed("too many fields");

/// Adds a checked field.
pub(super) fn append(headers: &mut HeaderMap, name: HeaderName, value: HeaderValue) -> Result<(), Rejection> {
    if is_connection_specific(&name) {
        return Err(Rejection::Malformed("connection-specific field"));
    }
    if name == header::TE && !value.as_bytes().eq_ignore_ascii_case(b"trailers") {
        return Err(Rejection::Malformed("TE other than trailers"));
    }
    headers.try_append(name, value).map_err(|_| TOO_MANY)?;
    Ok(())
}

/// The Content-Length in `headers`, which is then rewritten in its plainest form: without leading zeros.
pub(super) fn content_length(headers: &mut HeaderMap) -> Result<Option<u64>, Rejection> {
    let mut values = headers.get_all(header::CONTENT_LENGTH).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(Rejection::Malformed("several Content-Length"));
    }
    let length = decimal(value.as_bytes()).ok_or(Rejection::Malformed("Content-Length is not a decimal number"))?;
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
    Ok(Some(length))
}

/// A number of digits only: no sign, list or blank.
fn decimal(text: &[u8]) -> Option<u64> {
    let digits = |text: &[u8]| !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    if !digits(text) {
        return None;
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}
