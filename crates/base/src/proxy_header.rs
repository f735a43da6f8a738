//! Finds the end of PROXY protocol headers of version 2 (§2.2 of
//! <https://www.haproxy.org/download/1.8/doc/proxy-protocol.txt>). Pure.

/// First bytes of a header.
pub const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
/// Offset of the length of what follows the first [`FIXED_LEN`] bytes.
pub const LEN_OFFSET: u8 = 14;
/// Bytes of a header without addresses.
pub const FIXED_LEN: u8 = 16;
/// Bytes of a header with IPv6 addresses and a CRC32C, as nginx writes it before datagrams.
pub const IPV6_CRC_LEN: u8 = FIXED_LEN + 36 + 7;

/// Bytes of the header at the front of `bytes`, which may be cut behind [`FIXED_LEN`]. `None` if there is no header.
pub fn proxy_header_len(bytes: &[u8]) -> Option<usize> {
    let fixed = bytes.first_chunk::<{ FIXED_LEN as usize }>().filter(|fixed| fixed.starts_with(SIGNATURE))?;
    let [.., high, low] = *fixed;
    Some(usize::from(FIXED_LEN) + usize::from(u16::from_be_bytes([high, low])))
}
