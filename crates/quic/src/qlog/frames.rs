//! Describes the frames of a decrypted packet in qlog's form (draft-ietf-quic-qlog-quic-events, §8.13): every frame,
//! and nothing secret. Payload, CRYPTO data, tokens and stateless reset tokens are left out; their lengths are written.
//! Pure.

use crate::wire::frame::{AckRanges, FrameIter, NumberRange, WireFrame, kind};
use s2n_quic_core::{transport::error::Code, varint::VarInt};
use serde_json::{Value as Json, json};
use std::time::Duration;

/// The frames of `payload`, with delays of ACK frames in the unit of `exponent` (RFC 9000 §18.2), and the ACK_FREQUENCY
/// frame, if any.
pub(super) fn frames_json(payload: &[u8], exponent: u8) -> (Vec<Json>, Option<Json>) {
    let (mut iter, mut at, mut ack_frequency) = (FrameIter::new(payload), 0, None);
    let mut frames = Vec::new();
    let padding = |length: usize| (length > 0).then(|| json!({ "frame_type": "padding", "raw": { "length": length } }));
    for frame in iter.by_ref() {
        frames.extend(padding(frame.range.start.saturating_sub(at)));
        at = frame.range.end;
        let known = known_frame_json(&frame, exponent);
        frames.push(known.unwrap_or_else(|| unknown_frame_json(frame.kind, frame.range.len())));
        if frame.kind == kind::ACK_FREQUENCY {
            ack_frequency = ack_frequency_json(&frame);
        }
    }
    let rest = payload.len().saturating_sub(at);
    if iter.is_fully_parsed() {
        frames.extend(padding(rest));
    } else {
        // The rest is a frame that cannot be read, with all bytes behind.
        let kind = payload.get(at..).and_then(|rest| rest.iter().find(|byte| **byte != 0));
        frames.push(unknown_frame_json(kind.copied().unwrap_or_default().into(), rest));
    }
    (frames, ack_frequency)
}

/// Values of an ACK_FREQUENCY frame (draft-ietf-quic-ack-frequency-12 §4), for which qlog has no form.
fn ack_frequency_json(frame: &WireFrame<'_>) -> Option<Json> {
    let [sequence_number, threshold, delay, reordering_threshold] = frame.leading_integers()?;
    Some(json!({
        "sequence_number": sequence_number, "ack_eliciting_threshold": threshold,
        "requested_max_ack_delay": milliseconds(Duration::from_micros(delay)),
        "reordering_threshold": reordering_threshold,
    }))
}

fn unknown_frame_json(kind: u64, length: usize) -> Json {
    json!({ "frame_type": "unknown", "frame_type_bytes": kind, "raw": { "length": length } })
}

