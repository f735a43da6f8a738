//! HTTP/3 (RFC 9114): frames, and field sections of literals alone.

use crate::{literal::append_string, varint};

/// The type of DATA (RFC 9114 §7.2).
pub const DATA: u64 = 0x00;
/// The type of HEADERS.
pub const HEADERS: u64 = 0x01;
/// The type of CANCEL_PUSH.
pub const CANCEL_PUSH: u64 = 0x03;
/// The type of SETTINGS.
pub const SETTINGS: u64 = 0x04;
/// The type of PUSH_PROMISE.
pub const PUSH_PROMISE: u64 = 0x05;
/// The type of GOAWAY.
pub const GOAWAY: u64 = 0x07;
/// The type of MAX_PUSH_ID.
pub const MAX_PUSH_ID: u64 = 0x0d;
/// The type of a request's PRIORITY_UPDATE (RFC 9218 §7.2).
pub const PRIORITY_UPDATE: u64 = 0xf_0700;
/// The type of a push's PRIORITY_UPDATE (RFC 9218 §7.2).
pub const PUSH_PRIORITY_UPDATE: u64 = 0xf_0701;
/// A reserved type (RFC 9114 §7.2.8).
pub const RESERVED: u64 = 0x21;

/// The control stream's beginning: its type, and SETTINGS that change no default (no dynamic table).
pub const CONTROL_STREAM: [u8; 3] = [0x00, 0x04, 0x00];

/// Encodes a frame.
pub fn frame(kind: u64, payload: impl AsRef<[u8]>) -> Vec<u8> {
    let payload = payload.as_ref();
    [&varint::encode(kind), &varint::encode(payload.len() as u64), payload].concat()
}

/// Encodes a DATA frame.
pub fn data(payload: impl AsRef<[u8]>) -> Vec<u8> {
    frame(DATA, payload)
}

/// Encodes a HEADERS frame of `fields`, in their order and with whatever bytes they have.
pub fn headers<N: AsRef<[u8]>, V: AsRef<[u8]>>(fields: &[(N, V)]) -> Vec<u8> {
    frame(HEADERS, section(fields))
}

/// Encodes a field section of literals with literal names, without Huffman coding (RFC 9204 §4.5.6).
pub fn section<N: AsRef<[u8]>, V: AsRef<[u8]>>(fields: &[(N, V)]) -> Vec<u8> {
    let mut section = vec![0, 0];
    for (name, value) in fields {
        append_string(0b0010_0000, 3, name, &mut section);
        append_string(0, 7, value, &mut section);
    }
    section
}

/// Reads the first whole frame of `bytes`: type, payload, and the bytes behind.
pub fn next_frame(bytes: &[u8]) -> Option<(u64, &[u8], &[u8])> {
    let (kind, rest) = varint::decode(bytes)?;
    let (length, rest) = varint::decode(rest)?;
    let (payload, rest) = rest.split_at_checked(usize::try_from(length).ok()?)?;
    Some((kind, payload, rest))
}
