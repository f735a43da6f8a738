//! What a server may send (RFC 9113 §4 to §8): the rows of docs/reference/origin-responses.md. A fault of a stream ends
//! this stream alone, and one of the connection ends all.

use super::*;
use crate::{Authority, Fields, Head, terms::FieldLimits};
use Expected::{Fault, Status, Stream};
use Http2ErrorCode::{
    CompressionError, EnhanceYourCalm, FlowControlError, FrameSizeError, ProtocolError, RefusedStream, StreamClosed,
};
use bytes::Bytes;
use http::Method;
use proptest::prelude::*;
use std::task::{Context, Poll, Waker};

/// Result of a row, for the stream with the ID 1.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Expected {
    /// A whole response with this status and content.
    Status(u16, &'static str),
    /// The stream has failed, with this reason.
    Stream(&'static str),
    /// The connection has ended by this error.
    Fault(Http2ErrorCode, &'static str),
}

/// A frame of the server.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap();
    let mut out = Vec::new();
    Http2FrameHeader { length, kind, flags, stream }.write(&mut out);
    out.extend_from_slice(payload);
    out
}

fn headers(flags: u8, block: &[u8]) -> Vec<u8> {
    frame(kind::HEADERS, flags | flag::END_HEADERS, 1, block)
}

fn data(flags: u8, content: &[u8]) -> Vec<u8> {
    frame(kind::DATA, flags, 1, content)
}

/// Encodes `:status: 200` and `lines`.
fn block(lines: &[(&str, &str)]) -> Vec<u8> {
    let mut out = vec![0x88];
    for (name, value) in lines {
        out.push(0);
        for text in [name, value] {
            assert!(text.len() < 127);
            out.push(u8::try_from(text.len()).unwrap());
            out.extend_from_slice(text.as_bytes());
        }
    }
    out
}

/// A whole response whose header has these lines.
fn with(lines: &[(&str, &str)]) -> Vec<u8> {
    [headers(0, &block(lines)), data(END, b"ok")].concat()
}

/// `:status` with this value.
fn status(value: &str) -> Vec<u8> {
    [&[8, u8::try_from(value.len()).unwrap()], value.as_bytes()].concat()
}

fn settings(values: &[(u16, u32)]) -> Vec<u8> {
    let mut out = Vec::new();
    write_settings(&mut out, values);
    out
}

const END: u8 = flag::END_STREAM;
/// A whole response without content.
const EMPTY: &[u8] = &[0, 0, 1, kind::HEADERS, flag::END_HEADERS | END, 0, 0, 0, 1, 0x88];

fn open(connection: &mut ClientConnection, method: Method, is_end: bool) -> u32 {
    let head = Head::new(method, Authority::new("a"), "/", Fields::new());
    connection.begin_stream(&head, "http", None, is_end).unwrap()
}

fn limits() -> FieldLimits {
    FieldLimits { bytes: 64 * 1024, fields: 100 }
}

/// Reads all of the stream `id`.
fn read(connection: &mut ClientConnection, id: u32) -> Result<(u16, Vec<u8>), String> {
    let cx = Context::from_waker(Waker::noop());
    let (mut code, mut content) = (0, Vec::new());
    while code < 200 {
        code = match connection.poll_message(id, &cx) {
            Poll::Ready(message) => message.map_err(|failure| failure.to_string())?.0.as_u16(),
            Poll::Pending => return Err("no response".into()),
        };
    }
    loop {
        match connection.poll_content(id, 0, &cx) {
            Poll::Ready(None) => return Ok((code, content)),
            Poll::Ready(Some(piece)) => content.extend(piece.map_err(|failure| failure.to_string())?),
            Poll::Pending => return Err("no end".into()),
        }
    }
}

/// All frames that wait to be written, behind the preface.
fn written(connection: &mut ClientConnection) -> Vec<(Http2FrameHeader, Vec<u8>)> {
    let mut bytes = Vec::new();
    while connection.output_length() > 0 {
        let mut parts = [std::io::IoSlice::new(&[]); 8];
        let count = connection.fill_output(&mut parts);
        let some: Vec<u8> = parts[..count].iter().flat_map(|part| part.iter().copied()).collect();
        connection.on_output_written(some.len());
        bytes.extend(some);
    }
    let mut rest = bytes.strip_prefix(&PREFACE[..]).unwrap_or(&bytes);
    let mut frames = Vec::new();
    while let Some((header, behind)) = rest.split_first_chunk() {
        let header = Http2FrameHeader::parse_frame_header(header);
        let (payload, behind) = behind.split_at(header.length as usize);
        frames.push((header, payload.to_vec()));
        rest = behind;
    }
    frames
}

/// A row: a name, the request's method, the server's bytes behind its SETTINGS, the result.
type Row = (&'static str, Method, Vec<u8>, Expected);

fn rows() -> Vec<Row> {
    [frame_rows(), header_rows(), content_rows(), flood_rows()].concat()
}

fn row(name: &'static str, bytes: impl AsRef<[u8]>, expected: Expected) -> Row {
    (name, Method::GET, bytes.as_ref().to_vec(), expected)
}

fn frame_rows() -> Vec<Row> {
    let continued = |flags, stream| frame(kind::CONTINUATION, flags, stream, b"");
    let begun = frame(kind::HEADERS, 0, 1, b"\x88");
    let unopened = Fault(ProtocolError, "a frame names a stream that is not open");
    let length = Fault(FrameSizeError, "a frame has an invalid length");
    let padding = Fault(ProtocolError, "padding is longer than its frame");
    let order = Fault(ProtocolError, "CONTINUATION is missing or unexpected");
    let connection = Fault(ProtocolError, "a frame of the connection names a stream");
    let overflow = Fault(FlowControlError, "a window is larger than 2^31-1");
    vec![
        row("settings twice", [settings(&[]), EMPTY.to_vec()].concat(), Status(200, "")),
        row(
            "unknown setting",
            [settings(&[(0xabcd, 7), (setting::ENABLE_PUSH, 0)]), EMPTY.to_vec()].concat(),
            Status(200, ""),
        ),
        row(
            "push",
            settings(&[(setting::ENABLE_PUSH, 1)]),
            Fault(ProtocolError, "the server sets SETTINGS_ENABLE_PUSH"),
        ),
        row(
            "initial window",
            settings(&[(setting::INITIAL_WINDOW_SIZE, 1 << 31)]),
            Fault(FlowControlError, "SETTINGS_INITIAL_WINDOW_SIZE is too large"),
        ),
        row(
            "small frames",
            settings(&[(setting::MAX_FRAME_SIZE, 16_383)]),
            Fault(ProtocolError, "SETTINGS_MAX_FRAME_SIZE is out of range"),
        ),
        row(
            "large frames",
            settings(&[(setting::MAX_FRAME_SIZE, 1 << 24)]),
            Fault(ProtocolError, "SETTINGS_MAX_FRAME_SIZE is out of range"),
        ),
        row(
            "settings' length",
            frame(kind::SETTINGS, 0, 0, &[0; 5]),
            Fault(FrameSizeError, "SETTINGS have an invalid length"),
        ),
        row("acknowledgement's length", frame(kind::SETTINGS, flag::ACK, 0, &[0; 6]), length.clone()),
        row("settings of a stream", frame(kind::SETTINGS, 0, 1, &[]), connection.clone()),
        row("ping of a stream", frame(kind::PING, 0, 1, &[0; 8]), connection.clone()),
        row("goaway of a stream", frame(kind::GOAWAY, 0, 1, &[0; 8]), connection),
        row("ping's length", frame(kind::PING, 0, 0, &[0; 7]), length.clone()),
        row("goaway's length", frame(kind::GOAWAY, 0, 0, &[0; 7]), length.clone()),
        row("reset's length", frame(kind::RST_STREAM, 0, 1, &[0; 3]), length.clone()),
        row("window update's length", frame(kind::WINDOW_UPDATE, 0, 1, &[0; 5]), length.clone()),
        row("priority's length in a header", frame(kind::HEADERS, 0x24, 1, &[0; 4]), length),
        row("a header with a priority", headers(0x20 | END, b"\0\0\0\0\0\x88"), Status(200, "")),
        row(
            "priority and unknown frames",
            [frame(2, 0, 1, &[0; 5]), frame(0x77, 1, 9, b"?"), EMPTY.to_vec()].concat(),
            Status(200, ""),
        ),
        row("promise", frame(kind::PUSH_PROMISE, 4, 1, &[0; 5]), Fault(ProtocolError, "PUSH_PROMISE is disabled")),
        row("data of the connection", frame(kind::DATA, 0, 0, b"a"), unopened.clone()),
        row("header of the connection", frame(kind::HEADERS, 4, 0, b"\x88"), unopened.clone()),
        row("reset of the connection", frame(kind::RST_STREAM, 0, 0, &[0; 4]), unopened.clone()),
        row("data of an idle stream", frame(kind::DATA, 0, 5, b"a"), unopened.clone()),
        row("header of an idle stream", frame(kind::HEADERS, 4, 5, b"\x88"), unopened.clone()),
        row("reset of an idle stream", frame(kind::RST_STREAM, 0, 5, &[0; 4]), unopened.clone()),
        row("window of an idle stream", frame(kind::WINDOW_UPDATE, 0, 5, &[0, 0, 0, 1]), unopened.clone()),
        row("header of a stream of the server", frame(kind::HEADERS, 4, 2, b"\x88"), unopened),
        row(
            "header of an ended stream",
            [EMPTY, EMPTY].concat(),
            Fault(StreamClosed, "a header section follows END_STREAM"),
        ),
        row(
            "data of an ended stream",
            [EMPTY, &data(0, b"a")].concat(),
            Fault(StreamClosed, "DATA follows END_STREAM"),
        ),
        row("data's padding", data(flag::PADDED, &[3, 0, 0]), padding.clone()),
        row("data without its padding's length", data(flag::PADDED, &[]), padding.clone()),
        row("header's padding", headers(flag::PADDED, &[2, 0x88]), padding),
        row(
            "padded",
            [headers(flag::PADDED, &[1, 0x88, 0]), data(flag::PADDED | END, &[2, b'o', b'k', 0, 0])].concat(),
            Status(200, "ok"),
        ),
        row("oversize", frame(kind::PING, 0, 0, &[0; 16_385]), Fault(FrameSizeError, "a frame is larger than allowed")),
        row("interrupted header", [begun.clone(), frame(kind::PING, 0, 0, &[0; 8])].concat(), order.clone()),
        row("interrupted by an unknown frame", [begun.clone(), frame(0x77, 0, 0, b"")].concat(), order.clone()),
        row("continued elsewhere", [begun.clone(), continued(4, 3)].concat(), order.clone()),
        row("continued without a header", continued(4, 1), order),
        row(
            "continued",
            [frame(kind::HEADERS, END, 1, b"\x88"), continued(0, 1), continued(4, 1)].concat(),
            Status(200, ""),
        ),
        row(
            "a megabyte of header",
            [begun, frame(kind::CONTINUATION, 0, 1, &[0; 16_384]).repeat(65)].concat(),
            Fault(EnhanceYourCalm, "a header section does not end"),
        ),
        row(
            "increment 0",
            frame(kind::WINDOW_UPDATE, 0, 0, &[0; 4]),
            Fault(ProtocolError, "WINDOW_UPDATE has an increment of 0"),
        ),
        row("the connection's window", frame(kind::WINDOW_UPDATE, 0, 0, &[0x7f, 255, 255, 255]), overflow.clone()),
        row("a stream's window", frame(kind::WINDOW_UPDATE, 0, 1, &[0x7f, 255, 255, 255]), overflow),
        row(
            "reset",
            frame(kind::RST_STREAM, 0, 1, &[0, 0, 0, 2]),
            Stream("the origin reset the stream: INTERNAL_ERROR"),
        ),
        row("refused", frame(kind::RST_STREAM, 0, 1, &[0, 0, 0, 7]), Stream("the origin did not process the request")),
        row(
            "refused behind the header",
            [headers(0, b"\x88"), frame(kind::RST_STREAM, 0, 1, &[0, 0, 0, 7])].concat(),
            Stream("the origin reset the stream: REFUSED_STREAM"),
        ),
        row("reset behind the response", [EMPTY, &frame(kind::RST_STREAM, 0, 1, &[0; 4])].concat(), Status(200, "")),
    ]
}

fn header_rows() -> Vec<Row> {
    let end = |block: &[u8]| headers(END, block);
    let invalid = |reason: &'static str| Stream(reason);
    let name = invalid("the response's header is invalid: field name is not a token in lower case");
    let control = invalid("the response's header is invalid: field value with a control character");
    let own = invalid("the response's header is invalid: connection-specific field");
    let compression = |reason| Fault(CompressionError, reason);
    let too_large = Stream("the response's header is too large");
    let digits = invalid("the response's header is invalid: :status is not three digits");
    let long = "x".repeat(100);
    vec![
        row("dynamic index", end(b"\x88\xbe"), compression("no such index in the static table")),
        row("index 0", end(b"\x88\x80"), compression("no such index in the static table")),
        row("table size", end(b"\x21\x88"), compression("table size above 0")),
        row("table size 0", end(b"\x20\x88"), Status(200, "")),
        row("indexed literal", end(b"\x88\x40\x01x\x01y"), Status(200, "")),
        row("padding of Huffman", end(b"\x88\0\x81\xfe\0"), compression("invalid Huffman string")),
        row("end of string", end(b"\x88\0\x84\xff\xff\xff\xff\0"), compression("invalid Huffman string")),
        row(
            "integer",
            end(b"\x88\0\x7f\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
            compression("integer too large"),
        ),
        row("cut string", end(b"\x88\0\x05x"), compression("truncated string")),
        row(
            "64 KiB",
            [
                frame(kind::HEADERS, END, 1, b"\x88"),
                frame(kind::CONTINUATION, 0, 1, &[0; 16_384]).repeat(4),
                frame(kind::CONTINUATION, 4, 1, b""),
            ]
            .concat(),
            too_large.clone(),
        ),
        row("101 fields", end(&block(&[("a", "b"); 101])), too_large.clone()),
        row("many bytes of indexes", end(&[&[0x88][..], &[0x90; 3_000]].concat()), too_large),
        row("no status", end(b""), invalid("the response's header is invalid: no :status")),
        row("two statuses", end(b"\x88\x88"), invalid("the response's header is invalid: duplicate :status")),
        row(
            "late status",
            end(b"\0\x01a\x01b\x88"),
            invalid("the response's header is invalid: pseudo-header after another field"),
        ),
        row("status 101", headers(0, &status("101")), invalid("the response's header is invalid: status 101")),
        row("status 099", end(&status("099")), digits.clone()),
        row("status 20", end(&status("20")), digits.clone()),
        row("status 2000", end(&status("2000")), digits),
        row("status 999", end(&status("999")), Status(999, "")),
        row(
            "a request's field",
            end(b"\x88\x84"),
            invalid("the response's header is invalid: a request's pseudo-header in a response"),
        ),
        row(
            "unknown pseudo field",
            end(b"\x88\0\x02:a\x01b"),
            invalid("the response's header is invalid: unknown pseudo-header"),
        ),
        row("capitals", with(&[("Server", "a")]), name.clone()),
        row("empty name", with(&[("", "a")]), name.clone()),
        row("blank in a name", with(&[("a b", "a")]), name),
        row("line feed", with(&[("a", "b\nc")]), control.clone()),
        row("NUL", with(&[("a", "b\0c")]), control),
        row("blanks around a value", with(&[("a", " b ")]), Status(200, "ok")),
        row("connection", with(&[("connection", "close")]), own.clone()),
        row("keep-alive", with(&[("keep-alive", "1")]), own.clone()),
        row("transfer-encoding", with(&[("transfer-encoding", "chunked")]), own.clone()),
        row("upgrade", with(&[("upgrade", "h2c")]), own.clone()),
        row("proxy-connection", with(&[("proxy-connection", "a")]), own),
        row("a long field", with(&[("a", &long)]), Status(200, "ok")),
    ]
}

fn content_rows() -> Vec<Row> {
    let malformed = Stream("the response's content is malformed");
    let length = |length: &str| block(&[("content-length", length)]);
    let interim = headers(0, &status("103"));
    let trailers = |flags, block: &[u8]| [headers(0, b"\x88"), data(0, b"ok"), headers(flags, block)].concat();
    let header = |text| Stream(text);
    vec![
        row(
            "content in pieces",
            [headers(0, &length("2")), data(0, b"o"), data(0, b""), data(END, b"k")].concat(),
            Status(200, "ok"),
        ),
        row("data before a header", data(0, b"a"), malformed.clone()),
        row("data behind an interim response", [interim.clone(), data(0, b"a")].concat(), malformed.clone()),
        row("longer than its length", [headers(0, &length("1")), data(END, b"ok")].concat(), malformed.clone()),
        row("shorter than its length", [headers(0, &length("3")), data(END, b"ok")].concat(), malformed.clone()),
        row("nothing of its length", headers(END, &length("3")), malformed.clone()),
        row(
            "two lengths",
            headers(END, &block(&[("content-length", "1"), ("content-length", "2")])),
            header("the response's header is invalid: more than one Content-Length"),
        ),
        row(
            "no length",
            headers(END, &length("x")),
            header("the response's header is invalid: Content-Length is not a decimal number"),
        ),
        ("length of HEAD", Method::HEAD, headers(END, &length("3")), Status(200, "")),
        ("content of HEAD", Method::HEAD, [headers(0, &length("1")), data(END, b"a")].concat(), malformed.clone()),
        row("204", headers(END, &status("204")), Status(204, "")),
        row("content of 204", [headers(0, &status("204")), data(END, b"a")].concat(), malformed.clone()),
        row("content of 304", [headers(0, &status("304")), data(END, b"a")].concat(), malformed.clone()),
        row("304 with a length", headers(END, &[status("304"), length("3")[1..].to_vec()].concat()), Status(304, "")),
        row("trailers", trailers(END, b"\0\x01a\x01b"), Status(200, "ok")),
        row("trailers without an end", trailers(0, b"\0\x01a\x01b"), malformed.clone()),
        row(
            "status in trailers",
            trailers(END, b"\x88"),
            header("the response's header is invalid: pseudo-header in trailers"),
        ),
        row(
            "connection in trailers",
            trailers(END, b"\0\x0aconnection\0"),
            header("the response's header is invalid: connection-specific field"),
        ),
        row(
            "trailers before their length",
            [headers(0, &length("3")), headers(END, b"\0\x01a\x01b")].concat(),
            malformed.clone(),
        ),
        row("interim responses", [interim.repeat(1_000), EMPTY.to_vec()].concat(), Status(200, "")),
        row("1,001 interim responses", interim.repeat(1_001), header("the origin sent too many interim responses")),
        row("an interim response at the end", headers(END, &status("103")), malformed),
        row(
            "beyond the window",
            [headers(0, b"\x88"), data(0, &[0; 16_384]).repeat(4)].concat(),
            Fault(FlowControlError, "a stream's window is exceeded"),
        ),
    ]
}

fn flood_rows() -> Vec<Row> {
    let flood = |frame: Vec<u8>| [headers(0, b"\x88"), frame.repeat(10_002)].concat();
    let calm = Fault(EnhanceYourCalm, "too many frames without a response");
    vec![
        row("pings", flood(frame(kind::PING, 0, 0, &[0; 8])), calm.clone()),
        row("acknowledged pings", flood(frame(kind::PING, 1, 0, &[0; 8])), calm.clone()),
        row("settings", flood(settings(&[])), calm.clone()),
        row("windows of 1", flood(frame(kind::WINDOW_UPDATE, 0, 1, &[0, 0, 0, 1])), calm.clone()),
        row("empty data", flood(data(0, b"")), calm.clone()),
        row("padded empty data", flood(data(flag::PADDED, &[0])), calm.clone()),
        row("resets", flood(frame(kind::RST_STREAM, 0, 1, &[0; 4])), calm.clone()),
        row("priorities", flood(frame(2, 0, 1, &[0; 5])), calm.clone()),
        row("unknown frames", flood(frame(0x77, 0, 0, b"")), calm.clone()),
        row("goaways", flood(frame(kind::GOAWAY, 0, 0, &[0, 0, 0, 9, 0, 0, 0, 0])), calm.clone()),
        row("headers of a failed stream", flood(headers(0, b"\x88")), calm.clone()),
        row("continuations", [frame(kind::HEADERS, 0, 1, b"\x88"), frame(9, 0, 1, b"").repeat(10_001)].concat(), calm),
        row(
            "one-byte data",
            [headers(0, b"\x88"), data(0, b"a").repeat(20_000), data(END, b"")].concat(),
            Status(200, ""),
        ),
    ]
}

#[test]
fn a_fault_of_a_stream_ends_it_alone() {
    for (name, method, bytes, expected) in rows() {
        for piece in [usize::MAX, 1, 1_000] {
            let mut connection = ClientConnection::new(limits());
            connection.receive(&settings(&[])).unwrap();
            let (id, other) = (open(&mut connection, method.clone(), true), open(&mut connection, Method::GET, true));
            let received = bytes.chunks(piece).try_for_each(|piece| connection.receive(piece));
            let found = match (received, read(&mut connection, id)) {
                (Err(ConnectionFault { code, reason }), _) => Fault(code, reason),
                (Ok(()), Ok((status, content))) => match &expected {
                    Status(_, "") if content.iter().all(|byte| *byte == b'a') => Status(status, ""),
                    Status(_, text) if content == text.as_bytes() => Status(status, text),
                    _ => panic!("{name}: {status} {content:?}"),
                },
                (Ok(()), Err(failure)) => Stream(Box::leak(failure.into_boxed_str())),
            };
            assert_eq!(found, expected, "{name}");
            let (last, is_reset) = (written(&mut connection).pop().unwrap(), |header: &Http2FrameHeader| {
                (header.kind, header.stream) == (kind::RST_STREAM, 1)
            });
            match found {
                Fault(code, _) => {
                    let expected = [&[0; 4][..], &(code as u32).to_be_bytes()].concat();
                    assert_eq!((last.0.kind, last.1), (kind::GOAWAY, expected), "{name}");
                    assert_eq!(
                        read(&mut connection, other),
                        Err("the connection to the origin ended".into()),
                        "{name}"
                    );
                    assert!(!connection.accepts_streams(), "{name}");
                    continue;
                }
                Stream(reason) if !reason.starts_with("the origin reset") && !reason.contains("process") => {
                    assert!(is_reset(&last.0), "{name}");
                }
                _ => assert!(!is_reset(&last.0), "{name}"),
            }
            // The other stream goes on.
            let answer = [frame(kind::HEADERS, 4, other, b"\x88"), frame(kind::DATA, END, other, b"fine")].concat();
            connection.receive(&answer).unwrap();
            assert_eq!(read(&mut connection, other), Ok((200, b"fine".to_vec())), "{name}");
            assert!(connection.accepts_streams() && connection.open_streams == 0, "{name}");
        }
    }
}

#[test]
fn a_connection_begins_with_the_servers_settings() {
    let first = "the server's first frame is not SETTINGS";
    for (bytes, reason) in [
        (frame(kind::PING, 0, 0, &[0; 8]), first),
        (frame(kind::SETTINGS, flag::ACK, 0, &[]), first),
        (frame(kind::GOAWAY, 0, 0, &[0; 8]), first),
        (b"SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n".to_vec(), first),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(), "the server speaks HTTP/1.1: see origin.protocol"),
        (b"HTTP/1.0 400 Bad Request\r\n\r\n".to_vec(), "the server speaks HTTP/1.1: see origin.protocol"),
    ] {
        for piece in [1, usize::MAX] {
            let mut connection = ClientConnection::new(limits());
            let received = bytes.chunks(piece).try_for_each(|piece| connection.receive(piece));
            assert_eq!(received, Err(ConnectionFault { code: ProtocolError, reason }));
        }
    }
}

#[test]
fn goaway_fails_the_streams_above_its_last_one() {
    let goaway = |last: u8| frame(kind::GOAWAY, 0, 0, &[0, 0, 0, last, 0, 0, 0, 0]);
    let mut connection = ClientConnection::new(limits());
    connection.receive(&settings(&[])).unwrap();
    let ids: [u32; 4] = std::array::from_fn(|_| open(&mut connection, Method::GET, true));
    connection.receive(&goaway(5)).unwrap();
    let unprocessed = Err("the origin did not process the request".to_owned());
    assert_eq!(read(&mut connection, ids[3]), unprocessed);
    assert!(!connection.accepts_streams());
    assert_eq!(connection.open_streams, 3);
    // A later one may lower the last stream, not raise it.
    connection.receive(&goaway(1)).unwrap();
    connection.receive(&goaway(255)).unwrap();
    assert_eq!(connection.go_away.unwrap().last_stream, 1);
    assert_eq!((read(&mut connection, ids[1]), read(&mut connection, ids[2])), (unprocessed.clone(), unprocessed));
    connection.receive(EMPTY).unwrap();
    assert_eq!(read(&mut connection, ids[0]), Ok((200, vec![])));
    assert!(
        connection.open_streams == 0
            && written(&mut connection).iter().all(|(header, _)| header.kind != kind::RST_STREAM)
    );
}

#[test]
fn an_end_within_a_frame_ends_all_streams() {
    let whole = [headers(0, b"\x88"), data(0, b"ok")].concat();
    for length in 0..whole.len() {
        let mut connection = ClientConnection::new(limits());
        connection.receive(&settings(&[])).unwrap();
        let id = open(&mut connection, Method::GET, true);
        connection.receive(&whole[..length]).unwrap();
        connection.on_closed();
        assert_eq!(read(&mut connection, id), Err("the connection to the origin ended".into()));
        assert_eq!(connection.open_streams, 0);
    }
}

/// Number of bytes that the stream may send.
fn capacity(connection: &mut ClientConnection, id: u32) -> usize {
    connection.poll_upload_window(id, &Context::from_waker(Waker::noop()))
}

#[test]
fn requests_stay_within_the_servers_windows() {
    let update = |stream, increment: u32| frame(kind::WINDOW_UPDATE, 0, stream, &increment.to_be_bytes());
    let mut connection = ClientConnection::new(limits());
    connection.receive(&settings(&[(setting::INITIAL_WINDOW_SIZE, 40_000)])).unwrap();
    let (one, other) = (open(&mut connection, Method::POST, false), open(&mut connection, Method::POST, false));
    let mut body = Bytes::from(vec![0; 100_000]);
    connection.send_piece(one, &mut body);
    assert_eq!((body.len(), capacity(&mut connection, one), capacity(&mut connection, other)), (60_000, 0, 25_535));
    // No frame is longer than 16 KiB.
    let sent: Vec<u32> = written(&mut connection)
        .iter()
        .filter(|(header, _)| header.kind == kind::DATA)
        .map(|(header, _)| header.length)
        .collect();
    assert_eq!(sent, [16_384, 16_384, 7_232]);
    // A window may become negative.
    connection.receive(&settings(&[(setting::INITIAL_WINDOW_SIZE, 0)])).unwrap();
    connection.receive(&update(one, 1_000)).unwrap();
    assert_eq!((capacity(&mut connection, one), capacity(&mut connection, other)), (0, 0));
    connection.receive(&update(one, 40_000)).unwrap();
    assert_eq!(capacity(&mut connection, one), 1_000);
    connection.receive(&settings(&[(setting::INITIAL_WINDOW_SIZE, 50_000)])).unwrap();
    assert_eq!((capacity(&mut connection, one), capacity(&mut connection, other)), (25_535, 25_535));
    connection.receive(&update(0, 100_000)).unwrap();
    connection.send_piece(one, &mut body);
    assert_eq!((body.len(), capacity(&mut connection, other)), (9_000, 50_000));
    // A window that SETTINGS make too large.
    connection.receive(&update(other, MAX_WINDOW - 60_000)).unwrap();
    let fault = connection.receive(&settings(&[(setting::INITIAL_WINDOW_SIZE, 60_001)]));
    assert_eq!(fault.unwrap_err().code, FlowControlError);
}

#[test]
fn fewer_streams_than_are_open_end_none() {
    let mut connection = ClientConnection::new(limits());
    connection.receive(&settings(&[(setting::MAX_CONCURRENT_STREAMS, 2)])).unwrap();
    let ids = [open(&mut connection, Method::GET, true), open(&mut connection, Method::GET, true)];
    assert!(!connection.accepts_streams());
    connection.receive(&settings(&[(setting::MAX_CONCURRENT_STREAMS, 0)])).unwrap();
    for id in ids {
        connection.receive(&frame(kind::HEADERS, 5, id, b"\x88")).unwrap();
        assert_eq!(read(&mut connection, id), Ok((200, vec![])));
    }
    assert!(!connection.accepts_streams());
    connection.receive(&settings(&[(setting::MAX_CONCURRENT_STREAMS, 1)])).unwrap();
    assert!(connection.accepts_streams());
}

#[test]
fn refused_before_its_response_a_request_was_not_processed() {
    let mut connection = ClientConnection::new(limits());
    connection.receive(&settings(&[])).unwrap();
    let id = open(&mut connection, Method::POST, false);
    connection.receive(&frame(kind::RST_STREAM, 0, id, &(RefusedStream as u32).to_be_bytes())).unwrap();
    assert!(connection.is_request_sent(id) && !connection.has_response_begun(id));
    // Nothing more of the request, and no second reset.
    written(&mut connection);
    connection.send_piece(id, &mut Bytes::from_static(b"more"));
    connection.finish_request(id, None);
    assert!(!connection.remove_stream(id));
    assert_eq!(written(&mut connection), []);
}

/// All that the requests of a connection get, and what it writes, after it has received `bytes` in these pieces.
fn outcome(bytes: &[u8], cuts: &[usize]) -> String {
    let mut connection = ClientConnection::new(limits());
    connection.receive(&settings(&[])).unwrap();
    let ids = [Method::GET, Method::HEAD, Method::POST].map(|method| {
        let is_end = method != Method::POST;
        open(&mut connection, method, is_end)
    });
    let (mut rest, mut received) = (bytes, Ok(()));
    for cut in cuts.iter().map(|cut| cut % 50 + 1).chain([usize::MAX]) {
        let (piece, behind) = rest.split_at(cut.min(rest.len()));
        received = received.and_then(|()| connection.receive(piece));
        rest = behind;
    }
    let read: Vec<_> =
        ids.iter().map(|id| (read(&mut connection, *id), connection.take_response_trailers(*id))).collect();
    format!("{received:?} {read:?} {:?}", written(&mut connection))
}

proptest! {
    #[test]
    fn pieces_of_a_servers_bytes_do_not_matter(
        choice in prop::collection::vec((any::<prop::sample::Index>(), 1_u8..6), 1..6),
        noise in prop::collection::vec(any::<u8>(), 0..30),
        cuts in prop::collection::vec(any::<usize>(), 0..200),
    ) {
        let short: Vec<_> = rows().into_iter().map(|(_, _, bytes, _)| bytes).filter(|bytes| bytes.len() < 1_000).collect();
        let mut bytes = Vec::new();
        for (index, stream) in choice {
            // The same frames on another stream.
            let mut frames = index.get(&short).clone();
            if let Some(id) = frames.get_mut(8).filter(|id| **id == 1) {
                *id = stream;
            }
            bytes.extend(frames);
        }
        bytes.extend(noise);
        prop_assert_eq!(outcome(&bytes, &[]), outcome(&bytes, &cuts));
    }
}
