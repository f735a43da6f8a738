//! Converts a request's head from hyper or h2 for the handler, by the rules that HTTP/1.1 and HTTP/2 share, and by
//! those of HTTP/2 that h2 leaves to its users (RFC 9113 §8). Pure.

use super::refusal::{Refusal, RefusalLimit};
use bytes::BytesMut;
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Version, header, request,
    uri::{PathAndQuery, Scheme},
};
use litequic_exchange::{
    Fields, Head, LastAuthority, Protocol, RequestRecord, Upgrade, check_path, field_syntax, merge_authorities,
    terms::FieldLimits,
};
use std::borrow::Cow;

/// Connection-specific fields (RFC 9110 §7.6.1), as names that need not be parsed for each request.
static CONNECTION_FIELDS: [HeaderName; 7] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    header::TE,
    HeaderName::from_static("http2-settings"),
];

/// Converts a head for the handler, without `Host` and connection-specific fields, and checks it. `last` caches the
/// authority of the connection's last request.
///
/// # Errors
///
/// The refusal.
pub(super) fn convert_head(
    mut parts: request::Parts,
    protocol: Protocol,
    bounds: &FieldLimits,
    last: &LastAuthority,
) -> Result<Head, Refusal> {
    check_header_size(&parts, bounds)?;
    if protocol == Protocol::Http2 {
        check_fields(&parts.headers).map_err(Refusal::bad_request)?;
    }
    let upgrade = requested_upgrade(&parts, protocol);
    match parts.method {
        Method::CONNECT if upgrade.is_some() => {
            if parts.headers.contains_key(header::CONTENT_LENGTH) {
                return Err(Refusal::bad_request("CONNECT with Content-Length"));
            }
            parts.method = Method::GET;
        }
        Method::CONNECT => return Err(Refusal::not_implemented("CONNECT is not supported")),
        // The origin would reflect fields that litequic adds, cookies and credentials.
        Method::TRACE => return Err(Refusal::not_implemented("TRACE is not supported")),
        _ => {}
    }
    let uri = std::mem::take(&mut parts.uri).into_parts();
    if uri.scheme.as_ref().is_some_and(|scheme| *scheme != Scheme::HTTPS && *scheme != Scheme::HTTP) {
        return Err(Refusal::bad_request("the scheme is neither https nor http"));
    }
    let host = take_host(&mut parts.headers)?;
    let named = uri.authority.as_ref().map(|authority| authority.as_str().as_bytes());
    let port: &[u8] = if uri.scheme == Some(Scheme::HTTP) { b"80" } else { b"443" };
    let authority = match (named, host.as_ref().map(HeaderValue::as_bytes)) {
        (Some(named), Some(host)) => merge_authorities(named, host, port)
            .ok_or(Refusal::bad_request("Host differs from the host of the target"))?,
        (Some(named), None) => named,
        (None, host) => host.ok_or(Refusal::bad_request("no Host field"))?,
    };
    let authority = last.parse_authority(authority).map_err(Refusal::bad_request)?;
    let path = checked_path(&parts.method, uri.path_and_query.as_ref())?;

    if parts.version == Version::HTTP_10 {
        // A client of HTTP/1.0 has no expectation (RFC 9110 §10.1.1).
        parts.headers.remove(header::EXPECT);
    }
    check_content_length(&mut parts.headers)?;
    remove_connection_fields(&mut parts.headers)?;
    join_cookies(&mut parts.headers);
    let mut head = Head::new(parts.method, authority, &path, Fields::from(&parts.headers));
    head.upgrade = upgrade;
    Ok(head)
}

/// Returns the members of the combined list of all lines named `name`, without blanks around them. Empty members are
/// included (RFC 9110 §5.6.1).
fn header_list_members(fields: &HeaderMap, name: HeaderName) -> impl Iterator<Item = &[u8]> {
    let lines = fields.get_all(name).into_iter();
    lines.flat_map(|line| line.as_bytes().split(|byte| *byte == b',')).map(<[u8]>::trim_ascii)
}

