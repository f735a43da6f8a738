//! Encodes and decodes integers with a prefix (RFC 7541 §5.1, RFC 9204 §4.1.1).

/// The reason why an integer cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IntegerError {
    /// The input ends within the integer.
    Cut,
    /// The integer is larger than 62 bits, or is encoded in more bytes than these need.
    Overflow,
}

/// Number of bits that the continuation bytes may fill: QPACK requires 62-bit values.
const MAX_SHIFT: u32 = 62;

/// Takes an integer with a prefix of `prefix` bits (1 to 8) from the front of `input`. The bits above the prefix are
/// ignored.
#[inline]
pub(super) fn decode_integer(prefix: u32, input: &mut &[u8]) -> Result<u64, IntegerError> {
    let (&first, mut rest) = input.split_first().ok_or(IntegerError::Cut)?;
    let mask = prefix_mask(prefix);
    let mut value = u64::from(first & mask);
    if first & mask == mask {
        let mut shift = 0;
        loop {
            let (&byte, tail) = rest.split_first().ok_or(IntegerError::Cut)?;
            rest = tail;
            value = add_continuation(value, byte, shift)?;
            if byte & 0x80 == 0 {
                break;
            }
            shift += 7;
        }
    }
    *input = rest;
    Ok(value)
}

/// Adds the continuation byte `byte` to `value` at bit `shift`.
///
/// # Errors
///
/// [`IntegerError::Overflow`] beyond 62 bits.
#[inline]
pub fn add_continuation(value: u64, byte: u8, shift: u32) -> Result<u64, IntegerError> {
    if shift >= MAX_SHIFT {
        return Err(IntegerError::Overflow);
    }
    // At most 7 + 62 bits before the check, which fit into a u128.
    let sum = u128::from(value) + (u128::from(byte & 0x7f) << shift);
    u64::try_from(sum).ok().filter(|sum| sum >> MAX_SHIFT == 0).ok_or(IntegerError::Overflow)
}

/// Appends `value` with a prefix of `prefix` bits, and `flags` in the bits above.
#[expect(clippy::cast_possible_truncation, reason = "each value is below 256 where it is cut")]
#[inline]
pub fn encode_integer(prefix: u32, flags: u8, mut value: u64, out: &mut Vec<u8>) {
    let mask = prefix_mask(prefix);
    if value < u64::from(mask) {
        out.push(flags | value as u8);
        return;
    }
    out.push(flags | mask);
    value -= u64::from(mask);
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Returns the prefix of `prefix` bits with all bits set, which announces continuation bytes.
#[inline]
pub const fn prefix_mask(prefix: u32) -> u8 {
    u8::MAX >> (8 - prefix)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_examples_of_rfc_7541_decode() {
        let table: [(u32, &[u8], u64); 3] = [(5, &[0x0a], 10), (5, &[0x1f, 0x9a, 0x0a], 1337), (8, &[0x2a], 42)];
        for (prefix, bytes, value) in table {
            let mut input = bytes;
            assert_eq!(decode_integer(prefix, &mut input), Ok(value));
            assert_eq!(input, b"");
            let mut out = Vec::new();
            encode_integer(prefix, 0, value, &mut out);
            assert_eq!(out, bytes);
        }
    }

    #[test]
    fn an_integer_that_is_cut_or_too_large_is_refused() {
        let table: [(&[u8], IntegerError); 6] = [
            (&[], IntegerError::Cut),
            (&[0xff], IntegerError::Cut),
            (&[0xff, 0x80], IntegerError::Cut),
            // 2^62
            (&[0xff, 0x81, 0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x3f], IntegerError::Overflow),
            (&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f], IntegerError::Overflow),
            // zeros without end
            (&[0xff, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x00], IntegerError::Overflow),
        ];
        for (bytes, error) in table {
            assert_eq!(decode_integer(8, &mut &*bytes), Err(error), "{bytes:02x?}");
        }
    }

    proptest! {
        #[test]
        fn an_encoded_integer_decodes(prefix in 1_u32..=8, shift in 0..62, noise in 0..1_u64 << 62, tail: u8) {
            let value = noise >> shift;
            let mut out = Vec::new();
            encode_integer(prefix, 0, value, &mut out);
            out.push(tail);
            let mut input = &*out;
            prop_assert_eq!(decode_integer(prefix, &mut input), Ok(value));
            prop_assert_eq!(input, &[tail]);
        }

        #[test]
        fn no_prefix_integer_bytes_panic(prefix in 1_u32..=8, bytes: Vec<u8>) {
            let value = decode_integer(prefix, &mut &*bytes);
            prop_assert!(value.is_err() || value.is_ok_and(|value| value < 1 << 62));
        }
    }
}
