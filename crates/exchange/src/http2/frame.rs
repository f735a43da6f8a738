//! Parses and writes frames (RFC 9113 §4, §6).

use litequic_base::named_enum;
use std::fmt;

/// Bytes with which a client begins a connection (RFC 9113 §3.4). A SETTINGS frame follows.
pub const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Length of a frame's header in bytes.
pub const FRAME_HEADER_LEN: usize = 9;
/// Largest payload that a peer sends which has got no SETTINGS_MAX_FRAME_SIZE, in bytes.
pub const DEFAULT_MAX_FRAME_LEN: u32 = 16_384;
/// Largest value of SETTINGS_MAX_FRAME_SIZE.
pub const LARGEST_FRAME_LEN: u32 = (1 << 24) - 1;
/// Flow-control window of a connection, and of a stream without SETTINGS_INITIAL_WINDOW_SIZE, in bytes (RFC 9113 §6.9.2).
pub const DEFAULT_WINDOW: u32 = 65_535;
/// Largest flow-control window in bytes (RFC 9113 §6.9.1).
pub const MAX_WINDOW: u32 = (1 << 31) - 1;

/// Types of frames (RFC 9113 §6).
pub mod kind {
    #![expect(missing_docs, reason = "names of the RFCs")]
    pub const DATA: u8 = 0;
    pub const HEADERS: u8 = 1;
    pub const PRIORITY: u8 = 2;
    pub const RST_STREAM: u8 = 3;
    pub const SETTINGS: u8 = 4;
    pub const PUSH_PROMISE: u8 = 5;
    pub const PING: u8 = 6;
    pub const GOAWAY: u8 = 7;
    pub const WINDOW_UPDATE: u8 = 8;
    pub const CONTINUATION: u8 = 9;
    /// RFC 9218 §7.1
    pub const PRIORITY_UPDATE: u8 = 0x10;
}

/// Flags of frames (RFC 9113 §6).
pub mod flag {
    #![expect(missing_docs, reason = "names of the RFC")]
    pub const END_STREAM: u8 = 1;
    /// Flag of SETTINGS and PING.
    pub const ACK: u8 = 1;
    pub const END_HEADERS: u8 = 4;
    pub const PADDED: u8 = 8;
    /// Flag of HEADERS that begin with a stream dependency and a weight.
    pub const PRIORITY: u8 = 0x20;
}

/// Identifiers of settings (RFC 9113 §6.5.2).
pub mod setting {
    #![expect(missing_docs, reason = "names of the RFC")]
    pub const HEADER_TABLE_SIZE: u16 = 1;
    pub const ENABLE_PUSH: u16 = 2;
    pub const MAX_CONCURRENT_STREAMS: u16 = 3;
    pub const INITIAL_WINDOW_SIZE: u16 = 4;
    pub const MAX_FRAME_SIZE: u16 = 5;
    pub const MAX_HEADER_LIST_SIZE: u16 = 6;
}

/// A frame's header (RFC 9113 §4.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Http2FrameHeader {
    /// Length of the payload in bytes, of 24 bits.
    pub length: u32,
    /// Type of the frame, one of [`kind`] or unknown.
    pub kind: u8,
    /// Flags that the type defines, and others.
    pub flags: u8,
    /// Stream, of 31 bits; 0 is the connection.
    pub stream: u32,
}

impl Http2FrameHeader {
    /// Parses a header. The reserved bit is ignored.
    #[inline]
    pub const fn parse(bytes: &[u8; FRAME_HEADER_LEN]) -> Self {
        let [a, b, c, kind, flags, d, e, f, g] = *bytes;
        Self { length: u32::from_be_bytes([0, a, b, c]), kind, flags, stream: u32::from_be_bytes([d & 0x7f, e, f, g]) }
    }

    /// Returns the header's bytes.
    #[inline]
    pub const fn to_bytes(self) -> [u8; FRAME_HEADER_LEN] {
        let [_, a, b, c] = self.length.to_be_bytes();
        let [d, e, f, g] = self.stream.to_be_bytes();
        [a, b, c, self.kind, self.flags, d, e, f, g]
    }

    /// Appends the header.
    #[inline]
    pub fn write(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.to_bytes());
    }
}

named_enum! {
    /// The reason why a stream or a connection ends (RFC 9113 §7).
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Http2ErrorCode {
        /// No error.
        NoError(0x0) = "NO_ERROR",
        /// A violation that has no specific code.
        ProtocolError(0x1) = "PROTOCOL_ERROR",
        /// An internal failure.
        InternalError(0x2) = "INTERNAL_ERROR",
        /// A violation of flow control.
        FlowControlError(0x3) = "FLOW_CONTROL_ERROR",
        /// SETTINGS were not acknowledged in time.
        SettingsTimeout(0x4) = "SETTINGS_TIMEOUT",
        /// A frame on a stream that was closed.
        StreamClosed(0x5) = "STREAM_CLOSED",
        /// A frame whose size is wrong.
        FrameSizeError(0x6) = "FRAME_SIZE_ERROR",
        /// The request was not processed at all.
        RefusedStream(0x7) = "REFUSED_STREAM",
        /// The stream is no longer wanted.
        Cancel(0x8) = "CANCEL",
        /// A field block that cannot be decompressed.
        CompressionError(0x9) = "COMPRESSION_ERROR",
        /// The TCP connection behind a CONNECT was reset.
        ConnectError(0xa) = "CONNECT_ERROR",
        /// The peer generates excessive load.
        EnhanceYourCalm(0xb) = "ENHANCE_YOUR_CALM",
        /// The TLS connection is too weak (RFC 9113 §9.2).
        InadequateSecurity(0xc) = "INADEQUATE_SECURITY",
        /// The request is to be retried over HTTP/1.1.
        Http11Required(0xd) = "HTTP_1_1_REQUIRED",
    }
    /// Returns the code's name in the RFC.
    fn rfc_9113_name;
}

