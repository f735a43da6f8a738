//! Checks the head of an HTTP/1.1 request byte by byte, and finds the delimiter of its body (RFC 9112 §2 to §6). Pure.
//!
//! hyper parses the head once more, and accepts more than RFC 9112 allows two parsers to agree on: a bare LF as a
//! line's end, `Content-Length` beside `Transfer-Encoding`, several equal `Content-Length`s, a target whose fragment it
//! drops. A head that is accepted here has only one reading.

use crate::refusal::{Refusal, RefusalLimit};
use http::{Method, StatusCode};
use litequic_exchange::{
    LastAuthority, check_path,
    field_syntax::{find_value_fault, is_token},
    terms::FieldLimits,
};
use std::borrow::Cow;

/// The delimiter of a request's body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RequestFraming {
    /// `Content-Length`, or no body.
    Length(u64),
    /// `Transfer-Encoding: chunked`
    Chunked,
    /// No body. The bytes behind the head may not be HTTP (RFC 9110 §7.8).
    Switch,
}

#[derive(Default)]
struct RequestFramingFields<'a> {
    host: Option<&'a [u8]>,
    content_length: Option<u64>,
    chunked: bool,
    has_upgrade: bool,
    /// `Connection` names `Upgrade`.
    connection_names_upgrade: bool,
}

/// Checks a head, which ends with its empty line. `last` caches the authority.
///
/// # Errors
///
/// The refusal. No more requests are to be read from the connection.
pub(super) fn check_request_head(
    head: &[u8],
    bounds: &FieldLimits,
    last: &LastAuthority,
) -> Result<RequestFraming, Refusal> {
    if has_bare_lf(head) {
        return Err(BARE_LF);
    }
    // Each line keeps the CR of its end, also the last one.
    let mut lines = head.strip_suffix(b"\n\r\n").unwrap_or(head).split(|byte| *byte == b'\n').map(strip_line_cr);
    let mut next = || lines.next();
    let request_line = next().unwrap_or(Ok(b""))?;
    let (method, target, minor) = parse_request_line(request_line)?;
    let mut fields = RequestFramingFields::default();
    if target.len() > bounds.bytes {
        return Err(Refusal::uri_too_long());
    }
    let (mut count, mut bytes) =
        (0_usize, PSEUDO_HEADER_BYTES.saturating_add(method.as_str().len()).saturating_add(target.len()));
    while let Some(line) = next() {
        let (name, value) = parse_field_line(line?)?;
        // Over HTTP/2 and HTTP/3 the host is a pseudo-header field, which does not count.
        if name.eq_ignore_ascii_case(b"host") {
            bytes = bytes.saturating_add(":authority".len() - "host".len());
        } else {
            count = count.saturating_add(1);
        }
        bytes = bytes.saturating_add(name.len()).saturating_add(value.len()).saturating_add(32);
        fields.read_framing_field(name, value, minor)?;
    }
    if bytes > bounds.bytes {
        return Err(Refusal::fields_too_large(RefusalLimit::HeaderBytes));
    }
    if count > bounds.fields {
        return Err(Refusal::fields_too_large(RefusalLimit::Headers));
    }
    if fields.chunked && fields.content_length.is_some() {
        return Err(Refusal::bad_request("Transfer-Encoding beside Content-Length"));
    }
    check_target(&method, target, fields.host, last)?;
    Ok(match fields.content_length.unwrap_or(0) {
        _ if fields.chunked => RequestFraming::Chunked,
        0 if fields.has_upgrade && fields.connection_names_upgrade && method == Method::GET && minor == 1 => {
            RequestFraming::Switch
        }
        length => RequestFraming::Length(length),
    })
}

/// Bytes of a request's pseudo-header fields without the values of method and target (RFC 9114 §4.2.2): names, scheme
/// and overhead.
const PSEUDO_HEADER_BYTES: usize = ":method".len() + ":scheme".len() + "https".len() + ":path".len() + 3 * 32;

pub(super) const BARE_LF: Refusal = Refusal::bad_request("a bare LF");

/// Whether a line of `text` ends without CR, or `text` begins with a LF.
fn has_bare_lf(text: &[u8]) -> bool {
    text.first() == Some(&b'\n') || has_bare_lf_within(text)
}

/// Whether a line in a part of a text ends without CR. The byte before the part is unknown.
pub(super) fn has_bare_lf_within(text: &[u8]) -> bool {
    text.windows(2).any(|two| two.ends_with(b"\n") && !two.starts_with(b"\r"))
}

/// Removes the CR at the end of a line. Fails if another CR is in it.
fn strip_line_cr(line: &[u8]) -> Result<&[u8], Refusal> {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    if line.contains(&b'\r') { Err(Refusal::bad_request("a bare CR")) } else { Ok(line) }
}

