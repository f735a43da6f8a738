//! Compares the codec with the h2 crate, as a server and as a client.

use super::*;
use crate::{Authority, FieldNameRef, Fields, Head, terms::FieldLimits};
use bytes::Bytes;
use proptest::prelude::*;
use std::{
    task::{Context, Poll, Waker},
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex},
    runtime, time,
};

/// Names and values.
type Lines = Vec<(String, String)>;

/// Runs `test`, which takes a moment, on a runtime of its own.
pub(super) fn run<T>(test: impl Future<Output = T>) -> T {
    let runtime = runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async { time::timeout(Duration::from_secs(30), test).await.unwrap() })
}

/// Reads a frame: type, flags and payload.
async fn read_frame(io: &mut DuplexStream) -> (u8, u8, Vec<u8>) {
    let mut header = [0; FRAME_HEADER_LEN];
    io.read_exact(&mut header).await.unwrap();
    let header = Http2FrameHeader::parse_frame_header(&header);
    let mut payload = vec![0; header.length as usize];
    io.read_exact(&mut payload).await.unwrap();
    (header.kind, header.flags, payload)
}

/// Reads frames to the end of a HEADERS frame and those that continue it. Returns the field block.
async fn read_block(io: &mut DuplexStream) -> Vec<u8> {
    let mut block = Vec::new();
    loop {
        let (kind, flags, payload) = read_frame(io).await;
        if matches!(kind, kind::HEADERS | kind::CONTINUATION) {
            block.extend_from_slice(&payload);
            if flags & flag::END_HEADERS != 0 {
                return block;
            }
        }
    }
}

/// Sends a request to an h2 server. Returns the fields that it received, and the block of its response with `response`.
async fn exchange_with_server(request: &Lines, response: &Lines) -> (Lines, Vec<u8>) {
    let (mut io, theirs) = duplex(1 << 20);
    let mut out = PREFACE.to_vec();
    write_settings(&mut out, &[(setting::HEADER_TABLE_SIZE, 0), (setting::ENABLE_PUSH, 0)]);
    write_header_frames(&mut out, 1, true, 16_384, |out| {
        let fields = request.iter().map(|(name, value)| (FieldNameRef::from_lower_case_token(name), value.as_bytes()));
        write_request(out, "PUT", "http", b"example.com:80", b"/a?b", fields);
    });
    io.write_all(&out).await.unwrap();
    let mut server = h2::server::Builder::new().handshake::<_, Bytes>(theirs).await.unwrap();
    let (received, mut respond) = server.accept().await.unwrap().unwrap();
    assert_eq!(
        (received.method(), received.uri()),
        (&http::Method::PUT, &http::Uri::from_static("http://example.com:80/a?b"))
    );
    let mut answer = http::Response::builder().status(418);
    for (name, value) in response {
        answer = answer.header(name, value);
    }
    respond.send_response(answer.body(()).unwrap(), true).unwrap();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let fields = received.headers().iter().map(|(name, value)| (name.to_string(), text(value.as_bytes()))).collect();
    let block = tokio::select! {
        block = read_block(&mut io) => block,
        _ = server.accept() => panic!("the connection ended"),
    };
    (fields, block)
}

/// The lines by name, in the order that they have among those of the same name.
fn sorted(mut lines: Lines) -> Lines {
    lines.sort_by(|(left, _), (right, _)| left.cmp(right));
    lines
}

fn lines(fields: &Fields) -> Lines {
    fields.iter().map(|line| (line.name_str().to_owned(), String::from_utf8_lossy(line.value).into_owned())).collect()
}

/// Answers an h2 client's request with this block. Returns what the client reads: status and lines, or the error.
async fn read_by_client(block: &[u8]) -> Result<(u16, Lines), h2::Error> {
    let (mut io, theirs) = duplex(1 << 20);
    let mut builder = h2::client::Builder::new();
    let (mut client, connection) = builder.header_table_size(0).handshake::<_, Bytes>(theirs).await?;
    let request = http::Request::get("http://a/").body(()).unwrap();
    let (response, _) = client.send_request(request, true)?;
    let serve = async {
        io.read_exact(&mut [0; PREFACE.len()]).await.unwrap();
        let mut out = Vec::new();
        write_settings(&mut out, &[]);
        io.write_all(&out).await.unwrap();
        read_block(&mut io).await;
        out.clear();
        write_settings_ack(&mut out);
        write_header_frames(&mut out, 1, true, 16_384, |out| out.extend_from_slice(block));
        io.write_all(&out).await.unwrap();
        // The client ends first.
        std::future::pending::<()>().await;
    };
    let response = async {
        tokio::select! {
            response = response => response,
            ended = connection => Err(ended.expect_err("the response comes first")),
        }
    };
    let response = tokio::select! {
        response = response => response?,
        () = serve => unreachable!(),
    };
    let line = |(name, value): (&http::HeaderName, &http::HeaderValue)| {
        (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into_owned())
    };
    Ok((response.status().as_u16(), response.headers().iter().map(line).collect()))
}

