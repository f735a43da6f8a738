//! Parses the head of a request (RFC 9112 §3 to §6): the lines by httparse, and here what httparse and hyper accept
//! although another parser may read it differently.

use super::{HeadLines, MessageFraming, message_framing::FramingFields};
use http::StatusCode;
use httparse::{Error, Request, Status};

/// A parsed head of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestHead<'b> {
    /// The method, a token.
    pub method: &'b str,
    /// The target in any form, not checked.
    pub target: &'b str,
    /// Bytes of the head. The body begins behind them.
    pub length: usize,
    /// The delimiter of the body.
    pub framing: MessageFraming,
    /// Whether the bytes behind the head may not be HTTP: a GET without a body asks for another protocol (RFC 9110
    /// §7.8).
    pub is_switch: bool,
}

/// Parses the head at the beginning of `bytes`, which has at most `max_lines` field lines; `None` if it is incomplete.
/// Each line ends with CRLF, and the body has only one reading. Empty lines before the head are skipped.
///
/// # Errors
///
/// The response's status, and the reason. No more requests are to be read from the connection.
pub fn parse_request_head(
    bytes: &[u8],
    max_lines: usize,
) -> Result<Option<RequestHead<'_>>, (StatusCode, &'static str)> {
    let (mut request, mut lines) = (Request::new(&mut []), HeadLines::default());
    let length = match request.parse_with_uninit_headers(bytes, lines.first_lines(max_lines)) {
        Ok(Status::Complete(length)) => length,
        Ok(Status::Partial) => return Ok(None),
        Err(error) => return Err(head_fault(error, bytes)),
    };
    let head = bytes.get(..length).unwrap_or_default();
    // Without a branch for each byte.
    let is_bare_lf = |found, (before, byte): (&u8, &u8)| found | ((*byte == b'\n') & (*before != b'\r'));
    if head.iter().zip(head.iter().skip(1)).fold(head.starts_with(b"\n"), is_bare_lf) {
        return Err((StatusCode::BAD_REQUEST, "a bare LF"));
    }
    let fields = FramingFields::read_lines(request.headers);
    let is_http_10 = request.version == Some(0);
    let framing = fields.request_framing(is_http_10)?;
    let method = request.method.unwrap_or_default();
    let has_body = !matches!(framing, MessageFraming::None | MessageFraming::Length(0));
    let is_switch = fields.asks_for_upgrade() && method == "GET" && !is_http_10 && !has_body;
    Ok(Some(RequestHead { method, target: request.path.unwrap_or_default(), length, framing, is_switch }))
}

fn head_fault(error: Error, bytes: &[u8]) -> (StatusCode, &'static str) {
    let reason = match error {
        Error::TooManyHeaders => return (StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "too many fields"),
        Error::Version if is_other_version(bytes) => {
            return (StatusCode::HTTP_VERSION_NOT_SUPPORTED, "not HTTP/1.1");
        }
        Error::Version => "invalid HTTP version",
        Error::HeaderName => "a field's name is not a token, or a line is folded or without a colon",
        Error::HeaderValue => "field value with a control character",
        Error::NewLine => "a line without CRLF",
        _ => "the request line is not a method, a target and a version",
    };
    (StatusCode::BAD_REQUEST, reason)
}