/// Parses a request line into method, target and minor version (RFC 9112 §3).
fn parse_request_line(line: &[u8]) -> Result<(Method, &[u8], u8), Refusal> {
    let mut parts = line.split(|byte| *byte == b' ');
    let (Some(method), Some(target), Some(version), None) = (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err(Refusal::bad_request("the request line is not a method, a target and a version"));
    };
    let minor = match version {
        b"HTTP/1.1" => 1,
        b"HTTP/1.0" => 0,
        [b'H', b'T', b'T', b'P', b'/', major, b'.', minor] if major.is_ascii_digit() && minor.is_ascii_digit() => {
            return Err(Refusal::new(StatusCode::HTTP_VERSION_NOT_SUPPORTED, "not HTTP/1.1"));
        }
        _ => return Err(Refusal::bad_request("invalid HTTP version")),
    };
    if !is_token(method) {
        return Err(Refusal::bad_request("the method is not a token"));
    }
    let method = Method::from_bytes(method).map_err(|_| Refusal::bad_request("the method is not a token"))?;
    Ok((method, target, minor))
}

/// Parses a field line into name and value (RFC 9112 §5).
fn parse_field_line(line: &[u8]) -> Result<(&[u8], &[u8]), Refusal> {
    if matches!(line.first(), Some(b' ' | b'\t')) {
        return Err(Refusal::bad_request("a folded field line"));
    }
    let colon =
        line.iter().position(|byte| *byte == b':').ok_or(Refusal::bad_request("a field line without a colon"))?;
    let (name, rest) = line.split_at_checked(colon).unwrap_or((line, b""));
    if !is_token(name) {
        return Err(Refusal::bad_request("a field's name is not a token"));
    }
    // Only blanks are removed: a form feed, which `trim_ascii` would remove as well, is a control character.
    let value = trim_blanks(rest.get(1..).unwrap_or_default());
    find_value_fault(value).map_or(Ok((name, value)), |fault| Err(Refusal::bad_request(fault)))
}

/// Removes SP and HTAB around `value` (RFC 9112 §5).
fn trim_blanks(value: &[u8]) -> &[u8] {
    let mut rest = value;
    while let [b' ' | b'\t', inner @ ..] | [inner @ .., b' ' | b'\t'] = rest {
        rest = inner;
    }
    rest
}

impl<'a> RequestFramingFields<'a> {
    /// Reads a field that determines the request's end, or its host.
    fn read_framing_field(&mut self, name: &[u8], value: &'a [u8], minor: u8) -> Result<(), Refusal> {
        if name.eq_ignore_ascii_case(b"host") {
            if self.host.replace(value).is_some() {
                return Err(Refusal::bad_request("more than one Host"));
            }
        } else if name.eq_ignore_ascii_case(b"content-length") {
            let length = parse_length(value).ok_or(Refusal::bad_request("Content-Length is not a decimal number"))?;
            if self.content_length.replace(length).is_some() {
                return Err(Refusal::bad_request("more than one Content-Length"));
            }
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            if minor == 0 {
                return Err(Refusal::bad_request("Transfer-Encoding in HTTP/1.0"));
            }
            if std::mem::replace(&mut self.chunked, true) {
                return Err(Refusal::bad_request("more than one Transfer-Encoding"));
            }
            check_transfer_coding(value)?;
        } else if name.eq_ignore_ascii_case(b"upgrade") {
            self.has_upgrade = true;
        } else if name.eq_ignore_ascii_case(b"connection") {
            let mut options = value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
            self.connection_names_upgrade |= options.any(|option| option.eq_ignore_ascii_case(b"upgrade"));
        }
        Ok(())
    }
}

/// Checks a transfer coding. Only `chunked` is supported; unless it is the last coding, the body has no defined end
/// (RFC 9112 §6.3).
fn check_transfer_coding(value: &[u8]) -> Result<(), Refusal> {
    if value.eq_ignore_ascii_case(b"chunked") {
        return Ok(());
    }
    let mut codings = value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
    let last_is_chunked = codings.clone().next_back().is_some_and(|coding| coding.eq_ignore_ascii_case(b"chunked"));
    let chunked = codings.by_ref().filter(|coding| coding.eq_ignore_ascii_case(b"chunked")).count();
    if last_is_chunked && chunked == 1 {
        return Err(Refusal::not_implemented("a transfer coding other than chunked"));
    }
    Err(Refusal::bad_request("chunked is not the last transfer coding, or occurs more than once"))
}

/// Parses a number that consists of digits alone: no sign, list or blank.
fn parse_length(text: &[u8]) -> Option<u64> {
    let digits = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(text).ok().filter(|_| digits)?.parse().ok()
}

/// Checks the target in each of its forms (RFC 9112 §3.2), and `Host`.
fn check_target(method: &Method, target: &[u8], host: Option<&[u8]>, last: &LastAuthority) -> Result<(), Refusal> {
    match *method {
        Method::CONNECT => return Err(Refusal::not_implemented("CONNECT is not supported")),
        // The origin would reflect fields that litequic adds, cookies and credentials.
        Method::TRACE => return Err(Refusal::not_implemented("TRACE is not supported")),
        _ => {}
    }
    let host = host.ok_or(Refusal::bad_request("no Host field"))?;
    last.parse_authority(host).map_err(Refusal::bad_request)?;
    let raw_path = match split_absolute_form(target) {
        None => Cow::Borrowed(target),
        Some((named, rest)) => {
            if !named.eq_ignore_ascii_case(host) {
                return Err(Refusal::bad_request("Host differs from the host of the target"));
            }
            let slash: &[u8] = if rest.first() == Some(&b'/') { b"" } else { b"/" };
            Cow::Owned([slash, rest].concat())
        }
    };
    match check_path(method, &raw_path) {
        Ok(()) => Ok(()),
        Err((StatusCode::URI_TOO_LONG, _)) => Err(Refusal::uri_too_long()),
        Err((status, why)) => Err(Refusal::new(status, why)),
    }
}

