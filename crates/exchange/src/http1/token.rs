//! Checks the bytes of tokens (RFC 9110 §5.6.2), and compares tokens with names.

/// Whether a byte may be part of a token (RFC 9110 §5.6.2).
#[expect(clippy::indexing_slicing, reason = "while compiling, and within the table")]
const IS_TOKEN_BYTE: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0_u8;
    while byte < 128 {
        table[byte as usize] = byte.is_ascii_alphanumeric()
            || matches!(byte, b'!' | b'#'..=b'\'' | b'*' | b'+' | b'-' | b'.' | b'^'..=b'`' | b'|' | b'~');
        byte += 1;
    }
    table
};

/// Whether `token` equals `name` without regard to case. `name` consists of small letters, digits, `-` and `:`, which
/// differ in the case bit only from capitals and from bytes that no token has.
pub fn is_name_ignoring_case(token: &[u8], name: &[u8]) -> bool {
    const CASE: u8 = 0x20;
    if token.len() != name.len() {
        return false;
    }
    let differs = |token: [u8; 8], name: [u8; 8]| u64::from_ne_bytes(token) ^ u64::from_ne_bytes(name);
    match (token.last_chunk(), name.last_chunk()) {
        (Some(token_end), Some(name_end)) => {
            let pairs = token.as_chunks().0.iter().zip(name.as_chunks().0);
            let found =
                pairs.fold(differs(*token_end, *name_end), |found, (token, name)| found | differs(*token, *name));
            found & !u64::from_ne_bytes([CASE; 8]) == 0
        }
        _ => token.iter().zip(name).fold(0, |found, (token, name)| found | token ^ name) & !CASE == 0,
    }
}

/// Whether `byte` may be part of a token, such as a field name, a method or a protocol name.
pub fn is_token_byte(byte: u8) -> bool {
    IS_TOKEN_BYTE.get(usize::from(byte)) == Some(&true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_a_name_in_any_case_as_ascii_compares_them() {
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b':');
        for length in 0..20 {
            for (known, other) in (0..=u8::MAX).filter(|byte| plain(*byte)).flat_map(|byte| {
                let tokens = (0..=u8::MAX).filter(|other| is_token_byte(*other) || *other == b':');
                tokens.map(move |other| (byte, other))
            }) {
                let mut name = vec![b'a'; length];
                let mut token = vec![b'A'; length];
                if let Some(at) = length.checked_sub(1) {
                    // Each place in turn.
                    let at = usize::from(other) % (at + 1);
                    (name[at], token[at]) = (known, other);
                }
                assert_eq!(is_name_ignoring_case(&token, &name), token.eq_ignore_ascii_case(&name), "{known} {other}");
            }
        }
        assert!(!is_name_ignoring_case(b"a", b"aa"));
    }
}
