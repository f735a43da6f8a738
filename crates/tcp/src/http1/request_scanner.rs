//! Scans the requests of one HTTP/1.1 connection for the bytes that may be passed on. Pure.
//!
//! hyper parses a head once more, and accepts more than RFC 9112 allows two parsers to agree on. A head that passes has
//! only one reading, and a target that hyper keeps as it is.

use crate::refusal::{Refusal, RefusalLimit};
use http::{Method, Uri};
use litequic_exchange::{
    check_path,
    http1::{self, BodyDecoder, RequestHead},
    terms::FieldLimits,
};

/// The result of checking received bytes.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum CheckedBytes {
    /// The number of valid bytes at the beginning. The rest is to be checked again, with the bytes that follow.
    Pass(usize),
    /// The request is invalid, and has this response. Nothing more is to be read.
    Refused(Refusal),
    /// The body is invalid. Nothing more is to be read.
    Malformed,
}

#[derive(Debug, Clone)]
enum ParseState {
    /// Before or within a request's head, of which `seen` bytes were checked.
    Head {
        seen: usize,
    },
    Body(BodyDecoder),
    /// Behind a request to switch protocols. Nothing is passed on before its response.
    Switch,
    /// In an invalid body.
    Broken,
    /// Nothing more is passed on.
    Over,
}

/// Scanner of one connection's requests.
#[derive(Debug, Clone)]
pub(super) struct RequestScanner {
    state: ParseState,
    bounds: FieldLimits,
    /// An empty line before the head was skipped (RFC 9112 §2.2).
    skipped: bool,
    /// Number of accepted heads, until it is taken.
    pub(super) accepted: u64,
    /// Bytes were received of the last request's body. Bodies of earlier requests are complete.
    pub(super) has_last_body: bool,
    /// Number of small chunks that have begun, until it is taken.
    pub(super) small: u32,
    /// The body is invalid because of trailers beyond their limit.
    pub(super) has_large_trailers: bool,
}

/// Bytes of a request line beyond the limit of fields: method and version.
const MAX_REQUEST_LINE_EXTRA: usize = 64;

impl RequestScanner {
    pub(super) const fn new(bounds: FieldLimits) -> Self {
        let state = ParseState::Head { seen: 0 };
        Self { state, bounds, skipped: false, accepted: 0, has_last_body: false, small: 0, has_large_trailers: false }
    }

    /// Whether a head has begun and not ended.
    pub(super) fn in_head(&self) -> bool {
        matches!(self.state, ParseState::Head { seen } if seen > 0)
    }

    /// Whether a body has begun and not ended.
    pub(super) fn in_body(&self) -> bool {
        matches!(self.state, ParseState::Body(_))
    }

    /// Whether a request has begun that has not ended, or that was rejected before its end.
    pub(super) fn in_request(&self) -> bool {
        matches!(self.state, ParseState::Body(_) | ParseState::Broken | ParseState::Over)
    }

    /// Whether the last request is one to switch protocols, whose response decides about the bytes that follow.
    pub(super) const fn awaits_switch(&self) -> bool {
        matches!(self.state, ParseState::Switch)
    }

    /// Continues with requests, after a request to switch protocols was answered without a switch.
    pub(super) fn resume_after_switch(&mut self) {
        self.state = ParseState::Head { seen: 0 };
    }

    /// Checks `bytes`: those kept so far, and those behind them.
    pub(super) fn scan_bytes(&mut self, bytes: &[u8]) -> CheckedBytes {
        let mut passed = 0_usize;
        loop {
            let rest = bytes.get(passed..).unwrap_or_default();
            if rest.is_empty() {
                return CheckedBytes::Pass(passed);
            }
            let taken = match &mut self.state {
                ParseState::Over | ParseState::Switch => return CheckedBytes::Pass(passed),
                ParseState::Broken => return CheckedBytes::Malformed,
                ParseState::Body(decoder) => {
                    self.has_last_body = true;
                    let Some(piece) = decoder.decode_piece(rest) else {
                        self.has_large_trailers = decoder.are_trailers_too_large();
                        self.state = ParseState::Broken;
                        // The bytes before the invalid chunk are read first.
                        return if passed > 0 { CheckedBytes::Pass(passed) } else { CheckedBytes::Malformed };
                    };
                    self.small = self.small.saturating_add(decoder.take_small_chunks());
                    if decoder.is_body_done() {
                        self.state = ParseState::Head { seen: 0 };
                    }
                    piece.skipped.saturating_add(piece.data)
                }
                ParseState::Head { seen } => match self.skipped {
                    false if rest == b"\r" => return CheckedBytes::Pass(passed),
                    false if rest.starts_with(b"\r\n") => {
                        self.skipped = true;
                        2
                    }
                    _ => {
                        let from = *seen;
                        *seen = rest.len();
                        match self.check_head(rest, from) {
                            Ok(Some(taken)) => taken,
                            Ok(None) => return CheckedBytes::Pass(passed),
                            // The requests before the invalid head are answered first.
                            Err(_) if passed > 0 => {
                                self.state = ParseState::Head { seen: 0 };
                                return CheckedBytes::Pass(passed);
                            }
                            Err(refusal) => {
                                self.state = ParseState::Over;
                                return CheckedBytes::Refused(refusal);
                            }
                        }
                    }
                },
            };
            passed = passed.saturating_add(taken);
        }
    }