/// Splits a target in absolute form into authority, and path with query.
fn split_absolute_form(target: &[u8]) -> Option<(&[u8], &[u8])> {
    let rest = [&b"http://"[..], b"https://"].into_iter().find_map(|scheme| {
        let (start, rest) = target.split_at_checked(scheme.len())?;
        start.eq_ignore_ascii_case(scheme).then_some(rest)
    })?;
    let end = rest.iter().position(|byte| matches!(byte, b'/' | b'?' | b'#')).unwrap_or(rest.len());
    rest.split_at_checked(end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::{any, prop};

    const BOUNDS: FieldLimits = FieldLimits { bytes: 1000, fields: 5 };

    fn status(head: &str) -> u16 {
        check_request_head(head.as_bytes(), &BOUNDS, &LastAuthority::default())
            .map_or_else(|refusal| refusal.status.as_u16(), |_| 0)
    }

    #[test]
    fn an_accepted_head_has_the_framing_of_the_body() {
        for (head, expected) in [
            ("GET / HTTP/1.1\r\nHost: a\r\n\r\n", RequestFraming::Length(0)),
            ("GET / HTTP/1.0\r\nHost: a\r\n\r\n", RequestFraming::Length(0)),
            ("OPTIONS * HTTP/1.1\r\nhost:a:1\r\n\r\n", RequestFraming::Length(0)),
            ("GET http://a/b?c HTTP/1.1\r\nHost: A\r\n\r\n", RequestFraming::Length(0)),
            ("GET HTTPS://a?c HTTP/1.1\r\nHost: a\r\n\r\n", RequestFraming::Length(0)),
            ("BREW /%20 HTTP/1.1\r\nHost: [::1]:8443\r\nX: \t \r\n\r\n", RequestFraming::Length(0)),
            ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 007\r\n\r\n", RequestFraming::Length(7)),
            ("POST / HTTP/1.1\r\nHost: a\r\ntransfer-encoding:\tChunked \r\n\r\n", RequestFraming::Chunked),
            ("GET / HTTP/1.1\r\nHost: a\r\nupgrade: x\r\nconnection: close , Upgrade\r\n\r\n", RequestFraming::Switch),
            ("GET / HTTP/1.1\r\nHost: a\r\nUpgrade: x\r\nConnection: x\r\n\r\n", RequestFraming::Length(0)),
            ("GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\n\r\n", RequestFraming::Length(0)),
            ("GET / HTTP/1.0\r\nHost: a\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", RequestFraming::Length(0)),
            ("POST / HTTP/1.1\r\nHost: a\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", RequestFraming::Length(0)),
        ] {
            assert_eq!(
                check_request_head(head.as_bytes(), &BOUNDS, &LastAuthority::default()),
                Ok(expected),
                "{head:?}"
            );
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
    fn a_head_within_its_bounds_passes_and_one_beyond_is_431() {
        let fields = |count: usize, value: usize| {
            let line = format!("x: {}\r\n", "v".repeat(value));
            format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", line.repeat(count))
        };
        assert_eq!(status(&fields(5, 1)), 0, "Host does not count");
        assert_eq!(status(&fields(6, 1)), 431);
        // 42 for the method, 44 for the scheme, 38 for the path, 43 for Host, 33 for the name of the other field.
        assert_eq!(status(&fields(1, 800)), 0);
        assert_eq!(status(&fields(1, 801)), 431);
        assert_eq!(status(&format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "a".repeat(70_000))), 414);
    }

    proptest::proptest! {
        #[test]
        fn no_request_head_bytes_panic(head in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = check_request_head(&head, &BOUNDS, &LastAuthority::default());
            let _ = check_request_head(&[b"GET / HTTP/1.1\r\n", &head[..], b"\r\n\r\n"].concat(), &BOUNDS, &LastAuthority::default());
        }

        /// A head that hyper would read differently is never accepted: each line ends with CRLF.
        #[test]
        fn every_line_of_an_accepted_head_ends_with_crlf(head in "[A-Za-z :/.1\r\n]{0,80}") {
            let head = format!("GET / HTTP/1.1\r\nHost: a\r\n{head}\r\n\r\n");
            if check_request_head(head.as_bytes(), &BOUNDS, &LastAuthority::default()).is_ok() {
                let bare = head.replace("\r\n", "");
                proptest::prop_assert!(!bare.contains(['\r', '\n']), "{head:?}");
            }
        }
    }
}
