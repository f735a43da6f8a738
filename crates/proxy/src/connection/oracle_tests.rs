//! Compares litequic's HTTP/1.1 client with hyper's: both get the same bytes, cut at random places, and agree on the
//! response, except for what litequic alone rejects ([`STRICTER`]).
#![expect(clippy::disallowed_types, reason = "it holds the oracle's fields")]

use super::origin_connection::{OriginConnection, ReceivedMessage};
use super::socket::OriginSocket;
use bytes::Bytes;
use http::{HeaderMap, Method, Request, request};
use http_body_util::{BodyExt, Empty};
use hyper_util::rt::TokioIo;
use litequic_exchange::{Authority, Fields as FieldLines, Head, name};
use litequic_resources::descriptors::{Descriptors, ProxySide};
use proptest::{
    prelude::{Strategy, any, prop, prop_oneof},
    test_runner::{Config, TestRunner},
};
use std::{future::poll_fn, sync::Arc, time::Duration};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::UnixStream,
    time::timeout,
};

const DEADLINE: Duration = Duration::from_secs(10);
/// Parts of bodies that hyper accepts and RFC 9112 does not.
const STRICTER: [&str; 5] = [
    "3 \r\nabc\r\n",
    "3\t\r\nabc\r\n",
    "3;\u{1}\r\nabc\r\n",
    "00000000000000003\r\nabc\r\n",
    // With an empty line behind this part hyper accepts it; without one neither does.
    "0\r\n\n",
];

/// Names and values of fields.
type FieldList = Vec<(String, Vec<u8>)>;

/// Response of an origin to a client.
#[derive(Debug, PartialEq, Eq)]
enum OracleOutcome {
    None,
    Response { status: u16, fields: FieldList, body: Option<(Vec<u8>, FieldList)> },
}

fn sorted(fields: &HeaderMap) -> FieldList {
    sorted_lines(&FieldLines::from(fields))
}

fn sorted_lines(fields: &FieldLines) -> FieldList {
    let mut fields: Vec<_> = fields.iter().map(|line| (line.name_str().to_owned(), line.value.to_vec())).collect();
    // Fields of one name keep their order.
    fields.sort_by(|one, other| one.0.cmp(&other.0));
    fields
}

fn hyper_parts(method: &Method) -> request::Parts {
    let request = Request::builder().method(method).uri("/").header("host", "a.test");
    request.body(()).unwrap().into_parts().0
}

/// Serves as an origin: sends `pieces` once a request has come, and ends the connection.
async fn serve_pieces(mut stream: UnixStream, pieces: Vec<Vec<u8>>) {
    let mut seen = Vec::new();
    while !seen.ends_with(b"\r\n\r\n") {
        if stream.read_buf(&mut seen).await.unwrap() == 0 {
            return;
        }
    }
    for piece in pieces {
        // The client may have given up.
        if stream.write_all(&piece).await.is_err() {
            return;
        }
        for _ in 0..3 {
            tokio::task::yield_now().await;
        }
    }
}

async fn by_hyper(stream: UnixStream, method: &Method) -> OracleOutcome {
    let (mut sender, connection) = hyper::client::conn::http1::Builder::new()
        .max_header_size(litequic_exchange::http1::MAX_HEAD)
        .handshake(TokioIo::new(stream))
        .await
        .unwrap();
    let connection = tokio::spawn(connection);
    let request = Request::from_parts(hyper_parts(method), Empty::<Bytes>::new());
    let outcome = match sender.send_request(request).await {
        Err(_) => OracleOutcome::None,
        Ok(response) => {
            let (parts, body) = response.into_parts();
            let body = body.collect().await.ok().map(|body| {
                let trailers = body.trailers().map(sorted).unwrap_or_default();
                (body.to_bytes().to_vec(), trailers)
            });
            OracleOutcome::Response { status: parts.status.as_u16(), fields: sorted(&parts.headers), body }
        }
    };
    connection.abort();
    outcome
}

async fn by_litequic(stream: UnixStream, method: &Method) -> OracleOutcome {
    let descriptor = Arc::<Descriptors>::default().take_descriptor(ProxySide::Origins).unwrap();
    let connection = OriginConnection::new(OriginSocket::Unix(stream), None, descriptor, &Arc::default());
    connection.prepare_request(None, None);
    let fields = FieldLines::from_iter([(name::HOST, &b"a.test"[..])]);
    let head = Head::new(method.clone(), Authority::new("a.test"), "/", fields);
    let parts = loop {
        match poll_fn(|cx| connection.poll_response(&head, cx)).await {
            Ok(ReceivedMessage::Interim(..)) => {}
            Ok(ReceivedMessage::Response(parts)) => break parts,
            Err(_) => return OracleOutcome::None,
        }
    };
    let (mut data, mut trailers, mut is_whole) = (Vec::new(), Vec::new(), true);
    while let Some(frame) = poll_fn(|cx| connection.poll_frame(true, cx)).await {
        match frame.map(http_body::Frame::into_data) {
            Ok(Ok(piece)) => data.extend_from_slice(&piece),
            Ok(Err(frame)) => trailers = sorted(&frame.into_trailers().unwrap()),
            Err(_) => {
                is_whole = false;
                break;
            }
        }
    }
    let body = is_whole.then_some((data, trailers));
    OracleOutcome::Response { status: parts.status.as_u16(), fields: sorted_lines(&parts.fields), body }
}

