//! Appends fields of Protocol Buffers whose content has a length: strings, bytes and messages. prost encodes the other
//! kinds, and reads. Pure.

use prost::encoding::{WireType, encode_key, encode_varint};

/// Appends a field whose content `write` appends.
#[inline]
pub(super) fn write_field(out: &mut Vec<u8>, field: u32, write: impl FnOnce(&mut Vec<u8>)) {
    encode_key(field, WireType::LengthDelimited, out);
    let at = out.len();
    // Most lengths take one byte; the others move the content.
    out.push(0);
    write(out);
    let length = out.len() - at - 1;
    match (u8::try_from(length), out.get_mut(at)) {
        (Ok(short @ ..0x80), Some(first)) => *first = short,
        _ => {
            let mut long = Vec::new();
            encode_varint(length as u64, &mut long);
            out.splice(at..=at, long);
        }
    }
}

/// Appends a field with a string, or bytes.
#[inline]
pub(super) fn write_bytes_field(out: &mut Vec<u8>, field: u32, value: &[u8]) {
    write_field(out, field, |out| out.extend_from_slice(value));
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use prost::encoding::{DecodeContext, bytes, decode_key, encoded_len_varint};

    proptest! {
        #[test]
        fn written_fields_are_read_back(text: Vec<u8>, long in 0..1_000_usize, field in 1..100_u32) {
            let text = text.repeat(long.min(40_000 / text.len().max(1)));
            let mut out = b"before".to_vec();
            write_field(&mut out, field, |out| write_bytes_field(out, 1, &text));
            let mut inner = Vec::new();
            bytes::encode(1, &text, &mut inner);
            let mut rest = &out[6..];
            prop_assert_eq!(decode_key(&mut rest).unwrap(), (field, WireType::LengthDelimited));
            let mut read = Vec::new();
            bytes::merge(WireType::LengthDelimited, &mut read, &mut rest, DecodeContext::default()).unwrap();
            prop_assert!(rest.is_empty());
            prop_assert_eq!(&read, &inner);
            prop_assert_eq!(inner.len(), 1 + encoded_len_varint(text.len() as u64) + text.len());
        }
    }
}
