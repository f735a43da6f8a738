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
/// Flow-control window of a connection, and of a stream without SETTINGS_INITIAL_WINDOW_SIZE, in bytes (RFC 9113
/// §6.9.2).
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
    /// Flags, of which the type defines some.
    pub flags: u8,
    /// Stream, of 31 bits; 0 is the connection.
    pub stream: u32,
}

impl Http2FrameHeader {
    /// Parses a header. The reserved bit is ignored.
    #[inline]
    pub const fn parse_frame_header(bytes: &[u8; FRAME_HEADER_LEN]) -> Self {
        let [a, b, c, kind, flags, d, e, f, g] = *bytes;
        Self { length: u32::from_be_bytes([0, a, b, c]), kind, flags, stream: u32::from_be_bytes([d & 0x7f, e, f, g]) }
    }

    /// Returns the header's bytes.
    #[inline]
    pub const fn header_bytes(self) -> [u8; FRAME_HEADER_LEN] {
        let [_, a, b, c] = self.length.to_be_bytes();
        let [d, e, f, g] = self.stream.to_be_bytes();
        [a, b, c, self.kind, self.flags, d, e, f, g]
    }

    /// Appends the header.
    #[inline]
    pub fn write(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.header_bytes());
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
    write_short_frame(out, kind::SETTINGS, 0, 0, settings.iter().map(payload).collect::<Vec<_>>().as_flattened());
}

/// Appends the acknowledgement of a SETTINGS frame.
pub fn write_settings_ack(out: &mut Vec<u8>) {
    write_short_frame(out, kind::SETTINGS, flag::ACK, 0, &[]);
}

/// Appends a WINDOW_UPDATE frame: `stream`, or the connection if that is 0, may send `increment` more bytes, from 1 to
/// [`MAX_WINDOW`].
pub fn write_window_update(out: &mut Vec<u8>, stream: u32, increment: u32) {
    write_short_frame(out, kind::WINDOW_UPDATE, 0, stream, &increment.to_be_bytes());
}

/// Appends the acknowledgement of a PING frame with the payload `data`.
pub fn write_ping_ack(out: &mut Vec<u8>, data: &[u8; 8]) {
    write_short_frame(out, kind::PING, flag::ACK, 0, data);
}

/// Appends a RST_STREAM frame.
pub fn write_rst_stream(out: &mut Vec<u8>, stream: u32, code: Http2ErrorCode) {
    write_short_frame(out, kind::RST_STREAM, 0, stream, &(code as u32).to_be_bytes());
}

/// Appends a GOAWAY frame without debug data.
pub fn write_goaway(out: &mut Vec<u8>, last_stream: u32, code: Http2ErrorCode) {
    write_short_frame(out, kind::GOAWAY, 0, 0, [last_stream, code as u32].map(u32::to_be_bytes).as_flattened());
}

/// Appends a frame with a short payload.
fn write_short_frame(out: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    let length = u32::try_from(payload.len()).unwrap_or(u32::MAX);
    Http2FrameHeader { length, kind, flags, stream }.write(out);
    out.extend_from_slice(payload);
}

