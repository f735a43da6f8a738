//! Parses the head of a response (RFC 9112 §4 to §6): the lines by httparse, persistence here.

use super::{MessageFraming, message_framing::FramingFields};
use crate::http2::{Http2FrameHeader, kind};
use crate::terms::FieldLimits;
use httparse::{Header, ParserConfig, Status};
use std::mem::MaybeUninit;

/// Longest head in bytes: twice the default limit of a client's, for origins that set many cookies.
pub const MAX_HEAD: usize = 64 * 1024;
/// Largest number of field lines of a head, and of trailers.
pub const MAX_FIELDS: usize = 100;
/// Limits of a response's header and trailers in any version of HTTP.
pub const RESPONSE_LIMITS: FieldLimits = FieldLimits { bytes: MAX_HEAD, fields: MAX_FIELDS };

/// Memory for the lines that a parser borrows from a head's bytes.
#[derive(Debug)]
pub struct HeadLines<'b> {
    lines: [MaybeUninit<Header<'b>>; MAX_FIELDS],
    /// Lines of a request whose limit is larger.
    more: Vec<Header<'b>>,
}

impl Default for HeadLines<'_> {
    fn default() -> Self {
        Self { lines: [const { MaybeUninit::uninit() }; MAX_FIELDS], more: Vec::new() }
    }
}

impl<'b> HeadLines<'b> {
    /// Returns memory for `count` lines.
    pub(super) fn first_lines(&mut self, count: usize) -> &mut [MaybeUninit<Header<'b>>] {
        if count > MAX_FIELDS {
            self.more.reserve_exact(count);
        }
        let lines = if count > MAX_FIELDS { self.more.spare_capacity_mut() } else { &mut self.lines };
        lines.get_mut(..count).unwrap_or_default()
    }
}

/// The reason why a head is rejected. It is always the server's fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HeadError {
    /// More than [`MAX_HEAD`] bytes or [`MAX_FIELDS`] lines.
    #[error("the response's header is too large")]
    TooLarge,
    /// A `Content-Length` that no body can have.
    #[error("the response's Content-Length is too large")]
    LengthTooLarge,
    /// The lines are not those of a response.
    #[error("the response's header is invalid: {0}")]
    Invalid(httparse::Error),
    /// A SETTINGS frame (RFC 9113 §3.4).
    #[error("the server speaks HTTP/2: protocol = \"h2\"")]
    Http2,
    /// A status below 100.
    #[error("the response's status is invalid")]
    Status,
    /// Several lengths that differ, or a length that is not a number.
    #[error("the response's Content-Length is invalid")]
    Length,
    /// A transfer coding in HTTP/1.0, which has none (RFC 9112 §6.1).
    #[error("a response in HTTP/1.0 has a transfer coding")]
    Coding,
}

/// A parsed head of a response.
#[derive(Debug)]
pub struct ParsedHead<'l, 'b> {
    /// The status code, from 100 to 999.
    pub status: u16,
    /// Whether the version is HTTP/1.0 rather than HTTP/1.1.
    pub is_http_10: bool,
    /// Bytes of the head. The body begins behind them.
    pub length: usize,
    lines: &'l [Header<'b>],
    framing_fields: FramingFields<'b>,
}

impl<'b> ParsedHead<'_, 'b> {
    /// Returns names and values in the order of the lines. Names are in the server's spelling; values have no blanks
    /// around them.
    pub fn parsed_fields(&self) -> impl ExactSizeIterator<Item = (&'b str, &'b [u8])> {
        self.lines.iter().map(|line| (line.name, line.value))
    }

    /// Whether the response is interim, so that another one follows: 1xx other than 101 (RFC 9110 §15.2).
    pub const fn is_interim(&self) -> bool {
        self.status < 200 && self.status != 101
    }

    /// Whether the connection may serve another request after this response: HTTP/1.1, without `close` in any line (RFC
    /// 9112 §9.3), and without two framings, of which the server may have meant the other (RFC 9112 §6.1). HTTP/1.0
    /// with `keep-alive` counts as closing.
    pub const fn is_persistent(&self) -> bool {
        !self.is_http_10 && !self.framing_fields.is_closing && !self.framing_fields.has_two_framings()
    }

    /// Returns the time in seconds after which the server closes the idle connection, as `Keep-Alive` announces (RFC
    /// 2068 §19.7.1.1).
    pub const fn keep_alive_seconds(&self) -> Option<u32> {
        self.framing_fields.keep_alive
    }

    /// Returns the delimiter of the body (RFC 9112 §6.3). `is_head`: the request's method is HEAD.
    ///
    /// # Errors
    ///
    /// The length is not one number, or HTTP/1.0 has a transfer coding.
    pub fn body_framing(&self, is_head: bool) -> Result<MessageFraming, HeadError> {
        if is_head || matches!(self.status, 100..=199 | 204 | 304) {
            return Ok(MessageFraming::None);
        }
        self.framing_fields.response_framing(self.is_http_10)
    }
}

