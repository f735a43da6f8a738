//! A request's spans as OTLP has them: one for the request, and one for each attempt at its origin, by the semantic
//! conventions for HTTP. Pure.

use super::{
    attribute::{AROUND, AttributeKey, boolean, key, number, text, text_of},
    protobuf as pb,
};
use litequic_exchange::{
    Attempt, ClientTls, Facts, Protocol, RequestEnd, RequestText, RequestTrace, SpanId, TraceFlags, write_address,
};
use std::{
    borrow::Cow,
    fmt::Write as _,
    time::{Duration, UNIX_EPOCH},
};

/// Bytes of an address as text at most.
const LONGEST_ADDRESS: usize = 45;
/// Bytes of a value at most: longer ones are cut.
pub(super) const MAX_VALUE: usize = 2048;

/// Fields of `ScopeSpans`, `Span`, `Span.Link` and `Status` (opentelemetry/proto, trace.proto).
const SPANS: u32 = 2;
const TRACE_ID: u32 = 1;
const SPAN_ID: u32 = 2;
const PARENT_ID: u32 = 4;
const NAME: u32 = 5;
const KIND: u32 = 6;
const START: u32 = 7;
const END: u32 = 8;
const LINKS: u32 = 13;
const STATUS: u32 = 15;
const FLAGS: u32 = 16;
const LINK_FLAGS: u32 = 6;

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

/// A request that has ended, `took` after it began.
#[derive(Debug, Clone, Copy)]
pub(super) struct EndedRequest<'a> {
    pub(super) facts: &'a Facts,
    pub(super) trace: &'a RequestTrace,
    pub(super) took: Duration,
}

/// Appends the spans of `request` to `out`, as fields of `ScopeSpans`, and returns how many. `scratch` is memory for
/// one of them.
pub(super) fn write(out: &mut Vec<u8>, scratch: &mut Vec<u8>, request: EndedRequest<'_>, query: bool) -> u32 {
    scratch.clear();
    server(scratch, request, query);
    pb::bytes(out, SPANS, scratch);
    let mut count = 1;
    for attempt in &request.trace.attempts {
        scratch.clear();
        client(scratch, request, attempt, query);
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

/// The fields of a span that are not attributes.
struct SpanHead<'a> {
    trace: &'a RequestTrace,
    span_id: SpanId,
    parent_id: Option<SpanId>,
    /// The parts of the name.
    name: &'a [&'a [u8]],
    kind: u64,
    /// Nanoseconds since the Unix epoch.
    start: u64,
    end: u64,
}

impl SpanHead<'_> {
    fn write(&self, out: &mut Vec<u8>) {
        pb::array(out, TRACE_ID, self.trace.trace_id.bytes());
        pb::array(out, SPAN_ID, self.span_id.bytes());
        if let Some(parent_id) = self.parent_id {
            pb::array(out, PARENT_ID, parent_id.bytes());
        }
        pb::joined(out, NAME, self.name);
        pb::number(out, KIND, self.kind);
        pb::fixed64(out, START, self.start);
        pb::fixed64(out, END, self.end.max(self.start));
        pb::fixed32(out, FLAGS, flags(self.trace.flags, self.kind == SERVER && self.trace.continues()));
    }
}

