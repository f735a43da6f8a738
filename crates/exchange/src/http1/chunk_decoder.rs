//! Decodes the chunked transfer coding (RFC 9112 §7.1) strictly: anything that two parsers could read differently is an
//! error.

use super::is_token_byte;

/// Data bytes below which a chunk counts as small: its framing costs more than its data.
pub const SMALL_CHUNK: u64 = 64;
/// Largest number of hexadecimal digits of a chunk's size, that of a `u64`.
const MAX_SIZE_DIGITS: u8 = 16;

/// Limits of a body's framing.
#[derive(Debug, Clone, Copy)]
pub(super) struct ChunkLimits {
    /// Bytes of the extensions of one chunk. They are ignored; without a bound they would be a body that no limit
    /// counts.
    pub(super) extension: usize,
    /// Bytes of the extensions of all chunks.
    pub(super) extensions: usize,
    /// Bytes of trailers.
    pub(super) trailers: usize,
    /// Whether the body is a response's. Then blanks may stand before an extension, and bytes above 127 within it (RFC
    /// 9112 §7.1.1), and the trailers are kept. Another parser reads the trailers of a request.
    pub(super) is_response: bool,
}

/// State of the decoder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ChunkState {
    Size {
        size: u64,
        digits: u8,
    },
    /// Blanks behind the size; only an extension may follow.
    Blank {
        size: u64,
    },
    Extension {
        size: u64,
        length: usize,
    },
    SizeEnd {
        size: u64,
    },
    Data {
        left: u64,
    },
    DataEnd,
    DataEndLf,
    /// The beginning of a trailer line, or of the empty line.
    Line,
    Name,
    Value,
    LineLf,
    LastLf,
    Done,
}

/// Decoder of a body in the chunked coding.
#[derive(Debug, Clone)]
pub(super) struct ChunkDecoder {
    state: ChunkState,
    limits: ChunkLimits,
    /// Small chunks that have begun, until they are taken.
    pub(super) small: u32,
    /// Decoding failed because the trailers exceed their limit.
    pub(super) is_too_large: bool,
    /// Trailer lines of a response, and the empty line behind them.
    trailers: Vec<u8>,
}

impl ChunkDecoder {
    /// Creates a decoder at the beginning of a body.
    pub(super) const fn new(limits: ChunkLimits) -> Self {
        Self {
            state: ChunkState::Size { size: 0, digits: 0 },
            limits,
            small: 0,
            is_too_large: false,
            trailers: Vec::new(),
        }
    }

    /// Whether the body has ended.
    pub(super) fn is_done(&self) -> bool {
        self.state == ChunkState::Done
    }

    /// Whether there are trailers, more than the empty line.
    pub(super) fn has_trailers(&self) -> bool {
        self.trailers.len() > 2
    }

    pub(super) fn take_trailers(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.trailers)
    }

    /// Returns the number of bytes at the beginning of `bytes` that are data of the current chunk.
    pub(super) fn take_chunk_data(&mut self, bytes: &[u8]) -> usize {
        let ChunkState::Data { left } = self.state else { return 0 };
        let taken = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
        let left = left.saturating_sub(taken as u64);
        self.state = if left == 0 { ChunkState::DataEnd } else { ChunkState::Data { left } };
        taken
    }

    /// Returns the number of bytes at the beginning of `bytes` that are framing, up to data or the body's end; `None`
    /// if they violate the coding.
    pub(super) fn take_framing_bytes(&mut self, bytes: &[u8]) -> Option<usize> {
        let mut taken = 0_usize;
        for byte in bytes {
            if matches!(self.state, ChunkState::Data { .. } | ChunkState::Done) {
                break;
            }
            self.step_byte(*byte)?;
            taken = taken.saturating_add(1);
        }
        Some(taken)
    }

    fn step_byte(&mut self, byte: u8) -> Option<()> {
        let limits = &mut self.limits;
        if matches!(
            self.state,
            ChunkState::Line | ChunkState::Name | ChunkState::Value | ChunkState::LineLf | ChunkState::LastLf
        ) {
            let Some(left) = limits.trailers.checked_sub(1) else {
                self.is_too_large = true;
                return None;
            };
            limits.trailers = left;
            if limits.is_response {
                self.trailers.push(byte);
            }
        }
        self.state = next_chunk_state(self.state, byte, limits)?;
        match self.state {
            ChunkState::Extension { .. } | ChunkState::Blank { .. } => {
                limits.extensions = limits.extensions.checked_sub(1)?;
            }
            ChunkState::Data { left } if left < SMALL_CHUNK => self.small = self.small.saturating_add(1),
            _ => {}
        }
        Some(())
    }
}

