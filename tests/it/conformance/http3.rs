//! Streams and frames of HTTP/3: RFC 9114.

use super::{
    attempt,
    row::{
        Answer::{self, Http3, Served, Stream},
        Row,
    },
};
use crate::support::{
    raw::{
        CANCEL_PUSH, GOAWAY, MAX_PUSH_ID, PRIORITY_UPDATE, PUSH_PRIORITY_UPDATE, PUSH_PROMISE, RESERVED, SETTINGS,
        data, frame, get, headers, pseudo, replaced, varint, with,
    },
    wire::{Level, Sent, stream},
};

// RFC 9114 §8.1
const STREAM_CREATION_ERROR: Answer = Http3(0x103);
const CLOSED_CRITICAL_STREAM: Answer = Http3(0x104);
const FRAME_UNEXPECTED: Answer = Http3(0x105);
const FRAME_ERROR: Answer = Http3(0x106);
const ID_ERROR: Answer = Http3(0x108);
const SETTINGS_ERROR: Answer = Http3(0x109);
const MISSING_SETTINGS: Answer = Http3(0x10a);
const REQUEST_INCOMPLETE: Answer = Stream(0x10d);
const MESSAGE_ERROR: Answer = Stream(0x10e);

/// The client's first streams of its own, one way.
const UNI: u64 = 2;
const SECOND_UNI: u64 = 6;
/// litequic's control stream.
const SERVER_CONTROL: u64 = 3;
/// Types of streams (§6.2, RFC 9204 §4.2).
const CONTROL: u8 = 0x00;
const PUSH: u8 = 0x01;
const QPACK_ENCODER: u8 = 0x02;
const QPACK_DECODER: u8 = 0x03;

/// A control stream that begins with SETTINGS, and `more`.
fn control(more: &[u8]) -> Vec<u8> {
    stream(UNI, 0, &[&[CONTROL], &frame(SETTINGS, [])[..], more].concat(), false)
}

/// One that begins with `content`.
fn bare(content: &[u8]) -> Vec<u8> {
    stream(UNI, 0, &[&[CONTROL], content].concat(), false)
}

fn settings(pairs: &[(u64, u64)]) -> Vec<u8> {
    let payload: Vec<u8> = pairs.iter().flat_map(|(id, value)| [varint(*id), varint(*value)].concat()).collect();
    bare(&frame(SETTINGS, payload))
}

fn reset(id: u64, size: u64) -> Vec<u8> {
    [vec![0x04], varint(id), varint(0x100), varint(size)].concat()
}

