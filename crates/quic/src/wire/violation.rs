//! Checks rules of 1-RTT frames that s2n-quic 0.91 does not enforce on a client, or for which it sends
//! PROTOCOL_VIOLATION where the RFC has a code of its own. Pure.

use super::frame::{WireFrame, kind};
use s2n_quic_core::{crypto::tls, transport::Error, varint::VarInt};
use std::ops::RangeInclusive;

/// Error for a frame that is cut short, or of a type that neither an RFC nor an agreed extension defines (RFC 9000
/// §12.4).
pub(super) const UNREADABLE_FRAME: Error = Error::FRAME_ENCODING_ERROR.with_reason("malformed or unknown frame");

/// Type of a unidirectional stream that the client opened (RFC 9000 §2.1).
const CLIENT_UNI: u8 = 0x02;
/// Type of a unidirectional stream that the server opened (RFC 9000 §2.1).
const SERVER_UNI: u8 = 0x03;
/// Largest number of streams of each type in a connection (RFC 9000 §4.6).
const MAX_STREAMS: u64 = 1 << 60;
/// Bytes of a connection ID in NEW_CONNECTION_ID (RFC 9000 §19.15).
const ISSUED_ID_LEN: RangeInclusive<u64> = 1..=20;

/// Error with which `frame` from a client must close the connection. Violations that s2n-quic detects are left to
/// s2n-quic.
pub(super) fn find_violation(frame: &WireFrame<'_>) -> Option<Error> {
    let error = match frame.kind {
        // RFC 9000 §19.8, §19.4, §19.13
        kind::STREAM..=kind::STREAM_LAST | kind::RESET_STREAM | kind::STREAM_DATA_BLOCKED => {
            (frame.stream_type() == Some(SERVER_UNI)).then_some(())?;
            Error::STREAM_STATE_ERROR.with_reason("send-only stream")
        }
        // RFC 9000 §19.5, §19.10
        kind::STOP_SENDING | kind::MAX_STREAM_DATA => {
            (frame.stream_type() == Some(CLIENT_UNI)).then_some(())?;
            Error::STREAM_STATE_ERROR.with_reason("receive-only stream")
        }
        // A client may send neither a KeyUpdate (RFC 9001 §6) nor another TLS message after the handshake, unless
        // requested (RFC 8446 §4.6), which litequic never does.
        kind::CRYPTO => {
            frame.leading_integers().filter(|[_, length]| *length > 0)?;
            Error::from(tls::Error::UNEXPECTED_MESSAGE.with_reason("TLS message after the handshake"))
        }
        // RFC 9000 §19.11, §19.14
        kind::MAX_STREAMS | kind::MAX_STREAMS_UNI | kind::STREAMS_BLOCKED | kind::STREAMS_BLOCKED_UNI => {
            frame.leading_integers().filter(|[streams]| *streams > MAX_STREAMS)?;
            Error::FRAME_ENCODING_ERROR.with_reason("more streams than there can be")
        }
        // RFC 9000 §19.15
        kind::NEW_CONNECTION_ID => {
            // The length is one byte, not an integer. Both are the same up to 63, and s2n-quic rejects more.
            let [sequence, retire_prior_to, length] = frame.leading_integers()?;
            (retire_prior_to > sequence || !ISSUED_ID_LEN.contains(&length)).then_some(())?;
            Error::FRAME_ENCODING_ERROR.with_reason("malformed connection ID")
        }
        // litequic does not advertise DATAGRAM (RFC 9221 §3).
        kind::DATAGRAM | kind::DATAGRAM_WITH_LENGTH => Error::PROTOCOL_VIOLATION.with_reason("no datagrams offered"),
        // litequic does not advertise these frames either, which s2n-quic and litequic parse.
        kind::IMMEDIATE_ACK | kind::ACK_FREQUENCY | kind::MTU_PROBING_COMPLETE => UNREADABLE_FRAME,
        _ => return None,
    };
    Some(error.with_frame_type(VarInt::new(frame.kind).unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::frame::FrameIter;
    use proptest::{collection::vec, prelude::*};

    fn code(frame: &[u8]) -> Option<u64> {
        let error = FrameIter::new(frame).next().and_then(|frame| find_violation(&frame));
        error.map(|error| error.code.as_u64())
    }

    fn new_connection_id(sequence: u8, retire_prior_to: u8, length: u8) -> Vec<u8> {
        [vec![0x18, sequence, retire_prior_to, length], vec![7; usize::from(length) + 16]].concat()
    }

    proptest! {
        #[test]
        fn any_frame_is_checked_without_panic(payload in vec(any::<u8>(), 0..60)) {
            for frame in FrameIter::new(&payload) {
                let _ = find_violation(&frame);
            }
        }
    }

    #[test]
    fn frames_against_the_direction_of_a_stream_are_violations() {
        const STREAM_STATE_ERROR: Option<u64> = Some(0x05);
        // Streams of the client in both directions, of litequic, of the client one way, of litequic one way; the last
        // ID has two bytes.
        let ids: [&[u8]; 5] = [&[0], &[1], &[14], &[3], &[0x40, 0x43]];
        for (what, kind, behind, forbidden) in [
            ("STREAM", 0x08, &[][..], [false, false, false, true, true]),
            ("STREAM with FIN", 0x0b, &[0], [false, false, false, true, true]),
            ("RESET_STREAM", 0x04, &[0, 0], [false, false, false, true, true]),
            ("STREAM_DATA_BLOCKED", 0x15, &[0], [false, false, false, true, true]),
            ("STOP_SENDING", 0x05, &[0], [false, false, true, false, false]),
            ("MAX_STREAM_DATA", 0x11, &[0], [false, false, true, false, false]),
        ] {
            for (id, is_forbidden) in ids.iter().zip(forbidden) {
                let frame = [&[kind], *id, behind].concat();
                assert_eq!(code(&frame), STREAM_STATE_ERROR.filter(|_| is_forbidden), "{what} of {id:?}");
            }
        }
    }

    #[test]
    fn forbidden_frames_close_with_their_error_code() {
        let blocked = |kind, [high, low]: [u8; 2]| [&[kind, 0xd0 | high, 0, 0, 0, 0, 0, 0][..], &[low]].concat();
        for (what, frame, expected) in [
            ("a KeyUpdate", vec![0x06, 0, 5, 24, 0, 0, 1, 0], Some(0x10a)),
            ("CRYPTO without data", vec![0x06, 9, 0], None),
            ("2^60 streams", blocked(0x12, [0, 0]), None),
            ("2^60 + 1 streams", blocked(0x12, [0, 1]), Some(0x07)),
            ("2^60 + 1 streams one way", blocked(0x13, [0, 1]), Some(0x07)),
            ("2^61 streams wanted", blocked(0x16, [0x20, 0]), Some(0x07)),
            ("2^60 streams wanted", blocked(0x17, [0, 0]), None),
            ("a connection ID", new_connection_id(1, 0, 8), None),
            ("the longest connection ID", new_connection_id(1, 1, 20), None),
            ("no connection ID", new_connection_id(1, 0, 0), Some(0x07)),
            ("a connection ID that is too long", new_connection_id(1, 0, 21), Some(0x07)),
            ("a connection ID that retires itself", new_connection_id(1, 2, 8), Some(0x07)),
            ("DATAGRAM", vec![0x31, 1, 1], Some(0x0a)),
            ("DATAGRAM without a length", vec![0x30, 1], Some(0x0a)),
            ("IMMEDIATE_ACK", vec![0x1f], Some(0x07)),
            ("ACK_FREQUENCY", vec![0x40, 0xaf, 0, 9, 9, 1], Some(0x07)),
            ("PING", vec![0x01], None),
            ("MAX_DATA", vec![0x10, 9], None),
        ] {
            assert_eq!(code(&frame), expected, "{what}");
        }
    }
}
