//! Checks single fields, and Content-Length (RFC 9114 §4.2, RFC 9110 §5.5, §8.6).

use super::Rejection;
use litequic_exchange::{DecodedLine, Fields, NameSet, field_syntax, name};

const NOT_A_NAME: Rejection = Rejection::Malformed("field name is not a token in lower case");
const BLANK_EDGE: Rejection = Rejection::Malformed("field value with leading or trailing whitespace");
pub(super) const CONNECTION_FIELD: Rejection = Rejection::Malformed("connection-specific field");

/// Checks a field that is not a pseudo-header: the name is a token in lower case, the value has no control characters
/// and no blanks at its edges.
pub(super) fn check_field(line: &DecodedLine<'_>) -> Result<(), Rejection> {
    if !line.id.is_known() && !field_syntax::is_lower_case_token(line.name) {
        let is_pseudo = line.name.starts_with(b":");
        return Err(if is_pseudo { Rejection::Malformed("unknown pseudo-header") } else { NOT_A_NAME });
    }
    if field_syntax::has_blank_edge(line.value) {
        return Err(BLANK_EDGE);
    }
    if !field_syntax::is_field_value(line.value) {
        return Err(Rejection::Malformed("field value with a control character"));
    }
    Ok(())
}

/// Checks the value of a pseudo-header: no NUL, CR or LF, and no blanks at its edges.
pub(super) fn check_pseudo_value(value: &[u8]) -> Result<(), Rejection> {
    if value.iter().any(|byte| matches!(byte, 0 | b'\r' | b'\n')) {
        return Err(Rejection::Malformed("field value with NUL, CR or LF"));
    }
    if field_syntax::has_blank_edge(value) {
        return Err(BLANK_EDGE);
    }
    Ok(())
}

/// Connection-specific fields (RFC 9114 §4.2).
pub(super) const CONNECTION_SPECIFIC: NameSet = NameSet::from_names(&[
    name::CONNECTION,
    name::KEEP_ALIVE,
    name::PROXY_CONNECTION,
    name::TRANSFER_ENCODING,
    name::UPGRADE,
]);

/// Checks that no field is connection-specific, and that `TE` has no value but `trailers`.
pub(super) fn check_connection_fields(fields: &Fields) -> Result<(), Rejection> {
    if fields.name_set().intersects(CONNECTION_SPECIFIC) {
        return Err(CONNECTION_FIELD);
    }
    if fields.all_values(name::TE).any(|value| !value.eq_ignore_ascii_case(b"trailers")) {
        return Err(Rejection::Malformed("TE other than trailers"));
    }
    Ok(())
}

/// Returns the Content-Length in `fields`, and rewrites the field without leading zeros.
pub(super) fn normalize_content_length(fields: &mut Fields) -> Result<Option<u64>, Rejection> {
    let Some(value) = fields.get(name::CONTENT_LENGTH) else { return Ok(None) };
    if fields.all_values(name::CONTENT_LENGTH).nth(1).is_some() {
        return Err(Rejection::Malformed("more than one Content-Length"));
    }
    let length = parse_decimal(value).ok_or(Rejection::Malformed("Content-Length is not a decimal number"))?;
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
    std::str::from_utf8(text).ok()?.parse().ok()
}
