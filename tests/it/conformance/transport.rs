//! Packets, frames and streams: RFC 9000.

use super::{
    attempt,
    row::{
        Answer::{self, Served, Stream, Transport},
        Row,
    },
};
use crate::support::{
    raw::varint,
    wire::{Level, Sent, crypto, stream},
};

// RFC 9000 §20.1
const FLOW_CONTROL_ERROR: Answer = Transport(0x03);
const STREAM_LIMIT_ERROR: Answer = Transport(0x04);
const STREAM_STATE_ERROR: Answer = Transport(0x05);
const FINAL_SIZE_ERROR: Answer = Transport(0x06);
const FRAME_ENCODING_ERROR: Answer = Transport(0x07);
const CONNECTION_ID_LIMIT_ERROR: Answer = Transport(0x09);
const PROTOCOL_VIOLATION: Answer = Transport(0x0a);
const CRYPTO_BUFFER_EXCEEDED: Answer = Transport(0x0d);

/// Why another code stands for one of its own.
const GENERIC: &str = "s2n-quic's code for whatever it cannot decode; RFC 9000 §11 lets it stand for any other";

/// The largest integer (§16).
const MAX: u64 = (1 << 62) - 1;
/// litequic's control stream, the only one that it opens.
const CONTROL: u64 = 3;
/// Streams that litequic has not opened.
const UNOPENED: u64 = 4 * 9 + 3;
const UNOPENED_BIDIRECTIONAL: u64 = 1;
/// A stream of the client, one way.
const RECEIVE_ONLY: u64 = 14;

/// A frame of integers.
fn frame(kind: u64, integers: &[u64]) -> Vec<u8> {
    let integers = integers.iter().flat_map(|integer| varint(*integer));
    varint(kind).into_iter().chain(integers).collect()
}

fn new_connection_id(sequence: u64, retire_prior_to: u64, id: &[u8], token: u8) -> Vec<u8> {
    let length = u8::try_from(id.len()).unwrap();
    [frame(0x18, &[sequence, retire_prior_to]), vec![length], id.to_vec(), vec![token; 16]].concat()
}

/// Every frame that belongs into 1-RTT packets alone (§12.4).
fn one_rtt_alone() -> Vec<(&'static str, Vec<u8>)> {
    vec![
        ("RESET_STREAM", frame(0x04, &[0, 0, 0])),
        ("STOP_SENDING", frame(0x05, &[0, 0])),
        ("NEW_TOKEN", frame(0x07, &[1, 1])),
        ("STREAM", stream(0, 0, b"x", false)),
        ("MAX_DATA", frame(0x10, &[1])),
        ("MAX_STREAM_DATA", frame(0x11, &[0, 1])),
        ("MAX_STREAMS", frame(0x12, &[1])),
        ("DATA_BLOCKED", frame(0x14, &[1])),
        ("STREAM_DATA_BLOCKED", frame(0x15, &[0, 1])),
        ("STREAMS_BLOCKED", frame(0x16, &[1])),
        ("NEW_CONNECTION_ID", new_connection_id(1, 0, &[1; 8], 1)),
        ("RETIRE_CONNECTION_ID", frame(0x19, &[0])),
        ("PATH_CHALLENGE", [vec![0x1a], vec![1; 8]].concat()),
        ("PATH_RESPONSE", [vec![0x1b], vec![1; 8]].concat()),
        ("CONNECTION_CLOSE of the application", frame(0x1d, &[0, 0])),
        ("HANDSHAKE_DONE", frame(0x1e, &[])),
    ]
}

pub(super) fn packets() -> Vec<Row> {
    let flipped = |level, flip| Sent { flip, ..Sent::new(level, [0x01]) };
    let mut rows = vec![
        Row::frames("9000 §12.4", "a 1-RTT packet without frames", [], PROTOCOL_VIOLATION),
        Row::halfway(
            "9000 §12.4",
            "a Handshake packet without frames",
            Sent::new(Level::Handshake, []),
            PROTOCOL_VIOLATION,
        ),
        Row::packets(
            "9000 §17.3.1",
            "reserved bits of a 1-RTT packet",
            vec![flipped(Level::OneRtt, 0x08)],
            PROTOCOL_VIOLATION,
        ),
        Row::halfway(
            "9000 §17.2",
            "reserved bits of a Handshake packet",
            flipped(Level::Handshake, 0x04),
            PROTOCOL_VIOLATION,
        ),
        Row::halfway(
            "9000 §17.2",
            "reserved bits of an Initial packet",
            flipped(Level::Initial, 0x04),
            PROTOCOL_VIOLATION,
        )
        .instead(
            Served,
            "s2n-quic looks at these bits of Handshake and 1-RTT packets alone; everyone can make Initial packets",
        ),
        Row::packets(
            "9000 §17.3.1",
            "a 1-RTT packet without the fixed bit, to be dropped",
            vec![Sent { flip: 0x40, ..Sent::new(Level::OneRtt, [0x1e]) }],
            Served,
        ),
    ];
    for level in [Level::Initial, Level::Handshake] {
        for (what, frame) in one_rtt_alone() {
            rows.push(Row::halfway(
                "9000 §12.4",
                format!("{what} in an {level:?} packet"),
                Sent::new(level, frame),
                PROTOCOL_VIOLATION,
            ));
        }
    }
    rows
}

