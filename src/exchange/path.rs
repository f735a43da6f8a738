//! Which path, `:path` in HTTP/3, goes on to an origin. It goes on byte for byte, so that route, log and origin see one path.

use bytes::Bytes;
use http::{Method, StatusCode, uri::PathAndQuery};

/// Checks a path with its query and takes it over unchanged.
///
/// # Errors
///
/// The status to answer with, and why.
pub fn path(method: &Method, raw: Bytes) -> Result<PathAndQuery, (StatusCode, &'static str)> {
    if let Some(reason) = fault(method, &raw) {
        return Err((StatusCode::BAD_REQUEST, reason));
    }
    if raw.len() > MAX_LEN {
        return Err((StatusCode::URI_TOO_LONG, "path is too long"));
    }
    // `http` refuses `<`, `>` and here or there a quotation mark or grave accent as well; anything that it normalizes
    // must not pass either.
    let parsed = PathAndQuery::from_maybe_shared(raw.clone()).ok().filter(|path| path.as_str().as_bytes() == raw);
    parsed.ok_or((StatusCode::BAD_REQUEST, "path with a forbidden character"))
}

/// What [`PathAndQuery`] holds at most, in bytes.
const MAX_LEN: usize = u16::MAX as usize - 1;

fn fault(method: &Method, raw: &[u8]) -> Option<&'static str> {
    if raw == b"*" {
        return (method != Method::OPTIONS).then_some("path * without OPTIONS");
    }
    if raw.first() != Some(&b'/') {
        return Some("path does not begin with a slash");
    }
    if raw.iter().any(|byte| !matches!(byte, b'!'..=b'~') || *byte == b'#') {
        return Some("path with a blank, a control character, # or non-ASCII");
    }
    let path = raw.split(|byte| *byte == b'?').next().unwrap_or_default();
    if path.contains(&b'\\') {
        return Some("path with a backslash");
    }
    has_dot_segment(path).then_some("path with a dot segment")
}

/// True if a segment of `path` is `.` or `..`, plain or percent-encoded.
///
/// Origins differ in what they decode before they resolve dots: an encoded slash or backslash passes, yet counts as
/// a separator here (`/a%2f..%2fb`), and parameters do not hide dots (`/..;x/`), as servlet containers drop them.
fn has_dot_segment(path: &[u8]) -> bool {
    let mut rest = path;
    // Dots of the segment so far; `None` once it holds anything else, and before the first slash.
    let mut dots = None;
    while let Some((byte, tail)) = next_decoded(rest) {
        rest = tail;
        dots = match (dots, byte) {
            (Some(1 | 2), b'/' | b'\\' | b';') => return true,
            (_, b'/' | b'\\') => Some(0_u8),
            (Some(count @ 0..=1), b'.') => Some(count.saturating_add(1)),
            _ => None,
        };
    }
    matches!(dots, Some(1 | 2))
}

/// The first byte of `text`, percent-decoded once, and what follows it.
fn next_decoded(text: &[u8]) -> Option<(u8, &[u8])> {
    if let [b'%', high, low, tail @ ..] = text
        && let (Some(high), Some(low)) = (hex(*high), hex(*low))
    {
        return Some((high << 4 | low, tail));
    }
    text.split_first().map(|(byte, tail)| (*byte, tail))
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok())
}
