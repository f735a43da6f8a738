//! Writes attributes in the format of OTLP (`KeyValue` of opentelemetry/proto, common.proto). Pure.

use super::protobuf as pb;
use prost::encoding::{bool, uint64};

/// Field number of `Span.attributes`.
const SPAN_ATTRIBUTES: u32 = 9;
/// Field number of `Resource.attributes`.
const RESOURCE_ATTRIBUTES: u32 = 1;
/// Field numbers of `KeyValue` and `AnyValue`.
const KEY: u32 = 1;
const VALUE: u32 = 2;
const STRING: u32 = 1;
const BOOLEAN: u32 = 2;
const INTEGER: u32 = 3;

#[inline]
fn append_attribute(out: &mut Vec<u8>, field: u32, key: &str, write_value: impl FnOnce(&mut Vec<u8>)) {
    pb::write_field(out, field, |out| {
        pb::write_bytes_field(out, KEY, key.as_bytes());
        pb::write_field(out, VALUE, write_value);
    });
}

/// Appends an attribute with the string `value`, which is UTF-8, unless it is empty.
pub(super) fn append_text(out: &mut Vec<u8>, key: &str, value: &[u8]) {
    if !value.is_empty() {
        append_attribute(out, SPAN_ATTRIBUTES, key, |out| pb::write_bytes_field(out, STRING, value));
    }
}

pub(super) fn append_number(out: &mut Vec<u8>, key: &str, value: u64) {
    append_attribute(out, SPAN_ATTRIBUTES, key, |out| uint64::encode(INTEGER, &value, out));
}

pub(super) fn append_boolean(out: &mut Vec<u8>, key: &str, value: bool) {
    append_attribute(out, SPAN_ATTRIBUTES, key, |out| bool::encode(BOOLEAN, &value, out));
}

/// Appends an attribute of the resource.
pub(super) fn append_resource_attribute(out: &mut Vec<u8>, key: &str, value: &str) {
    append_attribute(out, RESOURCE_ATTRIBUTES, key, |out| pb::write_bytes_field(out, STRING, value.as_bytes()));
}

#[cfg(test)]
mod tests {
    use super::*;
    use opentelemetry_proto::tonic::{
        common::v1::{KeyValue, any_value::Value},
        trace::v1::Span,
    };
    use proptest::prelude::*;
    use prost::Message as _;

    fn read(written: &[u8]) -> Vec<(String, Value)> {
        let value = |one: KeyValue| (one.key, one.value.unwrap().value.unwrap());
        Span::decode(written).unwrap().attributes.into_iter().map(value).collect()
    }

    proptest! {
        #[test]
        fn another_decoder_reads_the_written_attributes(number_: u64, is: bool, short in "[a-zä]{1,90}", long in "[a-zä]{80,300}") {
            let mut out = Vec::new();
            append_text(&mut out, "a", short.as_bytes());
            append_text(&mut out, "http.request.method_original", long.as_bytes());
            append_text(&mut out, "url.full", (short.clone() + &long).as_bytes());
            append_number(&mut out, "http.response.body.size", number_);
            append_boolean(&mut out, "b", is);
            let expected = [
                ("a", Value::StringValue(short.clone())),
                ("http.request.method_original", Value::StringValue(long.clone())),
                ("url.full", Value::StringValue(short + &long)),
                ("http.response.body.size", Value::IntValue(number_.cast_signed())),
                ("b", Value::BoolValue(is)),
            ];
            prop_assert_eq!(read(&out), expected.map(|(key, value)| (key.to_owned(), value)));
        }
    }

    #[test]
    fn a_string_may_have_any_length_around_that_of_one_byte() {
        append_text(&mut Vec::new(), "user_agent.original", b"");
        for length in 1..300 {
            let (mut out, value) = (Vec::new(), "x".repeat(length));
            append_text(&mut out, "user_agent.original", value.as_bytes());
            assert_eq!(read(&out), [("user_agent.original".to_owned(), Value::StringValue(value))]);
        }
    }
}