pub(super) fn control_stream() -> Vec<Row> {
    let number = |kind, value| frame(kind, varint(value));
    let row = |rule, what: &str, more: &[u8], expected| Row::frames(rule, what, control(more), expected);
    let mut rows = vec![
        Row::frames("9114 §6.2.1", "GOAWAY before SETTINGS", bare(&number(GOAWAY, 0)), MISSING_SETTINGS),
        Row::frames("9114 §6.2.1", "MAX_PUSH_ID before SETTINGS", bare(&number(MAX_PUSH_ID, 0)), MISSING_SETTINGS),
        Row::frames("9114 §6.2.1", "a reserved frame before SETTINGS", bare(&frame(RESERVED, [])), MISSING_SETTINGS),
        Row::frames("9114 §6.2.1", "DATA before SETTINGS", bare(&data("")), MISSING_SETTINGS),
        row("9114 §7.2.4", "SETTINGS twice", &frame(SETTINGS, []), FRAME_UNEXPECTED),
        row("9114 §7.2.1", "DATA on the control stream", &data("x"), FRAME_UNEXPECTED),
        row("9114 §7.2.2", "HEADERS on the control stream", &get(), FRAME_UNEXPECTED),
        row("9114 §7.2.5", "PUSH_PROMISE from a client", &frame(PUSH_PROMISE, [0, 0, 0]), FRAME_UNEXPECTED),
        row(
            "9114 §7.2.7",
            "a MAX_PUSH_ID that falls",
            &[number(MAX_PUSH_ID, 5), number(MAX_PUSH_ID, 4)].concat(),
            ID_ERROR,
        ),
        row(
            "9114 §7.2.7",
            "a MAX_PUSH_ID that rises, which is no error",
            &[number(MAX_PUSH_ID, 5), number(MAX_PUSH_ID, 6)].concat(),
            Served,
        ),
        row("9114 §7.2.3", "CANCEL_PUSH beyond MAX_PUSH_ID", &number(CANCEL_PUSH, 0), ID_ERROR),
        row(
            "9114 §7.2.3",
            "CANCEL_PUSH of a push that was never promised",
            &[number(MAX_PUSH_ID, 5), number(CANCEL_PUSH, 0)].concat(),
            ID_ERROR,
        ),
        row("9114 §5.2", "a GOAWAY that rises", &[number(GOAWAY, 4), number(GOAWAY, 8)].concat(), ID_ERROR),
        row(
            "9114 §5.2",
            "a GOAWAY that falls, which is no error",
            &[number(GOAWAY, 8), number(GOAWAY, 4)].concat(),
            Served,
        ),
        row("9114 §9", "a reserved frame, to be ignored", &frame(RESERVED, b"grease"), Served),
        row("9218 §7.2", "PRIORITY_UPDATE of a request that is to come", &update(PRIORITY_UPDATE, 4, "u=1"), Served),
        row(
            "9218 §7.2",
            "PRIORITY_UPDATE with a value that does not parse, to be ignored",
            &update(PRIORITY_UPDATE, 4, "u="),
            Served,
        ),
        row("9218 §7.2", "PRIORITY_UPDATE of a server's stream", &update(PRIORITY_UPDATE, 1, "u=1"), ID_ERROR),
        row("9218 §7.2", "PRIORITY_UPDATE of a unidirectional stream", &update(PRIORITY_UPDATE, 2, "u=1"), ID_ERROR),
        row(
            "9218 §7.2",
            "PRIORITY_UPDATE of a stream beyond what the client may open",
            &update(PRIORITY_UPDATE, 1 << 40, "u=1"),
            ID_ERROR,
        ),
        row("9218 §7.2", "PRIORITY_UPDATE of a push", &update(PUSH_PRIORITY_UPDATE, 0, "u=1"), ID_ERROR),
    ];
    for kind in [0x02, 0x06, 0x08, 0x09] {
        rows.push(row("9114 §7.2.8", &format!("HTTP/2's frame type {kind:#x}"), &frame(kind, []), FRAME_UNEXPECTED));
    }
    for (what, kind) in [("PRIORITY_UPDATE", PRIORITY_UPDATE), ("PRIORITY_UPDATE of a push", PUSH_PRIORITY_UPDATE)] {
        rows.push(row("9114 §7.1", &format!("{what} without its ID"), &frame(kind, []), FRAME_ERROR));
        rows.push(row("9114 §7.1", &format!("{what} with half its ID"), &frame(kind, [0x40]), FRAME_ERROR));
    }
    for (what, kind) in [("GOAWAY", GOAWAY), ("MAX_PUSH_ID", MAX_PUSH_ID), ("CANCEL_PUSH", CANCEL_PUSH)] {
        rows.push(row("9114 §7.1", &format!("{what} without its ID"), &frame(kind, []), FRAME_ERROR));
        rows.push(row("9114 §7.1", &format!("{what} with half its ID"), &frame(kind, [0x40]), FRAME_ERROR));
        rows.push(row("9114 §7.1", &format!("{what} with more than its ID"), &frame(kind, [0, 0]), FRAME_ERROR));
    }
    for id in [0x00, 0x02, 0x03, 0x04, 0x05] {
        rows.push(Row::frames(
            "9114 §7.2.4.1",
            format!("HTTP/2's setting {id:#x}"),
            settings(&[(id, 0)]),
            SETTINGS_ERROR,
        ));
    }
    rows.extend([
        Row::frames("9114 §7.2.4", "a setting twice", settings(&[(0x06, 9), (0x06, 9)]), SETTINGS_ERROR),
        Row::frames("8441 §3", "SETTINGS_ENABLE_CONNECT_PROTOCOL of 2", settings(&[(0x08, 2)]), SETTINGS_ERROR),
        Row::frames("9297 §2.1.1", "SETTINGS_H3_DATAGRAM of 2", settings(&[(0x33, 2)]), SETTINGS_ERROR),
        Row::frames("9114 §7.2.4.1", "a reserved setting, to be ignored", settings(&[(0x21, 9)]), Served),
        Row::frames("9114 §7.1", "a setting without its value", bare(&frame(SETTINGS, [0x06])), FRAME_ERROR),
    ]);
    rows
}

