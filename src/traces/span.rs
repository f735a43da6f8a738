//! A request's spans as OTLP has them: one for the request, and one for each attempt at its origin, by the semantic
//! conventions for HTTP. Pure.

use super::protobuf as pb;
use crate::exchange::{Attempt, ClientTls, Facts, Protocol, RequestEnd, RequestTrace, SpanId, TraceFlags};
use std::{
    borrow::Cow,
    fmt::Write as _,
    time::{Duration, UNIX_EPOCH},
};

/// Bytes of a value at most: longer ones are cut.
pub(super) const MAX_VALUE: usize = 2048;

/// Fields of `ScopeSpans`, `Span`, `Span.Link`, `Status`, `KeyValue` and `AnyValue` (opentelemetry/proto, trace.proto
/// and common.proto).
const SPANS: u32 = 2;
const TRACE_ID: u32 = 1;
const SPAN_ID: u32 = 2;
const PARENT_ID: u32 = 4;
const NAME: u32 = 5;
const KIND: u32 = 6;
const START: u32 = 7;
const END: u32 = 8;
const ATTRIBUTES: u32 = 9;
const LINKS: u32 = 13;
const STATUS: u32 = 15;
const FLAGS: u32 = 16;
const LINK_FLAGS: u32 = 6;
const KEY: u32 = 1;
const VALUE: u32 = 2;
const STRING: u32 = 1;
const BOOLEAN: u32 = 2;
const INTEGER: u32 = 3;

/// The key of an attribute as it is written: the field `KEY`, and the tag of `VALUE`.
macro_rules! key {
    ($key:literal) => {{
        const WRITTEN: [u8; $key.len() + 3] = written($key.as_bytes());
        &WRITTEN
    }};
}

#[expect(clippy::cast_possible_truncation, reason = "tags are below 128, and so are the lengths of keys")]
const fn written<const N: usize>(key: &[u8]) -> [u8; N] {
    let mut out = [0; N];
    let head = [(KEY << 3 | pb::BYTES as u32) as u8, key.len() as u8];
    let value = [(VALUE << 3 | pb::BYTES as u32) as u8];
    assert!(key.len() < 128);
    let (front, rest) = out.split_at_mut(head.len());
    front.copy_from_slice(&head);
    let (middle, end) = rest.split_at_mut(key.len());
    middle.copy_from_slice(key);
    end.copy_from_slice(&value);
    out
}

/// `SPAN_KIND_SERVER`, `SPAN_KIND_CLIENT`
const SERVER: u64 = 2;
const CLIENT: u64 = 3;
/// `Status` with `STATUS_CODE_ERROR`.
const ERROR: &[u8] = &[3 << 3, 2];
/// `SPAN_FLAGS_CONTEXT_HAS_IS_REMOTE_MASK`, `SPAN_FLAGS_CONTEXT_IS_REMOTE_MASK`
const HAS_IS_REMOTE: u32 = 0x100;
const IS_REMOTE: u32 = 0x200;

/// Methods that the conventions know: of RFC 9110, and PATCH.
const METHODS: [&[u8]; 9] = [b"GET", b"HEAD", b"POST", b"PUT", b"DELETE", b"CONNECT", b"OPTIONS", b"TRACE", b"PATCH"];

/// Parameters of a query whose values are signatures and keys.
const SECRETS: [&[u8]; 4] = [b"sig", b"Signature", b"AWSAccessKeyId", b"X-Goog-Signature"];

/// Appends the spans of a request that took `took` to `out`, as fields of `ScopeSpans`, and returns how many. `scratch`
/// is memory for one of them.
pub(super) fn write(
    out: &mut Vec<u8>,
    scratch: &mut Vec<u8>,
    (facts, trace): (&Facts, &RequestTrace),
    took: Duration,
    query: bool,
) -> u32 {
    scratch.clear();
    server(scratch, facts, trace, took, query);
    pb::bytes(out, SPANS, scratch);
    let mut count = 1;
    for attempt in &trace.attempts {
        scratch.clear();
        client(scratch, (facts, trace), attempt, took, query);
        pb::bytes(out, SPANS, scratch);
        count += 1;
    }
    count
}

