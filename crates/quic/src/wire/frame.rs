//! Iterates over the frames of a decrypted 1-RTT packet (RFC 9000 §19) without interpreting them: finds the place of
//! each, and reads the few contents that litequic needs. Pure; runs between s2n-quic's decryption and its own parser,
//! which validates the frames: an unknown one ends the iteration, and is not reported here.

use std::ops::Range;

/// Frame types that litequic names.
pub mod kind {
    /// PADDING, which the walk skips.
    pub const PADDING: u64 = 0x00;
    /// ACK without ECN counts.
    pub const ACK: u64 = 0x02;
    /// ACK with ECN counts.
    pub const ACK_ECN: u64 = 0x03;
    /// RESET_STREAM
    pub const RESET_STREAM: u64 = 0x04;
    /// STOP_SENDING
    pub const STOP_SENDING: u64 = 0x05;
    /// CRYPTO
    pub const CRYPTO: u64 = 0x06;
    /// STREAM's first type; the last is 7 more.
    pub const STREAM: u64 = 0x08;
    /// STREAM's last type.
    pub const STREAM_LAST: u64 = 0x0f;
    /// CONNECTION_CLOSE of the transport.
    pub const CONNECTION_CLOSE: u64 = 0x1c;
    /// CONNECTION_CLOSE of the application.
    pub const APPLICATION_CLOSE: u64 = 0x1d;
    /// MAX_STREAM_DATA
    pub const MAX_STREAM_DATA: u64 = 0x11;
    /// MAX_STREAMS of bidirectional streams.
    pub const MAX_STREAMS: u64 = 0x12;
    /// MAX_STREAMS of unidirectional streams.
    pub const MAX_STREAMS_UNI: u64 = 0x13;
    /// DATA_BLOCKED
    pub const DATA_BLOCKED: u64 = 0x14;
    /// STREAM_DATA_BLOCKED
    pub const STREAM_DATA_BLOCKED: u64 = 0x15;
    /// STREAMS_BLOCKED of bidirectional streams.
    pub const STREAMS_BLOCKED: u64 = 0x16;
    /// STREAMS_BLOCKED of unidirectional streams.
    pub const STREAMS_BLOCKED_UNI: u64 = 0x17;
    /// NEW_CONNECTION_ID
    pub const NEW_CONNECTION_ID: u64 = 0x18;
    /// PATH_CHALLENGE
    pub const PATH_CHALLENGE: u64 = 0x1a;
    /// PATH_RESPONSE
    pub const PATH_RESPONSE: u64 = 0x1b;
    /// HANDSHAKE_DONE
    pub const HANDSHAKE_DONE: u64 = 0x1e;
    /// IMMEDIATE_ACK (draft-ietf-quic-ack-frequency).
    pub const IMMEDIATE_ACK: u64 = 0x1f;
    /// DATAGRAM without a length (RFC 9221 §4).
    pub const DATAGRAM: u64 = 0x30;
    /// DATAGRAM with a length.
    pub const DATAGRAM_WITH_LENGTH: u64 = 0x31;
    /// ACK_FREQUENCY (draft-ietf-quic-ack-frequency).
    pub const ACK_FREQUENCY: u64 = 0xaf;
    /// s2n-quic's own MTU_PROBING_COMPLETE.
    pub const MTU_PROBING_COMPLETE: u64 = 0xdc_0002;
}

/// Bytes of a stateless reset token (RFC 9000 §19.15).
const RESET_TOKEN_LEN: usize = 16;
/// Bytes of data below which a STREAM frame costs more than the data is worth: the frame itself takes some ten.
const SMALL_STREAM_LEN: usize = 16;
/// STREAM's flag for an offset (RFC 9000 §19.8).
const STREAM_OFFSET: u64 = 0x04;
/// STREAM's flag for a length (RFC 9000 §19.8).
const STREAM_LENGTH: u64 = 0x02;

/// One complete frame, not checked further: s2n-quic rejects some that are accepted here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WireFrame<'a> {
    /// Type of the frame.
    pub kind: u64,
    /// Place of the frame in the payload, including the type.
    pub range: Range<usize>,
    /// Bytes that follow the type.
    pub body: &'a [u8],
}

