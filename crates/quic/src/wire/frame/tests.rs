//! Tests every frame that s2n-quic writes and reads, and invalid ones.

use super::*;
use proptest::{collection::vec, prelude::*};
use s2n_codec::{DecoderBuffer, DecoderBufferMut, EncoderValue};
use s2n_quic_core::{
    frame::{self, FrameMut},
    varint::VarInt,
};

fn kinds(payload: &[u8]) -> (Vec<u64>, bool) {
    let mut frames = FrameIter::new(payload);
    let kinds = frames.by_ref().map(|frame| frame.kind).collect();
    (kinds, frames.is_fully_parsed())
}

#[test]
fn every_frame_of_a_1_rtt_packet_is_parsed_whole() {
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
        assert_eq!(FrameIter::new(&followed).next().unwrap().range, 2..2 + frame.len(), "{what}");
        let cut = &frame[..frame.len() - 1];
        let mut frames = FrameIter::new(cut);
        assert!(cut.is_empty() || frames.next().is_none() && !frames.is_fully_parsed(), "{what}, cut");
    }
}

#[test]
fn frames_without_a_length_reach_to_the_end() {
    for frame in [vec![0x08, 0, 0x11, 0, 9], vec![0x0c, 0, 5, 0x11, 0, 9], vec![0x30, 0x11, 0, 9]] {
        assert_eq!(kinds(&frame), (vec![u64::from(frame[0])], true));
    }
}

#[test]
fn frames_with_data_or_acknowledgements_are_no_control_frames() {
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
        ("a STREAM of a byte", vec![0x0f, 0, 0x40, 0x80, 1, 7], true),
        ("a STREAM of 15 bytes", [&[0x0e, 0, 0x40, 0x80, 15], &data[..15]].concat(), true),
        ("a STREAM of 16 bytes", [&[0x0e, 0, 0x40, 0x80, 16], &data[..]].concat(), false),
        ("a STREAM of 15 bytes to the end", [&[0x0c, 0, 0x40, 0x80], &data[..15]].concat(), true),
        ("a STREAM of 16 bytes to the end", [&[0x08, 0], &data[..]].concat(), false),
    ];
    for (what, payload, expected) in table {
        let frame = FrameIter::new(payload).next().unwrap();
        assert_eq!(frame.is_control(), *expected, "{what}");
    }
}

#[test]
fn an_unknown_frame_ends_the_iteration() {
    for unknown in [&[0x20][..], &[0x3f], &[0x40, 0x11, 0, 9], &[0x40, 0xb0], &[0xff; 8]] {
        let payload = [&[0x01], unknown, &[0x11, 0, 9]].concat();
        assert_eq!(kinds(&payload), (vec![1], false), "{unknown:x?}");
    }
}

#[test]
fn ack_ranges_are_read_down_to_zero() {
    let ranges = |body: &[u8]| AckRanges::new(body).map(Iterator::collect::<Vec<_>>);
    let range = |low, high| Ok(NumberRange { low, high });
    let most = (1 << 62) - 1;
    type Ranges = Vec<Result<NumberRange, BelowZero>>;
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
fn an_ack_with_missing_ranges_ends_the_iteration() {
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
        prop_assert_eq!(FrameIter::new(&payload).next().unwrap().max_stream_data(), Some((stream, limit)));
        let stop = frame::StopSending {
            stream_id: VarInt::new(stream).unwrap(),
            application_error_code: VarInt::new(limit).unwrap(),
        };
        let payload = stop.encode_to_vec();
        prop_assert_eq!(FrameIter::new(&payload).next().unwrap().stop_sending(), Some(stream));
    }

    #[test]
    fn the_iteration_finds_the_frames_that_s2n_quic_reads(payload in payload()) {
        let mut frames = FrameIter::new(&payload);
        let mut copy = payload.clone();
        let length = copy.len();
        let mut rest = DecoderBufferMut::new(&mut copy);
        while let Ok((oracle, next)) = rest.decode::<FrameMut<'_>>() {
            let end = length - next.len();
            rest = next;
            if matches!(oracle, FrameMut::Padding(_)) {
                continue;
            }
            // s2n-quic as litequic builds it has no "dc", and closes the connection at these tokens.
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
                    prop_assert_eq!(found.is_control(), frame.data.len() < SMALL_STREAM_LEN);
                }
                FrameMut::Ack(frame) => {
                    let oracle = frame.ack_ranges().map(|range| NumberRange {
                        low: range.start().as_u64(),
                        high: range.end().as_u64(),
                    });
                    let found: Result<Vec<NumberRange>, BelowZero> = AckRanges::new(found.body).unwrap().collect();
                    prop_assert_eq!(found, Ok(oracle.collect()));
                }
                _ => prop_assert_eq!((found.max_stream_data(), found.stop_sending()), (None, None)),
            }
        }
    }

    #[test]
    fn frames_lie_one_after_the_other(payload in vec(any::<u8>(), 0..300)) {
        let mut end = 0;
        for frame in FrameIter::new(&payload) {
            prop_assert!(frame.range.start >= end && frame.range.end > frame.range.start);
            prop_assert!(payload[end..frame.range.start].iter().all(|&byte| byte == 0));
            prop_assert!(payload[frame.range.clone()].ends_with(frame.body));
            end = frame.range.end;
        }
        prop_assert!(end <= payload.len());
    }

    #[test]
    fn an_integer_is_read_as_s2n_quic_reads_it(bytes in vec(any::<u8>(), 0..10)) {
        let mut reader = PayloadReader { bytes: &bytes, at: 0 };
        let oracle = DecoderBuffer::new(&bytes).decode::<VarInt>().ok();
        prop_assert_eq!(
            reader.next_varint().map(|value| (value, reader.at)),
            oracle.map(|(value, rest)| (value.as_u64(), bytes.len() - rest.len()))
        );
    }
}

/// Bytes that often look like frames: known types, small numbers, and noise.
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