/// Parses the head at the beginning of `bytes`; `None` if it is incomplete. Empty lines before the head are skipped
/// (RFC 9112 §2.2), and lines may end with LF alone. Everything else is strict: no folded line, no blank before a
/// colon.
///
/// # Errors
///
/// [`HeadError`], as soon as no further bytes can make a head of these.
pub fn parse_response_head<'l, 'b>(
    bytes: &'b [u8],
    lines: &'l mut HeadLines<'b>,
) -> Result<Option<ParsedHead<'l, 'b>>, HeadError> {
    let mut response = httparse::Response::new(&mut []);
    let parsed = ParserConfig::default().parse_response_with_uninit_headers(&mut response, bytes, &mut lines.lines);
    let length = match parsed {
        Ok(Status::Complete(length)) if length <= MAX_HEAD => length,
        Ok(Status::Partial) if bytes.len() < MAX_HEAD => return Ok(None),
        Ok(_) | Err(httparse::Error::TooManyHeaders) => return Err(HeadError::TooLarge),
        Err(error) => {
            let frame = bytes.first_chunk().map(Http2FrameHeader::parse_frame_header);
            let is_settings = frame.is_some_and(|frame| (frame.kind, frame.stream) == (kind::SETTINGS, 0));
            return Err(if is_settings { HeadError::Http2 } else { HeadError::Invalid(error) });
        }
    };
    let status = response.code.filter(|status| *status >= 100).ok_or(HeadError::Status)?;
    let is_http_10 = response.version == Some(0);
    let lines: &'l [Header<'b>] = response.headers;
    Ok(Some(ParsedHead { status, is_http_10, length, lines, framing_fields: FramingFields::read_lines(lines) }))
}

/// Whether `bytes`, of which the first `before` were no complete head, still have no end of a head. Only a complete
/// head is parsed again, so that one which arrives byte by byte is not parsed for each byte.
pub fn is_head_incomplete(bytes: &[u8], before: usize) -> bool {
    bytes.len() < MAX_HEAD && !has_head_end(bytes, before)
}