impl WireFrame<'_> {
    /// Stream ID and limit in bytes of a MAX_STREAM_DATA frame; `None` for other frames.
    pub fn max_stream_data(&self) -> Option<(u64, u64)> {
        (self.kind == kind::MAX_STREAM_DATA).then_some(())?;
        let [stream, limit] = self.leading_integers()?;
        Some((stream, limit))
    }

    /// Reads the integers with which the frame's body begins.
    pub fn leading_integers<const N: usize>(&self) -> Option<[u64; N]> {
        let (mut body, mut integers) = (PayloadReader { bytes: self.body, at: 0 }, [0; N]);
        for integer in &mut integers {
            *integer = body.next_varint()?;
        }
        Some(integers)
    }

    /// Two bits of the stream ID for its initiator and direction (RFC 9000 §2.1), of a frame whose body begins with the
    /// ID. Reads only two bytes.
    pub fn stream_type(&self) -> Option<u8> {
        let first = *self.body.first()?;
        let last = *self.body.get((1 << (first >> 6)) - 1)?;
        Some(last & 0x03)
    }

    /// Whether the frame moves no data, or next to none: a peer needs few such frames, and could send many to keep
    /// litequic busy. Acknowledgements and the connection's end do not count.
    pub fn is_control(&self) -> bool {
        match self.kind {
            kind::ACK | kind::ACK_ECN | kind::CONNECTION_CLOSE | kind::APPLICATION_CLOSE => false,
            kind::STREAM..=kind::STREAM_LAST => self.stream_len().is_some_and(|len| len < SMALL_STREAM_LEN),
            _ => true,
        }
    }

    /// Whether the frame's sender waits for the result: a response to a request, a raised limit, a path. The sender
    /// does not wait for packets that an acknowledgement releases.
    pub fn is_latency_critical(&self) -> bool {
        matches!(
            self.kind,
            kind::RESET_STREAM
                | kind::STOP_SENDING
                | kind::STREAM..=kind::STREAM_LAST
                | kind::DATA_BLOCKED..=kind::STREAMS_BLOCKED_UNI
                | kind::PATH_CHALLENGE..=kind::PATH_RESPONSE
        )
    }

    /// Whether the frame opens a request: the first STREAM frame of a client's bidirectional stream.
    pub fn opens_request(&self) -> bool {
        matches!(self.kind, kind::STREAM..=kind::STREAM_LAST)
            && self.stream_type() == Some(0)
            && (self.kind & STREAM_OFFSET == 0 || matches!(self.leading_integers(), Some([_, 0])))
    }

    /// ECN counts at the end of an ACK frame: ECT(0), ECT(1), CE (RFC 9000 §19.3.2).
    pub(crate) fn ecn_counts(&self) -> Option<[u64; 3]> {
        let mut body = PayloadReader { bytes: self.body, at: 0 };
        body.skip_varints(2)?;
        let ranges = body.next_varint()?;
        body.skip_varints(ranges.checked_mul(2)?.checked_add(1)?)?;
        Some([body.next_varint()?, body.next_varint()?, body.next_varint()?])
    }

    /// Bytes of the first `count` integers of the frame's body.
    pub(crate) fn integers_len(&self, count: u64) -> Option<usize> {
        let mut body = PayloadReader { bytes: self.body, at: 0 };
        body.skip_varints(count)?;
        Some(body.at)
    }

    /// Offset of the data of a STREAM frame.
    pub(crate) fn stream_offset(&self) -> Option<u64> {
        if self.kind & STREAM_OFFSET == 0 { Some(0) } else { self.leading_integers().map(|[_, offset]| offset) }
    }

    /// Bytes of data in a STREAM frame.
    pub(crate) fn stream_len(&self) -> Option<usize> {
        let mut body = PayloadReader { bytes: self.body, at: 0 };
        body.skip_varints(if self.kind & STREAM_OFFSET == 0 { 1 } else { 2 })?;
        if self.kind & STREAM_LENGTH != 0 {
            body.next_varint()?;
        }
        self.body.len().checked_sub(body.at)
    }

    /// Stream ID of a STOP_SENDING frame; `None` for other frames.
    pub fn stop_sending(&self) -> Option<u64> {
        (self.kind == kind::STOP_SENDING).then_some(())?;
        self.leading_integers().map(|[stream]| stream)
    }
}

