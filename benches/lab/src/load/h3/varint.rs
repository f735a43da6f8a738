//! Variable-length integers (RFC 9000 §16). Pure.

/// Appends `value`, which is below 2^62.
#[expect(clippy::cast_possible_truncation, reason = "each arm has checked")]
pub(super) fn encode(value: u64, out: &mut Vec<u8>) {
    match value {
        0..0x40 => out.push(value as u8),
        0x40..0x4000 => out.extend_from_slice(&(value as u16 | 0x4000).to_be_bytes()),
        0x4000..0x4000_0000 => out.extend_from_slice(&(value as u32 | 0x8000_0000).to_be_bytes()),
        _ => out.extend_from_slice(&(value | 0xc000_0000_0000_0000).to_be_bytes()),
    }
}

/// The integer that `bytes` begin with, and its length; None if there is more to come.
pub(super) fn decode(bytes: &[u8]) -> Option<(u64, usize)> {
    let first = *bytes.first()?;
    let length = 1 << (first >> 6);
    let rest = bytes.get(1..length)?;
    Some((rest.iter().fold(u64::from(first & 0x3f), |value, byte| value << 8 | u64::from(*byte)), length))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_encoded_is_decoded() {
        for value in [0, 63, 64, 0xaf, 16383, 16384, (1 << 30) - 1, 1 << 30, (1 << 62) - 1] {
            let mut bytes = Vec::new();
            encode(value, &mut bytes);
            assert_eq!(decode(&bytes), Some((value, bytes.len())));
            assert_eq!(decode(&bytes[..bytes.len() - 1]), None);
        }
    }
}
