//! What attackers and the honest client write: requests over HTTP/1.1, HTTP/2 and HTTP/3, as bytes. Pure. By hand,
//! since no library sends half a request, or a frame of a byte.

use std::net::SocketAddr;

/// Frames of HTTP/2 (RFC 9113 §6).
pub(super) mod h2 {
    pub(in super::super) const DATA: u8 = 0;
    pub(in super::super) const HEADERS: u8 = 1;
    pub(in super::super) const RST_STREAM: u8 = 3;
    pub(in super::super) const SETTINGS: u8 = 4;
    pub(in super::super) const PING: u8 = 6;
    pub(in super::super) const WINDOW_UPDATE: u8 = 8;
    pub(in super::super) const END_STREAM: u8 = 1;
    pub(in super::super) const ACK: u8 = 1;
    pub(in super::super) const END_HEADERS: u8 = 4;
    /// Of a frame's header.
    pub(in super::super) const HEADER: usize = 9; // bytes
    /// CANCEL (RFC 9113 §7).
    pub(in super::super) const CANCEL: [u8; 4] = [0, 0, 0, 8];
    pub(in super::super) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    /// SETTINGS_INITIAL_WINDOW_SIZE.
    pub(in super::super) const INITIAL_WINDOW_SIZE: u16 = 4;
}

/// Types of HTTP/3's frames (RFC 9114 §7.2).
const H3_DATA: u8 = 0;
const H3_HEADERS: u8 = 1;
/// The control stream's type and empty SETTINGS.
pub(super) const H3_CONTROL: [u8; 3] = [0, 4, 0];
/// `:status: 200` in QPACK's static table, indexed, behind an empty prefix.
const QPACK_200: [u8; 3] = [0, 0, 0xc0 | 25];

/// The requested path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ask {
    /// A body of so many bytes.
    Get(u64),
    /// To take so many.
    Post(u64),
    /// A response that does not end (`/events`, in the bench's `sink`).
    Events,
}

impl Ask {
    fn method(self) -> &'static str {
        match self {
            Self::Get(_) | Self::Events => "GET",
            Self::Post(_) => "POST",
        }
    }

    pub(super) fn path(self) -> String {
        match self {
            Self::Get(bytes) => format!("/b{bytes}"),
            Self::Post(_) => "/upload".to_owned(),
            Self::Events => "/events".to_owned(),
        }
    }

    fn fields(self) -> Vec<(&'static str, String)> {
        let mut fields = vec![
            (":method", self.method().to_owned()),
            (":scheme", "https".to_owned()),
            (":authority", "localhost".to_owned()),
            (":path", self.path()),
        ];
        if let Self::Post(bytes) = self {
            fields.push(("content-length", bytes.to_string()));
        }
        fields
    }
}

/// A request's head over HTTP/1.1.
pub(super) fn h1(ask: Ask) -> Vec<u8> {
    let mut text = format!("{} {} HTTP/1.1\r\nHost: localhost\r\n", ask.method(), ask.path());
    if let Ask::Post(bytes) = ask {
        text += &format!("Content-Length: {bytes}\r\n");
    }
    (text + "\r\n").into_bytes()
}

/// A question to a status address, after which the connection closes.
pub(super) fn status(path: &str, at: SocketAddr) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: {at}\r\nConnection: close\r\n\r\n").into_bytes()
}

/// A frame of HTTP/2; its payload is shorter than 16 KiB.
pub(super) fn h2_frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap_or(u32::MAX).to_be_bytes();
    [length.get(1..).unwrap_or_default(), &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// The preface of HTTP/2 with one setting, and more window for the connection.
pub(super) fn h2_preface(initial_window: u32, more: u32) -> Vec<u8> {
    let setting = [&h2::INITIAL_WINDOW_SIZE.to_be_bytes()[..], &initial_window.to_be_bytes()].concat();
    let settings = h2_frame(h2::SETTINGS, 0, 0, &setting);
    [h2::PREFACE, &settings, &h2_frame(h2::WINDOW_UPDATE, 0, 0, &more.to_be_bytes())].concat()
}

/// HEADERS of HTTP/2; a GET ends with it.
pub(super) fn h2_headers(ask: Ask, stream: u32) -> Vec<u8> {
    let end = if matches!(ask, Ask::Post(_)) { 0 } else { h2::END_STREAM };
    // Literals without indexing, with new names (RFC 7541 §6.2.2).
    let mut block = Vec::new();
    for (name, value) in ask.fields() {
        block.push(0);
        for text in [name.as_bytes(), value.as_bytes()] {
            block.push(short(text));
            block.extend_from_slice(text);
        }
    }
    h2_frame(h2::HEADERS, h2::END_HEADERS | end, stream, &block)
}

/// What the header of an HTTP/2 frame says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct H2Header {
    pub(super) kind: u8,
    pub(super) flags: u8,
    pub(super) stream: u32,
    /// Length of the payload.
    pub(super) length: usize, // bytes
}

/// Reads the header of an HTTP/2 frame.
pub(super) fn h2_header(header: [u8; h2::HEADER]) -> H2Header {
    let [high, middle, low, kind, flags, stream @ ..] = header;
    let length = usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low);
    H2Header { kind, flags, stream: u32::from_be_bytes(stream), length }
}

