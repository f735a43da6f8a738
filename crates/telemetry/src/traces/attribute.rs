//! Writes attributes of a span in the format of OTLP (`KeyValue` of opentelemetry/proto, common.proto). Pure.

use super::protobuf as pb;

/// Field numbers of `Span`, `KeyValue` and `AnyValue`.
const ATTRIBUTES: u32 = 9;
const KEY: u32 = 1;
const VALUE: u32 = 2;
const STRING: u32 = 1;
const BOOLEAN: u32 = 2;
const INTEGER: u32 = 3;

/// Smallest length that takes more than one byte.
const LONG_LENGTH: usize = 0x80;
/// Number of bytes of an [`AttributeKey`] beside the key: four tags, and four lengths.
pub(super) const AROUND: usize = 8;

/// Beginning of an attribute with a string, written at compile time: tags and lengths of the attribute, of its key and
/// its value, and of the string in the value. Lengths that depend on the string are 0.
#[derive(Debug, Clone, Copy)]
pub(super) struct AttributeKey<const N: usize>([u8; N]);

/// Makes an [`AttributeKey`] at compile time.
macro_rules! key {
    ($key:literal) => {{
        const KEY: AttributeKey<{ $key.len() + AROUND }> = AttributeKey::new($key.as_bytes());
        &KEY
    }};
}
pub(super) use key;

impl<const N: usize> AttributeKey<N> {
    /// The beginning of an attribute with the name `key`, which is [`AROUND`] bytes shorter than the array.
    pub(super) const fn new(key: &[u8]) -> Self {
        assert!(N < LONG_LENGTH && key.len() + AROUND == N);
        let mut written = [0; N];
        let (front, rest) = written.split_at_mut(AROUND / 2);
        front.copy_from_slice(&[
            pb::small_tag(ATTRIBUTES, pb::BYTES),
            0,
            pb::small_tag(KEY, pb::BYTES),
            short_length(key.len()),
        ]);
        let (middle, end) = rest.split_at_mut(key.len());
        middle.copy_from_slice(key);
        end.copy_from_slice(&[pb::small_tag(VALUE, pb::BYTES), 0, pb::small_tag(STRING, pb::BYTES), 0]);
        Self(written)
    }

    /// Number of bytes of the key, its tag and its length, and of the value's tag.
    const WRITTEN: usize = N - AROUND + 3;

    /// The beginning of an attribute whose value has `value` bytes, a short length, and begins with `tag`.
    fn with_value_length(&self, value: usize, tag: u8) -> [u8; N] {
        let mut written = self.0;
        if let [_, total, .., length, first, _] = written.as_mut_slice() {
            (*total, *length, *first) = (short_length(Self::WRITTEN + 1 + value), short_length(value), tag);
        }
        written
    }

    /// Bytes of the key with its tag and length, and of the value's tag.
    fn key_bytes(&self) -> &[u8] {
        self.0.get(2..N - 3).unwrap_or_default()
    }
}

/// Encodes a length below [`LONG_LENGTH`].
#[expect(clippy::cast_possible_truncation, reason = "it is below 128")]
const fn short_length(length: usize) -> u8 {
    length as u8
}

/// Appends an attribute with the string `value`, which is UTF-8.
pub(super) fn append_text<const N: usize>(out: &mut Vec<u8>, key: &AttributeKey<N>, value: &[u8]) {
    if AttributeKey::<N>::WRITTEN + 3 + value.len() >= LONG_LENGTH {
        return append_joined_text(out, key.key_bytes(), &[value]);
    }
    let mut begun = key.with_value_length(2 + value.len(), pb::small_tag(STRING, pb::BYTES));
    if let [.., length] = begun.as_mut_slice() {
        *length = short_length(value.len());
    }
    out.extend_from_slice(&begun);
    out.extend_from_slice(value);
}

/// Appends an attribute whose string is the concatenation of `parts`, in UTF-8.
pub(super) fn append_text_parts<const N: usize>(out: &mut Vec<u8>, key: &AttributeKey<N>, parts: &[&[u8]]) {
    append_joined_text(out, key.key_bytes(), parts);
}

fn append_joined_text(out: &mut Vec<u8>, key: &[u8], parts: &[&[u8]]) {
    let any = pb::field_length(parts.iter().map(|part| part.len()).sum());
    pb::write_field_head(out, ATTRIBUTES, key.len() + pb::varint_length(any as u64) + any);
    out.extend_from_slice(key);
    pb::write_varint(out, any as u64);
    pb::write_joined_field(out, STRING, parts);
}

pub(super) fn append_number<const N: usize>(out: &mut Vec<u8>, key: &AttributeKey<N>, value: u64) {
    append_varint_attribute(out, key, INTEGER, value);
}

pub(super) fn append_boolean<const N: usize>(out: &mut Vec<u8>, key: &AttributeKey<N>, value: bool) {
    append_varint_attribute(out, key, BOOLEAN, value.into());
}

fn append_varint_attribute<const N: usize>(out: &mut Vec<u8>, key: &AttributeKey<N>, field: u32, value: u64) {
    let begun = key.with_value_length(1 + pb::varint_length(value), pb::small_tag(field, pb::VARINT));
    // An integer has no length.
    out.extend_from_slice(begun.split_last().map_or(&[][..], |(_, begun)| begun));
    pb::write_varint(out, value);
}

/// Appends a `KeyValue` of the resource, as the field `field`.
pub(super) fn append_resource_attribute(out: &mut Vec<u8>, field: u32, key: &str, value: &str) {
    let any = pb::field_length(value.len());
    pb::write_field_head(out, field, pb::field_length(key.len()) + pb::field_length(any));
    pb::write_bytes_field(out, KEY, key.as_bytes());
    pb::write_field_head(out, VALUE, any);
    pb::write_bytes_field(out, STRING, value.as_bytes());
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
        fn another_decoder_reads_the_written_attributes(number_: u64, is: bool, short in "[a-zä]{0,90}", long in "[a-zä]{80,300}") {
            let mut out = Vec::new();
            append_text(&mut out, key!("a"), short.as_bytes());
            append_text(&mut out, key!("http.request.method_original"), long.as_bytes());
            append_text_parts(&mut out, key!("url.full"), &[short.as_bytes(), long.as_bytes()]);
            append_number(&mut out, key!("http.response.body.size"), number_);
            append_boolean(&mut out, key!("b"), is);
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
        for length in 0..300 {
            let (mut out, value) = (Vec::new(), "x".repeat(length));
            append_text(&mut out, key!("user_agent.original"), value.as_bytes());
            assert_eq!(read(&out), [("user_agent.original".to_owned(), Value::StringValue(value))]);
        }
    }
}