/// A response, mostly valid.
fn any_response() -> impl Strategy<Value = String> {
    let interim = prop::sample::select(&["", "", "", "HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n", "\r\n"][..]);
    let status = prop::sample::select(
        &[
            "HTTP/1.1 200 OK\r\n",
            "HTTP/1.1 200 OK\r\n",
            "HTTP/1.1 200 OK\r\n",
            "HTTP/1.0 200 OK\r\n",
            "HTTP/1.1 204 No Content\r\n",
            "HTTP/1.1 304 Not Modified\r\n",
            "HTTP/1.1 404\n",
            "HTTP/1.1 099 OK\r\n",
            "HTTP/1.2 200 OK\r\n",
            "HTTP/1.1 2000 OK\r\n",
            "HTTP/1.1 200 \u{e9}\r\n",
        ][..],
    );
    let field = prop::sample::select(
        &[
            "x: y\r\n",
            "X:\t y \t\r\n",
            "x:\r\n",
            "y: \u{e9}\n",
            "connection: close\r\n",
            "x : y\r\n",
            "x: y\r\n z\r\n",
            "content-length: 3\r\n",
            "content-length: 3\r\n",
            "content-length: 6, 6\r\n",
            "content-length: x\r\n",
            "content-length: 18446744073709551614\r\n",
            "transfer-encoding: chunked\r\n",
            "transfer-encoding: gzip\r\n",
            "Transfer-Encoding: Chunked\r\n",
            "x: \0\r\n",
            "x\r\n",
        ][..],
    );
    let chunk = prop_oneof![
        12 => prop::sample::select(
            &[
                "3\r\nabc\r\n", "3\r\nabc\r\n", "a\r\n0123456789\r\n", "3;a=b\r\nabc\r\n", "03\r\nabc\r\n",
                "3 ;a\r\nabc\r\n", "0\r\n\r\n", "0\r\n\r\n", "0\r\nx: y\r\n\r\n", "0\r\nx: y\r\nX: z\r\n\r\n",
            ][..]
        ),
        3 => prop::sample::select(
            &[
                "", "\r\n", "abc", "3\nabc\r\n", "3\r\nabcd\r\n", "g\r\n", "-3\r\n", "0\r\nx y: z\r\n\r\n",
                "0\r\nx: \0\r\n\r\n", "3;\nabc\r\n", "10000000000000000\r\n",
            ][..]
        ),
        1 => prop::sample::select(&STRICTER[..]),
    ];
    let (fields, chunks) = (prop::collection::vec(field, 0..4), prop::collection::vec(chunk, 0..5));
    (interim, status, fields, chunks).prop_map(|(interim, status, fields, chunks)| {
        [interim, status, &fields.concat(), "\r\n", &chunks.concat()].concat()
    })
}

#[test]
fn both_agree_on_a_response_however_it_is_cut() {
    let mut runner = TestRunner::new(Config { cases: 1024, failure_persistence: None, ..Config::default() });
    let cuts = prop::collection::vec(0..200_usize, 0..6);
    runner
        .run(&(any_response(), cuts, any::<bool>()), |(text, mut cuts, is_head)| {
            let bytes = text.as_bytes();
            cuts.extend([0, bytes.len()]);
            cuts.iter_mut().for_each(|cut| *cut = (*cut).min(bytes.len()));
            cuts.sort_unstable();
            let pieces: Vec<_> = cuts.windows(2).map(|cut| bytes[cut[0]..cut[1]].to_vec()).collect();
            let method = if is_head { Method::HEAD } else { Method::GET };
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let (hypers, ours) = runtime.block_on(async {
                let mut outcomes = Vec::new();
                for is_hyper in [true, false] {
                    let (client, server) = UnixStream::pair().unwrap();
                    let origin = serve_pieces(server, pieces.clone());
                    let client = async {
                        if is_hyper { by_hyper(client, &method).await } else { by_litequic(client, &method).await }
                    };
                    let (outcome, ()) = timeout(DEADLINE, async { tokio::join!(client, origin) }).await.unwrap();
                    outcomes.push(outcome);
                }
                let ours = outcomes.pop().unwrap();
                (outcomes.pop().unwrap(), ours)
            });
            let is_stricter = STRICTER.iter().any(|part| text.contains(part));
            let is_whole = matches!(ours, OracleOutcome::Response { body: Some(_), .. });
            if !is_stricter || is_whole {
                proptest::prop_assert_eq!(hypers, ours, "{:?} {} {:?}", text, method, cuts);
            }
            Ok(())
        })
        .unwrap();
}