fn next_chunk_state(at: ChunkState, byte: u8, limits: &ChunkLimits) -> Option<ChunkState> {
    Some(match (at, byte) {
        (ChunkState::Size { size, digits }, b'\r') if digits > 0 => ChunkState::SizeEnd { size },
        (ChunkState::Size { size, digits }, b';') if digits > 0 => ChunkState::Extension { size, length: 0 },
        (ChunkState::Size { size, digits }, b' ' | b'\t') if digits > 0 && limits.is_response => {
            ChunkState::Blank { size }
        }
        (ChunkState::Size { size, digits }, digit) if digits < MAX_SIZE_DIGITS => {
            let value = char::from(digit).to_digit(16)?;
            ChunkState::Size { size: size << 4 | u64::from(value), digits: digits.saturating_add(1) }
        }
        (ChunkState::Blank { size }, b' ' | b'\t') => ChunkState::Blank { size },
        (ChunkState::Blank { size }, b';') => ChunkState::Extension { size, length: 0 },
        (ChunkState::Extension { size, .. }, b'\r') => ChunkState::SizeEnd { size },
        (ChunkState::Extension { size, length }, byte)
            if length < limits.extension
                && (matches!(byte, b' '..=b'~' | b'\t') || byte >= 0x80 && limits.is_response) =>
        {
            ChunkState::Extension { size, length: length.saturating_add(1) }
        }
        (ChunkState::SizeEnd { size: 0 }, b'\n') => ChunkState::Line,
        (ChunkState::SizeEnd { size }, b'\n') => ChunkState::Data { left: size },
        (ChunkState::DataEnd, b'\r') => ChunkState::DataEndLf,
        (ChunkState::DataEndLf, b'\n') => ChunkState::Size { size: 0, digits: 0 },
        (ChunkState::Line, b'\r') => ChunkState::LastLf,
        (ChunkState::Name, b':') => ChunkState::Value,
        (ChunkState::Line | ChunkState::Name, byte) if is_token_byte(byte) => ChunkState::Name,
        (ChunkState::Value, b'\r') => ChunkState::LineLf,
        (ChunkState::Value, byte) if byte >= b' ' && byte != 0x7f || byte == b'\t' => ChunkState::Value,
        (ChunkState::LineLf, b'\n') => ChunkState::Line,
        (ChunkState::LastLf, b'\n') => ChunkState::Done,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::{any, prop};

    const MAX_EXTENSION: usize = 256;
    const LIMITS: ChunkLimits =
        ChunkLimits { extension: MAX_EXTENSION, extensions: usize::MAX, trailers: 64, is_response: false };

    /// Returns the number of bytes at the beginning of `bytes` that belong to the body; `None` if they violate the
    /// coding.
    fn take_body_bytes(chunks: &mut ChunkDecoder, bytes: &[u8]) -> Option<usize> {
        let mut taken = 0;
        while taken < bytes.len() && !chunks.is_done() {
            taken += chunks.take_chunk_data(&bytes[taken..]);
            taken += chunks.take_framing_bytes(&bytes[taken..])?;
        }
        Some(taken)
    }

    /// Decodes a body in pieces of `step` bytes. Returns the consumed length, and whether the body has ended; `None` if
    /// it is invalid.
    fn taken(body: &[u8], step: usize) -> Option<(usize, bool)> {
        let mut chunks = ChunkDecoder::new(LIMITS);
        let mut taken = 0;
        for piece in body.chunks(step) {
            taken += take_body_bytes(&mut chunks, piece)?;
        }
        Some((taken, chunks.is_done()))
    }

    #[test]
    fn a_body_ends_where_its_last_chunk_and_trailers_do() {
        for (body, more) in [
            ("0\r\n\r\n", ""),
            ("5\r\nhello\r\n0\r\n\r\n", "GET / HTTP/1.1\r\n"),
            ("A;name=\"va lue\"\r\n0123456789\r\n00\r\nx-sum: 1\r\ny:\r\n\r\n", "\r\n"),
            ("0000000000000001\r\na\r\n0\r\n\r\n", "0"),
        ] {
            let all = format!("{body}{more}");
            for step in [1, 2, 3, 100] {
                assert_eq!(taken(all.as_bytes(), step), Some((body.len(), true)), "{all:?} by {step}");
            }
        }
    }

    #[test]
    fn ambiguous_chunks_are_refused() {
        let long = format!("1;{}\r\n", "x".repeat(MAX_EXTENSION + 1));
        let trailers = format!("0\r\nx: {}\r\n\r\n", "y".repeat(64));
        for body in [
            "\r\n",
            ";\r\n",
            "g\r\n",
            "0x5\r\n",
            "-1\r\n",
            "+1\r\n",
            " 5\r\n",
            "5 \r\n",
            "5\n",
            "5\r\r\n",
            "5\rh",
            "00000000000000005\r\n",
            "1\r\nab\r\n",
            "1\r\na\n",
            "1\r\na\r0",
            "1;a\n\r\n",
            "1;\0\r\n",
            "0\r\n x: y\r\n\r\n",
            "0\r\nx y: z\r\n\r\n",
            "0\r\nx: y\n\r\n",
            "0\r\nx\r\n\r\n",
            "0\r\n\n",
            "0\r\nx: \0\r\n\r\n",
            &long,
            &trailers,
        ] {
            assert_eq!(taken(body.as_bytes(), 1), None, "{body:?}");
            assert_eq!(taken(body.as_bytes(), 1000), None, "{body:?}");
        }
    }

    #[test]
    fn small_chunks_are_counted_once_however_bytes_arrive() {
        let full = format!("40\r\n{}\r\n", "x".repeat(64));
        let almost = format!("3f\r\n{}\r\n", "x".repeat(63));
        let body = format!("{full}{almost}1\r\na\r\n{full}0\r\n\r\n");
        for step in [1, 7, 1000] {
            let mut chunks = ChunkDecoder::new(LIMITS);
            let small = body.as_bytes().chunks(step).map(|piece| {
                take_body_bytes(&mut chunks, piece).unwrap();
                std::mem::take(&mut chunks.small)
            });
            assert_eq!(small.sum::<u32>(), 2, "by {step}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_chunk_bytes_panic_and_splits_make_no_difference(
            body in prop::collection::vec(prop::sample::select(&b"0123aF;: \t\r\n\0x"[..]), 0..60),
            step in 1_usize..7,
            noise in prop::collection::vec(any::<u8>(), 0..60),
        ) {
            let _ = taken(&noise, step);
            proptest::prop_assert_eq!(taken(&body, step), taken(&body, 1000));
        }
    }
}
