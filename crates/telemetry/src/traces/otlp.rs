//! Writes and reads messages of OTLP: the request that carries spans, and a collector's response. Pure.

use super::{attribute, protobuf as pb};
use base64::{
    Engine, alphabet,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};
use bytes::Bytes;
use litequic_config::Traces;
use percent_encoding::percent_decode;
use prost::Message;
use prost_types::Any;
use std::time::Duration;

/// Field numbers of `ExportTraceServiceRequest`, `ResourceSpans`, `ScopeSpans` and `InstrumentationScope`.
const RESOURCE_SPANS: u32 = 1;
const RESOURCE: u32 = 1;
const SCOPE_SPANS: u32 = 2;
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
        let (mut resource, mut scope) = (Vec::new(), Vec::new());
        pb::write_field(&mut resource, RESOURCE, |out| {
            let own = [("service.name", "litequic"), ("service.version", env!("CARGO_PKG_VERSION"))];
            let is_given = |name: &str| config.attributes.iter().any(|(given, _)| given == name);
            for (name, value) in own.into_iter().filter(|(name, _)| !is_given(name)) {
                attribute::append_resource_attribute(out, name, value);
            }
            for (name, value) in &config.attributes {
                attribute::append_resource_attribute(out, name, value);
            }
        });
        pb::write_field(&mut scope, SCOPE, |out| {
            pb::write_bytes_field(out, SCOPE_NAME, b"litequic");
            pb::write_bytes_field(out, SCOPE_VERSION, env!("CARGO_PKG_VERSION").as_bytes());
        });
        Self { resource, scope }
    }

    /// Writes an `ExportTraceServiceRequest` with `spans`, encoded fields of `ScopeSpans`; with the prefix of gRPC if
    /// `is_grpc`.
    pub(super) fn wrap_spans(&self, spans: &[Bytes], is_grpc: bool) -> Vec<u8> {
        let mut out = vec![0; if is_grpc { GRPC_PREFIX_BYTES } else { 0 }];
        pb::write_field(&mut out, RESOURCE_SPANS, |out| {
            out.extend_from_slice(&self.resource);
            pb::write_field(out, SCOPE_SPANS, |out| {
                out.extend_from_slice(&self.scope);
                spans.iter().for_each(|spans| out.extend_from_slice(spans));
            });
            pb::write_bytes_field(out, SCHEMA_URL, SCHEMA.as_bytes());
        });
        if is_grpc
            && let Some(([_uncompressed, length @ ..], message)) = out.split_first_chunk_mut::<GRPC_PREFIX_BYTES>()
        {
            *length = u32::try_from(message.len()).unwrap_or(u32::MAX).to_be_bytes();
        }
        out
    }
}

/// `ExportTraceServiceResponse` (opentelemetry/proto, trace_service.proto).
#[derive(Clone, PartialEq, Message)]
struct ExportResponse {
    #[prost(message, optional, tag = "1")]
    partial_success: Option<ExportPartialSuccess>,
}

/// `ExportTracePartialSuccess`.
#[derive(Clone, PartialEq, Message)]
struct ExportPartialSuccess {
    #[prost(int64, tag = "1")]
    rejected_spans: i64,
    #[prost(bytes = "vec", tag = "2")]
    error_message: Vec<u8>,
}

/// `google.rpc.Status`, without the fields that headers of the response repeat.
#[derive(Clone, PartialEq, Message)]
struct RpcStatus {
    #[prost(message, repeated, tag = "3")]
    details: Vec<Any>,
}

/// `google.rpc.RetryInfo`.
#[derive(Clone, PartialEq, Message)]
struct RetryInfo {
    #[prost(message, optional, tag = "1")]
    retry_delay: Option<prost_types::Duration>,
}

/// Spans that a collector rejected in a request that succeeded.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct PartialSuccess {
    pub(super) rejected: u64,
    pub(super) message: String,
}

