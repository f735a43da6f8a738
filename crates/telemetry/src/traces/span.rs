//! Writes a request's spans in the format of OTLP: one for the request, and one for each attempt at its origin, by the
//! semantic conventions for HTTP. Pure.

use super::{
    attribute::{append_boolean, append_number, append_text},
    protobuf as pb,
};
use litequic_exchange::{
    AttemptSpan, ClientTls, Protocol, RecordedFacts, RequestEnd, RequestText, RequestTrace, SpanId, TraceFlags,
    write_address,
};
use prost::encoding::{fixed32, fixed64, uint64};
use std::{
    borrow::Cow,
    fmt::Write as _,
    time::{Duration, UNIX_EPOCH},
};

/// Maximum length of an IP address as text, in bytes.
const MAX_ADDRESS_LENGTH: usize = 45;
/// Maximum length of a value in bytes: longer ones are cut.
pub(super) const MAX_VALUE: usize = 2048;

/// Field numbers of `ScopeSpans`, `Span`, `Span.Link` and `Status` (opentelemetry/proto, trace.proto).
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

/// `SPAN_KIND_SERVER` and `SPAN_KIND_CLIENT`.
const SERVER: u64 = 2;
const CLIENT: u64 = 3;
/// Encoded `Status` with `STATUS_CODE_ERROR`.
const ERROR: &[u8] = &[3 << 3, 2];
/// `SPAN_FLAGS_CONTEXT_HAS_IS_REMOTE_MASK` and `SPAN_FLAGS_CONTEXT_IS_REMOTE_MASK`.
const HAS_IS_REMOTE: u32 = 0x100;
const IS_REMOTE: u32 = 0x200;

/// Methods that the conventions name: those of RFC 9110, and PATCH.
const METHODS: [&[u8]; 9] = [b"GET", b"HEAD", b"POST", b"PUT", b"DELETE", b"CONNECT", b"OPTIONS", b"TRACE", b"PATCH"];

/// Ended request, of the duration `took`.
#[derive(Debug, Clone, Copy)]
pub(super) struct EndedRequest<'a> {
    pub(super) facts: &'a RecordedFacts,
    pub(super) trace: &'a RequestTrace,
    pub(super) took: Duration,
}

/// Appends the spans of `request` to `out`, as fields of `ScopeSpans`, and returns their number.
pub(super) fn write_spans(out: &mut Vec<u8>, request: EndedRequest<'_>) -> u32 {
    pb::write_field(out, SPANS, |out| write_server_span(out, request));
    let mut count = 1;
    for attempt in &request.trace.attempts {
        pb::write_field(out, SPANS, |out| write_client_span(out, request, attempt));
        count += 1;
    }
    count
}

/// Beginning of the request, in nanoseconds since the Unix epoch.
fn start_nanoseconds(facts: &RecordedFacts) -> u64 {
    nanoseconds(facts.began.duration_since(UNIX_EPOCH).unwrap_or_default())
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn span_flags(flags: TraceFlags, is_remote: bool) -> u32 {
    u32::from(flags.0) | HAS_IS_REMOTE | if is_remote { IS_REMOTE } else { 0 }
}

/// Fields of a span other than attributes.
struct SpanHead<'a> {
    trace: &'a RequestTrace,
    span_id: SpanId,
    parent_id: Option<SpanId>,
    name: &'a [&'a [u8]],
    kind: u64,
    /// Beginning in nanoseconds since the Unix epoch, as `end`.
    start: u64,
    end: u64,
}

impl SpanHead<'_> {
    fn write_span_head(&self, out: &mut Vec<u8>) {
        pb::write_bytes_field(out, TRACE_ID, self.trace.trace_id.bytes());
        pb::write_bytes_field(out, SPAN_ID, self.span_id.bytes());
        if let Some(parent_id) = self.parent_id {
            pb::write_bytes_field(out, PARENT_ID, parent_id.bytes());
        }
        pb::write_field(out, NAME, |out| self.name.iter().for_each(|part| out.extend_from_slice(part)));
        uint64::encode(KIND, &self.kind, out);
        fixed64::encode(START, &self.start, out);
        fixed64::encode(END, &self.end.max(self.start), out);
        let is_remote = self.kind == SERVER && self.trace.is_continued();
        fixed32::encode(FLAGS, &span_flags(self.trace.flags, is_remote), out);
    }
}