/// HEADERS of HTTP/3.
pub(super) fn h3_headers(ask: Ask) -> Vec<u8> {
    // Literals with literal names (RFC 9204 §4.5.6): 0 0 1 N H length(3).
    let mut section = vec![0, 0];
    for (name, value) in ask.fields() {
        let name = name.as_bytes();
        match short(name) {
            length @ 0..7 => section.push(0b0010_0000 | length),
            length => section.extend([0b0010_0111, length - 7]),
        }
        section.extend_from_slice(name);
        section.push(short(value.as_bytes()));
        section.extend_from_slice(value.as_bytes());
    }
    h3_frame(H3_HEADERS, &section)
}

/// DATA of HTTP/3.
pub(super) fn h3_data(payload: &[u8]) -> Vec<u8> {
    h3_frame(H3_DATA, payload)
}

/// Whether a stream of HTTP/3 is a response with status 200 and a body of so many bytes.
pub(super) fn is_h3_response(mut stream: &[u8], bytes: usize) -> bool {
    let (mut is_200, mut body) = (false, 0);
    while let Some((kind, payload, rest)) = h3_next(stream) {
        match kind {
            // Servers put it first, as RFC 9114 §4.3 requires, and none that is known spells it otherwise.
            1 if !is_200 => is_200 = payload.get(2..3) == QPACK_200.get(2..3),
            0 => body += payload.len(),
            _ => {}
        }
        stream = rest;
    }
    is_200 && stream.is_empty() && body == bytes
}

/// The type and payload of the frame that begins here, and what comes behind it.
fn h3_next(stream: &[u8]) -> Option<(u64, &[u8], &[u8])> {
    let (kind, rest) = varint(stream)?;
    let (length, rest) = varint(rest)?;
    let (payload, rest) = rest.split_at_checked(usize::try_from(length).ok()?)?;
    Some((kind, payload, rest))
}

/// A variable-length integer (RFC 9000 §16), and what comes behind it.
fn varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let first = *bytes.first()?;
    let (own, rest) = bytes.split_at_checked(1 << (first >> 6))?;
    let more = own.get(1..)?.iter();
    Some((more.fold(u64::from(first & 0x3f), |value, byte| value << 8 | u64::from(*byte)), rest))
}

/// A frame of HTTP/3, of less than 16 KiB.
fn h3_frame(kind: u8, payload: &[u8]) -> Vec<u8> {
    let length = u16::try_from(payload.len()).unwrap_or(u16::MAX) | 0x4000;
    [&[kind][..], &length.to_be_bytes(), payload].concat()
}

/// The length of a string that is not Huffman-coded, of less than 127 bytes.
fn short(text: &[u8]) -> u8 {
    debug_assert!(text.len() < 127, "a longer one needs more bytes");
    u8::try_from(text.len()).unwrap_or(u8::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_of_http1_have_a_length_only_where_they_have_a_body() {
        assert_eq!(h1(Ask::Get(5)), b"GET /b5 HTTP/1.1\r\nHost: localhost\r\n\r\n");
        assert!(h1(Ask::Post(7)).ends_with(b"\r\nContent-Length: 7\r\n\r\n"));
    }

    #[test]
    fn a_frame_of_http2_begins_with_length_type_flags_and_stream() {
        assert_eq!(h2_frame(h2::DATA, 0, 3, b"a"), [0, 0, 1, 0, 0, 0, 0, 0, 3, b'a']);
        let headers = h2_headers(Ask::Get(1), 1);
        assert_eq!(&headers[3..9], [h2::HEADERS, h2::END_HEADERS | h2::END_STREAM, 0, 0, 0, 1]);
        assert_eq!(&headers[9..21], b"\x00\x07:method\x03GE");
        assert_eq!(h2_headers(Ask::Post(1), 1)[4], h2::END_HEADERS);
        let header = headers[..9].try_into().unwrap();
        let flags = h2::END_HEADERS | h2::END_STREAM;
        assert_eq!(h2_header(header), H2Header { kind: h2::HEADERS, flags, stream: 1, length: headers.len() - 9 });
        assert_eq!(h2_headers(Ask::Events, 1)[4], flags);
    }

    #[test]
    fn names_of_http3_have_lengths_with_a_prefix_of_three_bits() {
        let headers = h3_headers(Ask::Post(1));
        assert_eq!(&headers[..5], [1, 0x40, u8::try_from(headers.len() - 3).unwrap(), 0, 0]);
        // `:method` is seven bytes long, `:path` five.
        assert_eq!(&headers[5..7], [0b0010_0111, 0]);
        assert!(headers.windows(6).any(|window| window == b"\x25:path"));
    }

    #[test]
    fn a_response_of_http3_is_whole_or_none() {
        let response = |section: &[u8], body: &[u8]| [h3_frame(H3_HEADERS, section), h3_data(body)].concat();
        let good = response(&QPACK_200, b"hello");
        assert!(is_h3_response(&good, 5));
        assert!(!is_h3_response(&good, 4));
        assert!(!is_h3_response(&good[..good.len() - 1], 5));
        assert!(!is_h3_response(&response(&[0, 0, 0xc0 | 28], b"hello"), 5), "503");
        assert!(!is_h3_response(&[], 0));
    }
}
