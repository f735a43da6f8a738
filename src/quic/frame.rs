//! The frames of a decrypted 1-RTT packet (RFC 9000 §19), walked without being interpreted: where each begins and ends,
//! and the few whose contents litequic wants to know. Pure; stands between s2n-quic's decryption and its own parser,
//! which judges the frames: what is not understood here ends the walk, and is none of ours to complain about.

use std::ops::Range;

/// Frame types that litequic names.
pub mod kind {
    /// PADDING, which the walk skips.
    pub const PADDING: u64 = 0x00;
    /// ACK without ECN counts.
    pub const ACK: u64 = 0x02;
    /// ACK with ECN counts.
    pub const ACK_ECN: u64 = 0x03;
    /// STOP_SENDING
    pub const STOP_SENDING: u64 = 0x05;
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
}

/// Octets of a stateless reset token (RFC 9000 §19.15).
const RESET_TOKEN_LEN: usize = 16;
/// Octets of a STREAM frame below which it costs more than it brings: such a frame takes some ten by itself.
const SMALL_STREAM: usize = 16;
/// STREAM's flags (RFC 9000 §19.8).
const STREAM_OFFSET: u64 = 0x04;
const STREAM_LENGTH: u64 = 0x02;

/// One frame, whole, but not checked further: s2n-quic refuses some of what passes here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame<'a> {
    /// Its type.
    pub kind: u64,
    /// Where it stands in the payload, type included.
    pub range: Range<usize>,
    /// What follows the type.
    pub body: &'a [u8],
}

impl Frame<'_> {
    /// What a MAX_STREAM_DATA frame says: the stream's ID, and how many bytes may be sent on it in all.
    pub fn max_stream_data(&self) -> Option<(u64, u64)> {
        let mut body = Reader { bytes: self.body, at: 0 };
        (self.kind == kind::MAX_STREAM_DATA).then_some(())?;
        Some((body.varint()?, body.varint()?))
    }

    /// Whether the frame moves no data, or next to none: what a peer needs few of, and can send many of to keep litequic
    /// busy. Acknowledgements and the connection's end do not count.
    pub fn is_control(&self) -> bool {
        match self.kind {
            kind::ACK | kind::ACK_ECN | kind::CONNECTION_CLOSE | kind::APPLICATION_CLOSE => false,
            kind::STREAM..=kind::STREAM_LAST => self.stream_len().is_some_and(|len| len < SMALL_STREAM),
            _ => true,
        }
    }

    /// Octets of data in a STREAM frame.
    fn stream_len(&self) -> Option<usize> {
        let mut body = Reader { bytes: self.body, at: 0 };
        body.varints(if self.kind & STREAM_OFFSET == 0 { 1 } else { 2 })?;
        if self.kind & STREAM_LENGTH != 0 {
            body.varint()?;
        }
        self.body.len().checked_sub(body.at)
    }

    /// The stream that a STOP_SENDING frame is about.
    pub fn stop_sending(&self) -> Option<u64> {
        (self.kind == kind::STOP_SENDING).then_some(())?;
        Reader { bytes: self.body, at: 0 }.varint()
    }
}

/// Packet numbers in a row, of which `high` is the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Numbers {
    /// The first.
    pub low: u64,
    /// The last, not below `low`.
    pub high: u64,
}

/// An ACK frame acknowledges numbers below 0: s2n-quic closes the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BelowZero;

/// What an ACK frame acknowledges (RFC 9000 §19.3.1), from the largest number down, no two ranges side by side. It ends
/// after an error.
#[derive(Debug, Clone)]
pub struct AckRanges<'a> {
    ranges: Reader<'a>,
    left: u64,
    /// The largest number acknowledged; after a range, the lowest of that.
    largest: u64,
    first: bool,
}

impl<'a> AckRanges<'a> {
    /// Of the body of an ACK frame; `None` of anything that is too short for one.
    pub fn new(body: &'a [u8]) -> Option<Self> {
        let mut ranges = Reader { bytes: body, at: 0 };
        let largest = ranges.varint()?;
        ranges.varint()?; // the delay
        let left = ranges.varint()?.checked_add(1)?;
        Some(Self { ranges, left, largest, first: true })
    }

    fn range(&mut self) -> Option<Numbers> {
        let high = if std::mem::take(&mut self.first) {
            self.largest
        } else {
            // The gap is one less than the numbers in it.
            self.largest.checked_sub(self.ranges.varint()?.checked_add(2)?)?
        };
        let low = high.checked_sub(self.ranges.varint()?)?;
        self.largest = low;
        Some(Numbers { low, high })
    }
}

