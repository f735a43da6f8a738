//! What attackers and the honest client write: requests over HTTP/1.1, HTTP/2 and HTTP/3, as bytes. Pure. By hand,
//! since no library sends half a request, or a frame of a byte.

use litequic_testkit::{h2, h3, pseudo};
use std::net::SocketAddr;

/// CANCEL (RFC 9113 §7).
pub(super) const CANCEL: [u8; 4] = [0, 0, 0, 8];
/// SETTINGS_INITIAL_WINDOW_SIZE.
const INITIAL_WINDOW_SIZE: u16 = 4;
/// `:status: 200` in QPACK's static table, indexed, behind an empty prefix.
const QPACK_200: [u8; 3] = [0, 0, 0xc0 | 25];

/// The requested path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ask {
    /// A body of so many bytes.
    Get(u64),
    /// To take so many.
    Post(u64),
    /// To take a body whose length is not said.
    PostUnknown,
    /// A response that does not end (`/events`, in the bench's `sink`).
    Events,
    /// A response that comes after so many milliseconds (`/w`, in the bench's `sink`).
    Late(u32),
}

impl Ask {
    fn method(self) -> &'static str {
        match self {
            Self::Get(_) | Self::Events | Self::Late(_) => "GET",
            Self::Post(_) | Self::PostUnknown => "POST",
        }
    }

    pub(super) fn path(self) -> String {
        match self {
            Self::Get(bytes) => format!("/b{bytes}"),
            Self::Post(_) | Self::PostUnknown => "/upload".to_owned(),
            Self::Events => "/events".to_owned(),
            Self::Late(milliseconds) => format!("/w{milliseconds}"),
        }
    }

    fn fields(self) -> Vec<(&'static str, String)> {
        let path = self.path();
        let mut fields: Vec<_> =
            pseudo(self.method(), &path).into_iter().map(|(name, value)| (name, value.to_owned())).collect();
        if let Self::Post(bytes) = self {
            fields.push(("content-length", bytes.to_string()));
        }
        fields
    }
}

/// A request's head over HTTP/1.1.
pub(super) fn h1(ask: Ask) -> Vec<u8> {
    let mut text = format!("{} {} HTTP/1.1\r\nHost: localhost\r\n", ask.method(), ask.path());
    match ask {
        Ask::Post(bytes) => text += &format!("Content-Length: {bytes}\r\n"),
        Ask::PostUnknown => text += "Transfer-Encoding: chunked\r\n",
        Ask::Get(_) | Ask::Events | Ask::Late(_) => {}
    }
    (text + "\r\n").into_bytes()
}

/// A piece of an upload over HTTP/1.1: a chunk, if its length was not said.
pub(super) fn h1_piece(ask: Ask, piece: &[u8]) -> Vec<u8> {
    if ask != Ask::PostUnknown {
        return piece.to_vec();
    }
    [format!("{:x}\r\n", piece.len()).as_bytes(), piece, b"\r\n"].concat()
}

/// A question to a status address, after which the connection closes.
pub(super) fn status(path: &str, at: SocketAddr) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: {at}\r\nConnection: close\r\n\r\n").into_bytes()
}

/// The preface of HTTP/2 with one setting, and more window for the connection.
pub(super) fn h2_preface(initial_window: u32, more: u32) -> Vec<u8> {
    let setting = [&INITIAL_WINDOW_SIZE.to_be_bytes()[..], &initial_window.to_be_bytes()].concat();
    let settings = h2::frame(h2::SETTINGS, 0, 0, &setting);
    [h2::PREFACE, &settings, &h2::frame(h2::WINDOW_UPDATE, 0, 0, &more.to_be_bytes())].concat()
}

/// HEADERS of HTTP/2; a GET ends with it.
pub(super) fn h2_headers(ask: Ask, stream: u32) -> Vec<u8> {
    let end = if ask.method() == "POST" { 0 } else { h2::END_STREAM };
    h2::frame(h2::HEADERS, h2::END_HEADERS | end, stream, &h2::fields(&ask.fields()))
}

/// HEADERS of HTTP/3.
pub(super) fn h3_headers(ask: Ask) -> Vec<u8> {
    h3::headers(&ask.fields())
}

/// Whether a stream of HTTP/3 is a response with status 200 and a body of so many bytes.
pub(super) fn is_h3_response(mut stream: &[u8], bytes: usize) -> bool {
    let (mut is_200, mut body) = (false, 0);
    while let Some((kind, payload, rest)) = h3::next_frame(stream) {
        match kind {
            // Servers put it first, as RFC 9114 §4.3 requires, and none that is known spells it otherwise.
            h3::HEADERS if !is_200 => is_200 = payload.get(2..3) == QPACK_200.get(2..3),
            h3::DATA => body += payload.len(),
            _ => {}
        }
        stream = rest;
    }
    is_200 && stream.is_empty() && body == bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_of_http1_have_a_length_only_where_they_have_a_body() {
        assert_eq!(h1(Ask::Get(5)), b"GET /b5 HTTP/1.1\r\nHost: localhost\r\n\r\n");
        assert!(h1(Ask::Post(7)).ends_with(b"\r\nContent-Length: 7\r\n\r\n"));
        assert!(h1(Ask::PostUnknown).ends_with(b"\r\nTransfer-Encoding: chunked\r\n\r\n"));
        assert_eq!(h1_piece(Ask::PostUnknown, &[b'a'; 16]), b"10\r\naaaaaaaaaaaaaaaa\r\n");
        assert_eq!(h1_piece(Ask::Post(7), b"a"), b"a");
        assert!(h1(Ask::Late(20_000)).starts_with(b"GET /w20000 "));
    }

    #[test]
    fn a_frame_of_http2_begins_with_length_type_flags_and_stream() {
        assert_eq!(h2::frame(h2::DATA, 0, 3, b"a"), [0, 0, 1, 0, 0, 0, 0, 0, 3, b'a']);
        let headers = h2_headers(Ask::Get(1), 1);
        assert_eq!(&headers[3..9], [h2::HEADERS, h2::END_HEADERS | h2::END_STREAM, 0, 0, 0, 1]);
        assert_eq!(&headers[9..21], b"\x00\x07:method\x03GE");
        assert_eq!(h2_headers(Ask::Post(1), 1)[4], h2::END_HEADERS);
        let header = h2::FrameHeader::read(headers[..9].try_into().unwrap());
        let flags = h2::END_HEADERS | h2::END_STREAM;
        assert_eq!(header, h2::FrameHeader { kind: h2::HEADERS, flags, stream: 1, length: headers.len() - 9 });
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
        let response = |section: &[u8], body: &[u8]| [h3::frame(h3::HEADERS, section), h3::data(body)].concat();
        let good = response(&QPACK_200, b"hello");
        assert!(is_h3_response(&good, 5));
        assert!(!is_h3_response(&good, 4));
        assert!(!is_h3_response(&good[..good.len() - 1], 5));
        assert!(!is_h3_response(&response(&[0, 0, 0xc0 | 28], b"hello"), 5), "503");
        assert!(!is_h3_response(&[], 0));
    }
}