/// When the request began, in nanoseconds since the Unix epoch.
fn beginning(facts: &Facts) -> u64 {
    nanoseconds(facts.began.duration_since(UNIX_EPOCH).unwrap_or_default())
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn flags(flags: TraceFlags, is_remote: bool) -> u32 {
    u32::from(flags.byte()) | HAS_IS_REMOTE | if is_remote { IS_REMOTE } else { 0 }
}

/// A span's fields, without its attributes. Its name is of two parts.
fn head(
    out: &mut Vec<u8>,
    trace: &RequestTrace,
    (span_id, parent_id): (SpanId, Option<SpanId>),
    (name, kind): (&[&[u8]], u64),
    (start, end): (u64, u64),
) {
    pb::bytes(out, TRACE_ID, trace.trace_id.bytes());
    pb::bytes(out, SPAN_ID, span_id.bytes());
    if let Some(parent_id) = parent_id {
        pb::bytes(out, PARENT_ID, parent_id.bytes());
    }
    pb::joined(out, NAME, name);
    pb::number(out, KIND, kind);
    pb::fixed64(out, START, start);
    pb::fixed64(out, END, end.max(start));
    pb::fixed32(out, FLAGS, flags(trace.flags, kind == SERVER && trace.continues()));
}

/// The method as a span's name has it, and its attributes.
fn method(out: &mut Vec<u8>, method: &[u8]) -> &'static [u8] {
    if let Some(known) = METHODS.into_iter().find(|known| *known == method) {
        text(out, key!("http.request.method"), known);
        return known;
    }
    text(out, key!("http.request.method"), "_OTHER");
    if !method.is_empty() {
        text(out, key!("http.request.method_original"), &*printable(method));
    }
    b"HTTP"
}

/// Whether the request was cut off by litequic, or for want of a response.
const fn is_cut_off(facts: &Facts) -> bool {
    match facts.end {
        RequestEnd::Complete | RequestEnd::Cancelled => false,
        RequestEnd::Malformed => facts.status.is_none(),
        RequestEnd::Stalled | RequestEnd::Evicted | RequestEnd::Closed | RequestEnd::Failed => true,
    }
}

fn server(out: &mut Vec<u8>, facts: &Facts, trace: &RequestTrace, took: Duration, query: bool) {
    let method = method(out, &facts.method);
    let route = facts.http_route.as_ref().map(|route| printable(route.as_bytes()));
    let name: &[&[u8]] = match &route {
        Some(route) => {
            text(out, key!("http.route"), &**route);
            &[method, b" ", route]
        }
        None => &[method],
    };
    let start = beginning(facts);
    let times = (start, start.saturating_add(nanoseconds(took)));
    head(out, trace, (trace.span_id, trace.parent_id), (name, SERVER), times);

    let client = &facts.client;
    let is_plain = client.identity.tls == ClientTls::Plain;
    text(out, key!("url.scheme"), if is_plain { "http" } else { "https" });
    let (path, rest) = split(&facts.path);
    if !path.is_empty() {
        text(out, key!("url.path"), &*printable(path));
    }
    if let Some(rest) = rest.filter(|_| query) {
        text(out, key!("url.query"), &*printable(&redacted(rest)));
    }
    let (host, port) = authority(&facts.host);
    if !host.is_empty() {
        text(out, key!("server.address"), &*printable(host));
        number(out, key!("server.port"), port.unwrap_or(if is_plain { 80 } else { 443 }).into());
    }
    let peer = client.address;
    let address = peer.ip().to_string();
    match facts.behind {
        Some(behind) => text(out, key!("client.address"), behind.to_string()),
        None => text(out, key!("client.address"), &address),
    }
    text(out, key!("network.peer.address"), &address);
    number(out, key!("network.peer.port"), peer.port().into());
    let (version, transport) = match client.protocol {
        Protocol::Http1 if facts.is_http_10 => ("1.0", "tcp"),
        Protocol::Http1 => ("1.1", "tcp"),
        Protocol::Http2 => ("2", "tcp"),
        Protocol::Http3 => ("3", "quic"),
    };
    text(out, key!("network.protocol.version"), version);
    text(out, key!("network.transport"), transport);
    if !facts.user_agent.is_empty() {
        text(out, key!("user_agent.original"), &*printable(&facts.user_agent));
    }
    if let Some(route) = &facts.route {
        text(out, key!("litequic.route"), &*printable(route.as_bytes()));
    }
    if !facts.request_id.is_empty() {
        text(out, key!("litequic.request_id"), &*printable(&facts.request_id));
    }
    if let Some(status) = facts.status {
        number(out, key!("http.response.status_code"), status.as_u16().into());
        number(out, key!("http.response.body.size"), facts.sent);
    }
    let server_error = facts.status.filter(|status| status.is_server_error());
    if let Some(error) = facts.error {
        text(out, key!("error.type"), error);
    } else if let Some(status) = server_error {
        text(out, key!("error.type"), status.as_str());
    } else if is_cut_off(facts) {
        text(out, key!("error.type"), facts.end.word());
    }
    text(out, key!("litequic.end"), facts.end.word());
    if let Some(link) = trace.link {
        let mut written = Vec::with_capacity(40);
        pb::bytes(&mut written, TRACE_ID, link.trace_id.bytes());
        pb::bytes(&mut written, SPAN_ID, link.parent_id.bytes());
        pb::fixed32(&mut written, LINK_FLAGS, flags(link.flags, true));
        pb::bytes(out, LINKS, &written);
    }
    if server_error.is_some() || is_cut_off(facts) {
        pb::bytes(out, STATUS, ERROR);
    }
}