/// Returns the protocol switch that the client requests: by extended CONNECT (RFC 8441 §4), or by a GET without a body
/// whose `Connection` names `Upgrade` (RFC 9110 §7.8). Any other request for a switch is served without one.
fn requested_upgrade(parts: &request::Parts, protocol: Protocol) -> Option<Upgrade> {
    if protocol == Protocol::Http2 {
        let protocol = parts.extensions.get::<h2::ext::Protocol>().filter(|_| parts.method == Method::CONNECT)?;
        return Some(Upgrade(protocol.as_str().as_bytes().into()));
    }
    let fields = &parts.headers;
    let asks = fields.contains_key(header::UPGRADE)
        && parts.method == Method::GET
        && parts.version == Version::HTTP_11
        && !fields.contains_key(header::TRANSFER_ENCODING)
        && fields.get(header::CONTENT_LENGTH).is_none_or(|length| length == "0")
        && header_list_members(fields, header::CONNECTION).any(|option| option.eq_ignore_ascii_case(b"upgrade"));
    if !asks {
        return None;
    }
    let lines: Vec<&[u8]> = fields.get_all(header::UPGRADE).iter().map(HeaderValue::as_bytes).collect();
    Some(Upgrade(lines.join(&b',').into()))
}

/// Checks the size of a request's header in bytes, as RFC 9113 §6.5.2 counts, with pseudo-header fields. A request in
/// HTTP/1.1 counts as if it had them.
fn check_header_size(parts: &request::Parts, bounds: &FieldLimits) -> Result<(), Refusal> {
    let uri = &parts.uri;
    let authority = uri.authority().map_or(":authority".len() - "host".len(), |authority| {
        field_line_size(":authority".len(), authority.as_str().len())
    });
    let pseudo = [
        field_line_size(":method".len(), parts.method.as_str().len()),
        field_line_size(":scheme".len(), uri.scheme_str().unwrap_or("https").len()),
        authority,
        field_line_size(":path".len(), uri.path_and_query().map_or(0, |path| path.as_str().len())),
    ];
    check_field_limits(pseudo.into_iter().fold(0, usize::saturating_add), &parts.headers, bounds)
        .map_err(Refusal::fields_too_large)
}

/// Returns the size of a field line by the length of its name and of its value, in bytes (RFC 9113 §6.5.2).
const fn field_line_size(name: usize, value: usize) -> usize {
    name.saturating_add(value).saturating_add(32)
}

/// Checks the size and number of `fields`, with `bytes` of pseudo-header fields. Fails with the limit that is exceeded.
fn check_field_limits(bytes: usize, fields: &HeaderMap, bounds: &FieldLimits) -> Result<(), RefusalLimit> {
    let regular = fields.iter().map(|(name, value)| field_line_size(name.as_str().len(), value.len()));
    if regular.fold(bytes, usize::saturating_add) > bounds.bytes {
        return Err(RefusalLimit::HeaderBytes);
    }
    // Pseudo-header fields and `host` do not count, and all lines of `cookie` are one field (RFC 9113 §8.2.3), as over
    // HTTP/1.1.
    let cookies = fields.get_all(header::COOKIE).iter().count();
    let hosts = fields.get_all(header::HOST).iter().count();
    if fields.len().saturating_sub(cookies.saturating_sub(1)).saturating_sub(hosts) > bounds.fields {
        return Err(RefusalLimit::Headers);
    }
    Ok(())
}

/// Checks a request's trailers: names and values as [`check_fields`] does, and the size as that of a header.
///
/// # Errors
///
/// The limit that is exceeded, or none if a field is invalid.
pub(super) fn check_trailers(fields: &HeaderMap, bounds: &FieldLimits) -> Result<(), Option<RefusalLimit>> {
    check_field_limits(0, fields, bounds).map_err(Some)?;
    check_fields(fields).map_err(|_| None)
}

/// Checks a header or trailers for fields that h2 accepts and RFC 9113 §8.2.1 forbids. For HTTP/1.1 the guard has
/// checked them before, and all fields that it accepts are accepted here.
///
/// # Errors
///
/// The reason of the rejection.
pub fn check_fields(fields: &HeaderMap) -> Result<(), &'static str> {
    // A HeaderName has no capitals, so that only its characters need a check.
    if !fields.keys().all(|name| field_syntax::is_token(name.as_str().as_bytes())) {
        return Err("a field's name is not a token");
    }
    // A HeaderValue has no control characters, so that only its edges need a check.
    if fields.values().any(|value| field_syntax::has_blank_edge(value.as_bytes())) {
        return Err("field value with leading or trailing whitespace");
    }
    Ok(())
}

/// Records the head of a request as it was received.
pub(super) fn record_request_head(parts: &request::Parts, record: &RequestRecord) {
    record.update_facts(|facts| {
        facts.is_http_10 = parts.version == Version::HTTP_10;
        let mut field = |name: &[u8], value: &[u8]| facts.record_field(name, value);
        field(b":method", parts.method.as_str().as_bytes());
        field(b":path", parts.uri.path_and_query().map_or("", PathAndQuery::as_str).as_bytes());
        if let Some(authority) = parts.uri.authority() {
            field(b":authority", authority.as_str().as_bytes());
        }
        for (name, value) in &parts.headers {
            field(name.as_str().as_bytes(), value.as_bytes());
        }
    });
}