/// Writes the attributes of a request's method, and returns the method for the span's name.
fn write_method(out: &mut Vec<u8>, method: &[u8]) -> &'static [u8] {
    if let Some(known) = METHODS.into_iter().find(|known| *known == method) {
        append_text(out, "http.request.method", known);
        return known;
    }
    append_text(out, "http.request.method", b"_OTHER");
    append_text(out, "http.request.method_original", &printable_value(method));
    b"HTTP"
}

/// Whether litequic cut off the request, or no response came.
const fn is_cut_off(facts: &RecordedFacts) -> bool {
    match facts.end {
        RequestEnd::Complete | RequestEnd::Cancelled => false,
        RequestEnd::Malformed => facts.status.is_none(),
        RequestEnd::Stalled | RequestEnd::Evicted | RequestEnd::Closed | RequestEnd::Failed => true,
    }
}

fn write_server_span(out: &mut Vec<u8>, EndedRequest { facts, trace, took }: EndedRequest<'_>) {
    let method = write_method(out, facts.request_text(RequestText::Method));
    let name: &[&[u8]] = match facts.http_route.as_deref().map(cut_text) {
        Some(route) => {
            append_text(out, "http.route", route);
            &[method, b" ", route]
        }
        None => &[method],
    };
    let start = start_nanoseconds(facts);
    let end = start.saturating_add(nanoseconds(took));
    let &RequestTrace { span_id, parent_id, .. } = trace;
    SpanHead { trace, span_id, parent_id, name, kind: SERVER, start, end }.write_span_head(out);

    let client = &facts.client;
    let is_plain = client.identity.tls == ClientTls::Plain;
    append_text(out, "url.scheme", if is_plain { b"http" } else { b"https" });
    let path = without_query(facts.request_text(RequestText::Path));
    append_text(out, "url.path", &printable_value(path));
    let (host, port) = split_authority(facts.request_text(RequestText::Host));
    if !host.is_empty() {
        append_text(out, "server.address", &printable_value(host));
        append_number(out, "server.port", port.unwrap_or(if is_plain { 80 } else { 443 }).into());
    }
    let peer = client.address;
    let mut address = String::with_capacity(MAX_ADDRESS_LENGTH);
    write_address(&mut address, peer.ip());
    append_text(out, "network.peer.address", address.as_bytes());
    if let Some(behind) = facts.proxied_client {
        address.clear();
        write_address(&mut address, behind);
    }
    append_text(out, "client.address", address.as_bytes());
    append_number(out, "network.peer.port", peer.port().into());
    let (version, transport) = match client.protocol {
        Protocol::Http1 if facts.is_http_10 => ("1.0", "tcp"),
        Protocol::Http1 => ("1.1", "tcp"),
        Protocol::Http2 => ("2", "tcp"),
        Protocol::Http3 => ("3", "quic"),
    };
    append_text(out, "network.protocol.version", version.as_bytes());
    append_text(out, "network.transport", transport.as_bytes());
    append_text(out, "user_agent.original", &printable_value(facts.request_text(RequestText::UserAgent)));
    append_text(out, "litequic.route", cut_text(facts.route.as_deref().unwrap_or_default()));
    append_text(out, "litequic.request_id", &printable_value(facts.request_text(RequestText::RequestId)));
    if let Some(status) = facts.status {
        append_number(out, "http.response.status_code", status.as_u16().into());
        append_number(out, "http.response.body.size", facts.sent);
    }
    if let Some(status) = facts.grpc_status {
        append_number(out, "rpc.grpc.status_code", status.into());
    }
    let server_error = facts.status.filter(|status| status.is_server_error());
    if let Some(error) = facts.error {
        append_text(out, "error.type", error.as_bytes());
    } else if let Some(status) = server_error {
        append_text(out, "error.type", status.as_str().as_bytes());
    } else if is_cut_off(facts) {
        append_text(out, "error.type", facts.end.as_word().as_bytes());
    }
    append_text(out, "litequic.end", facts.end.as_word().as_bytes());
    if let Some(link) = trace.link {
        pb::write_field(out, LINKS, |out| {
            pb::write_bytes_field(out, TRACE_ID, link.trace_id.bytes());
            pb::write_bytes_field(out, SPAN_ID, link.parent_id.bytes());
            fixed32::encode(LINK_FLAGS, &span_flags(link.flags, true), out);
        });
    }
    if server_error.is_some() || is_cut_off(facts) {
        pb::write_bytes_field(out, STATUS, ERROR);
    }
}