pub(super) fn encoding() -> Vec<Row> {
    let mut rows = vec![
        Row::frames("9000 §12.4", "an unknown frame type", frame(0x21, &[]), FRAME_ENCODING_ERROR),
        Row::frames("9000 §12.4", "an unknown frame type of eight bytes", frame(MAX, &[]), FRAME_ENCODING_ERROR),
        Row::frames(
            "9000 §12.4",
            "a frame type that is not as short as it can be, by choice an error",
            [0x40, 0x01],
            FRAME_ENCODING_ERROR,
        ),
        Row::frames("9000 §12.4", "IMMEDIATE_ACK, which was not negotiated", frame(0x1f, &[]), FRAME_ENCODING_ERROR),
        Row::frames(
            "9000 §12.4",
            "ACK_FREQUENCY, which was not negotiated",
            frame(0xaf, &[0, 9, 999, 1]),
            FRAME_ENCODING_ERROR,
        ),
        Row::frames(
            "9000 §12.4",
            "s2n-quic's MTU_PROBING_COMPLETE",
            [frame(0xdc_0002, &[]), vec![5, 0]].concat(),
            FRAME_ENCODING_ERROR,
        ),
        Row::frames(
            "9000 §12.4",
            "s2n-quic's DC_STATELESS_RESET_TOKENS",
            [frame(0xdc_0000, &[1]), vec![1; 16]].concat(),
            FRAME_ENCODING_ERROR,
        ),
        Row::frames("9221 §3", "DATAGRAM, which was not negotiated", [0x31, 1, 1], PROTOCOL_VIOLATION),
        Row::frames("9221 §3", "DATAGRAM without a length", [0x30, 1, 1], PROTOCOL_VIOLATION),
        Row::frames(
            "9000 §19.3.1",
            "an ACK whose first range begins below 0",
            frame(0x02, &[0, 0, 0, 1]),
            FRAME_ENCODING_ERROR,
        )
        .instead(PROTOCOL_VIOLATION, GENERIC),
        Row::frames(
            "9000 §19.3.1",
            "an ACK whose gap reaches below 0",
            frame(0x02, &[1, 0, 1, 0, 0, 0]),
            FRAME_ENCODING_ERROR,
        )
        .instead(PROTOCOL_VIOLATION, GENERIC),
        Row::halfway(
            "9000 §19.6",
            "CRYPTO beyond the largest offset",
            Sent::new(Level::Handshake, crypto(MAX, b"x")),
            CRYPTO_BUFFER_EXCEEDED,
        ),
        Row::frames("9000 §19.8", "STREAM beyond the largest offset", stream(0, MAX, b"x", false), FLOW_CONTROL_ERROR),
        Row::frames("9000 §19.11", "MAX_STREAMS above 2^60", frame(0x12, &[(1 << 60) + 1]), FRAME_ENCODING_ERROR),
        Row::frames(
            "9000 §19.11",
            "MAX_STREAMS above 2^60, one way",
            frame(0x13, &[(1 << 60) + 1]),
            FRAME_ENCODING_ERROR,
        ),
        Row::frames("9000 §19.14", "STREAMS_BLOCKED above 2^60", frame(0x16, &[(1 << 60) + 1]), FRAME_ENCODING_ERROR),
        Row::frames(
            "9000 §19.14",
            "STREAMS_BLOCKED above 2^60, one way",
            frame(0x17, &[(1 << 60) + 1]),
            FRAME_ENCODING_ERROR,
        ),
        Row::frames(
            "9000 §19.15",
            "NEW_CONNECTION_ID of no bytes",
            new_connection_id(1, 0, &[], 1),
            FRAME_ENCODING_ERROR,
        ),
        Row::frames(
            "9000 §19.15",
            "NEW_CONNECTION_ID of 21 bytes",
            new_connection_id(1, 0, &[1; 21], 1),
            FRAME_ENCODING_ERROR,
        ),
        Row::frames(
            "9000 §19.15",
            "NEW_CONNECTION_ID that retires itself",
            new_connection_id(1, 2, &[1; 8], 1),
            FRAME_ENCODING_ERROR,
        ),
    ];
    let cut = [
        ("ACK", frame(0x02, &[9, 0, 0])),
        ("ACK with more ranges than there are", frame(0x02, &[9, 0, 3, 0, 0, 0])),
        ("CRYPTO", frame(0x06, &[0, 9])),
        ("CONNECTION_CLOSE", frame(0x1c, &[0, 0, 9])),
    ];
    let whole = one_rtt_alone().into_iter().filter(|(_, frame)| frame.len() > 1);
    let whole = whole.map(|(what, frame)| (what, frame[..frame.len() - 1].to_vec()));
    for (what, frame) in whole.chain(cut) {
        rows.push(Row::frames("9000 §12.4", format!("{what}, cut short"), frame, FRAME_ENCODING_ERROR));
    }
    rows
}