/// A frame for which qlog has a form; `None` for others.
fn known_frame_json(frame: &WireFrame<'_>, exponent: u8) -> Option<Json> {
    let first = || frame.leading_integers().map(|[first]| first);
    let two = || frame.leading_integers::<2>();
    let kind_of = |bidirectional: u64| if frame.kind == bidirectional { "bidirectional" } else { "unidirectional" };
    let length = frame.range.len();
    Some(match frame.kind {
        0x01 => json!({ "frame_type": "ping" }),
        kind::ACK | kind::ACK_ECN => return ack_json(frame, exponent),
        kind::RESET_STREAM => {
            let [stream, code, size] = frame.leading_integers()?;
            json!({
                "frame_type": "reset_stream", "stream_id": stream, "error": "unknown", "error_code": code,
                "final_size": size,
            })
        }
        kind::STOP_SENDING => {
            let [stream, code] = two()?;
            json!({ "frame_type": "stop_sending", "stream_id": stream, "error": "unknown", "error_code": code })
        }
        kind::CRYPTO => {
            let [offset, bytes] = two()?;
            let raw = json!({ "length": length, "payload_length": bytes });
            json!({ "frame_type": "crypto", "offset": offset, "raw": raw })
        }
        0x07 => {
            let token = json!({ "type": "resumption", "raw": { "length": first()? } });
            json!({ "frame_type": "new_token", "token": token })
        }
        kind::STREAM..=kind::STREAM_LAST => {
            let (offset, bytes) = (frame.stream_offset()?, frame.stream_len()?);
            json!({
                "frame_type": "stream", "stream_id": first()?, "offset": offset, "fin": frame.kind & 0x01 != 0,
                "raw": { "length": length, "payload_length": bytes },
            })
        }
        0x10 => json!({ "frame_type": "max_data", "maximum": first()? }),
        kind::MAX_STREAM_DATA => {
            let [stream, maximum] = two()?;
            json!({ "frame_type": "max_stream_data", "stream_id": stream, "maximum": maximum })
        }
        kind::MAX_STREAMS | kind::MAX_STREAMS_UNI => {
            let stream_type = kind_of(kind::MAX_STREAMS);
            json!({ "frame_type": "max_streams", "stream_type": stream_type, "maximum": first()? })
        }
        kind::DATA_BLOCKED => json!({ "frame_type": "data_blocked", "limit": first()? }),
        kind::STREAM_DATA_BLOCKED => {
            let [stream, limit] = two()?;
            json!({ "frame_type": "stream_data_blocked", "stream_id": stream, "limit": limit })
        }
        kind::STREAMS_BLOCKED | kind::STREAMS_BLOCKED_UNI => {
            let stream_type = kind_of(kind::STREAMS_BLOCKED);
            json!({ "frame_type": "streams_blocked", "stream_type": stream_type, "limit": first()? })
        }
        // Without the stateless reset token, by which a reader could end the connection.
        kind::NEW_CONNECTION_ID => {
            let [sequence_number, retire_prior_to] = two()?;
            let id = frame.body.get(frame.integers_len(2)? + 1..frame.body.len().checked_sub(16)?)?;
            json!({
                "frame_type": "new_connection_id", "sequence_number": sequence_number,
                "retire_prior_to": retire_prior_to, "connection_id_length": id.len(), "connection_id": hex_text(id),
            })
        }
        0x19 => json!({ "frame_type": "retire_connection_id", "sequence_number": first()? }),
        kind::PATH_CHALLENGE => json!({ "frame_type": "path_challenge" }),
        kind::PATH_RESPONSE => json!({ "frame_type": "path_response" }),
        kind::CONNECTION_CLOSE | kind::APPLICATION_CLOSE => return connection_close_json(frame),
        kind::HANDSHAKE_DONE => json!({ "frame_type": "handshake_done" }),
        kind::DATAGRAM | kind::DATAGRAM_WITH_LENGTH => {
            json!({ "frame_type": "datagram", "raw": { "length": length } })
        }
        _ => return None,
    })
}

fn ack_json(frame: &WireFrame<'_>, exponent: u8) -> Option<Json> {
    let [_, delay, _] = frame.leading_integers()?;
    // A range below 0 ends the list: s2n-quic closes the connection for it.
    let ranges = AckRanges::new(frame.body)?.map_while(Result::ok);
    let range =
        |range: NumberRange| if range.count() == 1 { json!([range.low]) } else { json!([range.low, range.high]) };
    let mut ack = json!({ "frame_type": "ack", "acked_ranges": ranges.map(range).collect::<Vec<_>>() });
    let delay = delay.checked_shl(exponent.into()).filter(|micros| micros >> exponent.min(63) == delay);
    if let Some(delay) = delay {
        set_member(&mut ack, "ack_delay", milliseconds(Duration::from_micros(delay)));
    }
    if frame.kind == kind::ACK_ECN
        && let Some([ect0, ect1, ce]) = frame.ecn_counts()
    {
        for (name, count) in [("ect0", ect0), ("ect1", ect1), ("ce", ce)] {
            set_member(&mut ack, name, count);
        }
    }
    Some(ack)
}