impl Http2ErrorCode {
    /// Returns the code of this number. An unknown one is treated as INTERNAL_ERROR (RFC 9113 §7).
    pub fn from_wire(code: u32) -> Self {
        let index = usize::try_from(code).unwrap_or(usize::MAX);
        Self::NAMES.get(index).map_or(Self::InternalError, |(_, code)| *code)
    }
}

impl fmt::Display for Http2ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.rfc_9113_name())
    }
}

/// Returns the identifiers and values of a SETTINGS frame, in order; `None` if its length is not a multiple of six, a
/// FRAME_SIZE_ERROR.
pub fn parse_settings(payload: &[u8]) -> Option<impl Iterator<Item = (u16, u32)>> {
    let (settings, rest) = payload.as_chunks();
    let pair = |[a, b, c, d, e, f]: &[u8; 6]| (u16::from_be_bytes([*a, *b]), u32::from_be_bytes([*c, *d, *e, *f]));
    rest.is_empty().then(|| settings.iter().map(pair))
}

/// Appends a SETTINGS frame.
pub fn write_settings(out: &mut Vec<u8>, settings: &[(u16, u32)]) {
    let payload = |(id, value): &(u16, u32)| {
        let ([a, b], [c, d, e, f]) = (id.to_be_bytes(), value.to_be_bytes());
        [a, b, c, d, e, f]
    };
    write_frame(out, kind::SETTINGS, 0, 0, settings.iter().map(payload).collect::<Vec<_>>().as_flattened());
}

/// Appends the acknowledgement of a SETTINGS frame.
pub fn write_settings_ack(out: &mut Vec<u8>) {
    write_frame(out, kind::SETTINGS, flag::ACK, 0, &[]);
}

/// Appends a WINDOW_UPDATE frame: `stream`, or the connection if that is 0, may send `increment` more bytes, from 1 to
/// [`MAX_WINDOW`].
pub fn write_window_update(out: &mut Vec<u8>, stream: u32, increment: u32) {
    write_frame(out, kind::WINDOW_UPDATE, 0, stream, &increment.to_be_bytes());
}

/// Appends the acknowledgement of a PING frame with the payload `data`.
pub fn write_ping_ack(out: &mut Vec<u8>, data: &[u8; 8]) {
    write_frame(out, kind::PING, flag::ACK, 0, data);
}

/// Appends a RST_STREAM frame.
pub fn write_rst_stream(out: &mut Vec<u8>, stream: u32, code: Http2ErrorCode) {
    write_frame(out, kind::RST_STREAM, 0, stream, &(code as u32).to_be_bytes());
}

/// Appends a GOAWAY frame without debug data.
pub fn write_goaway(out: &mut Vec<u8>, last_stream: u32, code: Http2ErrorCode) {
    write_frame(out, kind::GOAWAY, 0, 0, [last_stream, code as u32].map(u32::to_be_bytes).as_flattened());
}

/// Appends a frame with a short payload.
fn write_frame(out: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    let length = u32::try_from(payload.len()).unwrap_or(u32::MAX);
    Http2FrameHeader { length, kind, flags, stream }.write(out);
    out.extend_from_slice(payload);
}

/// Appends the field block that `write_block` appends, as a HEADERS frame, and CONTINUATION frames for what exceeds
/// `max_len`, the peer's SETTINGS_MAX_FRAME_SIZE. `ends`: the stream ends with it.
pub fn write_headers(out: &mut Vec<u8>, stream: u32, ends: bool, max_len: u32, write_block: impl FnOnce(&mut Vec<u8>)) {
    let begin = out.len();
    out.extend_from_slice(&[0; FRAME_HEADER_LEN]);
    let block = out.len();
    write_block(out);
    let max_len = usize::try_from(max_len).unwrap_or(usize::MAX).max(1);
    let end = out.len().min(block.saturating_add(max_len));
    // Mostly empty, which allocates nothing.
    let rest = out.split_off(end);
    let header = |kind, flags, payload: usize, is_last| Http2FrameHeader {
        length: u32::try_from(payload).unwrap_or(u32::MAX),
        kind,
        flags: flags | if is_last { flag::END_HEADERS } else { 0 },
        stream,
    };
    let first =
        header(kind::HEADERS, if ends { flag::END_STREAM } else { 0 }, end.saturating_sub(block), rest.is_empty());
    if let Some(place) = out.get_mut(begin..block) {
        place.copy_from_slice(&first.to_bytes());
    }
    let mut pieces = rest.chunks(max_len).peekable();
    while let Some(piece) = pieces.next() {
        header(kind::CONTINUATION, 0, piece.len(), pieces.peek().is_none()).write(out);
        out.extend_from_slice(piece);
    }
}