impl Iterator for AckRanges<'_> {
    type Item = Result<Numbers, BelowZero>;

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let range = self.range();
        if range.is_none() {
            self.left = 0;
        }
        Some(range.ok_or(BelowZero))
    }
}

/// The frames of a payload, in their order. Ends early at a frame that is cut short or of a type that neither RFC 9000
/// nor DATAGRAM (RFC 9221), ACK frequency (draft-ietf-quic-ack-frequency) or s2n-quic defines.
#[derive(Debug, Clone)]
pub struct Frames<'a>(Reader<'a>);

impl<'a> Frames<'a> {
    /// Of a whole decrypted payload.
    pub fn new(payload: &'a [u8]) -> Self {
        Self(Reader { bytes: payload, at: 0 })
    }

    /// True once all of the payload was understood.
    pub fn is_done(&self) -> bool {
        self.0.at == self.0.bytes.len()
    }
}

impl<'a> Iterator for Frames<'a> {
    type Item = Frame<'a>;

    fn next(&mut self) -> Option<Frame<'a>> {
        let mut reader = self.0.clone();
        reader.skip_padding();
        self.0.at = reader.at;
        let start = reader.at;
        let kind = reader.kind()?;
        let body = reader.at;
        reader.skip_body(kind)?;
        self.0.at = reader.at;
        Some(Frame { kind, range: start..reader.at, body: reader.bytes.get(body..reader.at)? })
    }
}

