//! Recognizes calls of gRPC and streaming calls of Connect, and forms what a gRPC client reads in place of an HTTP
//! error. Both sides of such a call may be silent for long, as those of a tunnel. Pure.

use crate::answer::Error;
use http::{Method, StatusCode};
use litequic_exchange::{Body, Fields, Head, Protocol, Response, name};
use std::{num::NonZeroU32, time::Duration};

const GRPC_TYPE: &[u8] = b"application/grpc";
const CONNECT_TYPE: &[u8] = b"application/connect+";
/// Most digits of `grpc-timeout`.
const MAX_TIMEOUT_DIGITS: usize = 8;
/// Time added to the client's deadline, so that the client, which knows it better, ends the call itself.
pub(crate) const DEADLINE_MARGIN: Duration = Duration::from_secs(1);

/// A call whose sides may be silent: a POST with a content type of gRPC, or of a streaming call of Connect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StreamingCall {
    /// Whether the call is gRPC's, whose status is in trailers, rather than Connect's.
    pub(crate) is_grpc: bool,
    /// Milliseconds until litequic ends the call, by the client's deadline. A number, as it lies in each request.
    timeout_ms: Option<NonZeroU32>,
}

impl StreamingCall {
    /// The call that a request is, if it is one. gRPC needs HTTP/2 or HTTP/3; gRPC-Web, which HTTP/1.1 carries, has no
    /// silent requests.
    pub(crate) fn classify_call(head: &Head, protocol: Protocol) -> Option<Self> {
        if head.method != Method::POST {
            return None;
        }
        let content_type = head.fields.get(name::CONTENT_TYPE)?;
        let after = |prefix: &[u8]| {
            let (start, rest) = content_type.split_at_checked(prefix.len())?;
            start.eq_ignore_ascii_case(prefix).then_some(rest)
        };
        let is_grpc = after(GRPC_TYPE).is_some_and(|rest| matches!(rest.first(), None | Some(b'+' | b';' | b' ')));
        if is_grpc {
            let timeout = head.fields.get(name::GRPC_TIMEOUT).and_then(parse_grpc_timeout);
            let milliseconds = |timeout: Duration| u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX);
            let timeout = timeout.map(|timeout| milliseconds(timeout.saturating_add(DEADLINE_MARGIN)));
            let timeout_ms = timeout.and_then(NonZeroU32::new);
            return (protocol != Protocol::Http1).then_some(Self { is_grpc, timeout_ms });
        }
        after(CONNECT_TYPE).map(|_| Self { is_grpc, timeout_ms: None })
    }

    /// Time until litequic ends the call, by the client's deadline.
    pub(crate) fn call_timeout(self) -> Option<Duration> {
        self.timeout_ms.map(|ms| Duration::from_millis(ms.get().into()))
    }
}

/// Parses a value of `grpc-timeout`; `None` if it is invalid.
fn parse_grpc_timeout(value: &[u8]) -> Option<Duration> {
    let (unit, digits) = value.split_last()?;
    let is_number = digits.len() <= MAX_TIMEOUT_DIGITS && digits.iter().all(u8::is_ascii_digit);
    let number: u64 = str::from_utf8(digits).ok().filter(|_| is_number)?.parse().ok()?;
    Some(match unit {
        b'H' => Duration::from_secs(number.saturating_mul(3600)),
        b'M' => Duration::from_secs(number.saturating_mul(60)),
        b'S' => Duration::from_secs(number),
        b'm' => Duration::from_millis(number),
        b'u' => Duration::from_micros(number),
        b'n' => Duration::from_nanos(number),
        _ => return None,
    })
}

/// The gRPC status of `error`: what gRPC's own table makes of its HTTP status, but for limits and deadlines, which have
/// a status of their own.
fn status_of_error(error: Error) -> u8 {
    match error {
        // DEADLINE_EXCEEDED
        Error::RequestTimeout { .. } => 4,
        _ => match error.status_and_kind().0 {
            // RESOURCE_EXHAUSTED
            StatusCode::PAYLOAD_TOO_LARGE | StatusCode::TOO_MANY_REQUESTS => 8,
            StatusCode::UNAUTHORIZED => 16,
            // PERMISSION_DENIED
            StatusCode::FORBIDDEN => 7,
            // UNIMPLEMENTED
            StatusCode::NOT_FOUND | StatusCode::NOT_IMPLEMENTED => 12,
            // INTERNAL
            StatusCode::BAD_REQUEST | StatusCode::URI_TOO_LONG => 13,
            // UNAVAILABLE: the client may call again.
            _ => 14,
        },
    }
}