/// Removes `Host` from `headers`, and returns its value.
fn take_host(headers: &mut HeaderMap) -> Result<Option<HeaderValue>, Refusal> {
    if headers.get_all(header::HOST).iter().nth(1).is_some() {
        return Err(Refusal::bad_request("more than one Host"));
    }
    Ok(headers.remove(header::HOST))
}

fn checked_path<'a>(method: &Method, path_and_query: Option<&'a PathAndQuery>) -> Result<Cow<'a, str>, Refusal> {
    let given = path_and_query.map_or("/", PathAndQuery::as_str);
    // An absolute form may have a query and no path (RFC 3986 §3).
    let checked: Cow<'_, str> = if given.starts_with('?') { format!("/{given}").into() } else { given.into() };
    check_path(method, checked.as_bytes())?;
    Ok(checked)
}

/// Checks that `Content-Length` is one number of digits alone, and rewrites it without leading zeros.
fn check_content_length(headers: &mut HeaderMap) -> Result<(), Refusal> {
    let mut values = headers.get_all(header::CONTENT_LENGTH).iter();
    let Some(value) = values.next() else { return Ok(()) };
    if values.next().is_some() {
        return Err(Refusal::bad_request("more than one Content-Length"));
    }
    let digits = !value.is_empty() && value.as_bytes().iter().all(u8::is_ascii_digit);
    let length = value.to_str().ok().filter(|_| digits).and_then(|digits| digits.parse::<u64>().ok());
    let length = length.ok_or(Refusal::bad_request("Content-Length is not a decimal number"))?;
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
    Ok(())
}

/// Removes the fields that `Connection` names (RFC 9110 §7.6.1), and `TE` except `trailers`. HTTP/2 has none of these
/// fields.
///
/// # Errors
///
/// `Connection` names a field that determines where the request goes or ends.
fn remove_connection_fields(headers: &mut HeaderMap) -> Result<(), Refusal> {
    let takes_trailers =
        header_list_members(headers, header::TE).any(|coding| coding.eq_ignore_ascii_case(b"trailers"));
    let named: Vec<HeaderName> = header_list_members(headers, header::CONNECTION)
        .filter_map(|token| HeaderName::from_bytes(token).ok())
        .collect();
    for name in named {
        if matches!(name, header::HOST | header::CONTENT_LENGTH | header::TRANSFER_ENCODING) {
            return Err(Refusal::bad_request("Connection names a field that is not connection-specific"));
        }
        headers.remove(name);
    }
    for name in &CONNECTION_FIELDS {
        headers.remove(name);
    }
    if takes_trailers {
        headers.insert(header::TE, HeaderValue::from_static("trailers"));
    }
    Ok(())
}

/// Joins the crumbs of `Cookie` into one field, as HTTP/1.1 requires (RFC 9113 §8.2.3).
fn join_cookies(headers: &mut HeaderMap) {
    if headers.get_all(header::COOKIE).iter().nth(1).is_none() {
        return;
    }
    let mut joined = BytesMut::new();
    for crumb in headers.get_all(header::COOKIE).iter().filter(|crumb| !crumb.is_empty()) {
        if !joined.is_empty() {
            joined.extend_from_slice(b"; ");
        }
        joined.extend_from_slice(crumb.as_bytes());
    }
    // Valid values, joined, are a valid value.
    if let Ok(cookie) = HeaderValue::from_maybe_shared(joined.freeze()) {
        headers.insert(header::COOKIE, cookie);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_within_its_bounds_passes_and_one_beyond_is_431() {
        let bounds = FieldLimits { bytes: 1000, fields: 5 };
        let is_within = |count: usize, value: usize| {
            let request = http::Request::get("/").header("host", "a");
            let field = |request: request::Builder, _| request.header("x", "v".repeat(value));
            let (parts, ()) = (0..count).fold(request, field).body(()).unwrap().into_parts();
            let checked = check_header_size(&parts, &bounds);
            checked.map_err(|refusal| assert_eq!(refusal.status, 431)).is_ok()
        };
        assert!(is_within(5, 1), "Host does not count");
        assert!(!is_within(6, 1));
        // 42 for the method, 44 for the scheme, 38 for the path, 43 for Host, 33 for the name of the other field.
        assert!(is_within(1, 800));
        assert!(!is_within(1, 801));
    }
}
