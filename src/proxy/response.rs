//! Converts an origin's head for the client: without connection-specific fields. Pure.
//!
//! `http1` delimits bodies of responses that are rejected here: with `Content-Length` beside `Transfer-Encoding`, or
//! with transfer codings that are not decoded; and reads an unrequested 101.

use super::{
    error::Error,
    request::{KEEP_ALIVE, PROXY_CONNECTION},
    rules::Rules,
    spelling,
};
use crate::exchange::{field::may_trail, members};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Version, header, response};
use hyper::ext::ReasonPhrase;

/// Converts the head of an origin's response to a `method` request for the client. `length` is the body's as it will
/// be delivered, if it is known.
///
/// # Errors
///
/// The response cannot be forwarded.
pub(super) fn translate(parts: &mut response::Parts, method: &Method, length: Option<u64>) -> Result<(), Error> {
    if parts.status.is_informational() {
        return Err(Error::Upgrade);
    }
    let fields = &mut parts.headers;
    let present = Present::of(fields);
    let bodiless = *method == Method::HEAD || matches!(parts.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);

    let coded = present.has(Present::TRANSFER_ENCODING);
    if coded && present.has(Present::CONTENT_LENGTH) {
        // The sender may have meant the other framing (RFC 9112 §6.3); of a response without a body too, whose
        // connection or whose length another request would use.
        return Err(Error::Protocol);
    }
    let mut codings = coded.then(|| fields.get_all(header::TRANSFER_ENCODING).iter()).into_iter().flatten();
    let coding = (codings.next(), codings.next());
    match coding {
        (None, _) => {}
        (Some(only), None) if only.as_bytes().eq_ignore_ascii_case(b"chunked") => {}
        _ if bodiless => {}
        _ => return Err(Error::TransferCoding),
    }

    // One Content-Length or none (RFC 9110 §8.6): HTTP/3 allows no list of them.
    let length = match () {
        () if coded || parts.status == StatusCode::NO_CONTENT => None,
        () if bodiless => declared_length(fields)?,
        () => length.filter(|_| present.has(Present::CONTENT_LENGTH)),
    };
    match length {
        None if !present.has(Present::CONTENT_LENGTH) => {}
        None => drop(fields.remove(header::CONTENT_LENGTH)),
        // Several lines, or one with a list.
        Some(length) if !is_plain(fields) => drop(fields.insert(header::CONTENT_LENGTH, HeaderValue::from(length))),
        Some(_) => {}
    }

    remove_present(fields, present);
    if present.has(Present::ALT_SVC) {
        // It names the origin's own ports.
        fields.remove(header::ALT_SVC);
    }
    // The origin's reason phrase: HTTP/2 and HTTP/3 have none.
    parts.extensions.clear();
    // A gateway sends its own version (RFC 9112 §2.3), whatever its origin speaks.
    parts.version = Version::HTTP_11;
    if parts.status.canonical_reason().is_none() {
        // hyper, which writes it for HTTP/1.1 clients, would write `<none>`; an empty phrase is right (RFC 9112 §4).
        parts.extensions.insert(ReasonPhrase::from_static(b""));
    }
    Ok(())
}

/// Translates an interim (1xx) response's fields: it has no content (RFC 9110 §8.6).
pub(super) fn translate_interim(fields: &mut HeaderMap) {
    remove_present(fields, Present::of(fields));
    for name in [header::CONTENT_LENGTH, header::ALT_SVC] {
        fields.remove(name);
    }
}

/// The length that a response without a body declares.
fn declared_length(fields: &HeaderMap) -> Result<Option<u64>, Error> {
    let mut length = None;
    for item in members(fields, header::CONTENT_LENGTH) {
        let digits = !item.is_empty() && item.iter().all(u8::is_ascii_digit);
        let item = std::str::from_utf8(item).ok().filter(|_| digits).and_then(|item| item.parse::<u64>().ok());
        match (item, length) {
            (Some(item), None) => length = Some(item),
            (Some(item), Some(before)) if item == before => {}
            _ => return Err(Error::Protocol),
        }
    }
    Ok(length)
}

/// Whether there is one `Content-Length` with one number.
fn is_plain(fields: &HeaderMap) -> bool {
    let mut lines = fields.get_all(header::CONTENT_LENGTH).iter();
    let plain = |line: &HeaderValue| line.as_bytes().iter().all(u8::is_ascii_digit);
    lines.next().is_some_and(plain) && lines.next().is_none()
}

/// Removes what belongs to one connection (RFC 9110 §7.6.1): `Connection`, the fields it names, and those that
/// always are such.
fn remove_present(fields: &mut HeaderMap, present: Present) {
    if !present.has(Present::HOP_BY_HOP) {
        return;
    }
    // Collecting nothing allocates nothing; most origins send `keep-alive`, `close` or no Connection at all.
    let named: Vec<HeaderName> = members(fields, header::CONNECTION)
        .filter(|token| !token.eq_ignore_ascii_case(b"close") && !token.eq_ignore_ascii_case(b"keep-alive"))
        .filter_map(|token| HeaderName::from_bytes(token).ok())
        .collect();
    for name in named {
        fields.remove(name);
    }
    for (one, name) in [
        (Present::CONNECTION, header::CONNECTION),
        (Present::KEEP_ALIVE, KEEP_ALIVE),
        (Present::PROXY_CONNECTION, PROXY_CONNECTION),
        (Present::TRANSFER_ENCODING, header::TRANSFER_ENCODING),
        (Present::UPGRADE, header::UPGRADE),
        (Present::TE, header::TE),
    ] {
        if present.has(one) {
            fields.remove(name);
        }
    }
}