pub(super) fn frames() -> Vec<Row> {
    let id = |sequence, id: u8, token| new_connection_id(sequence, 0, &[id; 8], token);
    vec![
        Row::frames("9000 §19.7", "NEW_TOKEN from a client", frame(0x07, &[1, 1]), PROTOCOL_VIOLATION),
        Row::frames("9000 §19.20", "HANDSHAKE_DONE from a client", frame(0x1e, &[]), PROTOCOL_VIOLATION),
        Row::frames(
            "9000 §13.1",
            "an ACK of a packet that was not sent",
            frame(0x02, &[10_000, 0, 0, 0]),
            PROTOCOL_VIOLATION,
        ),
        Row::frames(
            "9000 §19.15",
            "one sequence number for two connection IDs",
            [id(1, 1, 1), id(1, 2, 1)].concat(),
            PROTOCOL_VIOLATION,
        ),
        Row::frames(
            "9000 §19.15",
            "one connection ID with two sequence numbers",
            [id(1, 1, 1), id(2, 1, 1)].concat(),
            PROTOCOL_VIOLATION,
        ),
        Row::frames(
            "9000 §19.15",
            "one connection ID with two reset tokens",
            [id(1, 1, 1), id(1, 1, 2)].concat(),
            PROTOCOL_VIOLATION,
        ),
        Row::frames(
            "9000 §19.15",
            "the same NEW_CONNECTION_ID twice, which is no error",
            id(1, 1, 1).repeat(2),
            Served,
        ),
        Row::hello(
            "9000 §19.15",
            "NEW_CONNECTION_ID from a client that has a connection ID of no bytes",
            |hello| {
                hello.id = Vec::new();
                hello.set(0x0f, Vec::new());
            },
            PROTOCOL_VIOLATION,
        )
        .then(id(1, 1, 1)),
        Row::halfway(
            "9000 §13.1",
            "an ACK of a Handshake packet that was not sent",
            Sent::new(Level::Handshake, frame(0x02, &[10_000, 0, 0, 0])),
            PROTOCOL_VIOLATION,
        ),
        Row::halfway(
            "9000 §13.1",
            "an ACK of an Initial packet that was not sent",
            Sent::new(Level::Initial, frame(0x02, &[10_000, 0, 0, 0])),
            PROTOCOL_VIOLATION,
        ),
        Row::frames(
            "9000 §5.1.1",
            "more connection IDs than active_connection_id_limit",
            (1..9).flat_map(|n| id(n.into(), n, n)).collect::<Vec<_>>(),
            CONNECTION_ID_LIMIT_ERROR,
        ),
        Row::frames(
            "9000 §19.16",
            "RETIRE_CONNECTION_ID of one that was never issued",
            frame(0x19, &[60]),
            PROTOCOL_VIOLATION,
        ),
        Row::frames(
            "9000 §19.16",
            "RETIRE_CONNECTION_ID of the one in use, by choice an error",
            frame(0x19, &[0]),
            PROTOCOL_VIOLATION,
        ),
        Row::frames(
            "9000 §19.18",
            "a PATH_RESPONSE that answers nothing, which may be no error",
            [vec![0x1b], vec![1; 8]].concat(),
            Served,
        ),
        Row::halfway(
            "9000 §7.5",
            "CRYPTO far ahead in a Handshake packet",
            Sent::new(Level::Handshake, crypto(1 << 20, b"x")),
            CRYPTO_BUFFER_EXCEEDED,
        ),
    ]
}