#[derive(Debug, Clone)]
struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn skip_padding(&mut self) {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        self.at += rest.iter().take_while(|&&byte| u64::from(byte) == kind::PADDING).count();
    }

    /// A variable-length integer (RFC 9000 §16).
    fn varint(&mut self) -> Option<u64> {
        let first = *self.bytes.get(self.at)?;
        let end = self.at + (1 << (first >> 6));
        let rest = self.bytes.get(self.at + 1..end)?;
        self.at = end;
        Some(rest.iter().fold(u64::from(first & 0x3f), |value, &byte| value << 8 | u64::from(byte)))
    }

    fn varints(&mut self, count: u64) -> Option<()> {
        // Every one of them takes a byte at least: more than there are bytes run out here.
        (0..count).try_for_each(|_| self.varint().map(drop))
    }

    fn skip(&mut self, length: u64) -> Option<()> {
        let end = self.at.checked_add(usize::try_from(length).ok()?)?;
        (end <= self.bytes.len()).then(|| self.at = end)
    }

    /// A length, and as many bytes.
    fn skip_counted(&mut self) -> Option<()> {
        let length = self.varint()?;
        self.skip(length)
    }

    fn skip_rest(&mut self) {
        self.at = self.bytes.len();
    }

    /// A frame's type, which must be encoded as short as it can be (RFC 9000 §12.4).
    fn kind(&mut self) -> Option<u64> {
        let start = self.at;
        let kind = self.varint()?;
        let shortest = match kind {
            0..=0x3f => 1,
            0x40..=0x3fff => 2,
            0x4000..=0x3fff_ffff => 4,
            _ => 8,
        };
        (self.at - start == shortest).then_some(kind)
    }

    /// Moves past what follows a frame's type; `None` if there is less, or nobody knows how much.
    fn skip_body(&mut self, kind: u64) -> Option<()> {
        match kind {
            // PING, HANDSHAKE_DONE, IMMEDIATE_ACK
            0x01 | 0x1e | 0x1f => Some(()),
            kind::ACK | kind::ACK_ECN => {
                self.varints(2)?; // the largest acknowledged, the delay
                let ranges = self.varint()?;
                self.varints(ranges.checked_mul(2)?.checked_add(1)?)?;
                self.varints(if kind == kind::ACK_ECN { 3 } else { 0 })
            }
            0x04 => self.varints(3), // RESET_STREAM
            // STOP_SENDING, MAX_STREAM_DATA, STREAM_DATA_BLOCKED
            kind::STOP_SENDING | kind::MAX_STREAM_DATA | 0x15 => self.varints(2),
            // CRYPTO
            0x06 | kind::APPLICATION_CLOSE => self.varint().and_then(|_| self.skip_counted()),
            // NEW_TOKEN, DATAGRAM with a length
            0x07 | 0x31 => self.skip_counted(),
            // STREAM
            kind::STREAM..=kind::STREAM_LAST => {
                self.varints(if kind & STREAM_OFFSET == 0 { 1 } else { 2 })?;
                if kind & STREAM_LENGTH == 0 {
                    self.skip_rest();
                    return Some(());
                }
                self.skip_counted()
            }
            // MAX_DATA, MAX_STREAMS, DATA_BLOCKED, STREAMS_BLOCKED, RETIRE_CONNECTION_ID
            0x10 | 0x12..=0x14 | 0x16 | 0x17 | 0x19 => self.varints(1),
            // NEW_CONNECTION_ID
            0x18 => {
                self.varints(2)?;
                let length = *self.bytes.get(self.at)?;
                self.skip(1 + u64::from(length) + RESET_TOKEN_LEN as u64)
            }
            // PATH_CHALLENGE, PATH_RESPONSE
            0x1a | 0x1b => self.skip(8),
            kind::CONNECTION_CLOSE => self.varints(2).and_then(|()| self.skip_counted()),
            // DATAGRAM without a length
            0x30 => {
                self.skip_rest();
                Some(())
            }
            0xaf => self.varints(4),   // ACK_FREQUENCY
            0xdc_0002 => self.skip(2), // s2n-quic's MTU_PROBING_COMPLETE
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::{collection::vec, prelude::*};
    use s2n_codec::{DecoderBuffer, DecoderBufferMut, EncoderValue};
    use s2n_quic_core::{
        frame::{self, FrameMut},
        varint::VarInt,
    };

    fn kinds(payload: &[u8]) -> (Vec<u64>, bool) {
        let mut frames = Frames::new(payload);
        let kinds = frames.by_ref().map(|frame| frame.kind).collect();
        (kinds, frames.is_done())
    }

    #[test]
    fn every_frame_of_a_one_rtt_packet_is_known_whole() {
        let token = [7; 16];
        let table: &[(&str, Vec<u8>)] = &[
            ("PING", vec![0x01]),
            ("ACK", vec![0x02, 9, 0, 1, 2, 0, 1]),
            ("ACK with ECN", vec![0x03, 9, 0, 0, 2, 1, 2, 3]),
            ("RESET_STREAM", vec![0x04, 0, 1, 2]),
            ("STOP_SENDING", vec![0x05, 0, 1]),
            ("CRYPTO", vec![0x06, 0, 2, 1, 1]),
            ("NEW_TOKEN", vec![0x07, 2, 1, 1]),
            ("STREAM with a length", vec![0x0a, 0, 2, 1, 1]),
            ("STREAM with an offset and a length", vec![0x0f, 0, 5, 2, 1, 1]),
            ("MAX_DATA", vec![0x10, 1]),
            ("MAX_STREAM_DATA", vec![0x11, 0, 0x40, 0x64]),
            ("MAX_STREAMS", vec![0x12, 1]),
            ("MAX_STREAMS one way", vec![0x13, 1]),
            ("DATA_BLOCKED", vec![0x14, 1]),
            ("STREAM_DATA_BLOCKED", vec![0x15, 0, 1]),
            ("STREAMS_BLOCKED", vec![0x16, 1]),
            ("STREAMS_BLOCKED one way", vec![0x17, 1]),
            ("NEW_CONNECTION_ID", [&[0x18, 1, 0, 4, 1, 2, 3, 4], &token[..]].concat()),
            ("RETIRE_CONNECTION_ID", vec![0x19, 1]),
            ("PATH_CHALLENGE", vec![0x1a, 1, 2, 3, 4, 5, 6, 7, 8]),
            ("PATH_RESPONSE", vec![0x1b, 1, 2, 3, 4, 5, 6, 7, 8]),
            ("CONNECTION_CLOSE", vec![0x1c, 1, 0, 2, b'n', b'o']),
            ("CONNECTION_CLOSE of the application", vec![0x1d, 1, 2, b'n', b'o']),
            ("HANDSHAKE_DONE", vec![0x1e]),
            ("IMMEDIATE_ACK", vec![0x1f]),
            ("DATAGRAM with a length", vec![0x31, 2, 1, 1]),
            ("ACK_FREQUENCY", vec![0x40, 0xaf, 0, 9, 0x40, 0xff, 1]),
        ];
        for (what, frame) in table {
            let followed = [&[0, 0], &frame[..], &[0, 0x05, 4, 1]].concat();
            let (kinds, done) = kinds(&followed);
            assert_eq!((kinds.len(), kinds.last(), done), (2, Some(&kind::STOP_SENDING), true), "{what}");
            assert_eq!(Frames::new(&followed).next().unwrap().range, 2..2 + frame.len(), "{what}");
            let cut = &frame[..frame.len() - 1];
            let mut frames = Frames::new(cut);
            assert!(cut.is_empty() || frames.next().is_none() && !frames.is_done(), "{what}, cut");
        }
    }

    #[test]
    fn frames_without_a_length_reach_to_the_end() {
        for frame in [vec![0x08, 0, 0x11, 0, 9], vec![0x0c, 0, 5, 0x11, 0, 9], vec![0x30, 0x11, 0, 9]] {
            assert_eq!(kinds(&frame), (vec![u64::from(frame[0])], true));
        }
    }

    #[test]
    fn what_moves_data_or_acknowledges_it_is_no_control_frame() {
        let data = [7; 16];
        let table: &[(&str, Vec<u8>, bool)] = &[
            ("PING", vec![0x01], true),
            ("ACK", vec![0x02, 9, 0, 0, 2], false),
            ("ACK with ECN", vec![0x03, 9, 0, 0, 2, 1, 2, 3], false),
            ("RESET_STREAM", vec![0x04, 0, 1, 2], true),
            ("STOP_SENDING", vec![0x05, 0, 1], true),
            ("CRYPTO", vec![0x06, 0, 2, 1, 1], true),
            ("MAX_STREAM_DATA", vec![0x11, 0, 9], true),
            ("PATH_CHALLENGE", vec![0x1a, 1, 2, 3, 4, 5, 6, 7, 8], true),
            ("CONNECTION_CLOSE", vec![0x1c, 1, 0, 2, b'n', b'o'], false),
            ("CONNECTION_CLOSE of the application", vec![0x1d, 1, 2, b'n', b'o'], false),
            ("an empty STREAM", vec![0x0b, 0, 0], true),
            ("a STREAM of an octet", vec![0x0f, 0, 0x40, 0x80, 1, 7], true),
            ("a STREAM of 15 octets", [&[0x0e, 0, 0x40, 0x80, 15], &data[..15]].concat(), true),
            ("a STREAM of 16 octets", [&[0x0e, 0, 0x40, 0x80, 16], &data[..]].concat(), false),
            ("a STREAM of 15 octets to the end", [&[0x0c, 0, 0x40, 0x80], &data[..15]].concat(), true),
            ("a STREAM of 16 octets to the end", [&[0x08, 0], &data[..]].concat(), false),
        ];
        for (what, payload, expected) in table {
            let frame = Frames::new(payload).next().unwrap();
            assert_eq!(frame.is_control(), *expected, "{what}");
        }
    }

    #[test]
    fn the_walk_ends_at_what_it_does_not_know() {
        for unknown in [&[0x20][..], &[0x3f], &[0x40, 0x11, 0, 9], &[0x40, 0xb0], &[0xff; 8]] {
            let payload = [&[0x01], unknown, &[0x11, 0, 9]].concat();
            assert_eq!(kinds(&payload), (vec![1], false), "{unknown:x?}");
        }
    }

    #[test]
    fn the_ranges_of_an_ack_are_read_down_to_zero_and_no_further() {
        let ranges = |body: &[u8]| AckRanges::new(body).map(Iterator::collect::<Vec<_>>);
        let range = |low, high| Ok(Numbers { low, high });
        let most = (1 << 62) - 1;
        type Ranges = Vec<Result<Numbers, BelowZero>>;
        let table: &[(&str, &[u8], Option<Ranges>)] = &[
            ("one number", &[9, 0, 0, 0], Some(vec![range(9, 9)])),
            ("down to zero", &[9, 0, 0, 9], Some(vec![range(0, 9)])),
            ("below zero", &[9, 0, 0, 10], Some(vec![Err(BelowZero)])),
            ("a gap of one", &[9, 0, 1, 1, 0, 2], Some(vec![range(8, 9), range(4, 6)])),
            ("a gap below zero", &[9, 0, 2, 8, 0, 0, 0, 0], Some(vec![range(1, 9), Err(BelowZero)])),
            ("the largest there is", &[0xff; 8], None),
            ("too short", &[9, 0], None),
        ];
        for (what, body, expected) in table {
            assert_eq!(&ranges(body), expected, "{what}");
        }
        let largest = [&[0xff; 8][..], &[0, 0], &[0xff; 8]].concat();
        assert_eq!(ranges(&largest), Some(vec![range(0, most)]));
    }

    #[test]
    fn an_ack_that_promises_more_ranges_than_there_are_ends_the_walk() {
        assert_eq!(kinds(&[0x02, 9, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0]), (vec![], false));
    }

    proptest! {
        #[test]
        fn a_limit_that_s2n_quic_writes_is_read(stream in 0..1u64 << 62, limit in 0..1u64 << 62) {
            let frame = frame::MaxStreamData {
                stream_id: VarInt::new(stream).unwrap(),
                maximum_stream_data: VarInt::new(limit).unwrap(),
            };
            let payload = frame.encode_to_vec();
            prop_assert_eq!(Frames::new(&payload).next().unwrap().max_stream_data(), Some((stream, limit)));
            let stop = frame::StopSending {
                stream_id: VarInt::new(stream).unwrap(),
                application_error_code: VarInt::new(limit).unwrap(),
            };
            let payload = stop.encode_to_vec();
            prop_assert_eq!(Frames::new(&payload).next().unwrap().stop_sending(), Some(stream));
        }

        #[test]
        fn where_s2n_quic_reads_a_frame_the_walk_finds_the_same(payload in payload()) {
            let mut frames = Frames::new(&payload);
            let mut copy = payload.clone();
            let length = copy.len();
            let mut rest = DecoderBufferMut::new(&mut copy);
            while let Ok((oracle, next)) = rest.decode::<FrameMut<'_>>() {
                let end = length - next.len();
                rest = next;
                if matches!(oracle, FrameMut::Padding(_)) {
                    continue;
                }
                // litequic's s2n-quic has no "dc", and closes the connection at its tokens.
                if matches!(oracle, FrameMut::DcStatelessResetTokens(_)) {
                    break;
                }
                let found = frames.next();
                prop_assert_eq!(found.as_ref().map(|found| found.range.end), Some(end), "{:?}", oracle);
                let found = found.unwrap();
                match oracle {
                    FrameMut::MaxStreamData(frame) => prop_assert_eq!(
                        found.max_stream_data(),
                        Some((frame.stream_id.as_u64(), frame.maximum_stream_data.as_u64()))
                    ),
                    FrameMut::StopSending(frame) => {
                        prop_assert_eq!(found.stop_sending(), Some(frame.stream_id.as_u64()));
                    }
                    FrameMut::Stream(frame) => {
                        prop_assert_eq!(found.is_control(), frame.data.len() < SMALL_STREAM);
                    }
                    FrameMut::Ack(frame) => {
                        let oracle = frame.ack_ranges().map(|range| Numbers {
                            low: range.start().as_u64(),
                            high: range.end().as_u64(),
                        });
                        let found: Result<Vec<Numbers>, BelowZero> = AckRanges::new(found.body).unwrap().collect();
                        prop_assert_eq!(found, Ok(oracle.collect()));
                    }
                    _ => prop_assert_eq!((found.max_stream_data(), found.stop_sending()), (None, None)),
                }
            }
        }

        #[test]
        fn frames_lie_one_after_the_other(payload in vec(any::<u8>(), 0..300)) {
            let mut end = 0;
            for frame in Frames::new(&payload) {
                prop_assert!(frame.range.start >= end && frame.range.end > frame.range.start);
                prop_assert!(payload[end..frame.range.start].iter().all(|&byte| byte == 0));
                prop_assert!(payload[frame.range.clone()].ends_with(frame.body));
                end = frame.range.end;
            }
            prop_assert!(end <= payload.len());
        }

        #[test]
        fn an_integer_is_read_as_s2n_quic_reads_it(bytes in vec(any::<u8>(), 0..10)) {
            let mut reader = Reader { bytes: &bytes, at: 0 };
            let oracle = DecoderBuffer::new(&bytes).decode::<VarInt>().ok();
            prop_assert_eq!(
                reader.varint().map(|value| (value, reader.at)),
                oracle.map(|(value, rest)| (value.as_u64(), bytes.len() - rest.len()))
            );
        }
    }

    /// Octets that look like frames now and then: known types, small numbers, and noise.
    fn payload() -> impl Strategy<Value = Vec<u8>> {
        let kind = prop_oneof![
            20 => (0u8..0x32).prop_map(|kind| vec![kind]),
            1 => Just(vec![0x40, 0xaf]),
            1 => Just(vec![0x80, 0xdc, 0, 2]),
            1 => Just(vec![0x80, 0xdc, 0, 0]),
        ];
        let number = prop_oneof![
            8 => (0u8..8).prop_map(|number| vec![number]),
            1 => (0x40u8..0x80, any::<u8>()).prop_map(|(first, second)| vec![first, second]),
            1 => vec(any::<u8>(), 1..20),
        ];
        let frame = (kind, vec(number, 0..8)).prop_map(|(kind, numbers)| [kind, numbers.concat()].concat());
        vec(frame, 0..8).prop_map(|frames| frames.concat())
    }
}