/// The method as a span's name has it, and its attributes.
fn method(out: &mut Vec<u8>, method: &[u8]) -> &'static [u8] {
    if let Some(known) = METHODS.into_iter().find(|known| *known == method) {
        text(out, key!("http.request.method"), known);
        return known;
    }
    text(out, key!("http.request.method"), b"_OTHER");
    if !method.is_empty() {
        text(out, key!("http.request.method_original"), &printable(method));
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

fn server(out: &mut Vec<u8>, EndedRequest { facts, trace, took }: EndedRequest<'_>, query: bool) {
    let method = method(out, facts.text(RequestText::Method));
    let name: &[&[u8]] = match facts.http_route.as_deref().map(cut) {
        Some(route) => {
            text(out, key!("http.route"), route);
            &[method, b" ", route]
        }
        None => &[method],
    };
    let start = beginning(facts);
    let end = start.saturating_add(nanoseconds(took));
    let &RequestTrace { span_id, parent_id, .. } = trace;
    SpanHead { trace, span_id, parent_id, name, kind: SERVER, start, end }.write(out);

    let client = &facts.client;
    let is_plain = client.identity.tls == ClientTls::Plain;
    text(out, key!("url.scheme"), if is_plain { b"http" } else { b"https" });
    let (path, rest) = split(facts.text(RequestText::Path));
    if !path.is_empty() {
        text(out, key!("url.path"), &printable(path));
    }
    if let Some(rest) = rest.filter(|_| query) {
        text(out, key!("url.query"), &printable(&redacted(rest)));
    }
    let (host, port) = authority(facts.text(RequestText::Host));
    if !host.is_empty() {
        text(out, key!("server.address"), &printable(host));
        number(out, key!("server.port"), port.unwrap_or(if is_plain { 80 } else { 443 }).into());
    }
    let peer = client.address;
    let mut address = String::with_capacity(LONGEST_ADDRESS);
    write_address(&mut address, peer.ip());
    text(out, key!("network.peer.address"), address.as_bytes());
    if let Some(behind) = facts.behind {
        address.clear();
        write_address(&mut address, behind);
    }
    text(out, key!("client.address"), address.as_bytes());
    number(out, key!("network.peer.port"), peer.port().into());
    let (version, transport) = match client.protocol {
        Protocol::Http1 if facts.is_http_10 => ("1.0", "tcp"),
        Protocol::Http1 => ("1.1", "tcp"),
        Protocol::Http2 => ("2", "tcp"),
        Protocol::Http3 => ("3", "quic"),
    };
    text(out, key!("network.protocol.version"), version.as_bytes());
    text(out, key!("network.transport"), transport.as_bytes());
    if !facts.text(RequestText::UserAgent).is_empty() {
        text(out, key!("user_agent.original"), &printable(facts.text(RequestText::UserAgent)));
    }
    if let Some(route) = &facts.route {
        text(out, key!("litequic.route"), cut(route));
    }
    if !facts.text(RequestText::RequestId).is_empty() {
        text(out, key!("litequic.request_id"), &printable(facts.text(RequestText::RequestId)));
    }
    if let Some(status) = facts.status {
        number(out, key!("http.response.status_code"), status.as_u16().into());
        number(out, key!("http.response.body.size"), facts.sent);
    }
    let server_error = facts.status.filter(|status| status.is_server_error());
    if let Some(error) = facts.error {
        text(out, key!("error.type"), error.as_bytes());
    } else if let Some(status) = server_error {
        text(out, key!("error.type"), status.as_str().as_bytes());
    } else if is_cut_off(facts) {
        text(out, key!("error.type"), facts.end.word().as_bytes());
    }
    text(out, key!("litequic.end"), facts.end.word().as_bytes());
    if let Some(link) = trace.link {
        let mut written = Vec::with_capacity(40);
        pb::array(&mut written, TRACE_ID, link.trace_id.bytes());
        pb::array(&mut written, SPAN_ID, link.parent_id.bytes());
        pb::fixed32(&mut written, LINK_FLAGS, flags(link.flags, true));
        pb::bytes(out, LINKS, &written);
    }
    if server_error.is_some() || is_cut_off(facts) {
        pb::bytes(out, STATUS, ERROR);
    }
}

fn client(out: &mut Vec<u8>, request: EndedRequest<'_>, attempt: &Attempt, query: bool) {
    let EndedRequest { facts, trace, took } = request;
    let at = |after: Duration| beginning(facts).saturating_add(nanoseconds(after));
    let head = SpanHead {
        trace,
        span_id: attempt.span_id,
        parent_id: Some(trace.span_id),
        name: &[method(out, facts.text(RequestText::Method))],
        kind: CLIENT,
        start: at(attempt.began),
        end: at(attempt.ended.unwrap_or(took)),
    };
    head.write(out);

    match attempt.server.strip_prefix("unix:") {
        Some(path) => text(out, key!("server.address"), cut(path)),
        None => {
            let (is_https, host) = match attempt.server.strip_prefix("https://") {
                Some(host) => (true, host),
                None => (false, attempt.server.strip_prefix("http://").unwrap_or(&attempt.server)),
            };
            let (host, port) = authority(host.as_bytes());
            text(out, key!("server.address"), &printable(host));
            number(out, key!("server.port"), port.unwrap_or(if is_https { 443 } else { 80 }).into());
        }
    }
    // Nothing was sent where there was no connection.
    if !attempt.target.is_empty() {
        let server = if attempt.server.starts_with("unix:") { "http://localhost" } else { &*attempt.server };
        let (path, rest) = split(attempt.target.as_bytes());
        match rest.filter(|_| query) {
            None if server.len() + path.len() <= MAX_VALUE && path.is_ascii() => {
                text_of(out, key!("url.full"), &[server.as_bytes(), path]);
            }
            rest => {
                let rest = rest.map(|rest| [b"?", &*redacted(rest)].concat()).unwrap_or_default();
                let url = [server.as_bytes(), path, &rest].concat();
                text(out, key!("url.full"), &printable(&url));
            }
        }
        text(out, key!("network.protocol.version"), b"1.1");
        boolean(out, key!("litequic.connection.reused"), attempt.is_reused);
    }
    text(out, key!("litequic.origin"), cut(&attempt.origin));
    if attempt.earlier > 0 {
        number(out, key!("http.request.resend_count"), attempt.earlier.into());
    }
    if let Some(status) = attempt.status {
        number(out, key!("http.response.status_code"), status.as_u16().into());
    }
    let failed = attempt.status.filter(|status| status.is_client_error() || status.is_server_error());
    if let Some(error) = attempt.error {
        text(out, key!("error.type"), error.as_bytes());
    } else if let Some(status) = failed {
        text(out, key!("error.type"), status.as_str().as_bytes());
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
    // An empty one is none (RFC 3986 §3.2.3).
    let digit =
        |port: u16, byte: &u8| port.checked_mul(10)?.checked_add(char::from(*byte).to_digit(10)?.try_into().ok()?);
    (!digits.is_empty()).then(|| digits.iter().try_fold(0, digit)).flatten()
}

/// A value that is text, cut where it is longer than [`MAX_VALUE`].
fn cut(value: &str) -> &[u8] {
    value.get(..value.floor_char_boundary(MAX_VALUE)).unwrap_or_default().as_bytes()
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

#[cfg(test)]
mod tests;
