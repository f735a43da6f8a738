//! Encodes and decodes variable-length integers (RFC 9000 §16): numbers of frames, settings and stream types.

use bytes::{Buf, BufMut, Bytes};

/// Largest value of a variable-length integer.
pub const MAX_VARINT: u64 = (1 << 62) - 1;

/// Decodes the integer at the beginning of `input`, and returns it with its length in bytes. `None` if more bytes are
/// needed.
pub fn decode_varint(input: &[u8]) -> Option<(u64, usize)> {
    let (&first, _) = input.split_first()?;
    let length = 1 << (first >> 6);
    let bytes = input.get(..length)?;
    let value = bytes.iter().skip(1).fold(u64::from(first & 0x3f), |value, &byte| value << 8 | u64::from(byte));
    Some((value, length))
}

/// Appends `value` in its shortest form. A value above [`MAX_VARINT`], which cannot be encoded, becomes [`MAX_VARINT`].
pub fn encode_varint(value: u64, out: &mut impl BufMut) {
    let value = value.min(MAX_VARINT);
    let length = varint_len(value);
    let tag = u64::from(length.trailing_zeros()) << (length * 8 - 2);
    out.put_uint(value | tag, length);
}

/// Returns the length of `value` as [`encode_varint`] encodes it, in bytes.
pub const fn varint_len(value: u64) -> usize {
    match value {
        0..=0x3f => 1,
        0x40..=0x3fff => 2,
        0x4000..=0x3fff_ffff => 4,
        _ => 8,
    }
}

/// An integer that arrives in pieces.
#[derive(Debug, Clone, Copy, Default)]
pub struct PartialVarint {
    bytes: [u8; 8],
    filled: usize,
}

impl PartialVarint {
    /// Takes the integer from the front of `input`. `None` if the integer is not complete yet, and `input` is used up.
    pub fn read_partial(&mut self, input: &mut Bytes) -> Option<u64> {
        if self.filled == 0
            && let Some((value, length)) = decode_varint(input)
        {
            input.advance(length);
            return Some(value);
        }
        // A slice of eight bytes always decodes once it is long enough, so that `filled` stays below eight.
        while !input.is_empty() {
            if let Some(slot) = self.bytes.get_mut(self.filled) {
                *slot = input.get_u8();
                self.filled += 1;
            }
            if let Some((value, _)) = self.bytes.get(..self.filled).and_then(decode_varint) {
                self.filled = 0;
                return Some(value);
            }
        }
        None
    }

    /// Whether no byte of an unfinished integer is kept.
    pub const fn is_empty(&self) -> bool {
        self.filled == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_examples_of_rfc_9000_decode() {
        let table: [(&[u8], u64); 5] = [
            (&[0xc2, 0x19, 0x7c, 0x5e, 0xff, 0x14, 0xe8, 0x8c], 151_288_809_941_952_652),
            (&[0x9d, 0x7f, 0x3e, 0x7d], 494_878_333),
            (&[0x7b, 0xbd], 15_293),
            (&[0x25], 37),
            (&[0x40, 0x25], 37),
        ];
        for (bytes, value) in table {
            assert_eq!(decode_varint(bytes), Some((value, bytes.len())));
            assert_eq!(decode_varint(&bytes[..bytes.len() - 1]), None, "{value} cut by a byte");
        }
    }

    #[test]
    fn a_value_beyond_the_largest_is_capped() {
        let mut out = Vec::new();
        encode_varint(u64::MAX, &mut out);
        assert_eq!(decode_varint(&out), Some((MAX_VARINT, 8)));
    }

    proptest! {
        #[test]
        fn an_encoded_varint_decodes_whole_and_byte_by_byte(shift in 0_u32..62, noise in 0..=MAX_VARINT) {
            let value = noise >> shift;
            let mut out = Vec::new();
            encode_varint(value, &mut out);
            prop_assert_eq!(out.len(), varint_len(value));
            prop_assert_eq!(decode_varint(&out), Some((value, out.len())));

            let mut partial = PartialVarint::default();
            let mut read = None;
            for byte in &out {
                prop_assert_eq!(read, None);
                read = partial.read_partial(&mut Bytes::copy_from_slice(&[*byte]));
            }
            prop_assert_eq!(read, Some(value));
            prop_assert!(partial.is_empty());
        }
    }
}