pub(super) fn streams() -> Vec<Row> {
    let two = |kind: u8, first: &[u8]| {
        [stream(UNI, 0, &[&[kind], first].concat(), false), stream(SECOND_UNI, 0, &[kind], false)].concat()
    };
    let settings = frame(SETTINGS, []);
    let mut rows = vec![
        Row::frames("9114 §6.2.1", "a second control stream", two(CONTROL, &settings), STREAM_CREATION_ERROR),
        Row::frames("9204 §4.2", "a second QPACK encoder stream", two(QPACK_ENCODER, &[]), STREAM_CREATION_ERROR),
        Row::frames("9204 §4.2", "a second QPACK decoder stream", two(QPACK_DECODER, &[]), STREAM_CREATION_ERROR),
        Row::frames(
            "9114 §6.2.2",
            "a push stream from a client",
            stream(UNI, 0, &[PUSH, 0], false),
            STREAM_CREATION_ERROR,
        ),
        Row::frames(
            "9114 §6.2.3",
            "a stream of a reserved type, to be ignored",
            stream(UNI, 0, &[0x21, 1], true),
            Served,
        ),
        Row::frames(
            "9114 §6.2",
            "a stream that ends before its type, which is no error",
            stream(UNI, 0, &[0x40], true),
            Served,
        ),
        Row::frames(
            "9114 §6.2.1",
            "STOP_SENDING of litequic's control stream",
            [vec![0x05], varint(SERVER_CONTROL), varint(0x100)].concat(),
            CLOSED_CRITICAL_STREAM,
        ),
    ];
    for (what, kind, content) in [
        ("control", CONTROL, &settings[..]),
        ("QPACK encoder", QPACK_ENCODER, &[]),
        ("QPACK decoder", QPACK_DECODER, &[]),
    ] {
        let rule = if kind == CONTROL { "9114 §6.2.1" } else { "9204 §4.2" };
        let begin = [&[kind], content].concat();
        let size = begin.len() as u64;
        rows.push(Row::frames(
            rule,
            format!("FIN of the {what} stream"),
            stream(UNI, 0, &begin, true),
            CLOSED_CRITICAL_STREAM,
        ));
        let later = [stream(UNI, 0, &begin, false), stream(UNI, size, b"", true)].concat();
        rows.push(Row::frames(rule, format!("a late FIN of the {what} stream"), later, CLOSED_CRITICAL_STREAM));
    }
    rows.push(Row::frames(
        "9114 §6.2.1",
        "FIN of the control stream before SETTINGS",
        stream(UNI, 0, &[CONTROL], true),
        CLOSED_CRITICAL_STREAM,
    ));
    rows
}

/// Streams whose type litequic has read, reset after: it shows on a further stream that it has read on.
pub(super) fn resets() -> Vec<Row> {
    let settings = frame(SETTINGS, []);
    let packets = |kind: u8, content: &[u8]| {
        let begin = [&[kind], content].concat();
        let size = begin.len() as u64;
        let reset = reset(UNI, size);
        vec![Sent::new(Level::OneRtt, stream(UNI, 0, &begin, false)), Sent::new(Level::OneRtt, reset)]
    };
    vec![
        Row::paused(
            "9114 §6.2.1",
            "RESET_STREAM of the control stream",
            packets(CONTROL, &settings),
            CLOSED_CRITICAL_STREAM,
        ),
        Row::paused(
            "9204 §4.2",
            "RESET_STREAM of the QPACK encoder stream",
            packets(QPACK_ENCODER, &[]),
            CLOSED_CRITICAL_STREAM,
        ),
        Row::paused(
            "9204 §4.2",
            "RESET_STREAM of the QPACK decoder stream",
            packets(QPACK_DECODER, &[]),
            CLOSED_CRITICAL_STREAM,
        ),
    ]
}

pub(super) fn request_streams() -> Vec<Row> {
    let row =
        |rule, what: &str, content: &[u8], expected| Row::frames(rule, what, stream(0, 0, content, true), expected);
    let open =
        |rule, what: &str, content: &[u8], expected| Row::frames(rule, what, stream(0, 0, content, false), expected);
    let post = with("POST", &[]);
    let trailers = headers(&[("x-checksum", "1")]);
    let number = |kind, value| frame(kind, varint(value));
    let mut rows = vec![
        row("9114 §4.1", "DATA before HEADERS", &data("x"), FRAME_UNEXPECTED),
        row("9114 §4.1", "DATA behind trailers", &[&post[..], &trailers, &data("x")].concat(), FRAME_UNEXPECTED),
        row("9114 §4.1", "HEADERS behind trailers", &[&post[..], &trailers, &trailers].concat(), FRAME_UNEXPECTED),
        open("9114 §7.2.4", "SETTINGS on a request stream", &frame(SETTINGS, []), FRAME_UNEXPECTED),
        open("9114 §7.2.3", "CANCEL_PUSH on a request stream", &number(CANCEL_PUSH, 0), FRAME_UNEXPECTED),
        open(
            "9114 §7.2.5",
            "PUSH_PROMISE on a request stream",
            &[&post[..], &frame(PUSH_PROMISE, [0, 0, 0])].concat(),
            FRAME_UNEXPECTED,
        ),
        open("9114 §7.2.6", "GOAWAY on a request stream", &number(GOAWAY, 0), FRAME_UNEXPECTED),
        open("9218 §7.2", "PRIORITY_UPDATE on a request stream", &update(PRIORITY_UPDATE, 0, "u=1"), FRAME_UNEXPECTED),
        open(
            "9114 §7.2.7",
            "MAX_PUSH_ID on a request stream",
            &[&post[..], &number(MAX_PUSH_ID, 0)].concat(),
            FRAME_UNEXPECTED,
        ),
        row("9114 §7.1", "a HEADERS frame that is cut", &get()[..9], FRAME_ERROR),
        row("9114 §7.1", "a DATA frame that is cut", &[&post[..], &data("1234")[..4]].concat(), FRAME_ERROR),
        row("9114 §7.1", "a frame's type and no length", &[&post[..], &[0x00]].concat(), FRAME_ERROR),
        row("9114 §4.1.1", "nothing", &[], REQUEST_INCOMPLETE),
        row("9114 §4.1.1", "a reserved frame and no request", &frame(RESERVED, []), REQUEST_INCOMPLETE),
        row(
            "9114 §9",
            "a reserved frame before HEADERS, to be ignored",
            &[frame(RESERVED, [1]), get()].concat(),
            Served,
        ),
    ];
    for kind in [0x02, 0x06, 0x08, 0x09] {
        rows.push(open(
            "9114 §7.2.8",
            &format!("HTTP/2's frame type {kind:#x} on a request stream"),
            &frame(kind, []),
            FRAME_UNEXPECTED,
        ));
    }
    rows
}