fn connection_close_json(frame: &WireFrame<'_>) -> Option<Json> {
    let is_transport = frame.kind == kind::CONNECTION_CLOSE;
    let [code] = frame.leading_integers()?;
    let reason = frame.body.get(frame.integers_len(if is_transport { 3 } else { 2 })?..)?;
    let mut close = json!({
        "frame_type": "connection_close", "error_space": if is_transport { "transport" } else { "application" },
        "reason": String::from_utf8_lossy(reason),
    });
    set_error_code(&mut close, "error", code, is_transport);
    if let (true, Some([_, cause])) = (is_transport, frame.leading_integers()) {
        set_member(&mut close, "trigger_frame_type", cause);
    }
    Some(close)
}

/// Adds a member to an object.
pub(super) fn set_member(object: &mut Json, name: &str, value: impl Into<Json>) {
    if let Some(members) = object.as_object_mut() {
        members.insert(name.into(), value.into());
    }
}

/// Bytes in hexadecimal.
pub(super) fn hex_text(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A time in milliseconds, with three decimals.
pub(super) fn milliseconds(time: Duration) -> Json {
    (time.as_micros() as f64 / 1e3).into()
}

/// Sets `member` to the name of an error code, or adds the code if unnamed.
pub(super) fn set_error_code(object: &mut Json, member: &str, code: u64, is_transport: bool) {
    if is_transport && (0x100..0x200).contains(&code) {
        set_member(object, member, format!("crypto_error_{code:#x}"));
        return;
    }
    // RFC 9000 §20.1; s2n-quic has no name for the last one.
    let name = match code {
        0x10 => Some("NO_VIABLE_PATH"),
        _ => VarInt::new(code).ok().and_then(|code| Code::new(code).description()),
    };
    match name.filter(|_| is_transport) {
        Some(name) => set_member(object, member, name.to_ascii_lowercase()),
        None => {
            set_member(object, member, "unknown");
            set_member(object, "error_code", code);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn written(payload: &[u8]) -> Json {
        frames_json(payload, 3).0.into()
    }

    /// Bytes of a token, and of a reset token.
    const SECRET: [u8; 16] = *b"never to be seen";

    #[test]
    fn each_frame_has_its_form_and_its_lengths_and_no_secret() {
        let new_connection_id = [&[0x18, 5, 2, 4, 0xaa, 0xbb, 0xcc, 0xdd][..], &SECRET].concat();
        let new_token = [&[0x07, 16][..], &SECRET].concat();
        let crypto = [&[0x06, 0x40, 0x80, 16][..], &SECRET].concat();
        let unknown = |kind: u64, length| json!({ "frame_type": "unknown", "frame_type_bytes": kind, "raw": { "length": length } });
        for (payload, expected) in [
            (&[0, 0, 0][..], json!([{ "frame_type": "padding", "raw": { "length": 3 } }])),
            (&[1, 0], json!([{ "frame_type": "ping" }, { "frame_type": "padding", "raw": { "length": 1 } }])),
            (
                &[0x02, 9, 10, 1, 2, 0, 0],
                json!([{ "frame_type": "ack", "ack_delay": 0.08, "acked_ranges": [[7, 9], [5]] }]),
            ),
            (
                &[0x03, 9, 0, 0, 2, 1, 2, 3],
                json!([{ "frame_type": "ack", "ack_delay": 0.0, "acked_ranges": [[7, 9]], "ect0": 1, "ect1": 2, "ce": 3 }]),
            ),
            (
                &[0x04, 4, 0x41, 0x0c, 9],
                json!([{ "frame_type": "reset_stream", "stream_id": 4, "error": "unknown", "error_code": 0x10c, "final_size": 9 }]),
            ),
            (
                &[0x05, 4, 1],
                json!([{ "frame_type": "stop_sending", "stream_id": 4, "error": "unknown", "error_code": 1 }]),
            ),
            (
                &crypto,
                json!([{ "frame_type": "crypto", "offset": 128, "raw": { "length": 20, "payload_length": 16 } }]),
            ),
            (
                &new_token,
                json!([{ "frame_type": "new_token", "token": { "type": "resumption", "raw": { "length": 16 } } }]),
            ),
            (
                &[0x0b, 4, 3, 1, 2, 3],
                json!([{ "frame_type": "stream", "stream_id": 4, "offset": 0, "fin": true, "raw": { "length": 6, "payload_length": 3 } }]),
            ),
            (
                &[0x0c, 4, 7, 1, 2, 3],
                json!([{ "frame_type": "stream", "stream_id": 4, "offset": 7, "fin": false, "raw": { "length": 6, "payload_length": 3 } }]),
            ),
            (&[0x10, 9], json!([{ "frame_type": "max_data", "maximum": 9 }])),
            (&[0x11, 4, 9], json!([{ "frame_type": "max_stream_data", "stream_id": 4, "maximum": 9 }])),
            (&[0x12, 9], json!([{ "frame_type": "max_streams", "stream_type": "bidirectional", "maximum": 9 }])),
            (&[0x13, 9], json!([{ "frame_type": "max_streams", "stream_type": "unidirectional", "maximum": 9 }])),
            (&[0x14, 9], json!([{ "frame_type": "data_blocked", "limit": 9 }])),
            (&[0x15, 4, 9], json!([{ "frame_type": "stream_data_blocked", "stream_id": 4, "limit": 9 }])),
            (&[0x16, 9], json!([{ "frame_type": "streams_blocked", "stream_type": "bidirectional", "limit": 9 }])),
            (&[0x17, 9], json!([{ "frame_type": "streams_blocked", "stream_type": "unidirectional", "limit": 9 }])),
            (
                &new_connection_id,
                json!([{ "frame_type": "new_connection_id", "sequence_number": 5, "retire_prior_to": 2, "connection_id_length": 4, "connection_id": "aabbccdd" }]),
            ),
            (&[0x19, 9], json!([{ "frame_type": "retire_connection_id", "sequence_number": 9 }])),
            (&[0x1a, 1, 2, 3, 4, 5, 6, 7, 8], json!([{ "frame_type": "path_challenge" }])),
            (&[0x1b, 1, 2, 3, 4, 5, 6, 7, 8], json!([{ "frame_type": "path_response" }])),
            (
                &[0x1c, 10, 6, 2, b'n', b'o'],
                json!([{ "frame_type": "connection_close", "error_space": "transport", "error": "protocol_violation", "trigger_frame_type": 6, "reason": "no" }]),
            ),
            (
                &[0x1c, 0x41, 0x28, 0, 0],
                json!([{ "frame_type": "connection_close", "error_space": "transport", "error": "crypto_error_0x128", "trigger_frame_type": 0, "reason": "" }]),
            ),
            (
                &[0x1d, 0x41, 0x00, 1, 0xff],
                json!([{ "frame_type": "connection_close", "error_space": "application", "error": "unknown", "error_code": 256, "reason": "\u{fffd}" }]),
            ),
            (&[0x1e], json!([{ "frame_type": "handshake_done" }])),
            (&[0x31, 2, 1, 2], json!([{ "frame_type": "datagram", "raw": { "length": 4 } }])),
            (&[0x40, 0xaf, 1, 9, 0x40, 0x7f, 3], json!([unknown(0xaf, 7)])),
            (&[0x1f], json!([unknown(0x1f, 1)])),
            (&[0x01, 0x20, 1, 2], json!([{ "frame_type": "ping" }, unknown(0x20, 3)])),
            (&[0x06, 0, 9, 1], json!([unknown(0x06, 4)])),
        ] {
            assert_eq!(written(payload), expected, "{payload:02x?}");
            let text = written(payload).to_string();
            assert!(!text.contains("never") && !text.contains("6e65766572"), "{text}");
        }
        let (_, ack_frequency) = frames_json(&[0x40, 0xaf, 1, 9, 0x43, 0xe8, 3], 3);
        let expected = json!({
            "sequence_number": 1, "ack_eliciting_threshold": 9, "requested_max_ack_delay": 1.0,
            "reordering_threshold": 3,
        });
        assert_eq!(ack_frequency, Some(expected));
    }

    proptest! {
        #[test]
        fn any_bytes_are_written_as_json_with_the_lengths_of_all(payload in prop::collection::vec(any::<u8>(), 0..80)) {
            prop_assert!(written(&payload).is_array());
        }
    }
}