/// Appends the field block that `write_block` appends, as a HEADERS frame, and CONTINUATION frames for what exceeds
/// `max_len`, the peer's SETTINGS_MAX_FRAME_SIZE. `ends`: the stream ends with it.
pub fn write_header_frames(
    out: &mut Vec<u8>,
    stream: u32,
    ends: bool,
    max_len: u32,
    write_block: impl FnOnce(&mut Vec<u8>),
) {
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
        place.copy_from_slice(&first.header_bytes());
    }
    let mut pieces = rest.chunks(max_len).peekable();
    while let Some(piece) = pieces.next() {
        header(kind::CONTINUATION, 0, piece.len(), pieces.peek().is_none()).write(out);
        out.extend_from_slice(piece);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn small_frames_are_written_byte_for_byte() {
        type Write = fn(&mut Vec<u8>);
        let table: [(Write, &[u8]); 8] = [
            (|out| write_settings(out, &[]), &[0, 0, 0, 4, 0, 0, 0, 0, 0]),
            (
                |out| write_settings(out, &[(setting::ENABLE_PUSH, 0), (setting::INITIAL_WINDOW_SIZE, 0x0102_0304)]),
                &[0, 0, 12, 4, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 4, 1, 2, 3, 4],
            ),
            (write_settings_ack, &[0, 0, 0, 4, 1, 0, 0, 0, 0]),
            (|out| write_window_update(out, 0, MAX_WINDOW), &[0, 0, 4, 8, 0, 0, 0, 0, 0, 0x7f, 0xff, 0xff, 0xff]),
            (|out| write_window_update(out, 0x0102_0305, 7), &[0, 0, 4, 8, 0, 1, 2, 3, 5, 0, 0, 0, 7]),
            (
                |out| write_ping_ack(out, b"12345678"),
                &[0, 0, 8, 6, 1, 0, 0, 0, 0, b'1', b'2', b'3', b'4', b'5', b'6', b'7', b'8'],
            ),
            (|out| write_rst_stream(out, 3, Http2ErrorCode::Cancel), &[0, 0, 4, 3, 0, 0, 0, 0, 3, 0, 0, 0, 8]),
            (
                |out| write_goaway(out, 0, Http2ErrorCode::CompressionError),
                &[0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9],
            ),
        ];
        for (write, expected) in table {
            let mut out = b"before".to_vec();
            write(&mut out);
            assert_eq!(out.split_off(6), expected);
        }
    }

    #[test]
    fn settings_are_read_in_order() {
        let pairs = [(setting::MAX_CONCURRENT_STREAMS, 100), (0xfff0, u32::MAX), (setting::MAX_CONCURRENT_STREAMS, 0)];
        let mut out = Vec::new();
        write_settings(&mut out, &pairs);
        assert_eq!(parse_settings(&out[FRAME_HEADER_LEN..]).unwrap().collect::<Vec<_>>(), pairs);
        assert_eq!(parse_settings(&[]).unwrap().count(), 0);
        for length in [1, 5, 7, 13] {
            assert!(parse_settings(&vec![0; length]).is_none(), "{length}");
        }
    }

    #[test]
    fn error_codes_have_the_numbers_of_rfc_9113() {
        assert_eq!(Http2ErrorCode::NAMES.len(), 14);
        for (number, (name, code)) in (0..).zip(Http2ErrorCode::NAMES) {
            assert_eq!(
                (Http2ErrorCode::from_wire(number), *code as u32, code.to_string()),
                (*code, number, (*name).to_owned())
            );
        }
        assert_eq!(Http2ErrorCode::from_wire(14), Http2ErrorCode::InternalError);
        assert_eq!(Http2ErrorCode::from_wire(u32::MAX), Http2ErrorCode::InternalError);
    }

    proptest! {
        #[test]
        fn a_frame_header_is_read_as_written(bytes: [u8; FRAME_HEADER_LEN]) {
            let header = Http2FrameHeader::parse_frame_header(&bytes);
            let mut without_reserved_bit = bytes;
            without_reserved_bit[5] &= 0x7f;
            prop_assert_eq!(header.header_bytes(), without_reserved_bit);
            prop_assert!(header.length <= LARGEST_FRAME_LEN && header.stream <= MAX_WINDOW);
        }

        #[test]
        fn a_field_block_of_any_length_fills_frames_in_order(length in 0_usize..100, max_len in 1_u32..40, ends: bool) {
            let block: Vec<u8> = (0..100).cycle().take(length).collect();
            let mut out = b"before".to_vec();
            write_header_frames(&mut out, 5, ends, max_len, |out| out.extend_from_slice(&block));
            let (mut rest, mut read, mut kinds) = (&out[6..], Vec::new(), Vec::new());
            while let Some((header, payload)) = rest.split_first_chunk() {
                let header = Http2FrameHeader::parse_frame_header(header);
                let (payload, behind) = payload.split_at(header.length as usize);
                prop_assert!(header.stream == 5 && header.length <= max_len);
                prop_assert_eq!(header.flags & flag::END_HEADERS != 0, behind.is_empty());
                prop_assert_eq!(header.flags & flag::END_STREAM != 0, ends && kinds.is_empty());
                kinds.push(header.kind);
                read.extend_from_slice(payload);
                rest = behind;
            }
            prop_assert_eq!(read, block);
            prop_assert_eq!(kinds.remove(0), kind::HEADERS);
            prop_assert!(kinds.iter().all(|kind| *kind == kind::CONTINUATION));
            prop_assert_eq!(kinds.len(), length.div_ceil(max_len as usize).saturating_sub(1));
        }
    }
}