/// Range of consecutive packet numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NumberRange {
    /// The first number.
    pub low: u64,
    /// The last number, not below `low`.
    pub high: u64,
}

impl NumberRange {
    /// Number of packets.
    pub const fn count(self) -> u64 {
        self.high - self.low + 1
    }

    /// Whether packet `number` is in the range.
    pub const fn contains(self, number: u64) -> bool {
        self.low <= number && number <= self.high
    }
}

/// Error: an ACK frame acknowledges numbers below 0, for which s2n-quic closes the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BelowZero;

/// Iterator over the packet numbers that an ACK frame acknowledges (RFC 9000 §19.3.1), from the largest number down, as
/// separate ranges. Ends after an error.
#[derive(Debug, Clone)]
pub struct AckRanges<'a> {
    ranges: PayloadReader<'a>,
    left: u64,
    /// Largest acknowledged number; after a range, the lowest number of that range.
    largest: u64,
    first: bool,
}

impl<'a> AckRanges<'a> {
    /// Reads the body of an ACK frame; `None` if it is too short.
    pub fn new(body: &'a [u8]) -> Option<Self> {
        let mut ranges = PayloadReader { bytes: body, at: 0 };
        let largest = ranges.next_varint()?;
        ranges.next_varint()?; // the delay
        let left = ranges.next_varint()?.checked_add(1)?;
        Some(Self { ranges, left, largest, first: true })
    }

    /// Largest acknowledged number, before the first call of `next`.
    pub fn largest(&self) -> u64 {
        self.largest
    }

    fn next_range(&mut self) -> Option<NumberRange> {
        let high = if std::mem::take(&mut self.first) {
            self.largest
        } else {
            // The encoded gap is one less than the number of packets in it.
            self.largest.checked_sub(self.ranges.next_varint()?.checked_add(2)?)?
        };
        let low = high.checked_sub(self.ranges.next_varint()?)?;
        self.largest = low;
        Some(NumberRange { low, high })
    }
}

impl Iterator for AckRanges<'_> {
    type Item = Result<NumberRange, BelowZero>;

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let range = self.next_range();
        if range.is_none() {
            self.left = 0;
        }
        Some(range.ok_or(BelowZero))
    }
}

/// Iterator over the frames of a payload. Ends early at a frame that is cut short or of a type that neither RFC 9000
/// nor DATAGRAM (RFC 9221), ACK frequency (draft-ietf-quic-ack-frequency) or s2n-quic defines.
#[derive(Debug, Clone)]
pub struct FrameIter<'a>(PayloadReader<'a>);

impl<'a> FrameIter<'a> {
    /// Iterates over the frames of a whole decrypted payload.
    pub fn new(payload: &'a [u8]) -> Self {
        Self(PayloadReader { bytes: payload, at: 0 })
    }

    /// Whether the whole payload was parsed.
    pub fn is_fully_parsed(&self) -> bool {
        self.0.at == self.0.bytes.len()
    }
}

impl<'a> Iterator for FrameIter<'a> {
    type Item = WireFrame<'a>;

    fn next(&mut self) -> Option<WireFrame<'a>> {
        let mut reader = self.0.clone();
        reader.skip_padding();
        self.0.at = reader.at;
        let start = reader.at;
        let kind = reader.read_type()?;
        let body = reader.at;
        reader.skip_body(kind)?;
        self.0.at = reader.at;
        Some(WireFrame { kind, range: start..reader.at, body: reader.bytes.get(body..reader.at)? })
    }
}

