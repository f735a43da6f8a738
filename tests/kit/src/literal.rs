//! Integers with a prefix and strings without Huffman coding, of HPACK and QPACK (RFC 7541 §5).

/// Appends an integer whose prefix has `bits` bits, below the bits of `pattern`.
#[expect(clippy::cast_possible_truncation, reason = "each has checked")]
pub fn append_integer(pattern: u8, bits: u32, value: u64, out: &mut Vec<u8>) {
    let limit = (1 << bits) - 1;
    let Some(mut rest) = value.checked_sub(limit) else { return out.push(pattern | value as u8) };
    out.push(pattern | limit as u8);
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

/// Appends a string whose length has a prefix of `bits` bits, below the bits of `pattern`.
pub fn append_string(pattern: u8, bits: u32, text: impl AsRef<[u8]>, out: &mut Vec<u8>) {
    append_integer(pattern, bits, text.as_ref().len() as u64, out);
    out.extend_from_slice(text.as_ref());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_have_the_bytes_of_rfc_7541_appendix_c_1() {
        for (bits, value, bytes) in [(5, 10, &[10][..]), (5, 1337, &[31, 154, 10]), (8, 42, &[42]), (5, 31, &[31, 0])] {
            let mut out = Vec::new();
            append_integer(0, bits, value, &mut out);
            assert_eq!(out, bytes, "{value}");
        }
    }
}