/// A line of a field block, perhaps invalid.
fn representation() -> impl Strategy<Value = Vec<u8>> {
    let string = |text: String| [&[u8::try_from(text.len()).unwrap()], text.as_bytes()].concat();
    let literal = (prop::sample::select(vec![0_u8, 0x10, 0x40]), "[a-z:]{1,9}|te|connection", "[ -~]{0,20}");
    prop_oneof![
        8 => (0x80_u8..=0xbf).prop_map(|index| vec![index]),
        8 => literal.prop_map(move |(first, name, value)| [vec![first], string(name), string(value)].concat()),
        1 => prop::collection::vec(any::<u8>(), 1..6),
    ]
}

/// A connection whose server has sent SETTINGS, with one request.
fn connection() -> (ClientConnection, u32) {
    let mut connection = ClientConnection::new(FieldLimits::NONE);
    let mut settings = Vec::new();
    write_settings(&mut settings, &[]);
    connection.receive(&settings).unwrap();
    let head = Head::new(http::Method::GET, Authority::new("a"), "/", Fields::new());
    let id = connection.begin_stream(&head, "http", None, true).unwrap();
    (connection, id)
}

#[test]
fn a_server_that_reads_no_answers_to_its_pings_is_left() {
    let (mut connection, _) = connection();
    let pings = [&[0, 0, 8, kind::PING, 0, 0, 0, 0, 0][..], &[7; 8]].concat().repeat(1_000);
    let mut left = 0;
    let fault = loop {
        // Whatever the interval.
        connection.begin_interval();
        if let Err(fault) = connection.receive(&pings) {
            break fault;
        }
        left += 1;
        assert!(left < 1_000, "{} bytes wait", connection.output_length());
    };
    assert_eq!(fault.code, Http2ErrorCode::EnhanceYourCalm);
    assert!(connection.output_length() < 5 * 1024 * 1024);
}

#[test]
fn interim_responses_that_are_not_read_are_bounded_in_memory() {
    let (mut connection, id) = connection();
    let mut answers = Vec::new();
    for _ in 0..100 {
        // 103, as a literal.
        write_header_frames(&mut answers, id, false, 16_384, |out| out.extend_from_slice(b"\x08\x03103"));
    }
    write_header_frames(&mut answers, id, true, 16_384, |out| out.push(0x88));
    connection.receive(&answers).unwrap();
    let mut read = || match connection.poll_message(id, &Context::from_waker(Waker::noop())) {
        Poll::Ready(Ok((status, _))) => Some(status.as_u16()),
        _ => None,
    };
    let statuses: Vec<u16> = std::iter::from_fn(&mut read).collect();
    assert_eq!(statuses, [vec![103; 16], vec![200]].concat());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn an_h2_server_reads_our_requests_and_we_read_its_responses(
        request in prop::collection::vec(("x-[a-z]{1,8}|cookie|accept|authorization|user-agent", "[!-~]([ -~]{0,100}[!-~])?"), 0..9),
        response in prop::collection::vec(("x-[a-z]{1,8}|set-cookie|server|etag|cache-control", "[!-~]([ -~]{0,100}[!-~])?"), 0..9),
        long in 0_usize..40_000,
    ) {
        let mut request = request;
        // More than one frame.
        request.push(("x-long".to_owned(), "!".repeat(long % 20_000)));
        let (received, block) = run(exchange_with_server(&request, &response));
        prop_assert_eq!(sorted(received), sorted(request));
        let head = read_response_head(&block, &FieldLimits::NONE).unwrap();
        prop_assert_eq!((head.status.as_u16(), sorted(lines(&head.fields))), (418, sorted(response)));
    }

    #[test]
    fn whatever_block_we_accept_an_h2_client_reads_alike(
        rest in prop::collection::vec(representation(), 0..6),
        with_status in prop::bool::weighted(0.9),
    ) {
        // The h2 crate has no table once the server says so.
        let block = [if with_status { vec![0x20, 0x88] } else { vec![0x20] }, rest.concat()].concat();
        let theirs = run(read_by_client(&block));
        match read_response_head(&block, &FieldLimits::NONE) {
            Ok(head) => {
                let trimmed = |(name, value): (String, String)| (name, value.trim().to_owned());
                let theirs = theirs.map(|(status, lines)| (status, sorted(lines.into_iter().map(trimmed).collect())));
                prop_assert_eq!(theirs.unwrap(), (head.status.as_u16(), sorted(lines(&head.fields))));
            }
            Err(HeadFault::Compression(reason)) => {
                // The h2 crate closes the connection as well, in part with another code.
                prop_assert!(theirs.as_ref().is_err_and(h2::Error::is_go_away), "{}: {:?}", reason, theirs);
            }
            // The h2 crate is less strict.
            Err(_) => {}
        }
    }
}