/// Reads the `partial_success` of an `ExportTraceServiceResponse`; the default without one, or if it is invalid.
pub(super) fn partial_success(answer: &[u8]) -> PartialSuccess {
    let partial = ExportResponse::decode(answer).unwrap_or_default().partial_success.unwrap_or_default();
    // A negative count counts as zero.
    let rejected = u64::try_from(partial.rejected_spans).unwrap_or(0);
    PartialSuccess { rejected, message: printable_message(&partial.error_message) }
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
    printable_message(&percent_decode(value).collect::<Vec<u8>>())
}

/// Base64 of gRPC's binary metadata, with or without padding.
const METADATA_BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Delay of the `google.rpc.RetryInfo` among the details of `grpc-status-details-bin`, if any.
pub(super) fn retry_info(details: &[u8]) -> Option<Duration> {
    let status = RpcStatus::decode(&*METADATA_BASE64.decode(details).ok()?).ok()?;
    let info = status.details.iter().find(|any| any.type_url.ends_with("/google.rpc.RetryInfo"))?;
    let delay = RetryInfo::decode(&*info.value).ok()?.retry_delay.unwrap_or_default();
    // A negative delay is none.
    Some(Duration::try_from(delay).unwrap_or_default())
}

/// Whether a call with the code `code` of `grpc-status` may be repeated. `has_retry_info` decides about
/// RESOURCE_EXHAUSTED (OTLP/gRPC, Failures).
pub(super) const fn is_retryable_code(code: u32, has_retry_info: bool) -> bool {
    match code {
        // CANCELLED, DEADLINE_EXCEEDED, ABORTED, OUT_OF_RANGE, UNAVAILABLE, DATA_LOSS
        1 | 4 | 10 | 11 | 14 | 15 => true,
        // RESOURCE_EXHAUSTED
        8 => has_retry_info,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn retry_details(seconds: i64, nanos: i32) -> Vec<u8> {
        let any = |name: &str, value| Any { type_url: format!("type.googleapis.com/google.rpc.{name}"), value };
        let info = RetryInfo { retry_delay: Some(prost_types::Duration { seconds, nanos }) };
        let details = vec![any("ErrorInfo", Vec::new()), any("RetryInfo", info.encode_to_vec())];
        METADATA_BASE64.encode(RpcStatus { details }.encode_to_vec()).into_bytes()
    }

    #[test]
    fn a_delay_is_found_among_the_details() {
        assert_eq!(retry_info(&retry_details(3, 500_000_000)), Some(Duration::from_millis(3500)));
        assert_eq!(retry_info(b"CAg"), None, "a status without details");
        assert_eq!(retry_info(b"CAg="), None, "the same with padding");
        assert_eq!(retry_info(b"\xff"), None);
        assert!(retry_info(&retry_details(i64::MAX, i32::MAX)).is_some());
        assert_eq!(retry_info(&retry_details(-1, i32::MIN)), Some(Duration::ZERO));
    }

    #[test]
    fn codes_that_may_be_repeated_are_those_of_the_specification() {
        let retryable: Vec<u32> = (0..32).filter(|code| is_retryable_code(*code, false)).collect();
        assert_eq!(retryable, [1, 4, 10, 11, 14, 15]);
        assert_eq!((is_retryable_code(8, true), is_retryable_code(8, false)), (true, false));
        assert!(!is_retryable_code(0, true));
    }

    #[test]
    fn a_collectors_message_is_printable_and_short() {
        assert_eq!(grpc_message(b"no%20span%0Aat all %zz %4"), "no span at all %zz %4");
        assert_eq!(printable_message(&[b'a'; 5000]).len(), MAX_MESSAGE_CHARACTERS);
        assert_eq!(printable_message("ö\u{1b}[2J\n".as_bytes()), "ö [2J");
    }

    #[test]
    fn a_truncated_partial_success_is_read_as_far_as_possible() {
        let partial = ExportPartialSuccess { rejected_spans: 7, error_message: b"too old".into() };
        let answer = ExportResponse { partial_success: Some(partial) }.encode_to_vec();
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