    /// Returns the length of a head, once it is complete and valid. The first `from` bytes were checked before.
    fn check_head(&mut self, rest: &[u8], from: usize) -> Result<Option<usize>, Refusal> {
        // A first byte that is no text is invalid, such as TLS on a plain port. Such a client does not wait for the end
        // of a head.
        if rest.first().is_some_and(|byte| !byte.is_ascii_graphic()) {
            return Err(Refusal::bad_request("not HTTP/1.1"));
        }
        if !http1::has_head_end(rest, from) {
            return self.check_head_size(rest).map(|()| None);
        }
        // `Host` is a line of the head, but does not count as a field.
        let parsed = http1::parse_request_head(rest, self.bounds.fields.saturating_add(1));
        let Some(head) = parsed? else { return Ok(None) };
        self.check_head_size(rest.get(..head.length).unwrap_or(rest))?;
        if head.target.len() > self.bounds.bytes {
            return Err(Refusal::uri_too_long());
        }
        check_target(&head)?;
        let decoder = BodyDecoder::for_request(head.framing, self.bounds.bytes);
        self.state = match () {
            () if head.is_switch => ParseState::Switch,
            () if decoder.is_body_done() => ParseState::Head { seen: 0 },
            () => ParseState::Body(decoder),
        };
        (self.skipped, self.has_last_body) = (false, false);
        self.accepted = self.accepted.saturating_add(1);
        Ok(Some(head.length))
    }

    /// Checks the size of a head, or of the received part of one.
    fn check_head_size(&self, head: &[u8]) -> Result<(), Refusal> {
        if head.len() <= self.bounds.bytes.saturating_mul(2).saturating_add(MAX_REQUEST_LINE_EXTRA) {
            return Ok(());
        }
        let first = head.iter().position(|byte| *byte == b'\n').unwrap_or(head.len());
        Err(if first > self.bounds.bytes {
            Refusal::uri_too_long()
        } else {
            Refusal::fields_too_large(RefusalLimit::HeaderBytes)
        })
    }
}