pub(super) fn messages() -> Vec<Row> {
    let row = |rule, what: &str, content: &[u8]| Row::frames(rule, what, stream(0, 0, content, true), MESSAGE_ERROR);
    let get_with = |name, value| with("GET", &[(name, value)]);
    let mut rows = Vec::new();
    for missing in [":method", ":scheme", ":path", ":authority"] {
        let fields: Vec<_> = pseudo("GET", "/").into_iter().filter(|(name, _)| *name != missing).collect();
        rows.push(row("9114 §4.3.1", &format!("no {missing}"), &headers(&fields)));
        let twice = [pseudo("GET", "/"), pseudo("GET", "/").into_iter().filter(|(name, _)| *name == missing).collect()]
            .concat();
        rows.push(row("9114 §4.3.1", &format!("{missing} twice"), &headers(&twice)));
    }
    let late = [vec![("x-a", "1")], pseudo("GET", "/")].concat();
    let content_length = with("POST", &[("content-length", "3")]);
    rows.extend([
        row("9114 §4.3", "an unknown pseudo-header", &get_with(":x", "1")),
        row("9114 §4.3", ":status in a request", &get_with(":status", "200")),
        row("9114 §4.3", "a pseudo-header behind a field", &headers(&late)),
        row("9114 §4.3", "a pseudo-header in trailers", &[with("POST", &[]), headers(&[(":path", "/")])].concat()),
        row("9114 §4.3.1", "an empty :path", &replaced(":path", "")),
        row("9114 §4.3.1", "Host that differs from :authority", &get_with("host", "a.test")),
        row("9114 §4.2", "an upper-case name", &get_with("X-A", "1")),
        row("9114 §10.3", "a name with a blank", &get_with("x a", "1")),
        row("9114 §10.3", "a value with LF", &get_with("x-a", "1\n2")),
        row("9114 §4.2", "Connection", &get_with("connection", "close")),
        row("9114 §4.2", "Keep-Alive", &get_with("keep-alive", "1")),
        row("9114 §4.2", "Proxy-Connection", &get_with("proxy-connection", "close")),
        row("9114 §4.2", "Transfer-Encoding", &get_with("transfer-encoding", "chunked")),
        row("9114 §4.2", "Upgrade", &get_with("upgrade", "websocket")),
        row("9114 §4.2", "TE that is not trailers", &get_with("te", "gzip")),
        row("9114 §4.1.2", "a body shorter than its Content-Length", &[&content_length[..], &data("12")].concat()),
        row("9114 §4.1.2", "a body longer than its Content-Length", &[&content_length[..], &data("1234")].concat()),
        row(
            "9114 §4.4",
            "CONNECT with :path",
            &headers(&[(":method", "CONNECT"), (":authority", "a.test:1"), (":path", "/")]),
        ),
    ]);
    rows
}

#[tokio::test]
async fn control_streams_that_break_the_rules_are_answered_as_the_table_says() {
    attempt::all(control_stream()).await;
}

#[tokio::test]
async fn forbidden_streams_get_the_tables_errors() {
    attempt::all([streams(), resets()].into_iter().flatten().collect()).await;
}

#[tokio::test]
async fn request_streams_that_break_the_rules_are_answered_as_the_table_says() {
    attempt::all(request_streams()).await;
}

#[tokio::test]
async fn malformed_requests_are_answered_as_the_table_says() {
    attempt::all(messages()).await;
}

/// A PRIORITY_UPDATE frame.
fn update(kind: u64, id: u64, value: &str) -> Vec<u8> {
    frame(kind, [varint(id), value.as_bytes().to_vec()].concat())
}
