//! Writes and reads messages of OTLP: the request that carries spans, and a collector's response. Pure.

use super::{
    attribute,
    protobuf::{self as pb, FieldReader, FieldValue},
};
use base64::{
    Engine, alphabet,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};
use bytes::Bytes;
use litequic_config::Traces;
use std::time::Duration;

/// Field numbers of `ExportTraceServiceRequest`, `ResourceSpans`, `Resource`, `ScopeSpans` and `InstrumentationScope`.
const RESOURCE_SPANS: u32 = 1;
const RESOURCE: u32 = 1;
const SCOPE_SPANS: u32 = 2;
const ATTRIBUTES: u32 = 1;
const SCOPE: u32 = 1;
const SCOPE_NAME: u32 = 1;
const SCOPE_VERSION: u32 = 2;
const SCHEMA_URL: u32 = 3;

/// Semantic conventions that the spans follow.
const SCHEMA: &str = "https://opentelemetry.io/schemas/1.37.0";

/// Length of the prefix of a gRPC message: the compressed flag, and the length.
const GRPC_PREFIX_BYTES: usize = 5;
/// Maximum number of characters of a collector's message.
const MAX_MESSAGE_CHARACTERS: usize = 200;

/// Parts of a request that are the same for all spans.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ExportEnvelope {
    /// Encoded field `ResourceSpans.resource`.
    resource: Vec<u8>,
    /// Encoded field `ScopeSpans.scope`.
    scope: Vec<u8>,
}

impl ExportEnvelope {
    pub(super) fn new(config: &Traces) -> Self {
        let mut attributes = Vec::new();
        let own = [("service.name", "litequic"), ("service.version", env!("CARGO_PKG_VERSION"))];
        let is_own = |name: &str| config.attributes.iter().any(|(given, _)| given == name);
        for (name, value) in own.into_iter().filter(|(name, _)| !is_own(name)) {
            attribute::append_resource_attribute(&mut attributes, ATTRIBUTES, name, value);
        }
        for (name, value) in &config.attributes {
            attribute::append_resource_attribute(&mut attributes, ATTRIBUTES, name, value);
        }
        let mut resource = Vec::new();
        pb::write_bytes_field(&mut resource, RESOURCE, &attributes);
        let mut inner = Vec::new();
        pb::write_bytes_field(&mut inner, SCOPE_NAME, b"litequic");
        pb::write_bytes_field(&mut inner, SCOPE_VERSION, env!("CARGO_PKG_VERSION").as_bytes());
        let mut scope = Vec::new();
        pb::write_bytes_field(&mut scope, SCOPE, &inner);
        Self { resource, scope }
    }

    /// Writes an `ExportTraceServiceRequest` with `spans`, encoded fields of `ScopeSpans`; with the prefix of gRPC if
    /// `is_grpc`.
    pub(super) fn wrap_spans(&self, spans: &[Bytes], is_grpc: bool) -> Vec<u8> {
        let scope_spans = self.scope.len() + spans.iter().map(Bytes::len).sum::<usize>();
        let schema = pb::field_length(SCHEMA.len());
        let resource_spans = self.resource.len() + pb::field_length(scope_spans) + schema;
        let message = pb::field_length(resource_spans);
        let mut out = Vec::with_capacity(GRPC_PREFIX_BYTES + message);
        if is_grpc {
            out.push(0);
            out.extend_from_slice(&u32::try_from(message).unwrap_or(u32::MAX).to_be_bytes());
        }
        pb::write_field_head(&mut out, RESOURCE_SPANS, resource_spans);
        out.extend_from_slice(&self.resource);
        pb::write_field_head(&mut out, SCOPE_SPANS, scope_spans);
        out.extend_from_slice(&self.scope);
        spans.iter().for_each(|spans| out.extend_from_slice(spans));
        pb::write_bytes_field(&mut out, SCHEMA_URL, SCHEMA.as_bytes());
        out
    }
}

/// Spans that a collector rejected in a request that succeeded (`ExportTracePartialSuccess`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct PartialSuccess {
    pub(super) rejected: u64,
    pub(super) message: String,
}