/// Frames `of` streams that are not open, and may not be.
fn unopened(rule: &'static str, what: &str, of: impl Fn(u64) -> Vec<u8>) -> [Row; 3] {
    [
        ("on a send-only stream that is not open", rule, UNOPENED, STREAM_STATE_ERROR),
        ("on a stream of litequic's that is not open", rule, UNOPENED_BIDIRECTIONAL, STREAM_STATE_ERROR),
        ("beyond the limit of streams", "9000 §4.6", 4 * 100_000, STREAM_LIMIT_ERROR),
    ]
    .map(|(place, rule, id, expected)| Row::frames(rule, format!("{what} {place}"), of(id), expected))
}

pub(super) fn streams() -> Vec<Row> {
    let mut rows = Vec::new();
    let data = |id| stream(id, 0, b"x", false);
    for (rule, what, of) in [
        ("9000 §19.8", "STREAM", Box::new(data) as Box<dyn Fn(u64) -> Vec<u8>>),
        ("9000 §19.4", "RESET_STREAM", Box::new(|id| frame(0x04, &[id, 0, 0]))),
        ("9000 §19.13", "STREAM_DATA_BLOCKED", Box::new(|id| frame(0x15, &[id, 0]))),
    ] {
        rows.push(Row::frames(rule, format!("{what} on a send-only stream"), of(CONTROL), STREAM_STATE_ERROR));
        rows.extend(unopened(rule, what, &of));
        let one_way = format!("{what} beyond the limit of streams one way");
        rows.push(Row::frames("9000 §4.6", one_way, of(4 * 100_000 + 2), STREAM_LIMIT_ERROR));
    }
    for (rule, what, kind) in [("9000 §19.5", "STOP_SENDING", 0x05), ("9000 §19.10", "MAX_STREAM_DATA", 0x11)] {
        let of = |id| frame(kind, &[id, 0]);
        let ended = [stream(RECEIVE_ONLY, 0, &[0x21, 0], true), of(RECEIVE_ONLY)].concat();
        rows.push(Row::frames(rule, format!("{what} on a receive-only stream"), of(RECEIVE_ONLY), STREAM_STATE_ERROR));
        let has_ended = format!("{what} on a receive-only stream that has ended");
        rows.push(Row::frames(rule, has_ended, ended, STREAM_STATE_ERROR));
        rows.extend(unopened(rule, what, of));
    }
    let ends_at_11 = stream(0, 10, b"x", true);
    let sizes = [
        ("data beyond the final size", stream(0, 20, b"y", false)),
        ("a larger final size", stream(0, 20, b"y", true)),
        ("a smaller final size", stream(0, 5, b"y", true)),
        ("a reset with a larger final size", frame(0x04, &[0, 0, 12])),
        ("a reset with a smaller final size", frame(0x04, &[0, 0, 10])),
    ];
    for (what, second) in sizes {
        rows.push(Row::frames("9000 §4.5", what, [&ends_at_11[..], &second].concat(), FINAL_SIZE_ERROR));
    }
    let received = stream(0, 10, b"x", false);
    rows.extend([
        Row::frames("9000 §4.5", "a final size below what was received", [&received[..], &stream(0, 5, b"", true)].concat(), FINAL_SIZE_ERROR),
        Row::frames("9000 §4.5", "a reset below what was received", [&received[..], &frame(0x04, &[0, 0, 5])].concat(), FINAL_SIZE_ERROR)
            .instead(Stream(0x10c), "s2n-quic compares the final size of RESET_STREAM with an earlier one alone; the stream is over all the same"),
        Row::frames("9000 §4.1", "data beyond a stream's window", stream(0, 1 << 40, b"x", false), FLOW_CONTROL_ERROR),
        Row::frames("9000 §4.1", "data beyond a stream's window, one way", stream(2, 1 << 40, b"x", false), FLOW_CONTROL_ERROR),
        Row::frames("9000 §4.5", "a reset beyond a stream's window", frame(0x04, &[0, 0, 1 << 40]), FLOW_CONTROL_ERROR),
    ]);
    rows
}

#[tokio::test]
async fn packets_that_break_the_rules_are_answered_as_the_table_says() {
    attempt::all(packets()).await;
}

#[tokio::test]
async fn frames_that_are_badly_encoded_are_answered_as_the_table_says() {
    attempt::all(encoding()).await;
}

#[tokio::test]
async fn frames_that_break_the_rules_are_answered_as_the_table_says() {
    attempt::all(frames()).await;
}

#[tokio::test]
async fn invalid_stream_frames_get_the_tables_errors() {
    attempt::all(streams()).await;
}
