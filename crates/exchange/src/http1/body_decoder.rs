//! Decodes a message's body from the connection's bytes as they arrive (RFC 9112 §6.3, §7).

use super::{
    MessageFraming,
    chunk_decoder::{ChunkDecoder, ChunkLimits},
    response_parser::{MAX_FIELDS, MAX_HEAD},
};
use httparse::{EMPTY_HEADER, Status};

/// Largest total of a body's chunk extensions, in bytes. They are ignored; without a bound they would be a body that no
/// limit counts.
const MAX_EXTENSIONS: usize = 16 * 1024;
/// Largest length of the extensions of one chunk of a request, in bytes.
const MAX_EXTENSION: usize = 256;
const RESPONSE_CHUNK_LIMITS: ChunkLimits = ChunkLimits {
    extension: MAX_EXTENSIONS,
    extensions: MAX_EXTENSIONS,
    // The same bound as for a head.
    trailers: MAX_HEAD,
    is_response: true,
};

/// Decoder of one message's body.
#[derive(Debug, Clone)]
pub struct BodyDecoder(BodyState);

#[derive(Debug, Clone)]
enum BodyState {
    /// Remaining bytes of the body.
    Length(u64),
    Chunks(ChunkDecoder),
    UntilClose,
    Done,
}

/// The next part of a body in the received bytes: framing first, then data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BodyPiece {
    /// Bytes of framing.
    pub skipped: usize,
    /// Bytes of data behind the framing; 0 if more bytes are needed, or at the body's end.
    pub data: usize,
}

/// The lines of a body's trailers, checked.
#[derive(Debug)]
pub struct ChunkedTrailers(Vec<u8>);

impl BodyDecoder {
    /// Creates a decoder at the beginning of a response's body.
    pub const fn new(framing: MessageFraming) -> Self {
        Self::with_limits(framing, RESPONSE_CHUNK_LIMITS)
    }

    /// Creates a decoder at the beginning of a request's body, which may have trailers of `max_trailers` bytes.
    pub const fn for_request(framing: MessageFraming, max_trailers: usize) -> Self {
        let (extension, extensions) = (MAX_EXTENSION, usize::MAX);
        Self::with_limits(framing, ChunkLimits { extension, extensions, trailers: max_trailers, is_response: false })
    }

    const fn with_limits(framing: MessageFraming, limits: ChunkLimits) -> Self {
        Self(match framing {
            MessageFraming::None | MessageFraming::Length(0) => BodyState::Done,
            MessageFraming::Length(length) => BodyState::Length(length),
            MessageFraming::Chunked => BodyState::Chunks(ChunkDecoder::new(limits)),
            MessageFraming::UntilClose => BodyState::UntilClose,
        })
    }

    /// Returns the next piece of the body at the beginning of `bytes`. The caller removes the whole piece from `bytes`.
    /// `None` if the bytes violate the chunked coding; the data before the violation was returned before.
    pub fn decode_piece(&mut self, bytes: &[u8]) -> Option<BodyPiece> {
        match &mut self.0 {
            BodyState::Done => Some(BodyPiece::default()),
            BodyState::UntilClose => Some(BodyPiece { skipped: 0, data: bytes.len() }),
            BodyState::Length(left) => {
                let data = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len());
                *left = left.saturating_sub(data as u64);
                if *left == 0 {
                    self.0 = BodyState::Done;
                }
                Some(BodyPiece { skipped: 0, data })
            }
            BodyState::Chunks(chunks) => {
                let skipped = chunks.take_framing_bytes(bytes)?;
                let data = chunks.take_chunk_data(bytes.get(skipped..).unwrap_or_default());
                Some(BodyPiece { skipped, data })
            }
        }
    }

    /// Consumes the framing at the beginning of `bytes` and returns its length, so that the end of a chunked body is
    /// known with its last data. Invalid framing is left to the next call of [`Self::decode_piece`].
    pub fn skip_framing(&mut self, bytes: &[u8]) -> usize {
        let BodyState::Chunks(chunks) = &mut self.0 else { return 0 };
        let mut ahead = chunks.clone();
        let Some(skipped) = ahead.take_framing_bytes(bytes) else { return 0 };
        *chunks = ahead;
        skipped
    }

    /// Whether the body has ended. Its trailers may still be there.
    pub fn is_body_done(&self) -> bool {
        match &self.0 {
            BodyState::Done => true,
            BodyState::Chunks(chunks) => chunks.is_done(),
            BodyState::Length(_) | BodyState::UntilClose => false,
        }
    }

    /// Returns the number of small chunks that have begun since the last call.
    pub fn take_small_chunks(&mut self) -> u32 {
        if let BodyState::Chunks(chunks) = &mut self.0 { std::mem::take(&mut chunks.small) } else { 0 }
    }

    /// Whether decoding failed because the trailers exceed their limit.
    pub const fn are_trailers_too_large(&self) -> bool {
        matches!(&self.0, BodyState::Chunks(chunks) if chunks.is_too_large)
    }

    /// Whether the body lasts until the connection ends.
    pub const fn is_until_close(&self) -> bool {
        matches!(self.0, BodyState::UntilClose)
    }

    /// Reports the orderly end of the connection. Returns whether that completes the body, which is so if the body
    /// lasts until then.
    pub fn end_at_close(&mut self) -> bool {
        let ends = self.is_until_close();
        if ends {
            self.0 = BodyState::Done;
        }
        ends
    }

    /// Returns the number of data bytes that are still to come; `None` if the framing does not tell.
    pub fn remaining_body_bytes(&self) -> Option<u64> {
        match &self.0 {
            BodyState::Length(left) => Some(*left),
            BodyState::Done => Some(0),
            BodyState::Chunks(_) | BodyState::UntilClose => None,
        }
    }

    /// Whether there are trailers that were not taken.
    pub fn has_trailers(&self) -> bool {
        matches!(&self.0, BodyState::Chunks(chunks) if chunks.has_trailers())
    }

    /// Takes the trailers of a body that has ended.
    pub fn take_trailers(&mut self) -> Option<ChunkedTrailers> {
        match &mut self.0 {
            BodyState::Chunks(chunks) if chunks.is_done() && chunks.has_trailers() => {
                Some(ChunkedTrailers(chunks.take_trailers()))
            }
            _ => None,
        }
    }
}