/// Reads the `partial_success` of an `ExportTraceServiceResponse`, as far as possible.
pub(super) fn partial_success(answer: &[u8]) -> PartialSuccess {
    let mut partial = PartialSuccess::default();
    for (field, value) in FieldReader(answer) {
        let (1, FieldValue::Bytes(inner)) = (field, value) else { continue };
        for (field, value) in FieldReader(inner) {
            match (field, value) {
                // A negative count counts as zero.
                (1, FieldValue::Number(count)) => partial.rejected = u64::try_from(count.cast_signed()).unwrap_or(0),
                (2, FieldValue::Bytes(text)) => partial.message = printable_message(text),
                _ => {}
            }
        }
    }
    partial
}

/// The message of a gRPC response's first frame; `None` if it is compressed or truncated.
pub(super) fn grpc_payload(answer: &[u8]) -> Option<&[u8]> {
    let (prefix, rest) = answer.split_first_chunk::<GRPC_PREFIX_BYTES>()?;
    let [0, length @ ..] = *prefix else { return None };
    rest.get(..usize::try_from(u32::from_be_bytes(length)).ok()?)
}

/// Makes a collector's message printable, and shortens it, for the log and `/status`.
pub(super) fn printable_message(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text.get(..4 * MAX_MESSAGE_CHARACTERS).unwrap_or(text));
    text.trim().chars().take(MAX_MESSAGE_CHARACTERS).map(|one| if one.is_control() { ' ' } else { one }).collect()
}

/// Decodes the value of `grpc-message`, which is percent-encoded (gRPC over HTTP/2, Responses).
pub(super) fn grpc_message(value: &[u8]) -> String {
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value;
    while let [first, more @ ..] = rest {
        let escaped = more
            .split_at_checked(2)
            .filter(|_| *first == b'%')
            .and_then(|(digits, more)| Some((u8::from_str_radix(str::from_utf8(digits).ok()?, 16).ok()?, more)));
        let (byte, more) = escaped.unwrap_or((*first, more));
        bytes.push(byte);
        rest = more;
    }
    printable_message(&bytes)
}

/// Base64 of gRPC's binary metadata, with or without padding.
const METADATA_BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Delay of the `google.rpc.RetryInfo` among the details of `grpc-status-details-bin`, if any.
pub(super) fn retry_info(details: &[u8]) -> Option<Duration> {
    let status = METADATA_BASE64.decode(details).ok()?;
    let inner = |message: &'_ [u8], wanted: u64| -> Vec<Vec<u8>> {
        let fields = FieldReader(message);
        let wanted = fields.filter_map(|(field, value)| match value {
            FieldValue::Bytes(bytes) if field == wanted => Some(bytes.to_vec()),
            _ => None,
        });
        wanted.collect()
    };
    let is_retry_info =
        |any: &Vec<u8>| inner(any, 1).first().is_some_and(|name| name.ends_with(b"/google.rpc.RetryInfo"));
    // The nesting is Status.details, Any.value, RetryInfo.retry_delay, Duration.
    let any = inner(&status, 3).into_iter().find(is_retry_info)?;
    let info = inner(&any, 2).into_iter().next()?;
    let delay = inner(&info, 1).into_iter().next().unwrap_or_default();
    let mut duration = Duration::ZERO;
    for (field, value) in FieldReader(&delay) {
        match (field, value) {
            (1, FieldValue::Number(seconds)) => {
                let seconds = u64::try_from(seconds.cast_signed()).unwrap_or(0);
                duration = duration.saturating_add(Duration::from_secs(seconds));
            }
            (2, FieldValue::Number(nanoseconds)) => {
                duration = duration.saturating_add(Duration::from_nanos(nanoseconds.min(999_999_999)));
            }
            _ => {}
        }
    }
    Some(duration)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum GrpcStatus {
    Ok,
    /// The call may be repeated.
    Retryable,
    Failed,
}

