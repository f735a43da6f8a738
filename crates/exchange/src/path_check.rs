//! Checks a request's path, `:path` in HTTP/3. It is forwarded byte for byte, so that route, log and origin see one
//! path. Pure.

use super::path_readings::{is_path_end, next_decoded_twice};
use http::{Method, StatusCode};

/// Checks a path with its query.
///
/// # Errors
///
/// The response's status, and the reason.
pub fn check_path(method: &Method, raw: &[u8]) -> Result<(), (StatusCode, &'static str)> {
    if is_plain_path(raw) {
        return Ok(());
    }
    if let Some(reason) = find_path_fault(method, raw) {
        return Err((StatusCode::BAD_REQUEST, reason));
    }
    if raw.len() > MAX_PATH_LEN {
        return Err((StatusCode::URI_TOO_LONG, "path is too long"));
    }
    if has_forbidden_character(raw) {
        return Err((StatusCode::BAD_REQUEST, "path with a forbidden character"));
    }
    Ok(())
}

/// Longest path including the query, in bytes.
const MAX_PATH_LEN: usize = u16::MAX as usize - 1;

/// Whether no rule can reject a path, as for most: it begins with a slash, has no suspicious character, and no segment
/// that begins with a dot.
fn is_plain_path(raw: &[u8]) -> bool {
    let suspicious = |(before, found): (u8, bool), byte: &u8| {
        let is_suspicious = IS_SUSPICIOUS_BYTE.get(usize::from(*byte)) == Some(&true);
        (*byte, found | is_suspicious | ((before == b'/') & (*byte == b'.')))
    };
    raw.first() == Some(&b'/') && raw.len() <= MAX_PATH_LEN && !raw.iter().fold((0, false), suspicious).1
}

/// Whether a byte is forbidden in a path or a query, or is one that an origin may decode.
#[expect(clippy::indexing_slicing, reason = "while compiling, and within the table")]
const IS_SUSPICIOUS_BYTE: [bool; 256] = {
    let (mut table, mut byte) = ([true; 256], 0_u8);
    while byte < 128 {
        let is_rare = matches!(byte, b'#' | b'%' | b'\\' | b'<' | b'>' | b'`' | b'"');
        table[byte as usize] = !byte.is_ascii_graphic() || is_rare;
        byte += 1;
    }
    table
};

/// Whether a visible ASCII character stands where RFC 3986 §3.3 forbids it and clients do not send it: `<` or `>`, a
/// grave accent in the path, a quotation mark in the query.
fn has_forbidden_character(raw: &[u8]) -> bool {
    let query = raw.iter().position(|byte| *byte == b'?').unwrap_or(raw.len());
    let (path, query) = raw.split_at_checked(query).unwrap_or((raw, b""));
    path.iter().any(|byte| matches!(byte, b'<' | b'>' | b'`'))
        || query.iter().any(|byte| matches!(byte, b'<' | b'>' | b'"'))
}

fn find_path_fault(method: &Method, raw: &[u8]) -> Option<&'static str> {
    if raw == b"*" {
        return (method != Method::OPTIONS).then_some("path * without OPTIONS");
    }
    if raw.first() != Some(&b'/') {
        return Some("path does not begin with a slash");
    }
    if raw.iter().any(|byte| !matches!(byte, b'!'..=b'~') || *byte == b'#') {
        return Some("path with a space, a control character, # or a non-ASCII character");
    }
    let path = raw.split(|byte| *byte == b'?').next().unwrap_or_default();
    if path.contains(&b'\\') {
        return Some("path with a backslash");
    }
    has_dot_segment(path).then_some("path with a dot segment")
}