fn client(out: &mut Vec<u8>, (facts, trace): (&Facts, &RequestTrace), attempt: &Attempt, took: Duration, query: bool) {
    let name = method(out, &facts.method);
    let start = beginning(facts);
    let at = |after: Duration| start.saturating_add(nanoseconds(after));
    let times = (at(attempt.began), at(attempt.ended.unwrap_or(took)));
    head(out, trace, (attempt.span_id, Some(trace.span_id)), (&[name], CLIENT), times);

    match attempt.server.strip_prefix("unix:") {
        Some(path) => text(out, key!("server.address"), &*printable(path.as_bytes())),
        None => {
            let (is_https, host) = match attempt.server.strip_prefix("https://") {
                Some(host) => (true, host),
                None => (false, attempt.server.strip_prefix("http://").unwrap_or(&attempt.server)),
            };
            let (host, port) = authority(host.as_bytes());
            text(out, key!("server.address"), &*printable(host));
            number(out, key!("server.port"), port.unwrap_or(if is_https { 443 } else { 80 }).into());
        }
    }
    // Nothing was sent where there was no connection.
    if !attempt.target.is_empty() {
        let server = if attempt.server.starts_with("unix:") { "http://localhost" } else { &*attempt.server };
        let (path, rest) = split(attempt.target.as_bytes());
        let mut url = [server.as_bytes(), path].concat();
        if let Some(rest) = rest.filter(|_| query) {
            url.push(b'?');
            url.extend_from_slice(&redacted(rest));
        }
        text(out, key!("url.full"), &*printable(&url));
        text(out, key!("network.protocol.version"), "1.1");
        boolean(out, key!("litequic.connection.reused"), attempt.is_reused);
    }
    text(out, key!("litequic.origin"), &*printable(attempt.origin.as_bytes()));
    if attempt.earlier > 0 {
        number(out, key!("http.request.resend_count"), attempt.earlier.into());
    }
    if let Some(status) = attempt.status {
        number(out, key!("http.response.status_code"), status.as_u16().into());
    }
    let failed = attempt.status.filter(|status| status.is_client_error() || status.is_server_error());
    if let Some(error) = attempt.error {
        text(out, key!("error.type"), error);
    } else if let Some(status) = failed {
        text(out, key!("error.type"), status.as_str());
    }
    if attempt.error.is_some() || failed.is_some() {
        pb::bytes(out, STATUS, ERROR);
    }
}

/// A path, and the query behind it.
fn split(target: &[u8]) -> (&[u8], Option<&[u8]>) {
    match target.iter().position(|byte| *byte == b'?') {
        Some(at) => (target.get(..at).unwrap_or_default(), target.get(at.saturating_add(1)..)),
        None => (target, None),
    }
}