/// Outcome for the code `code` of `grpc-status`. `has_retry_info` decides about RESOURCE_EXHAUSTED (OTLP/gRPC,
/// Failures).
pub(super) const fn grpc_status(code: u32, has_retry_info: bool) -> GrpcStatus {
    match code {
        0 => GrpcStatus::Ok,
        // CANCELLED, DEADLINE_EXCEEDED, ABORTED, OUT_OF_RANGE, UNAVAILABLE, DATA_LOSS
        1 | 4 | 10 | 11 | 14 | 15 => GrpcStatus::Retryable,
        // RESOURCE_EXHAUSTED
        8 if has_retry_info => GrpcStatus::Retryable,
        _ => GrpcStatus::Failed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn retry_details(seconds: u64, nanoseconds: u64) -> Vec<u8> {
        let (mut delay, mut info, mut any, mut status) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        pb::write_number_field(&mut delay, 1, seconds);
        pb::write_number_field(&mut delay, 2, nanoseconds);
        pb::write_bytes_field(&mut info, 1, &delay);
        pb::write_bytes_field(&mut any, 1, b"type.googleapis.com/google.rpc.RetryInfo");
        pb::write_bytes_field(&mut any, 2, &info);
        pb::write_number_field(&mut status, 1, 8);
        let mut other = Vec::new();
        pb::write_bytes_field(&mut other, 1, b"type.googleapis.com/google.rpc.ErrorInfo");
        pb::write_bytes_field(&mut status, 3, &other);
        pb::write_bytes_field(&mut status, 3, &any);
        METADATA_BASE64.encode(status).into_bytes()
    }

    #[test]
    fn a_delay_is_found_among_the_details() {
        assert_eq!(retry_info(&retry_details(3, 500_000_000)), Some(Duration::from_millis(3500)));
        assert_eq!(retry_info(b"CAg"), None, "a status without details");
        assert_eq!(retry_info(b"CAg="), None, "the same with padding");
        assert_eq!(retry_info(b"\xff"), None);
        assert!(retry_info(&retry_details(u64::MAX >> 1, u64::MAX)).is_some());
    }

    #[test]
    fn codes_that_may_be_repeated_are_those_of_the_specification() {
        let retryable: Vec<u32> = (0..32).filter(|code| grpc_status(*code, false) == GrpcStatus::Retryable).collect();
        assert_eq!(retryable, [1, 4, 10, 11, 14, 15]);
        assert_eq!((grpc_status(8, true), grpc_status(8, false)), (GrpcStatus::Retryable, GrpcStatus::Failed));
        assert_eq!(grpc_status(0, false), GrpcStatus::Ok);
    }

    #[test]
    fn a_collectors_message_is_printable_and_short() {
        assert_eq!(grpc_message(b"no%20span%0Aat all %zz %4"), "no span at all %zz %4");
        assert_eq!(printable_message(&[b'a'; 5000]).len(), MAX_MESSAGE_CHARACTERS);
        assert_eq!(printable_message("ö\u{1b}[2J\n".as_bytes()), "ö [2J");
    }

    #[test]
    fn a_truncated_partial_success_is_read_as_far_as_possible() {
        let (mut inner, mut answer) = (Vec::new(), Vec::new());
        pb::write_number_field(&mut inner, 1, 7);
        pb::write_bytes_field(&mut inner, 2, b"too old");
        pb::write_bytes_field(&mut answer, 1, &inner);
        let expected = PartialSuccess { rejected: 7, message: "too old".into() };
        assert_eq!(partial_success(&answer), expected);
        assert_eq!(partial_success(&answer[..4]), PartialSuccess::default());
        assert_eq!(partial_success(b"<html>"), PartialSuccess::default());
        let mut framed = vec![0, 0, 0, 0, u8::try_from(answer.len()).unwrap()];
        framed.extend_from_slice(&answer);
        assert_eq!(grpc_payload(&framed).map(partial_success), Some(expected));
        assert_eq!((grpc_payload(&framed[..10]), grpc_payload(b"\x01\0\0\0\0"), grpc_payload(b"")), (None, None, None));
    }

    proptest! {
        #[test]
        fn no_response_panics(answer: Vec<u8>) {
            partial_success(&answer);
            retry_info(&answer);
            grpc_message(&answer);
            grpc_payload(&answer);
        }
    }
}