#[derive(Debug, Clone)]
struct PayloadReader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl PayloadReader<'_> {
    fn skip_padding(&mut self) {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        self.at += rest.iter().take_while(|&&byte| u64::from(byte) == kind::PADDING).count();
    }

    /// Reads a variable-length integer (RFC 9000 §16).
    fn next_varint(&mut self) -> Option<u64> {
        let (value, length) = match *self.bytes.get(self.at..)? {
            [a @ ..0x40, ..] => (a.into(), 1),
            [a @ ..0x80, b, ..] => (u16::from_be_bytes([a & 0x3f, b]).into(), 2),
            [a @ ..0xc0, b, c, d, ..] => (u32::from_be_bytes([a & 0x3f, b, c, d]).into(), 4),
            [a, b, c, d, e, f, g, h, ..] => (u64::from_be_bytes([a & 0x3f, b, c, d, e, f, g, h]), 8),
            _ => return None,
        };
        self.at += length;
        Some(value)
    }

    /// Skips `count` integers.
    fn skip_varints(&mut self, count: u64) -> Option<()> {
        // Each integer takes at least a byte: a `count` above the number of bytes ends here.
        for _ in 0..count {
            let first = *self.bytes.get(self.at)?;
            self.at += 1 << (first >> 6);
        }
        (self.at <= self.bytes.len()).then_some(())
    }

    fn skip_length(&mut self, length: u64) -> Option<()> {
        let end = self.at.checked_add(usize::try_from(length).ok()?)?;
        (end <= self.bytes.len()).then(|| self.at = end)
    }

    /// Skips a length, and as many bytes.
    fn skip_counted(&mut self) -> Option<()> {
        let length = self.next_varint()?;
        self.skip_length(length)
    }

    fn skip_rest(&mut self) {
        self.at = self.bytes.len();
    }

    /// Reads a frame's type, which must have its shortest encoding (RFC 9000 §12.4).
    fn read_type(&mut self) -> Option<u64> {
        // Nearly all types take one byte.
        if let Some(kind) = self.bytes.get(self.at).filter(|first| **first < 0x40) {
            self.at += 1;
            return Some((*kind).into());
        }
        let start = self.at;
        let kind = self.next_varint()?;
        let shortest = match kind {
            0..=0x3f => 1,
            0x40..=0x3fff => 2,
            0x4000..=0x3fff_ffff => 4,
            _ => 8,
        };
        (self.at - start == shortest).then_some(kind)
    }

    /// Skips the body of a frame of type `kind`; `None` if the payload is too short, or the length is unknown.
    fn skip_body(&mut self, kind: u64) -> Option<()> {
        match kind {
            // PING, HANDSHAKE_DONE, IMMEDIATE_ACK
            0x01 | 0x1e | 0x1f => Some(()),
            kind::ACK | kind::ACK_ECN => {
                self.skip_varints(2)?; // the largest acknowledged, the delay
                let ranges = self.next_varint()?;
                let counts = if kind == kind::ACK_ECN { 3 } else { 0 };
                self.skip_varints(ranges.checked_mul(2)?.checked_add(1 + counts)?)
            }
            0x04 => self.skip_varints(3), // RESET_STREAM
            // STOP_SENDING, MAX_STREAM_DATA, STREAM_DATA_BLOCKED
            kind::STOP_SENDING | kind::MAX_STREAM_DATA | 0x15 => self.skip_varints(2),
            // CRYPTO
            0x06 | kind::APPLICATION_CLOSE => self.next_varint().and_then(|_| self.skip_counted()),
            // NEW_TOKEN, DATAGRAM with a length
            0x07 | 0x31 => self.skip_counted(),
            // STREAM
            kind::STREAM..=kind::STREAM_LAST => {
                self.skip_varints(if kind & STREAM_OFFSET == 0 { 1 } else { 2 })?;
                if kind & STREAM_LENGTH == 0 {
                    self.skip_rest();
                    return Some(());
                }
                self.skip_counted()
            }
            // MAX_DATA, MAX_STREAMS, DATA_BLOCKED, STREAMS_BLOCKED, RETIRE_CONNECTION_ID
            0x10 | 0x12..=0x14 | 0x16 | 0x17 | 0x19 => self.skip_varints(1),
            // NEW_CONNECTION_ID
            0x18 => {
                self.skip_varints(2)?;
                let length = *self.bytes.get(self.at)?;
                self.skip_length(1 + u64::from(length) + RESET_TOKEN_LEN as u64)
            }
            // PATH_CHALLENGE, PATH_RESPONSE
            0x1a | 0x1b => self.skip_length(8),
            kind::CONNECTION_CLOSE => self.skip_varints(2).and_then(|()| self.skip_counted()),
            // DATAGRAM without a length
            0x30 => {
                self.skip_rest();
                Some(())
            }
            0xaf => self.skip_varints(4),     // ACK_FREQUENCY
            0xdc_0002 => self.skip_length(2), // s2n-quic's MTU_PROBING_COMPLETE
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