/// Checks that hyper reads the target as a path, or in absolute form or authority form, and drops no fragment of it.
fn check_target(head: &RequestHead<'_>) -> Result<(), Refusal> {
    let scheme = head.target.split_once("://").map_or("", |(scheme, _)| scheme);
    let has_authority =
        head.method == "CONNECT" || scheme.eq_ignore_ascii_case("https") || scheme.eq_ignore_ascii_case("http");
    if has_authority && !head.target.contains('#') && Uri::try_from(head.target).is_ok() {
        return Ok(());
    }
    // Whether the method allows `*` is decided with the rest of the head.
    Ok(check_path(&Method::OPTIONS, head.target.as_bytes())?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::prop;

    const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    const BOUNDS: FieldLimits = FieldLimits { bytes: 350, fields: 5 };

    /// Returns the valid part of `text`, received in pieces of `step` bytes, and the last result.
    fn read(text: &str, step: usize) -> (String, Option<CheckedBytes>) {
        let mut requests = RequestScanner::new(BOUNDS);
        let (mut held, mut passed) = (Vec::new(), Vec::new());
        for piece in text.as_bytes().chunks(step) {
            held.extend_from_slice(piece);
            loop {
                match requests.scan_bytes(&held) {
                    CheckedBytes::Pass(0) => break,
                    CheckedBytes::Pass(count) => passed.extend(held.drain(..count)),
                    end => return (String::from_utf8(passed).unwrap(), Some(end)),
                }
            }
        }
        (String::from_utf8(passed).unwrap(), None)
    }

    #[test]
    fn requests_pass_with_bodies_and_heads_only_when_complete() {
        let sized = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello";
        let chunked = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
        let all = format!("{GET}{sized}\r\n{chunked}{GET}");
        for step in [1, 2, 7, 1000] {
            assert_eq!(read(&all, step), (all.clone(), None), "by {step}");
            assert_eq!(read(&all[..all.len() - 1], step), (format!("{GET}{sized}\r\n{chunked}"), None), "by {step}");
        }
    }

    #[test]
    fn requests_before_a_refused_request_pass() {
        let long = format!("GET /{} ", "a".repeat(800));
        let many = format!("GET / HTTP/1.1\r\nHost: a\r\n{}", "x: y\r\n".repeat(200));
        for (text, status) in [
            ("GET / HTTP/1.1\nHost: a\n\n", 400),
            ("\nGET / HTTP/1.1\r\n", 400),
            ("\r\n\r\nGET / HTTP/1.1\r\n", 400),
            ("\u{16}\u{3}\u{1}", 400),
            ("GET /\r\n\r\n", 400),
            (&long, 414),
            (&many, 431),
        ] {
            for step in [1, 5, 1000] {
                let (passed, end) = read(&format!("{GET}{text}"), step);
                assert!(passed == GET || passed == format!("{GET}\r\n"), "{text:?} by {step}: {passed:?}");
                assert!(
                    matches!(end, Some(CheckedBytes::Refused(refusal)) if refusal.status == status),
                    "{text:?} {end:?}"
                );
            }
        }
    }

    #[test]
    fn only_targets_that_hyper_keeps_as_they_are_pass() {
        for (request_line, status) in [
            ("GET /a?b", 0),
            ("OPTIONS *", 0),
            ("GET http://a/b?c", 0),
            ("GET HTTPS://a?c", 0),
            ("CONNECT a:1", 0),
            ("GET a:1", 400),
            ("GET ftp://a/", 400),
            ("GET /a#b", 400),
            ("GET http://a/#b", 400),
            ("GET http://", 400),
            ("GET /a\\b", 400),
            ("GET /\u{e9}", 400),
            ("GET http://a/\u{e9}", 0),
        ] {
            let (_, end) = read(&format!("{request_line} HTTP/1.1\r\nHost: a\r\n\r\n"), 1000);
            let refused = end.map_or(0, |end| match end {
                CheckedBytes::Refused(refusal) => refusal.status.as_u16(),
                _ => 1,
            });
            assert_eq!(refused, status, "{request_line}");
        }
    }

    #[test]
    fn nothing_passes_between_an_upgrade_request_and_the_response() {
        let switch = "GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n";
        for step in [1, 7, 1000] {
            assert_eq!(read(&format!("{GET}{switch}{GET}"), step), (format!("{GET}{switch}"), None));
        }
        let mut requests = RequestScanner::new(BOUNDS);
        assert_eq!(
            requests.scan_bytes(format!("{GET}{switch}\n").as_bytes()),
            CheckedBytes::Pass(GET.len() + switch.len())
        );
        assert_eq!((requests.awaits_switch(), requests.accepted), (true, 2));
        requests.resume_after_switch();
        assert!(!requests.awaits_switch());
        assert_eq!(requests.scan_bytes(GET.as_bytes()), CheckedBytes::Pass(GET.len()));
    }

    #[test]
    fn a_body_that_breaks_the_rules_is_malformed_at_once() {
        let head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
        for step in [1, 1000] {
            let (passed, end) = read(&format!("{head}5\nhello"), step);
            assert!(passed.starts_with(head), "{passed:?}");
            assert_eq!(end, Some(CheckedBytes::Malformed));
        }
    }

    proptest::proptest! {
        /// The boundaries of pieces do not change the result.
        #[test]
        fn splits_of_requests_make_no_difference(
            parts in prop::collection::vec(prop::sample::select(&[
                GET, "\r\n", "\n", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc", "x", "\r",
                "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n",
                "GET / HTTP/1.1\r\nHost: a\r\nUpgrade: b\r\nConnection: upgrade\r\n\r\n",
            ][..]), 0..6),
            step in 1_usize..9,
        ) {
            let text = parts.concat();
            let (passed, end) = read(&text, step);
            let (passed_whole, end_whole) = read(&text, 10_000);
            proptest::prop_assert_eq!((passed, end.is_some()), (passed_whole, end_whole.is_some()));
        }
    }
}