/// Whether a line of `bytes` is empty, of which none was in the first `before` bytes. Lines end with LF or CRLF.
pub fn has_head_end(bytes: &[u8], before: usize) -> bool {
    let fresh = bytes.get(before.saturating_sub(3)..).unwrap_or_default();
    let ends = |(at, _): (usize, &u8)| {
        let rest = fresh.get(at.saturating_add(1)..).unwrap_or_default();
        rest.starts_with(b"\n") || rest.starts_with(b"\r\n")
    };
    fresh.iter().enumerate().filter(|(_, byte)| **byte == b'\n').any(ends)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::{any, prop};

    /// A parsed head without borrowed parts.
    #[derive(Debug, PartialEq, Eq)]
    struct Found {
        status: u16,
        length: usize,
        is_persistent: bool,
        framing: Result<MessageFraming, HeadError>,
        fields: Vec<(String, Vec<u8>)>,
    }

    fn found(bytes: &[u8], is_head: bool) -> Result<Option<Found>, HeadError> {
        let mut lines = HeadLines::default();
        let head = parse_response_head(bytes, &mut lines)?;
        Ok(head.map(|head| {
            let fields = head.parsed_fields().map(|(name, value)| (name.to_owned(), value.to_vec()));
            let (is_persistent, framing) = (head.is_persistent(), head.body_framing(is_head));
            Found { status: head.status, length: head.length, is_persistent, framing, fields: fields.collect() }
        }))
    }

    /// Parses a head with these lines behind its status line.
    fn of(status_line: &str, lines: &str) -> Found {
        let text = format!("{status_line}\r\n{lines}\r\n");
        found(text.as_bytes(), false).unwrap().unwrap()
    }

    #[test]
    fn a_body_is_delimited_as_rfc_9112_says() {
        const OK: &str = "HTTP/1.1 200 OK";
        for (status_line, lines, framing) in [
            // 1. No body, whatever the fields say.
            ("HTTP/1.1 204 No Content", "Content-Length: 5\r\n", Ok(MessageFraming::None)),
            ("HTTP/1.1 304 Not Modified", "Transfer-Encoding: chunked\r\n", Ok(MessageFraming::None)),
            ("HTTP/1.1 103 Early Hints", "Content-Length: 5\r\n", Ok(MessageFraming::None)),
            ("HTTP/1.1 101 Switching Protocols", "", Ok(MessageFraming::None)),
            // 4. Transfer codings, the last of which must be chunked.
            (OK, "Transfer-Encoding: chunked\r\n", Ok(MessageFraming::Chunked)),
            (OK, "transfer-encoding: CHUNKED\r\n", Ok(MessageFraming::Chunked)),
            (OK, "Transfer-Encoding: gzip, chunked\r\n", Ok(MessageFraming::Chunked)),
            (OK, "Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n", Ok(MessageFraming::Chunked)),
            (OK, "Transfer-Encoding: chunked, gzip\r\n", Ok(MessageFraming::UntilClose)),
            (OK, "Transfer-Encoding: chunked;a=b\r\n", Ok(MessageFraming::UntilClose)),
            (OK, "Transfer-Encoding:\r\n", Ok(MessageFraming::UntilClose)),
            ("HTTP/1.0 200 OK", "Transfer-Encoding: chunked\r\n", Err(HeadError::Coding)),
            // 3. A transfer coding counts more than a length.
            (OK, "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", Ok(MessageFraming::Chunked)),
            // 5. One length or several equal ones.
            (OK, "Content-Length: 5\r\n", Ok(MessageFraming::Length(5))),
            (OK, "Content-Length: 0\r\n", Ok(MessageFraming::Length(0))),
            (OK, "Content-Length: 5\r\nContent-Length: 5\r\n", Ok(MessageFraming::Length(5))),
            (OK, "Content-Length: 5, 05\r\n", Ok(MessageFraming::Length(5))),
            (OK, "Content-Length: 5\r\nContent-Length: 6\r\n", Err(HeadError::Length)),
            (OK, "Content-Length: x\r\nContent-Length: 6\r\n", Err(HeadError::Length)),
            (OK, "Content-Length: 5, 6\r\n", Err(HeadError::Length)),
            (OK, "Content-Length: 5,\r\n", Err(HeadError::Length)),
            (OK, "Content-Length:\r\n", Err(HeadError::Length)),
            (OK, "Content-Length: +5\r\n", Err(HeadError::Length)),
            (OK, "Content-Length: 5 5\r\n", Err(HeadError::Length)),
            (OK, "Content-Length: 99999999999999999999\r\n", Err(HeadError::Length)),
            (OK, "Content-Length: 18446744073709551613\r\n", Ok(MessageFraming::Length(u64::MAX - 2))),
            (OK, "Content-Length: 18446744073709551614\r\n", Err(HeadError::LengthTooLarge)),
            // 8. Until the end.
            (OK, "", Ok(MessageFraming::UntilClose)),
            ("HTTP/1.0 200 OK", "Content-Length: 5\r\n", Ok(MessageFraming::Length(5))),
        ] {
            assert_eq!(of(status_line, lines).framing, framing, "{status_line:?} {lines:?}");
        }
        let bytes = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n";
        assert_eq!(found(bytes, true).unwrap().unwrap().framing, Ok(MessageFraming::None), "HEAD");
    }

    #[test]
    fn the_idle_time_that_a_server_announces_is_read() {
        for (lines, expected) in [
            ("Keep-Alive: timeout=5\r\n", Some(5)),
            ("keep-alive: max=100, Timeout = 72\r\n", Some(72)),
            ("Keep-Alive: timeout=0\r\n", Some(0)),
            ("Keep-Alive: timeout=5s\r\n", None),
            ("Keep-Alive: timeout=99999999999\r\n", None),
            ("Keep-Alive: max=100\r\n", None),
            ("Keep-Alive: 5\r\nConnection: keep-alive\r\n", None),
        ] {
            let bytes = format!("HTTP/1.1 200 OK\r\n{lines}\r\n");
            let mut parsed = HeadLines::default();
            let head = parse_response_head(bytes.as_bytes(), &mut parsed).unwrap().unwrap();
            assert_eq!(head.keep_alive_seconds(), expected, "{lines}");
        }
    }

    #[test]
    fn a_connection_persists_unless_any_line_says_close() {
        const OK: &str = "HTTP/1.1 200 OK";
        for (status_line, lines, is_persistent) in [
            (OK, "", true),
            (OK, "Connection: keep-alive\r\n", true),
            (OK, "Connection: close\r\n", false),
            (OK, "Connection: x, CLOSE\r\n", false),
            (OK, "Connection: close\r\nConnection: keep-alive\r\n", false),
            (OK, "Connection: keep-alive\r\nconnection: close\r\n", false),
            (OK, "Connection: closed\r\n", true),
            ("HTTP/1.0 200 OK", "Connection: keep-alive\r\n", false),
            (OK, "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", false),
        ] {
            assert_eq!(of(status_line, lines).is_persistent, is_persistent, "{status_line:?} {lines:?}");
        }
    }

    #[test]
    fn a_head_is_its_lines_and_their_values_without_blanks() {
        let text = b"\r\nHTTP/1.1 200\nX-A:  \t b \t \r\nx-a:\r\nY: \xe9\t1\r\n\r\nbody";
        let Found { status, length, fields, .. } = found(text, false).unwrap().unwrap();
        assert_eq!((status, &text[length..]), (200, &b"body"[..]));
        let expected: [(&str, &[u8]); 3] = [("X-A", b"b"), ("x-a", b""), ("Y", b"\xe9\t1")];
        assert_eq!(fields, expected.map(|(name, value)| (name.to_owned(), value.to_vec())));
    }

    #[test]
    fn ambiguous_response_heads_are_refused() {
        for text in [
            "SSH-2.0-OpenSSH_9.6\r\n",
            "HTTP/2.0 200 OK\r\n\r\n",
            "HTTP/1.2 200 OK\r\n\r\n",
            "http/1.1 200 OK\r\n\r\n",
            " HTTP/1.1 200 OK\r\n\r\n",
            "HTTP/1.1  200 OK\r\n\r\n",
            "HTTP/1.1 20 OK\r\n\r\n",
            "HTTP/1.1 2000 OK\r\n\r\n",
            "HTTP/1.1 200 O\0K\r\n\r\n",
            "HTTP/1.1 200 OK\r\n x: a\r\n\r\n",
            "HTTP/1.1 200 OK\r\nx: a\r\n b\r\n\r\n",
            "HTTP/1.1 200 OK\r\nx : a\r\n\r\n",
            "HTTP/1.1 200 OK\r\nx y: a\r\n\r\n",
            "HTTP/1.1 200 OK\r\n: a\r\n\r\n",
            "HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
            "HTTP/1.1 200 OK\r\nx: a\rb\r\n\r\n",
            "HTTP/1.1 200 OK\r\nx: a\0b\r\n\r\n",
            "HTTP/1.1 200 OK\r\nx: a\x7fb\r\n\r\n",
        ] {
            assert!(matches!(found(text.as_bytes(), false), Err(HeadError::Invalid(_))), "{text:?}");
        }
        assert_eq!(found(b"\0\0\x06\x04\0\0\0\0\0\0\x03\0\0\0d", false), Err(HeadError::Http2));
        assert_eq!(found(b"HTTP/1.1 099 OK\r\n\r\n", false), Err(HeadError::Status));
    }

    #[test]
    fn a_head_has_a_bounded_size_and_number_of_lines() {
        let with = |count: usize| format!("HTTP/1.1 200 OK\r\n{}\r\n", "x: y\r\n".repeat(count));
        assert!(found(with(MAX_FIELDS).as_bytes(), false).unwrap().is_some());
        assert_eq!(found(with(MAX_FIELDS + 1).as_bytes(), false), Err(HeadError::TooLarge));
        let of = |size: usize| format!("HTTP/1.1 200 OK\r\nx: {}\r\n\r\n", "y".repeat(size - 24));
        assert_eq!(found(of(MAX_HEAD).as_bytes(), false).unwrap().unwrap().length, MAX_HEAD);
        assert_eq!(found(of(MAX_HEAD + 1).as_bytes(), false), Err(HeadError::TooLarge));
        assert_eq!(found(&of(MAX_HEAD + 1).as_bytes()[..MAX_HEAD], false), Err(HeadError::TooLarge), "without its end");
        assert_eq!(found(&of(MAX_HEAD).as_bytes()[..MAX_HEAD - 1], false), Ok(None));
        assert!(!is_head_incomplete(&[b'x'; MAX_HEAD], 0));
    }

    proptest::proptest! {
        #[test]
        fn a_head_is_complete_only_where_it_is_not_unfinished(
            lines in prop::collection::vec("(x: [a-z ]{0,8}|\\r)?(\\r\\n|\\n)", 0..5),
            noise in prop::collection::vec(any::<u8>(), 0..60),
            cut in 0_usize..60,
        ) {
            let _ = found(&noise, false);
            let text = ["HTTP/1.1 200 OK\r\n", &lines.concat()].concat();
            let bytes = text.as_bytes();
            let before = cut.min(bytes.len());
            if found(&bytes[..before], false) == Ok(None) && is_head_incomplete(bytes, before) {
                proptest::prop_assert!(!matches!(found(bytes, false), Ok(Some(_))), "{:?} {}", text, before);
            }
        }
    }
}