/// `text` as a value of `grpc-message`: percent-encoded.
fn encode_message(text: &str) -> String {
    let encode = |byte: u8| match byte {
        b' '..=b'~' if byte != b'%' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(encode).collect()
}

/// Fields that end a call with `error`.
pub(crate) fn status_fields(error: Error) -> Fields {
    let mut fields = Fields::new();
    fields.set_number_field(name::GRPC_STATUS, status_of_error(error).into());
    fields.set_field(name::GRPC_MESSAGE, encode_message(&error.to_string()).as_bytes());
    fields
}

/// Turns litequic's own `response` to a gRPC call that failed by `error` into one of trailers alone.
pub(crate) fn replace_error_response(response: &mut Response, error: Error) {
    (response.status, response.body) = (StatusCode::OK, Body::empty());
    for name in [name::CONTENT_LENGTH, name::CONTENT_LANGUAGE, name::CACHE_CONTROL, name::RETRY_AFTER] {
        response.fields.remove_field(name);
    }
    response.fields.set_field(name::CONTENT_TYPE, GRPC_TYPE);
    response.fields.append_fields(&status_fields(error));
}

/// The gRPC status in a response's header or trailers, if there is one.
pub(crate) fn read_grpc_status(fields: &Fields) -> Option<u32> {
    let digits = fields.get(name::GRPC_STATUS).filter(|digits| digits.iter().all(u8::is_ascii_digit))?;
    str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use litequic_exchange::Authority;

    fn classified(method: Method, content_type: &str, timeout: &str, protocol: Protocol) -> Option<StreamingCall> {
        let fields = [(name::CONTENT_TYPE, content_type.as_bytes()), (name::GRPC_TIMEOUT, timeout.as_bytes())];
        let fields = fields.into_iter().filter(|(_, value)| !value.is_empty()).collect();
        StreamingCall::classify_call(&Head::new(method, Authority::new("a.test"), "/a.B/C", fields), protocol)
    }

    #[test]
    fn a_streaming_call_is_known_by_its_content_type() {
        let kind = |content_type| classified(Method::POST, content_type, "", Protocol::Http2).map(|call| call.is_grpc);
        for (content_type, expected) in [
            ("application/grpc", Some(true)),
            ("Application/gRPC", Some(true)),
            ("application/grpc+proto", Some(true)),
            ("application/grpc;charset=utf-8", Some(true)),
            ("application/connect+json", Some(false)),
            ("application/grpc-web", None),
            ("application/grpc-web+proto", None),
            ("application/grpcx", None),
            ("application/connect", None),
            ("application/json", None),
            ("application/grp", None),
            ("", None),
        ] {
            assert_eq!(kind(content_type), expected, "{content_type}");
        }
        assert_eq!(classified(Method::GET, "application/grpc", "", Protocol::Http3), None);
        assert_eq!(classified(Method::POST, "application/grpc", "", Protocol::Http1), None);
        assert!(classified(Method::POST, "application/connect+json", "", Protocol::Http1).is_some());
    }

    #[test]
    fn a_clients_deadline_has_a_number_and_a_unit() {
        for (value, millis) in [
            ("1H", Some(3_601_000)),
            ("99999999H", Some(u32::MAX.into())),
            ("2M", Some(121_000)),
            ("30S", Some(31_000)),
            ("250m", Some(1_250)),
            ("5000u", Some(1_005)),
            ("99999999n", Some(1_099)),
            ("0S", Some(1_000)),
            ("100000000S", None),
            ("S", None),
            ("12", None),
            ("-1S", None),
            ("1.5S", None),
            ("1 S", None),
            ("1s", None),
        ] {
            let call = classified(Method::POST, "application/grpc", value, Protocol::Http3).unwrap();
            assert_eq!(call.call_timeout().map(|timeout| timeout.as_millis()), millis, "{value}");
        }
    }

    #[test]
    fn an_error_becomes_trailers_that_a_grpc_client_reads() {
        for (error, status) in [
            (Error::AmbiguousPath, 13),
            (Error::NoPassword, 16),
            (Error::AddressDenied, 7),
            (Error::NoRoute, 12),
            (Error::BodyTooLarge, 8),
            (Error::TooManyRequests { retry_after: 7 }, 8),
            (Error::Refused, 14),
            (Error::QueueFull, 14),
            (Error::ResponseTimeout, 14),
            (Error::RequestTimeout { servers: false }, 4),
        ] {
            let mut response = error.error_response("7f3a", None);
            replace_error_response(&mut response, error);
            assert_eq!(
                (response.status, read_grpc_status(&response.fields)),
                (StatusCode::OK, Some(status)),
                "{error}"
            );
            assert_eq!(response.fields.get(name::GRPC_MESSAGE), Some(error.to_string().as_bytes()));
            assert_eq!(response.fields.get(name::CONTENT_TYPE), Some(GRPC_TYPE));
            assert!(response.body.is_empty() && !response.fields.contains(name::CONTENT_LENGTH));
            assert!(response.fields.contains(name::PROXY_STATUS) && response.fields.contains(name::X_REQUEST_ID));
        }
        assert_eq!(encode_message("100 %\nä"), "100 %25%0A%C3%A4");
        for (value, expected) in [("0", Some(0)), ("16", Some(16)), ("99999999999", None), ("-1", None), ("", None)] {
            assert_eq!(
                read_grpc_status(&Fields::from_iter([(name::GRPC_STATUS, value.as_bytes())])),
                expected,
                "{value}"
            );
        }
    }
}
