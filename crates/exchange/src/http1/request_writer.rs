//! Writes a request (RFC 9112 §3, §5, §7.1).

use std::fmt::Write as _;

/// The bytes that end a chunk's data.
pub const CHUNK_END: &[u8] = b"\r\n";
/// The last chunk; trailers and an empty line follow.
pub const LAST_CHUNK: &[u8] = b"0\r\n";

/// Appends a request's head to `out`: the request line with `method` and `target`, `fields`, and the empty line.
///
/// A target without a path, which begins with its query, gets the path `/` (RFC 9112 §3.2.1). Names and values must be
/// valid; nothing is escaped.
pub fn write_request_head<'f>(
    out: &mut Vec<u8>,
    method: &str,
    target: &[u8],
    fields: impl IntoIterator<Item = (&'f str, &'f [u8])>,
) {
    out.extend_from_slice(method.as_bytes());
    out.push(b' ');
    if !matches!(target.first(), Some(b'/' | b'*')) {
        out.push(b'/');
    }
    out.extend_from_slice(target);
    out.extend_from_slice(b" HTTP/1.1\r\n");
    write_fields(out, fields);
}

/// Appends a field to a head that [`write_request_head`] has written.
pub fn append_head_field(head: &mut Vec<u8>, name: &str, value: &[u8]) {
    // Remove the empty line.
    head.truncate(head.len().saturating_sub(2));
    write_fields(head, [(name, value)]);
}

/// Appends `fields` and an empty line, which end a head or trailers.
pub fn write_fields<'f>(out: &mut Vec<u8>, fields: impl IntoIterator<Item = (&'f str, &'f [u8])>) {
    for (name, value) in fields {
        out.reserve(name.len().saturating_add(value.len()).saturating_add(4));
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(b": ");
        out.extend_from_slice(value);
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(b"\r\n");
}

/// Returns the line before `size` bytes of a chunk's data (RFC 9112 §7.1). A chunk has at least one byte.
pub fn format_chunk_line(size: usize) -> String {
    let mut line = String::with_capacity(18);
    // Writing to a string does not fail.
    let _ = write!(line, "{size:X}\r\n");
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::str;

    #[test]
    fn a_head_is_written_byte_for_byte() {
        for (method, target, fields, expected) in [
            ("GET", "/a?b", &[("host", &b"a"[..]), ("x", b"")][..], "GET /a?b HTTP/1.1\r\nhost: a\r\nx: \r\n\r\n"),
            ("OPTIONS", "*", &[], "OPTIONS * HTTP/1.1\r\n\r\n"),
            ("GET", "?b", &[], "GET /?b HTTP/1.1\r\n\r\n"),
            ("GET", "", &[], "GET / HTTP/1.1\r\n\r\n"),
            ("BREW", "/", &[("x", b"1"), ("x", b"2")], "BREW / HTTP/1.1\r\nx: 1\r\nx: 2\r\n\r\n"),
        ] {
            let mut out = Vec::new();
            write_request_head(&mut out, method, target.as_bytes(), fields.iter().copied());
            assert_eq!(str::from_utf8(&out).unwrap(), expected);
            append_head_field(&mut out, "y", b"3");
            let expected = expected.strip_suffix("\r\n").unwrap();
            assert_eq!(str::from_utf8(&out).unwrap(), format!("{expected}y: 3\r\n\r\n"));
        }
    }

    #[test]
    fn a_chunks_size_is_written_in_hex_and_read_again() {
        for (size, line) in [(1, "1\r\n"), (255, "FF\r\n"), (65_536, "10000\r\n")] {
            assert_eq!(format_chunk_line(size), line);
        }
        assert_eq!(
            httparse::parse_chunk_size(format_chunk_line(usize::MAX).as_bytes()),
            Ok(httparse::Status::Complete((18, u64::MAX)))
        );
    }
}