impl ChunkedTrailers {
    /// Calls `field` with each name and value. Returns false if there are more than [`MAX_FIELDS`].
    pub fn for_each_trailer(&self, mut field: impl FnMut(&str, &[u8])) -> bool {
        let mut lines = [EMPTY_HEADER; MAX_FIELDS];
        match httparse::parse_headers(&self.0, &mut lines) {
            Ok(Status::Complete((_, lines))) => {
                lines.iter().for_each(|line| field(line.name, line.value));
                true
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::prop;

    /// A body's outcome: its data, its trailers, how many bytes were taken, and whether it is done.
    #[derive(Debug, PartialEq, Eq, Clone, Default)]
    struct Outcome {
        data: Vec<u8>,
        trailers: Vec<(String, Vec<u8>)>,
        taken: usize,
        is_done: bool,
    }

    /// Decodes `bytes`, which arrive in pieces of `step`. Skips framing ahead if `looks`.
    fn decoded(framing: MessageFraming, bytes: &[u8], step: usize, looks: bool) -> Result<Outcome, Outcome> {
        let (mut decoder, mut outcome) = (BodyDecoder::new(framing), Outcome::default());
        let mut end = 0;
        while end < bytes.len() {
            end = bytes.len().min(end + step);
            loop {
                let rest = &bytes[outcome.taken..end];
                let Some(BodyPiece { skipped, data }) = decoder.decode_piece(rest) else { return Err(outcome) };
                outcome.data.extend_from_slice(&rest[skipped..skipped + data]);
                outcome.taken += skipped + data;
                if looks {
                    outcome.taken += decoder.skip_framing(&bytes[outcome.taken..end]);
                }
                if data == 0 || decoder.is_body_done() {
                    break;
                }
            }
            if decoder.is_body_done() {
                break;
            }
        }
        if matches!(framing, MessageFraming::Length(_) | MessageFraming::None) {
            assert_eq!(decoder.remaining_body_bytes() == Some(0), decoder.is_body_done());
        }
        outcome.is_done = decoder.is_body_done();
        if let Some(trailers) = decoder.take_trailers() {
            let field = |name: &str, value: &[u8]| outcome.trailers.push((name.to_owned(), value.to_vec()));
            assert!(trailers.for_each_trailer(field));
            assert!(decoder.take_trailers().is_none());
        }
        Ok(outcome)
    }

    #[test]
    fn a_body_ends_by_its_framing_however_bytes_arrive() {
        for (framing, bytes, data, behind, is_done) in [
            (MessageFraming::None, "more", "", "more", true),
            (MessageFraming::Length(0), "more", "", "more", true),
            (MessageFraming::Length(5), "hellomore", "hello", "more", true),
            (MessageFraming::Length(5), "hel", "hel", "", false),
            (MessageFraming::UntilClose, "hello", "hello", "", false),
            (MessageFraming::Chunked, "5\r\nhello\r\n1;a=b\r\n!\r\n0\r\n\r\nmore", "hello!", "more", true),
            (MessageFraming::Chunked, "2 ;x\r\nok\r\n0\r\n\r\n", "ok", "", true),
            (MessageFraming::Chunked, "2;x=\"\u{e9}\"\r\nok\r\n0\r\n\r\n", "ok", "", true),
            (MessageFraming::Chunked, "5\r\nhel", "hel", "", false),
            (MessageFraming::Chunked, "5\r\nhello\r\n0\r\n", "hello", "", false),
            (MessageFraming::Chunked, "0\r\n\r\n", "", "", true),
        ] {
            for step in [1, 2, 3, 100] {
                for looks in [false, true] {
                    let found = decoded(framing, bytes.as_bytes(), step, looks).unwrap();
                    let taken = bytes.len() - behind.len();
                    if is_done {
                        assert_eq!((found.taken, found.is_done), (taken, true), "{bytes:?} by {step}");
                    } else {
                        assert!(!found.is_done, "{bytes:?} by {step}");
                    }
                    assert_eq!(found.data, data.as_bytes(), "{bytes:?} by {step}");
                }
            }
        }
    }

    #[test]
    fn trailers_are_fields_and_bounded() {
        let outcome = decoded(MessageFraming::Chunked, b"0\r\nX-Sum:  1 \r\ny:\r\n\r\n", 1, true).unwrap();
        assert_eq!(outcome.trailers, [("X-Sum".to_owned(), b"1".to_vec()), ("y".to_owned(), Vec::new())]);
        let many = format!("0\r\n{}\r\n", "x: y\r\n".repeat(MAX_FIELDS + 1));
        let mut decoder = BodyDecoder::new(MessageFraming::Chunked);
        assert_eq!(decoder.decode_piece(many.as_bytes()).unwrap().skipped, many.len());
        assert!(!decoder.take_trailers().unwrap().for_each_trailer(|_, _| ()));
        let long = format!("0\r\nx: {}\r\n\r\n", "y".repeat(MAX_HEAD));
        assert!(decoded(MessageFraming::Chunked, long.as_bytes(), 1000, false).is_err());
    }

    #[test]
    fn extensions_of_all_chunks_together_are_bounded() {
        let chunk = format!("1;{}\r\na\r\n", "x".repeat(1000));
        assert!(decoded(MessageFraming::Chunked, chunk.repeat(16).as_bytes(), 1000, false).is_ok());
        assert!(decoded(MessageFraming::Chunked, chunk.repeat(17).as_bytes(), 1000, false).is_err());
    }

    #[test]
    fn invalid_chunked_coding_is_an_error_after_the_data_before() {
        for bytes in [
            "5\r\nhelloX",
            "5\r\nhello\n",
            "5\r\nhello\r\nzz",
            "5\r\nhello\r\n2 \r\n",
            "5\r\nhello\r\n2\t\r\n",
            "5\r\nhello\r\n2 2\r\n",
            "5\r\nhello\r\n1;\x01",
            "5\r\nhello\r\n0 \r\n",
            "5\r\nhello\r\n00000000000000001",
            "5\r\nhello\r\n0\r\nx y",
            "5\r\nhello\r\n0\r\nx: a\r\n b",
        ] {
            for step in [1, 3, 100] {
                for looks in [false, true] {
                    let outcome = decoded(MessageFraming::Chunked, bytes.as_bytes(), step, looks).unwrap_err();
                    assert_eq!(outcome.data, b"hello", "{bytes:?} by {step}");
                }
            }
        }
    }

    proptest::proptest! {
        #[test]
        fn splits_of_a_body_make_no_difference(
            bytes in prop::collection::vec(prop::sample::select(&b"0123aF;: \t\r\n\0x"[..]), 0..80),
            step in 1_usize..7,
        ) {
            for framing in [MessageFraming::Chunked, MessageFraming::Length(9)] {
                let whole = decoded(framing, &bytes, 1000, false);
                for looks in [false, true] {
                    let pieces = decoded(framing, &bytes, step, looks);
                    match (&whole, &pieces) {
                        (Ok(whole), Ok(pieces)) => {
                            proptest::prop_assert_eq!(&whole.data, &pieces.data);
                            proptest::prop_assert_eq!(whole.is_done, pieces.is_done);
                            proptest::prop_assert_eq!(&whole.trailers, &pieces.trailers);
                        }
                        (Err(whole), Err(pieces)) => proptest::prop_assert_eq!(&whole.data, &pieces.data),
                        _ => proptest::prop_assert!(false, "{:?} {:?}", whole, pieces),
                    }
                }
            }
        }
    }
}
