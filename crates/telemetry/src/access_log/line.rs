//! Formats a line of the access log: the fields of a request as a JSON object, escaped so that no value ends the line.

use litequic_config::AccessField;
use litequic_exchange::{RecordedFacts, RequestText};
use std::{
    fmt::Write as _,
    net::SocketAddr,
    time::{Duration, SystemTime},
};

/// Maximum length of a value in bytes: longer ones from a client are cut.
pub(super) const MAX_VALUE: usize = 2048;

/// Line that is being written. Keys are litequic's, values may come from a client: the output is printable ASCII
/// without an unescaped quote in a value, so that no value ends its line or the value itself.
pub(super) struct AccessLine<'a> {
    text: &'a mut String,
    first: bool,
}

impl<'a> AccessLine<'a> {
    /// Appends a line to `text`, with the fields that `write` writes.
    pub(super) fn append_access_line(text: &'a mut String, write: impl FnOnce(&mut Self)) {
        text.push('{');
        let mut line = Self { text, first: true };
        write(&mut line);
        line.text.push_str("}\n");
    }

    fn write_key(&mut self, key: &str) {
        self.text.push_str(if std::mem::take(&mut self.first) { "\"" } else { ",\"" });
        self.text.push_str(key);
        self.text.push_str("\":");
    }

    /// Writes a text from any source; omits an empty one.
    pub(super) fn write_text(&mut self, key: &str, value: &[u8]) {
        if value.is_empty() {
            return;
        }
        self.write_key(key);
        let is_whole = value.len() <= MAX_VALUE;
        let value = value.get(..MAX_VALUE).unwrap_or(value);
        self.text.push('"');
        // A character that was cut, or is invalid, becomes U+FFFD.
        for character in String::from_utf8_lossy(value).chars() {
            match character {
                '"' | '\\' => self.text.extend(['\\', character]),
                ' '..='~' => self.text.push(character),
                _ => {
                    for unit in character.encode_utf16(&mut [0; 2]) {
                        // Writing to a String cannot fail.
                        let _ = write!(self.text, "\\u{unit:04x}");
                    }
                }
            }
        }
        self.text.push_str(if is_whole { "\"" } else { "...\"" });
    }

    /// Writes an integer; omits the member without a value.
    pub(super) fn write_number(&mut self, key: &str, value: impl Into<Option<u64>>) {
        if let Some(value) = value.into() {
            self.write_key(key);
            let _ = write!(self.text, "{value}");
        }
    }

    /// Writes a duration in seconds, to the microsecond; omits the member without a value.
    pub(super) fn write_seconds(&mut self, key: &str, value: impl Into<Option<Duration>>) {
        if let Some(value) = value.into() {
            self.write_key(key);
            let _ = write!(self.text, "{}.{:06}", value.as_secs(), value.subsec_micros());
        }
    }

    /// Writes a time in UTC, to the millisecond, in the format of RFC 3339.
    pub(super) fn write_time(&mut self, key: &str, value: SystemTime) {
        self.write_key(key);
        let _ = write!(self.text, "\"{}\"", humantime::format_rfc3339_millis(value));
    }

    /// Writes a value whose text is printable ASCII without blanks.
    pub(super) fn write_plain(&mut self, key: &str, value: impl std::fmt::Display) {
        self.write_key(key);
        let _ = write!(self.text, "\"{value}\"");
    }
}

/// Writes one field of a request; omits it if the request does not have it.
pub(super) fn write_access_field(line: &mut AccessLine<'_>, field: AccessField, facts: &RecordedFacts) {
    let key = field.log_key();
    // The query may be confidential (a token), so it has a field of its own.
    let target = |n| facts.request_text(RequestText::Path).splitn(2, |byte| *byte == b'?').nth(n).unwrap_or_default();
    let address = |address: SocketAddr| address.to_string();
    match field {
        AccessField::Time => line.write_time(key, facts.began),
        AccessField::RequestId => line.write_text(key, facts.request_text(RequestText::RequestId)),
        AccessField::Client => line.write_plain(key, facts.proxied_client.unwrap_or(facts.client.address.ip())),
        AccessField::Peer => line.write_plain(key, facts.client.address.ip()),
        AccessField::ClientPort => line.write_text(key, address(facts.client.address).as_bytes()),
        AccessField::Local => line.write_text(key, address(facts.client.local).as_bytes()),
        AccessField::Protocol => line.write_plain(key, facts.client.protocol.protocol_name()),
        AccessField::Tls => line.write_plain(key, facts.client.identity.tls.tls_version_name()),
        AccessField::ServerName => {
            line.write_text(key, facts.client.server_name.as_deref().unwrap_or_default().as_bytes());
        }
        AccessField::Method => line.write_text(key, facts.request_text(RequestText::Method)),
        AccessField::Host => line.write_text(key, facts.request_text(RequestText::Host)),
        AccessField::Path => line.write_text(key, target(0)),
        AccessField::Query => line.write_text(key, target(1)),
        AccessField::UserAgent => line.write_text(key, facts.request_text(RequestText::UserAgent)),
        AccessField::Referer => line.write_text(key, facts.request_text(RequestText::Referer)),
        AccessField::TraceId => {
            if let Some(trace_id) = facts.request_trace_id() {
                line.write_text(key, &trace_id.digits());
            }
        }
        AccessField::SpanId => {
            if let Some(trace) = &facts.trace {
                line.write_text(key, &trace.span_id.digits());
            }
        }
        AccessField::Route => line.write_text(key, facts.route.as_deref().unwrap_or_default().as_bytes()),
        AccessField::Origin => line.write_text(key, facts.origin.as_deref().unwrap_or_default().as_bytes()),
        AccessField::Server => line.write_text(key, facts.server.as_deref().unwrap_or_default().as_bytes()),
        AccessField::Status => line.write_number(key, facts.status.map(|status| status.as_u16().into())),
        AccessField::GrpcStatus => line.write_number(key, facts.grpc_status.map(u64::from)),
        AccessField::BytesIn => line.write_number(key, facts.received),
        AccessField::BytesOut => line.write_number(key, facts.sent),
        AccessField::Duration => line.write_seconds(key, facts.started.elapsed()),
        AccessField::FirstByte => line.write_seconds(key, facts.first_byte),
        AccessField::OriginTime => line.write_seconds(key, facts.origin_time),
        AccessField::AuthTime => line.write_seconds(key, facts.auth_time),
        AccessField::Urgency => line.write_number(key, facts.priority.map(|priority| priority.urgency.into())),
        AccessField::Incremental => line.write_number(key, facts.priority.map(|priority| priority.incremental.into())),
        AccessField::End => line.write_plain(key, facts.end.as_word()),
        AccessField::Error => line.write_text(key, facts.error.unwrap_or_default().as_bytes()),
    }
}