fn write_client_span(out: &mut Vec<u8>, request: EndedRequest<'_>, attempt: &AttemptSpan) {
    let EndedRequest { facts, trace, took } = request;
    let at = |after: Duration| start_nanoseconds(facts).saturating_add(nanoseconds(after));
    let head = SpanHead {
        trace,
        span_id: attempt.span_id,
        parent_id: Some(trace.span_id),
        name: &[write_method(out, facts.request_text(RequestText::Method))],
        kind: CLIENT,
        start: at(attempt.began),
        end: at(attempt.ended.unwrap_or(took)),
    };
    head.write_span_head(out);

    match attempt.server.strip_prefix("unix:") {
        Some(path) => append_text(out, "server.address", cut_text(path)),
        None => {
            let (is_https, host) = match attempt.server.strip_prefix("https://") {
                Some(host) => (true, host),
                None => (false, attempt.server.strip_prefix("http://").unwrap_or(&attempt.server)),
            };
            let (host, port) = split_authority(host.as_bytes());
            append_text(out, "server.address", &printable_value(host));
            append_number(out, "server.port", port.unwrap_or(if is_https { 443 } else { 80 }).into());
        }
    }
    // Without a connection, nothing was sent.
    if !attempt.target.is_empty() {
        let server = if attempt.server.starts_with("unix:") { "http://localhost" } else { &*attempt.server };
        let url = [server.as_bytes(), without_query(attempt.target.as_bytes())].concat();
        append_text(out, "url.full", &printable_value(&url));
        append_text(out, "network.protocol.version", b"1.1");
        append_boolean(out, "litequic.connection.reused", attempt.is_reused);
    }
    append_text(out, "litequic.origin", cut_text(&attempt.origin));
    if attempt.earlier > 0 {
        append_number(out, "http.request.resend_count", attempt.earlier.into());
    }
    if let Some(status) = attempt.status {
        append_number(out, "http.response.status_code", status.as_u16().into());
    }
    let failed = attempt.status.filter(|status| status.is_client_error() || status.is_server_error());
    if let Some(error) = attempt.error {
        append_text(out, "error.type", error.as_bytes());
    } else if let Some(status) = failed {
        append_text(out, "error.type", status.as_str().as_bytes());
    }
    if attempt.error.is_some() || failed.is_some() {
        pb::write_bytes_field(out, STATUS, ERROR);
    }
}

/// Returns a request target without its query, which may contain tokens and personal names.
fn without_query(target: &[u8]) -> &[u8] {
    target.split(|byte| *byte == b'?').next().unwrap_or_default()
}

/// Splits an authority into its host, without brackets, and its port.
fn split_authority(authority: &[u8]) -> (&[u8], Option<u16>) {
    if let Some(rest) = authority.strip_prefix(b"[") {
        let end = rest.iter().rposition(|byte| *byte == b']').unwrap_or(rest.len());
        let (host, rest) = rest.split_at_checked(end).unwrap_or_default();
        return (host, rest.strip_prefix(b"]:").and_then(port_number));
    }
    match authority.iter().rposition(|byte| *byte == b':').and_then(|colon| authority.split_at_checked(colon)) {
        Some((host, rest)) => (host, rest.get(1..).and_then(port_number)),
        None => (authority, None),
    }
}

fn port_number(digits: &[u8]) -> Option<u16> {
    // An empty port counts as none (RFC 3986 §3.2.3).
    let digit =
        |port: u16, byte: &u8| port.checked_mul(10)?.checked_add(char::from(*byte).to_digit(10)?.try_into().ok()?);
    (!digits.is_empty()).then(|| digits.iter().try_fold(0, digit)).flatten()
}

/// Cuts a text at [`MAX_VALUE`] bytes.
fn cut_text(value: &str) -> &[u8] {
    value.get(..value.floor_char_boundary(MAX_VALUE)).unwrap_or_default().as_bytes()
}

/// Makes a value UTF-8: other bytes become `\xHH`, and the value is cut at [`MAX_VALUE`] bytes.
fn printable_value(value: &[u8]) -> Cow<'_, [u8]> {
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
        // The last character was cut.
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

#[cfg(test)]
mod tests;