/// Whether the first line of `bytes` is a request line with a version of HTTP.
fn is_other_version(bytes: &[u8]) -> bool {
    let line = bytes.split(|byte| matches!(byte, b'\r' | b'\n')).next().unwrap_or_default();
    let mut parts = line.split(|byte| *byte == b' ').skip(2);
    match (parts.next().and_then(|version| version.strip_prefix(b"HTTP/")), parts.next()) {
        (Some([major, b'.', minor]), None) => major.is_ascii_digit() && minor.is_ascii_digit(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::{any, prop};

    const MAX_LINES: usize = 6;

    /// Returns the status of a refusal, or 0.
    fn status(head: &str) -> u16 {
        parse_request_head(head.as_bytes(), MAX_LINES).map_or_else(|(status, _)| status.as_u16(), |_| 0)
    }

    #[test]
    fn an_accepted_head_has_the_framing_of_the_body() {
        const NONE: (MessageFraming, bool) = (MessageFraming::None, false);
        for (head, expected) in [
            ("GET / HTTP/1.1\r\nHost: a\r\n\r\n", NONE),
            ("GET / HTTP/1.0\r\nHost: a\r\n\r\n", NONE),
            ("OPTIONS * HTTP/1.1\r\nhost:a:1\r\n\r\n", NONE),
            ("BREW /%20 HTTP/1.1\r\nHost: [::1]:8443\r\nX: \t \r\n\r\n", NONE),
            ("POST / HTTP/1.1\r\nContent-Length: 007\r\n\r\n", (MessageFraming::Length(7), false)),
            ("POST / HTTP/1.1\r\ntransfer-encoding:\tChunked \r\n\r\n", (MessageFraming::Chunked, false)),
            ("GET / HTTP/1.1\r\nupgrade: x\r\nconnection: close , Upgrade\r\n\r\n", (MessageFraming::None, true)),
            ("GET / HTTP/1.1\r\nUpgrade: x\r\nConnection: x\r\n\r\n", NONE),
            ("GET / HTTP/1.1\r\nConnection: upgrade\r\n\r\n", NONE),
            ("GET / HTTP/1.0\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", NONE),
            ("POST / HTTP/1.1\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", NONE),
        ] {
            let found = parse_request_head(head.as_bytes(), MAX_LINES).unwrap().unwrap();
            assert_eq!(((found.framing, found.is_switch), found.length), (expected, head.len()), "{head:?}");
            assert_eq!(parse_request_head(&head.as_bytes()[..head.len() - 1], MAX_LINES), Ok(None), "{head:?}");
        }
        let target = parse_request_head(b"GET http://a/b?c HTTP/1.1\r\nHost: A\r\n\r\n", MAX_LINES).unwrap().unwrap();
        assert_eq!((target.method, target.target), ("GET", "http://a/b?c"));
    }

    #[test]
    fn a_request_with_two_readings_of_its_body_is_refused() {
        for (lines, expected) in [
            ("Transfer-Encoding: chunked\r\nContent-Length: 5", 400),
            ("Content-Length: 5\r\nTransfer-Encoding: chunked", 400),
            ("Content-Length: 5\r\nContent-Length: 5", 400),
            ("Content-Length: 5, 5", 400),
            ("Content-Length: 5,", 400),
            ("Content-Length:", 400),
            ("Content-Length: 18446744073709551614", 400),
            ("Transfer-Encoding: chunked, gzip", 400),
            ("Transfer-Encoding: chunked, chunked", 400),
            ("Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked", 400),
            ("Transfer-Encoding: gzip, chunked", 501),
            ("Transfer-Encoding:", 400),
        ] {
            assert_eq!(status(&format!("POST / HTTP/1.1\r\n{lines}\r\n\r\n")), expected, "{lines:?}");
        }
        assert_eq!(status("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"), 400);
    }

    #[test]
    fn a_request_line_is_a_method_a_target_and_a_version() {
        for (line, expected) in [
            ("GET /", 400),
            ("GET  / HTTP/1.1", 400),
            ("GET / HTTP/1.1 ", 400),
            ("G E T / HTTP/1.1", 400),
            ("GET / http/1.1", 400),
            ("GET / HTTP/1.10", 400),
            ("GET / HTTP/2.0 x", 400),
            ("GET / HTTP/1.2", 505),
            ("PRI * HTTP/2.0", 505),
            ("G{T / HTTP/1.1", 400),
        ] {
            assert_eq!(status(&format!("{line}\r\nHost: a\r\n\r\n")), expected, "{line:?}");
        }
    }

    #[test]
    fn a_cr_before_a_lines_end_is_refused_in_every_line() {
        for head in [
            "GET / HTTP/1.1\r\r\nHost: a\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\r\nX: b\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\nX:\r\r\n\r\n",
        ] {
            assert_eq!(status(head), 400, "{head:?}");
        }
    }

    /// A form feed is no white space that may stand around a value (RFC 9110 §5.6.3).
    #[test]
    fn a_form_feed_beside_a_value_is_refused() {
        for line in ["Content-Length:\u{c}5", "Transfer-Encoding: chunked\u{c}", "Connection: \u{c}upgrade", "X:\u{c}"]
        {
            assert_eq!(status(&format!("GET / HTTP/1.1\r\nHost: a\r\nUpgrade: x\r\n{line}\r\n\r\n")), 400, "{line:?}");
        }
    }

    #[test]
    fn a_request_head_has_a_bounded_number_of_lines() {
        for most in [MAX_LINES, 100, 101, 1000] {
            let with = |count: usize| format!("GET / HTTP/1.1\r\n{}\r\n", "x: y\r\n".repeat(count));
            assert!(parse_request_head(with(most).as_bytes(), most).unwrap().is_some(), "{most}");
            let (status, _) = parse_request_head(with(most + 1).as_bytes(), most).unwrap_err();
            assert_eq!(status, StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "{most}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_request_head_bytes_panic(head in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse_request_head(&head, MAX_LINES);
            let _ = parse_request_head(&[b"GET / HTTP/1.1\r\n", &head[..], b"\r\n\r\n"].concat(), MAX_LINES);
        }

        /// A head that hyper would read differently is never accepted: each line ends with CRLF.
        #[test]
        fn every_line_of_an_accepted_head_ends_with_crlf(head in "[A-Za-z :/.1\r\n]{0,80}") {
            let head = format!("GET / HTTP/1.1\r\nHost: a\r\n{head}\r\n\r\n");
            if let Ok(Some(found)) = parse_request_head(head.as_bytes(), 100) {
                let bare = head[..found.length].replace("\r\n", "");
                proptest::prop_assert!(!bare.contains(['\r', '\n']), "{head:?}");
            }
        }
    }
}
