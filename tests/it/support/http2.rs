//! HTTP/2 by hand: frames as a test likes them, fields as literals without a table (RFC 7541 §6.2.2).

use super::prelude::*;
use litequic_testkit::h2::{FrameHeader, HEADER, PREFACE};
pub(crate) use litequic_testkit::{
    h2::{
        ACK, CONTINUATION, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, PING, RST_STREAM, SETTINGS, WINDOW_UPDATE,
        fields, frame,
    },
    pseudo,
};

/// A frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
    pub(crate) payload: Vec<u8>,
}

impl Frame {
    /// The error code of RST_STREAM and GOAWAY.
    pub(crate) fn code(&self) -> u32 {
        let at = if self.kind == GOAWAY { 4 } else { 0 };
        u32::from_be_bytes(self.payload[at..at + 4].try_into().unwrap())
    }
}

/// HEADERS with the field section `section`, and CONTINUATION as often as it does not fit (RFC 9113 §6.10).
pub(crate) fn headers(flags: u8, stream: u32, section: &[u8]) -> Vec<u8> {
    /// SETTINGS_MAX_FRAME_SIZE, unless a peer allows more.
    const MOST: usize = 16_384;
    let mut pieces = section.chunks(MOST).peekable();
    let mut all = Vec::new();
    let (mut kind, mut flags) = (HEADERS, flags);
    while let Some(piece) = pieces.next() {
        let end = if pieces.peek().is_none() { END_HEADERS } else { 0 };
        all.extend(frame(kind, flags | end, stream, piece));
        (kind, flags) = (CONTINUATION, 0);
    }
    all
}

/// A GET that passes, with more fields behind.
pub(crate) fn get(more: &[(&str, &str)]) -> Vec<u8> {
    fields(&[&pseudo("GET", "/"), more].concat())
}

/// A connection whose preface was sent.
pub(crate) struct Http2 {
    pub(crate) tls: Tls,
    seen: Vec<u8>,
}

impl Http2 {
    /// Connects as `localhost` and sends SETTINGS with those `settings`.
    pub(crate) async fn connect(litequic: &Litequic, settings: &[u8]) -> Self {
        let config = tls::config(&litequic.cert_pem, &["h2"]);
        Self::over(Tls::connect(litequic.tcp[0], "localhost", config).await.unwrap(), settings).await
    }

    /// Sends the preface over `tls`, with those `settings`.
    pub(crate) async fn over(mut tls: Tls, settings: &[u8]) -> Self {
        tls.say([PREFACE, &frame(SETTINGS, 0, 0, settings)].concat()).await;
        Self { tls, seen: Vec::new() }
    }

    pub(crate) async fn say(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        self.tls.say(frame(kind, flags, stream, payload)).await;
    }

    /// Writes as long as the connection takes it; false once it is closed.
    pub(crate) async fn try_say(&mut self, bytes: &[u8]) -> bool {
        within("a write", self.tls.stream.write_all(bytes)).await.is_ok()
    }

    /// The next frame; `None` at the connection's end.
    pub(crate) async fn next(&mut self) -> Option<Frame> {
        loop {
            let header = self.seen.first_chunk().map(|header| FrameHeader::read(*header));
            if let Some(FrameHeader { kind, flags, stream, length }) = header
                && self.seen.len() >= HEADER + length
            {
                let rest = self.seen.split_off(HEADER + length);
                let payload = std::mem::replace(&mut self.seen, rest).split_off(HEADER);
                return Some(Frame { kind, flags, stream, payload });
            }
            match within("a frame", self.tls.stream.read_buf(&mut self.seen)).await {
                Ok(0) | Err(_) => return None,
                Ok(_) => {}
            }
        }
    }

    /// The next frame of one of `kinds`, whatever comes before it; `None` at the connection's end.
    pub(crate) async fn find(&mut self, kinds: &[u8]) -> Option<Frame> {
        loop {
            let frame = self.next().await?;
            if kinds.contains(&frame.kind) {
                return Some(frame);
            }
        }
    }
}

/// The status that a response's field section begins with: of h2's encoder, which takes it from the static table
/// (RFC 7541 appendix A) or writes it as a literal with the name's index.
pub(crate) fn status(headers: &Frame) -> u16 {
    match headers.payload[..] {
        [indexed @ 0x88..=0x8e, ..] => [200, 204, 206, 304, 400, 404, 500][usize::from(indexed - 0x88)],
        // Incremental indexing, name 8; three digits, plain or as Huffman's codes of five bits for 0 to 2 and six
        // above.
        [0x48, 3, a, b, c, ..] => [a, b, c].iter().fold(0, |status, digit| status * 10 + u16::from(digit - b'0')),
        [0x48, length, ref rest @ ..] if length & 0x80 != 0 => huffman(&rest[..usize::from(length & 0x7f)]),
        ref other => panic!("no status: {other:02x?}"),
    }
}

/// Three digits (RFC 7541 appendix B).
fn huffman(bytes: &[u8]) -> u16 {
    let bits: Vec<u8> = bytes.iter().flat_map(|byte| (0..8).rev().map(move |bit| byte >> bit & 1)).collect();
    let (mut at, mut status) = (0, 0);
    for _ in 0..3 {
        let take = |count: usize| bits[at..at + count].iter().fold(0_u16, |value, bit| value << 1 | u16::from(*bit));
        let (digit, length) = if take(5) <= 2 { (take(5), 5) } else { (take(6) - 0x19 + 3, 6) };
        status = status * 10 + digit;
        at += length;
    }
    status
}