/// The fields of interest that a header has: found in one walk over its names, which costs less than a look-up
/// for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Present(u8);

impl Present {
    const CONNECTION: Self = Self(1);
    const KEEP_ALIVE: Self = Self(1 << 1);
    const PROXY_CONNECTION: Self = Self(1 << 2);
    const TRANSFER_ENCODING: Self = Self(1 << 3);
    const UPGRADE: Self = Self(1 << 4);
    const TE: Self = Self(1 << 5);
    const CONTENT_LENGTH: Self = Self(1 << 6);
    const ALT_SVC: Self = Self(1 << 7);
    const HOP_BY_HOP: Self = Self((1 << 6) - 1);

    fn of(fields: &HeaderMap) -> Self {
        Self(fields.keys().fold(0, |all, name| {
            all | match name.as_str() {
                "connection" => Self::CONNECTION.0,
                "keep-alive" => Self::KEEP_ALIVE.0,
                "proxy-connection" => Self::PROXY_CONNECTION.0,
                "transfer-encoding" => Self::TRANSFER_ENCODING.0,
                "upgrade" => Self::UPGRADE.0,
                "te" => Self::TE.0,
                "content-length" => Self::CONTENT_LENGTH.0,
                "alt-svc" => Self::ALT_SVC.0,
                _ => 0,
            }
        }))
    }

    /// Whether any of `these` is there.
    const fn has(self, these: Self) -> bool {
        self.0 & these.0 != 0
    }
}

/// Removes trailer fields that no recipient may merge into a header (RFC 9110 §6.5.1), and those that the route's rules
/// remove from the header, or set there.
pub(super) fn trailers(fields: &mut HeaderMap, rules: Option<&Rules>) {
    spelling::remove(fields, |name| !may_trail(name) || rules.is_some_and(|rules| rules.response.replaces(name)));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn translated(
        method: Method,
        status: u16,
        lines: &[(&'static str, &'static str)],
        length: Option<u64>,
    ) -> Result<Vec<(String, String)>, Error> {
        let mut response = http::Response::builder().status(status);
        for &(name, value) in lines {
            response = response.header(name, value);
        }
        let (mut parts, ()) = response.body(()).unwrap().into_parts();
        translate(&mut parts, &method, length)?;
        let mut fields: Vec<_> =
            parts.headers.iter().map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned())).collect();
        fields.sort();
        Ok(fields)
    }

    #[test]
    fn a_response_has_one_content_length_or_none() {
        const CL: &str = "content-length";
        const TE: &str = "transfer-encoding";
        type Case =
            (Method, u16, &'static [(&'static str, &'static str)], Option<u64>, Result<Option<&'static str>, Error>);
        let cases: [Case; 16] = [
            (Method::GET, 200, &[(CL, "5")], Some(5), Ok(Some("5"))),
            (Method::GET, 200, &[(CL, "5"), (CL, "5")], Some(5), Ok(Some("5"))),
            (Method::GET, 200, &[(CL, "5, 5")], Some(5), Ok(Some("5"))),
            (Method::GET, 200, &[], None, Ok(None)),
            (Method::GET, 200, &[(CL, "5"), (TE, "chunked")], None, Err(Error::Protocol)),
            (Method::HEAD, 200, &[(TE, "chunked"), (CL, "5")], Some(0), Err(Error::Protocol)),
            (Method::GET, 304, &[(CL, "5"), (TE, "chunked")], Some(0), Err(Error::Protocol)),
            (Method::GET, 200, &[(TE, "Chunked")], None, Ok(None)),
            (Method::GET, 200, &[(TE, "gzip, chunked")], None, Err(Error::TransferCoding)),
            (Method::GET, 200, &[(TE, "chunked"), (TE, "chunked")], None, Err(Error::TransferCoding)),
            (Method::GET, 200, &[(TE, "identity")], None, Err(Error::TransferCoding)),
            (Method::HEAD, 200, &[(CL, "5")], Some(0), Ok(Some("5"))),
            (Method::HEAD, 200, &[(CL, "5"), (CL, "6")], Some(0), Err(Error::Protocol)),
            (Method::HEAD, 200, &[(CL, "+5")], Some(0), Err(Error::Protocol)),
            (Method::GET, 304, &[(CL, "5")], Some(0), Ok(Some("5"))),
            (Method::GET, 204, &[(CL, "5")], Some(0), Ok(None)),
        ];
        for (method, status, lines, length, expected) in cases {
            let fields = translated(method.clone(), status, lines, length);
            let found = fields.map(|fields| fields.into_iter().find(|(name, _)| name == CL).map(|(_, value)| value));
            assert_eq!(found, expected.map(|value| value.map(str::to_owned)), "{method} {status} {lines:?}");
        }
    }

    #[test]
    fn what_belongs_to_the_connection_stays_there() {
        let lines = [
            ("connection", "close, X-Inner"),
            ("connection", "x-other"),
            ("x-inner", "1"),
            ("x-other", "1"),
            ("keep-alive", "timeout=5"),
            ("proxy-connection", "close"),
            ("upgrade", "h2c"),
            ("te", "trailers"),
            ("alt-svc", "h3=\":1\""),
            ("date", "today"),
            ("server", "origin"),
            ("x-kept", "1"),
        ];
        let names: Vec<_> =
            translated(Method::GET, 200, &lines, None).unwrap().into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["date", "server", "x-kept"]);
    }

    #[test]
    fn a_protocol_switch_without_a_request_is_rejected() {
        assert_eq!(translated(Method::GET, 101, &[("upgrade", "websocket")], Some(0)), Err(Error::Upgrade));
    }
}
