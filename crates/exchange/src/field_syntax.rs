//! Checks names and values of fields, and which fields may be trailers. HTTP/1.1, HTTP/2 and HTTP/3 share these rules,
//! so that none of them accepts a field that another rejects. Pure.
//!
//! [`http::HeaderName`] is less strict: it accepts a quotation mark, which no token has.

pub use crate::http1::is_token_byte;

/// Whether `text` is a token (RFC 9110 §5.6.2).
pub fn is_token(text: &[u8]) -> bool {
    !text.is_empty() && text.iter().copied().all(is_token_byte)
}

/// Whether `text` is a field name of HTTP/2 and HTTP/3: a token without capitals (RFC 9113 §8.2.1, RFC 9114 §4.2).
pub fn is_lower_case_token(text: &[u8]) -> bool {
    !text.is_empty() && text.iter().all(|byte| is_token_byte(*byte) && !byte.is_ascii_uppercase())
}

/// Whether `name`, a token, consists of letters, digits and `-` alone.
pub fn is_alphanumeric_name(name: &[u8]) -> bool {
    name.iter().all(|byte| IS_PLAIN_BYTE.get(usize::from(*byte)) == Some(&true))
}

/// Whether a byte is a letter, a digit or `-`. The table serves names without a [`NameId`](crate::NameId).
#[expect(clippy::indexing_slicing, reason = "while compiling, and within the table")]
const IS_PLAIN_BYTE: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0_u8;
    while byte < 128 {
        table[byte as usize] = byte == b'-' || byte.is_ascii_alphanumeric();
        byte += 1;
    }
    table
};

/// Whether `value` has no control character other than tabs: others are invalid (RFC 9110 §5.5), a recipient may keep
/// them, and parsers do not agree on them. Bytes beyond ASCII (obs-text) are accepted.
pub fn is_field_value(value: &[u8]) -> bool {
    let Some(last) = value.last_chunk() else { return !value.iter().copied().any(is_control) };
    // Eight bytes are compared at once. The last eight may overlap those before.
    let (eights, _) = value.as_chunks();
    let may_have_control = eights.iter().fold(may_have_control(*last), |found, eight| found | may_have_control(*eight));
    may_have_control == 0 || !value.iter().copied().any(is_control)
}

const fn is_control(byte: u8) -> bool {
    byte < b' ' && byte != b'\t' || byte == 0x7f
}

/// Returns 0 if none of the bytes is a control character or a tab.
const fn may_have_control(bytes: [u8; 8]) -> u64 {
    const EACH: u64 = 0x0101_0101_0101_0101;
    let bytes = u64::from_le_bytes(bytes);
    // The highest bit of a byte is set if the byte is below a blank, or is DEL. A subtraction borrows from the next
    // byte only if its own byte is such a character.
    let delete = bytes ^ (0x7f * EACH);
    let less = bytes.wrapping_sub(0x20 * EACH) & !bytes | delete.wrapping_sub(EACH) & !delete;
    less & (0x80 * EACH)
}

/// Whether `value` begins or ends with a space, which HTTP/2 and HTTP/3 forbid (RFC 9113 §8.2.1, RFC 9114 §4.2 by RFC
/// 9110 §5.5).
pub fn has_blank_edge(value: &[u8]) -> bool {
    let blank = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
    blank(value.first()) || blank(value.last())
}

/// Whether the field `name`, in lower case, may be a trailer. A recipient that merges trailers into the header could be
/// misled by any other (RFC 9110 §6.5.1).
pub fn may_be_trailer(name: &str) -> bool {
    !matches!(
        name,
        // the connection
        "connection" | "keep-alive" | "proxy-connection" | "transfer-encoding" | "upgrade" | "te" | "trailer"
            // framing, routing, content format
            | "content-length" | "content-encoding" | "content-type" | "content-range" | "host" | "alt-svc"
            // request modifiers
            | "cache-control" | "expect" | "max-forwards" | "pragma" | "range"
            | "if-match" | "if-none-match" | "if-modified-since" | "if-unmodified-since" | "if-range"
            // authentication and state
            | "authorization" | "proxy-authorization" | "proxy-authenticate" | "www-authenticate"
            | "authentication-info" | "proxy-authentication-info" | "cookie" | "set-cookie"
            // response control
            | "age" | "date" | "expires" | "location" | "retry-after" | "vary" | "warning"
            // the client's identity, which origins trust, and `proxy`, which a CGI origin reads as `http_proxy`
            | "forwarded" | "via" | "x-real-ip" | "x-request-id" | "client-cert" | "client-cert-chain" | "early-data"
            | "proxy"
    ) && !name.starts_with("x-forwarded-")
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{HeaderName, HeaderValue, Method};

    #[test]
    fn a_control_character_is_found_wherever_it_stands() {
        for length in 1..28 {
            for around in [b'a', b' ', b'\t', 0x80, 0xff] {
                for byte in 0..=u8::MAX {
                    let at = usize::from(byte) % length;
                    for at in [at, length - 1 - at] {
                        let mut value = vec![around; length];
                        value[at] = byte;
                        assert_eq!(is_field_value(&value), byte == b'\t' || !byte.is_ascii_control(), "{value:?}");
                    }
                }
            }
        }
        assert!(is_field_value(b""));
    }

    /// RFC 9110 §5.6.2: "any VCHAR, except delimiters".
    #[test]
    fn a_token_is_what_the_rfc_says_byte_by_byte() {
        for byte in 0..=u8::MAX {
            let token = byte.is_ascii_graphic() && !br#"(),/:;<=>?@[\]{}""#.contains(&byte);
            assert_eq!(is_token_byte(byte), token, "{byte:#x}");
            assert_eq!(Method::from_bytes(&[byte]).is_ok(), token, "{byte:#x}");
            let lower = token && !byte.is_ascii_uppercase();
            assert_eq!(is_lower_case_token(&[b'x', byte]), lower, "{byte:#x}");
            // A HeaderName allows one more byte.
            let taken = HeaderName::from_lowercase(&[b'x', byte]).is_ok();
            assert_eq!(taken, lower || byte == b'"', "{byte:#x}");
        }
        assert!(!is_token(b"") && !is_lower_case_token(b""));
    }

    #[test]
    fn field_values_match_header_value_except_blanks_at_edges() {
        for byte in 0..=u8::MAX {
            let within = [b'a', byte, b'b'];
            assert_eq!(is_field_value(&within), HeaderValue::from_bytes(&within).is_ok(), "{byte:#x}");
            let blank = matches!(byte, b' ' | b'\t');
            for edge in [&[byte][..], &[byte, b'a'], &[b'a', byte]] {
                assert_eq!(is_field_value(edge), is_field_value(&within), "{byte:#x}");
                assert_eq!(has_blank_edge(edge), blank);
            }
        }
        assert!(is_field_value(b"") && !has_blank_edge(b""));
    }
}
