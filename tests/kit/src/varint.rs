//! Variable-length integers (RFC 9000 §16).

/// Appends `value`, which is below 2^62.
#[expect(clippy::cast_possible_truncation, reason = "each arm has checked")]
pub fn append(value: u64, out: &mut Vec<u8>) {
    match value {
        0..0x40 => out.push(value as u8),
        0x40..0x4000 => out.extend_from_slice(&(value as u16 | 0x4000).to_be_bytes()),
        0x4000..0x4000_0000 => out.extend_from_slice(&(value as u32 | 0x8000_0000).to_be_bytes()),
        _ => out.extend_from_slice(&(value | 0xc000_0000_0000_0000).to_be_bytes()),
    }
}

/// Encodes `value`, which is below 2^62.
pub fn encode(value: u64) -> Vec<u8> {
    let mut out = Vec::new();
    append(value, &mut out);
    out
}

/// Reads the integer that `bytes` begin with, and returns it with the bytes behind; `None` if it is not complete.
pub fn decode(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let first = *bytes.first()?;
    let (integer, rest) = bytes.split_at_checked(1 << (first >> 6))?;
    let more = integer.iter().skip(1);
    Some((more.fold(u64::from(first & 0x3f), |value, byte| value << 8 | u64::from(*byte)), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_encoded_is_decoded() {
        for value in [0, 63, 64, 0xaf, 16383, 16384, (1 << 30) - 1, 1 << 30, (1 << 62) - 1] {
            let bytes = encode(value);
            assert_eq!(decode(&bytes), Some((value, &[][..])));
            assert_eq!(decode(&bytes[..bytes.len() - 1]), None);
        }
    }
}