/// Whether a segment of `path` is `.` or `..`: as it stands, or percent-encoded once or twice.
///
/// Origins differ in what they decode before they resolve dots: an encoded slash or backslash passes, yet counts as a
/// separator here (`/a%2f..%2fb`); parameters do not hide dots (`/..;x/`), as servlet containers drop them, nor does an
/// encoded character that ends the path for some origins (`/..%00`).
fn has_dot_segment(path: &[u8]) -> bool {
    // Most paths have neither an escape nor a segment that begins with a dot. This scan without a branch spares the
    // decoding.
    let pairs = path.iter().zip(path.iter().skip(1));
    let dots_or_escapes =
        |found, (first, second): (&u8, &u8)| found | (*first == b'%') | ((*first == b'/') & (*second == b'.'));
    if !pairs.fold(false, dots_or_escapes) {
        return false;
    }
    let mut rest = path;
    // Number of dots in the segment so far; `None` after any other character, and before the first slash.
    let mut dots = None;
    while let Some((byte, tail)) = next_decoded_twice(rest) {
        rest = tail;
        let is_separator = matches!(byte, b'/' | b'\\');
        dots = match dots {
            Some(1 | 2) if is_separator || byte == b';' || is_path_end(byte) => return true,
            _ if is_separator => Some(0_u8),
            Some(count @ 0..=1) if byte == b'.' => Some(count.saturating_add(1)),
            _ => None,
        };
    }
    matches!(dots, Some(1 | 2))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::{prop, prop_assert, proptest};

    proptest! {
        #[test]
        fn harmless_paths_pass_every_check(bytes in prop::collection::vec(prop::sample::select(b"/.?;a%#\\\"`<>~ \x7f\xff".to_vec()), 0..12)) {
            let is_faulty = |method| find_path_fault(&method, &bytes).is_some() || has_forbidden_character(&bytes);
            if is_plain_path(&bytes) {
                prop_assert!(!is_faulty(Method::GET) && !is_faulty(Method::OPTIONS), "{bytes:?}");
            }
        }
    }

    /// [`http::uri::PathAndQuery`] is the oracle of all other forbidden characters.
    #[test]
    fn a_character_passes_as_an_uri_has_it() {
        for byte in 0..=u8::MAX {
            for place in [&[b'/', byte][..], &[b'/', byte, b'a'], &[b'/', b'?', byte], &[b'/', b'?', b'a', byte, b'?']]
            {
                let passes = check_path(&Method::GET, place).is_ok();
                let taken =
                    http::uri::PathAndQuery::try_from(place).is_ok_and(|path| path.as_str().as_bytes() == place);
                let refused = find_path_fault(&Method::GET, place).is_some();
                assert_eq!(passes, taken && !refused, "{place:?}");
            }
        }
        for (length, status) in [(MAX_PATH_LEN, None), (MAX_PATH_LEN + 1, Some(StatusCode::URI_TOO_LONG))] {
            let long = [b"/".repeat(length - 1), b"a".to_vec()].concat();
            assert_eq!(check_path(&Method::GET, &long).err().map(|(status, _)| status), status);
            assert_eq!(http::uri::PathAndQuery::try_from(&long[..]).is_ok(), status.is_none());
        }
    }

    #[test]
    fn dot_segments_are_found_after_two_decodings_and_any_segment_end() {
        for (path, found) in [
            ("/", false),
            ("/a.b/..c/.d/...", false),
            ("/.", true),
            ("/..", true),
            ("/a/./b", true),
            ("/a/../b", true),
            ("/a/..", true),
            ("/%2e", true),
            ("/.%2E/b", true),
            ("/a%2f..%2fb", true),
            ("/a%5c..%5cb", true),
            ("/..;x/b", true),
            ("/..%3bx/b", true),
            ("/%252e%252e/b", true),
            ("/%25%32%65%25%32%65", true),
            ("/%u002e./b", true),
            ("/a%252f..%252fb", true),
            ("/..%00/b", true),
            ("/..%00", true),
            ("/b/..%3fx", true),
            ("/b/..%23", true),
            ("/%25252e/b", false),
            ("/..x%2f", false),
            ("/a%2f...", false),
            ("/%", false),
            ("/.%", false),
        ] {
            assert_eq!(has_dot_segment(path.as_bytes()), found, "{path}");
        }
    }
}
