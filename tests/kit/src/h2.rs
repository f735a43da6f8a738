//! HTTP/2 (RFC 9113): frames, and field sections of literals alone.

use crate::literal::append_string;

/// The type of DATA (RFC 9113 §6).
pub const DATA: u8 = 0;
/// The type of HEADERS.
pub const HEADERS: u8 = 1;
/// The type of RST_STREAM.
pub const RST_STREAM: u8 = 3;
/// The type of SETTINGS.
pub const SETTINGS: u8 = 4;
/// The type of PING.
pub const PING: u8 = 6;
/// The type of GOAWAY.
pub const GOAWAY: u8 = 7;
/// The type of WINDOW_UPDATE.
pub const WINDOW_UPDATE: u8 = 8;
/// The type of CONTINUATION.
pub const CONTINUATION: u8 = 9;

/// The flag of a stream's last HEADERS or DATA.
pub const END_STREAM: u8 = 1;
/// The flag of SETTINGS and PING that answer.
pub const ACK: u8 = 1;
/// The flag of the last HEADERS or CONTINUATION of a field section.
pub const END_HEADERS: u8 = 4;

/// What a client sends first (RFC 9113 §3.4).
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Length of a frame's header.
pub const HEADER: usize = 9; // bytes

/// The header of a frame (RFC 9113 §4.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameHeader {
    /// The frame's type.
    pub kind: u8,
    /// The frame's flags.
    pub flags: u8,
    /// The stream's number.
    pub stream: u32,
    /// Length of the payload.
    pub length: usize, // bytes
}

impl FrameHeader {
    /// Reads a header.
    pub fn read(header: [u8; HEADER]) -> Self {
        let [high, middle, low, kind, flags, stream @ ..] = header;
        let length = usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low);
        Self { kind, flags, stream: u32::from_be_bytes(stream), length }
    }
}

/// Encodes a frame, whose payload is shorter than 16 MiB.
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let [.., high, middle, low] = payload.len().to_be_bytes();
    [&[high, middle, low, kind, flags], &stream.to_be_bytes()[..], payload].concat()
}

/// Encodes a field section of literals with literal names, without Huffman coding (RFC 7541 §6.2.2).
pub fn fields<N: AsRef<[u8]>, V: AsRef<[u8]>>(fields: &[(N, V)]) -> Vec<u8> {
    let mut section = Vec::new();
    for (name, value) in fields {
        section.push(0);
        append_string(0, 7, name, &mut section);
        append_string(0, 7, value, &mut section);
    }
    section
}