/// The host of an authority, without brackets, and its port.
fn authority(authority: &[u8]) -> (&[u8], Option<u16>) {
    if let Some(rest) = authority.strip_prefix(b"[") {
        let end = rest.iter().rposition(|byte| *byte == b']').unwrap_or(rest.len());
        let (host, rest) = rest.split_at_checked(end).unwrap_or_default();
        return (host, rest.strip_prefix(b"]:").and_then(port));
    }
    match authority.iter().rposition(|byte| *byte == b':').and_then(|colon| authority.split_at_checked(colon)) {
        Some((host, rest)) => (host, rest.get(1..).and_then(port)),
        None => (authority, None),
    }
}

fn port(digits: &[u8]) -> Option<u16> {
    str::from_utf8(digits).ok()?.parse().ok()
}

/// A value in UTF-8: other bytes are `\xHH`, and what is beyond [`MAX_VALUE`] is cut.
fn printable(value: &[u8]) -> Cow<'_, [u8]> {
    let is_whole = value.len() <= MAX_VALUE;
    let value = value.get(..MAX_VALUE).unwrap_or(value);
    if value.is_ascii() {
        return value.into();
    }
    let error = match str::from_utf8(value) {
        Ok(_) => return value.into(),
        Err(error) => error,
    };
    if !is_whole && error.error_len().is_none() {
        // A character that was cut.
        return value.get(..error.valid_up_to()).unwrap_or_default().into();
    }
    let mut text = String::with_capacity(value.len());
    for chunk in value.utf8_chunks() {
        text.push_str(chunk.valid());
        for byte in chunk.invalid() {
            // Writing to a String cannot fail.
            let _ = write!(text, "\\x{byte:02X}");
        }
    }
    text.truncate(text.floor_char_boundary(MAX_VALUE));
    text.into_bytes().into()
}

/// A query without the values that are secrets by the conventions.
fn redacted(query: &[u8]) -> Cow<'_, [u8]> {
    let secret = |parameter: &[u8]| {
        SECRETS.into_iter().find(|name| parameter.strip_prefix(*name).is_some_and(|rest| rest.starts_with(b"=")))
    };
    let parameters = || query.split(|byte| *byte == b'&');
    if parameters().all(|parameter| secret(parameter).is_none()) {
        return query.into();
    }
    let parameters = parameters().map(|parameter| match secret(parameter) {
        Some(name) => [name, b"=REDACTED"].concat(),
        None => parameter.to_vec(),
    });
    parameters.collect::<Vec<_>>().join(&b'&').into()
}

/// What stands before the value of an attribute, whose content has `length` bytes.
fn attribute(out: &mut Vec<u8>, key: &[u8], length: usize) {
    pb::head(out, ATTRIBUTES, key.len() + pb::varint_length(length as u64) + length);
    out.extend_from_slice(key);
    pb::varint(out, length as u64);
}

/// `value` is UTF-8.
fn text(out: &mut Vec<u8>, key: &[u8], value: impl AsRef<[u8]>) {
    let value = value.as_ref();
    attribute(out, key, pb::field_length(value.len()));
    pb::bytes(out, STRING, value);
}

fn number(out: &mut Vec<u8>, key: &[u8], value: u64) {
    attribute(out, key, 1 + pb::varint_length(value));
    pb::number(out, INTEGER, value);
}

fn boolean(out: &mut Vec<u8>, key: &[u8], value: bool) {
    attribute(out, key, 2);
    pb::number(out, BOOLEAN, value.into());
}

/// A `KeyValue` of the resource, as a field with the number `field`.
pub(super) fn resource_attribute(out: &mut Vec<u8>, field: u32, key: &str, value: &str) {
    let any = pb::field_length(value.len());
    pb::head(out, field, pb::field_length(key.len()) + pb::field_length(any));
    pb::bytes(out, KEY, key.as_bytes());
    pb::head(out, VALUE, any);
    pb::bytes(out, STRING, value.as_bytes());
}

#[cfg(test)]
mod tests;
