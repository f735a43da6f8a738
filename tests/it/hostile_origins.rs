//! What an origin may send (RFC 9112 §§2.2, 4, 5, 6, 7), byte for byte: the rows of docs/proxying.md. Each over
//! HTTP/1.1, HTTP/2 and HTTP/3, written at once and byte by byte, and each followed by a request that must get its own
//! response.

use crate::support::prelude::*;
use http_body_util::{BodyExt, Empty};
use hyper_util::rt::{TokioExecutor, TokioIo};
use litequic_http3::ErrorCode;

/// The answer to the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    /// A whole response with this status and this body.
    Whole(u16, &'static str),
    /// 502.
    Refused,
    /// Never a whole response: 502 if its header had not been sent, else it is broken off.
    Broken,
}
use Answer::{Broken, Refused, Whole};

/// A response of an origin.
struct Row {
    method: &'static str,
    bytes: Vec<u8>,
    /// The origin closes the connection behind it; else it goes on to serve.
    closes: bool,
    answer: Answer,
}

/// A response to GET, after which the connection stays.
fn row(bytes: impl Into<Vec<u8>>, answer: Answer) -> Row {
    Row { method: "GET", bytes: bytes.into(), closes: false, answer }
}

/// A response to GET, after which the connection closes.
fn closing(bytes: impl Into<Vec<u8>>, answer: Answer) -> Row {
    Row { closes: true, ..row(bytes, answer) }
}

/// A response to HEAD.
fn head(bytes: impl Into<Vec<u8>>, answer: Answer) -> Row {
    Row { method: "HEAD", ..row(bytes, answer) }
}

/// A 200 of two bytes with these field lines besides.
fn with(fields: &str) -> String {
    format!("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n{fields}\r\nok")
}

/// A 200 whose body is framed by these field lines, with this body.
fn framed(fields: &str, body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\n{fields}\r\n{body}")
}

/// A chunked 200 with these bytes behind its header.
fn chunked(chunks: &str) -> String {
    framed("Transfer-Encoding: chunked\r\n", chunks)
}

/// Whether a row is written at once or byte by byte.
const WAYS: [&str; 2] = ["whole", "bytes"];
/// The response to the request that follows each row.
const NEXT: &str = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nnext";

/// Answers a request for `/N/WAY` with the bytes of that row, and every other one with [`NEXT`].
async fn serve(mut stream: TcpStream, rows: Arc<Vec<Row>>) {
    stream.set_nodelay(true).unwrap();
    let mut seen = Vec::new();
    loop {
        while !seen.ends_with(b"\r\n\r\n") {
            if !matches!(stream.read_buf(&mut seen).await, Ok(1..)) {
                return;
            }
        }
        let text = String::from_utf8(std::mem::take(&mut seen)).unwrap();
        let path = text.split(' ').nth(1).unwrap().to_owned();
        let mut parts = path.split('/').skip(1);
        let Some(row) = parts.next().and_then(|number| number.parse::<usize>().ok()) else {
            if stream.write_all(NEXT.as_bytes()).await.is_err() {
                return;
            }
            continue;
        };
        let Row { bytes, closes, .. } = &rows[row];
        let pieces = if parts.next() == Some(WAYS[1]) { 1 } else { bytes.len().max(1) };
        for piece in bytes.chunks(pieces) {
            // litequic may have closed the connection already.
            if stream.write_all(piece).await.is_err() {
                return;
            }
        }
        if *closes {
            return;
        }
    }
}

async fn origin(rows: Vec<Row>) -> (SocketAddr, Arc<Vec<Row>>) {
    let rows = Arc::new(rows);
    let served = Arc::clone(&rows);
    (Server::start(move |stream| serve(stream, Arc::clone(&served))).await.detach(), rows)
}

/// What a client gets: status and body of a whole response, or none.
type Got = Option<(u16, Vec<u8>)>;

/// By hyper over `protocol`: `http/1.1` or `h2`.
async fn ask_over_tcp(litequic: &Litequic, protocol: &str, method: &str, path: &str) -> Got {
    let config = tls::config(&litequic.cert_pem, &[protocol]);
    let io = TokioIo::new(Tls::connect(litequic.tcp[0], "localhost", config).await.unwrap().stream);
    let request = http::Request::builder().method(method).header("host", "localhost");
    let response = if protocol == "h2" {
        let (mut send, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await.unwrap();
        tokio::spawn(connection);
        let request = request.uri(format!("https://localhost{path}")).body(Empty::<Bytes>::new()).unwrap();
        within("a response", send.send_request(request)).await
    } else {
        let (mut send, connection) = hyper::client::conn::http1::handshake(io).await.unwrap();
        tokio::spawn(connection);
        let request = request.uri(path).body(Empty::<Bytes>::new()).unwrap();
        within("a response", send.send_request(request)).await
    };
    let (parts, body) = response.ok()?.into_parts();
    let body = within("a body", body.collect()).await.ok()?.to_bytes();
    Some((parts.status.as_u16(), body.to_vec()))
}

/// Over HTTP/3.
async fn ask_over_quic(client: &Raw, method: &str, path: &str) -> Got {
    match client.ask(&raw::request(method, path)).await {
        Outcome::Response(response) => Some((response.fields.status(), response.body)),
        Outcome::Reset(code) => {
            assert_eq!(code, ErrorCode::InternalError.wire_value());
            None
        }
        Outcome::Closed(code) => panic!("closed with {code:#x}"),
    }
}

/// Whether `got` is what `answer` says.
fn fits(got: &Got, answer: Answer) -> bool {
    match (got, answer) {
        (Some((status, body)), Whole(expected, text)) => *status == expected && body == text.as_bytes(),
        (Some((status, _)), Refused | Broken) => *status == 502,
        (None, Broken) => true,
        (None, _) => false,
    }
}

/// Asks for each of `rows` over each protocol, and compares the answers.
async fn check(rows: Vec<Row>) {
    let (address, rows) = origin(rows).await;
    let litequic = Litequic::start(address, |_| {}).await;
    let quic = Raw::to(&litequic).await;
    let mut wrong = Vec::new();
    for (number, Row { method, bytes, answer, .. }) in rows.iter().enumerate() {
        let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(160)]);
        for way in WAYS {
            let path = format!("/{number}/{way}");
            for protocol in ["http/1.1", "h2", "h3"] {
                let ask = async |method, path| match protocol {
                    "h3" => ask_over_quic(&quic, method, path).await,
                    _ => ask_over_tcp(&litequic, protocol, method, path).await,
                };
                let got = ask(method, &path).await;
                if !fits(&got, *answer) {
                    let got = got.map(|(status, body)| (status, String::from_utf8_lossy(&body).into_owned()));
                    wrong.push(format!("{method} {shown:?} {way} over {protocol}: {got:?} rather than {answer:?}"));
                }
                let next = ask("GET", "/next").await;
                if !fits(&next, Whole(200, "next")) {
                    wrong.push(format!("{method} {shown:?} {way} over {protocol}: the next request got {next:?}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
    litequic.stop().await;
}

#[tokio::test]
async fn what_an_origin_sends_is_forwarded_or_refused_as_the_table_says() {
    let long = "a".repeat(65 * 1024);
    let many = "x: y\r\n".repeat(101);
    let extension = format!("2;{}\r\nok\r\n0\r\n\r\n", "a".repeat(17 * 1024));
    check(vec![
        // Lines (RFC 9112 §2.2)
        row(with(""), Whole(200, "ok")),
        row("HTTP/1.1 200 OK\nContent-Length: 2\n\nok", Whole(200, "ok")),
        row("\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", Whole(200, "ok")),
        row(with(" X: a\r\n"), Refused),
        row("HTTP/1.1 200 OK\r\n X: a\r\nContent-Length: 2\r\n\r\nok", Refused),
        row(with("X: a\rb\r\n"), Refused),
        row(with("X: a\r\r\n"), Refused),
        row("HTTP/1.1 200 O\rK\r\nContent-Length: 2\r\n\r\nok", Refused),
        closing("this is not HTTP\r\n\r\n", Refused),
        closing("", Refused),
        closing("HTTP/1.1 200 OK\r\nContent-Le", Refused),
        // Status line (§4)
        row("HTTP/1.1 200\r\nContent-Length: 2\r\n\r\nok", Whole(200, "ok")),
        row("HTTP/1.1 200 \r\nContent-Length: 2\r\n\r\nok", Whole(200, "ok")),
        row("HTTP/1.1 200 \u{e9}t\u{e9}\r\nContent-Length: 2\r\n\r\nok", Whole(200, "ok")),
        row("HTTP/1.1 999 Mine\r\nContent-Length: 2\r\n\r\nok", Whole(999, "ok")),
        row("HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", Whole(200, "ok")),
        row("HTTP/1.1 200 O\0K\r\nContent-Length: 2\r\n\r\nok", Refused),
        row("HTTP/1.1  200 OK\r\nContent-Length: 2\r\n\r\nok", Refused),
        row("HTTP/1.1\t200 OK\r\nContent-Length: 2\r\n\r\nok", Refused),
        row(" HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", Refused),
        row("HTTP/1.2 200 OK\r\nContent-Length: 2\r\n\r\nok", Refused),
        row("HTTP/2.0 200 OK\r\nContent-Length: 2\r\n\r\nok", Refused),
        row("HTTP/1.10 200 OK\r\nContent-Length: 2\r\n\r\nok", Refused),
        row("http/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", Refused),
        row("ICY 200 OK\r\nContent-Length: 2\r\n\r\nok", Refused),
        row("HTTP/1.1 20 OK\r\nContent-Length: 2\r\n\r\nok", Refused),
        row("HTTP/1.1 2000 OK\r\nContent-Length: 2\r\n\r\nok", Refused),
        row("HTTP/1.1 2x0 OK\r\nContent-Length: 2\r\n\r\nok", Refused),
        row("HTTP/1.1 099 OK\r\nContent-Length: 2\r\n\r\nok", Refused),
        row("HTTP/1.1 -20 OK\r\nContent-Length: 2\r\n\r\nok", Refused),
        // Fields (§5)
        row(with("X: a\tb\r\n"), Whole(200, "ok")),
        row(with("X: \u{e9}\r\n"), Whole(200, "ok")),
        row(with("X:\r\n"), Whole(200, "ok")),
        row(with("X: a\r\n b\r\n"), Refused),
        row(with("X: a\r\n\tb\r\n"), Refused),
        row(with("X : a\r\n"), Refused),
        row(with("X Y: a\r\n"), Refused),
        row(with("X(: a\r\n"), Refused),
        row(with("X\u{e9}: a\r\n"), Refused),
        row(with(": a\r\n"), Refused),
        row(with("X\r\n"), Refused),
        row(with("X: a\0b\r\n"), Refused),
        row(with("X: a\u{1}b\r\n"), Refused),
        row(with("X: a\u{7f}\r\n"), Refused),
        row(with(&many), Refused),
        row(with(&format!("X: {long}\r\n")), Refused),
        // Framing (§6.3)
        row(framed("Content-Length: 2\r\nTransfer-Encoding: chunked\r\n", "2\r\nok\r\n0\r\n\r\n"), Refused),
        row(framed("Transfer-Encoding: chunked\r\nContent-Length: 2\r\n", "2\r\nok\r\n0\r\n\r\n"), Refused),
        row(framed("Transfer-Encoding: chunked\r\ncontent-length: 12\r\n", "2\r\nok\r\n0\r\n\r\n"), Refused),
        row(framed("Transfer-Encoding: chunked\r\n", "2\r\nok\r\n0\r\n\r\n"), Whole(200, "ok")),
        row(framed("transfer-encoding: CHUNKED\r\n", "2\r\nok\r\n0\r\n\r\n"), Whole(200, "ok")),
        row(framed("Transfer-Encoding: gzip, chunked\r\n", "2\r\nok\r\n0\r\n\r\n"), Refused),
        row(framed("Transfer-Encoding: chunked, gzip\r\n", "2\r\nok\r\n0\r\n\r\n"), Refused),
        row(framed("Transfer-Encoding: chunked, chunked\r\n", "2\r\nok\r\n0\r\n\r\n"), Refused),
        row(framed("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"), Refused),
        closing(framed("Transfer-Encoding: identity\r\n", "ok"), Refused),
        closing(framed("Transfer-Encoding: xchunked\r\n", "ok"), Refused),
        row(framed("Transfer-Encoding: chunked;a=b\r\n", "0\r\n\r\n"), Refused),
        row(framed("Transfer-Encoding: \"chunked\"\r\n", "0\r\n\r\n"), Refused),
        closing(framed("Transfer-Encoding:\r\n", "ok"), Refused),
        row("HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", Refused),
        row(framed("Content-Length: 2\r\nContent-Length: 2\r\n", "ok"), Whole(200, "ok")),
        row(framed("Content-Length: 2, 2\r\n", "ok"), Whole(200, "ok")),
        row(framed("Content-Length: 2\r\nContent-Length: 3\r\n", "ok"), Refused),
        row(framed("Content-Length: 2, 3\r\n", "ok"), Refused),
        row(framed("Content-Length: +2\r\n", "ok"), Refused),
        row(framed("Content-Length: -2\r\n", "ok"), Refused),
        row(framed("Content-Length: 0x2\r\n", "ok"), Refused),
        row(framed("Content-Length: 2 2\r\n", "ok"), Refused),
        row(framed("Content-Length: 2;\r\n", "ok"), Refused),
        row(framed("Content-Length:\r\n", "ok"), Refused),
        row(framed("Content-Length: 99999999999999999999\r\n", "ok"), Refused),
        closing(framed("", "ok"), Whole(200, "ok")),
        closing("HTTP/1.0 200 OK\r\n\r\nok", Whole(200, "ok")),
        closing(framed("Content-Length: 3\r\n", "ok"), Broken),
        row(framed("Content-Length: 2\r\n", "okmore"), Whole(200, "ok")),
        row([with(""), with("")].concat(), Whole(200, "ok")),
        row("HTTP/1.1 204 No Content\r\n\r\n", Whole(204, "")),
        row("HTTP/1.1 204 No Content\r\nContent-Length: 2\r\n\r\nok", Whole(204, "")),
        row("HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", Whole(204, "")),
        row("HTTP/1.1 304 Not Modified\r\nContent-Length: 2\r\n\r\n", Whole(304, "")),
        row("HTTP/1.1 304 Not Modified\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n", Refused),
        row("HTTP/1.1 304 Not Modified\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n", Refused),
        head("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n", Whole(200, "")),
        head("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", Whole(200, "")),
        head("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", Whole(200, "")),
        head("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", Whole(200, "")),
        row(with(&"x: y\r\n".repeat(90)), Whole(200, "ok")),
        head("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n", Refused),
        // Interim responses (RFC 9110 §15.2)
        row(format!("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n{}", with("")), Whole(200, "ok")),
        row(format!("HTTP/1.1 100 Continue\r\n\r\n{}", with("")), Whole(200, "ok")),
        row(format!("HTTP/1.1 103 Early Hints\r\nContent-Length: 2\r\n\r\n{}", with("")), Whole(200, "ok")),
        row(
            format!("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n{}", with("")),
            Refused,
        ),
        row(format!("{}{}", "HTTP/1.1 103 Early Hints\r\n\r\n".repeat(1_000), with("")), Whole(200, "ok")),
        row("HTTP/1.1 103 Early Hints\r\n\r\n".repeat(1_001), Refused),
        // Chunks (§7.1)
        row(chunked("02\r\nok\r\n0\r\n\r\n"), Whole(200, "ok")),
        row(chunked("2;a=b;c=\"d\"\r\nok\r\n0;e\r\n\r\n"), Whole(200, "ok")),
        row(chunked("2 ; a=b\r\nok\r\n0\r\n\r\n"), Whole(200, "ok")),
        row(chunked("1\r\no\r\n1\r\nk\r\n00\r\n\r\n"), Whole(200, "ok")),
        row(chunked("2\nok\r\n0\r\n\r\n"), Broken),
        row(chunked("2\r\nok\n0\r\n\r\n"), Broken),
        row(chunked("2\r\nok0\r\n\r\n"), Broken),
        row(chunked("2\r\nokX\r\n0\r\n\r\n"), Broken),
        row(chunked("3\r\nok\r\n0\r\n\r\n"), Broken),
        row(chunked("+2\r\nok\r\n0\r\n\r\n"), Broken),
        row(chunked("-2\r\nok\r\n0\r\n\r\n"), Broken),
        row(chunked("0x2\r\nok\r\n0\r\n\r\n"), Broken),
        row(chunked(" 2\r\nok\r\n0\r\n\r\n"), Broken),
        row(chunked("2 2\r\nok\r\n0\r\n\r\n"), Broken),
        row(chunked("\r\nok\r\n0\r\n\r\n"), Broken),
        row(chunked("g\r\nok\r\n0\r\n\r\n"), Broken),
        row(chunked("10000000000000002\r\nok\r\n0\r\n\r\n"), Broken),
        row(chunked("2;a\nb\r\nok\r\n0\r\n\r\n"), Broken),
        row(chunked("2;a\rb\r\nok\r\n0\r\n\r\n"), Broken),
        row(chunked("2 \r\nok\r\n0\r\n\r\n"), Broken),
        row(chunked("2\t\r\nok\r\n0\r\n\r\n"), Broken),
        row(chunked("2\r\nok\r\n0 \r\n\r\n"), Broken),
        row(chunked("2;\u{1}\r\nok\r\n0\r\n\r\n"), Broken),
        row(chunked("2;a=\"\u{e9}\"\r\nok\r\n0\r\n\r\n"), Whole(200, "ok")),
        row(chunked("00000000000000002\r\nok\r\n0\r\n\r\n"), Broken),
        row(chunked(&extension), Broken),
        closing(chunked("2\r\nok\r\n"), Broken),
        closing(chunked("2\r\nok\r\n0\r\n"), Broken),
        closing(chunked("2\r\no"), Broken),
        closing(chunked("2\r\nok\r\n0\r\n\r\nmore"), Whole(200, "ok")),
        // Trailers (§7.1.2)
        row(chunked("2\r\nok\r\n0\r\nX: a\r\n\r\n"), Whole(200, "ok")),
        row(chunked("2\r\nok\r\n0\r\nContent-Length: 9\r\n\r\n"), Whole(200, "ok")),
        row(chunked("2\r\nok\r\n0\r\nX Y: a\r\n\r\n"), Broken),
        row(chunked("2\r\nok\r\n0\r\nX\r\n\r\n"), Broken),
        row(chunked("2\r\nok\r\n0\r\nX: a\r\n b\r\n\r\n"), Broken),
        row(chunked("2\r\nok\r\n0\r\nX: a\0b\r\n\r\n"), Broken),
        row(chunked("2\r\nok\r\n0\r\nX: a\nY: b\r\n\r\n"), Broken),
        closing(chunked("2\r\nok\r\n0\r\nX: a\n\r\n"), Broken),
        closing(chunked("2\r\nok\r\n0\n\n"), Broken),
        row(chunked(&format!("2\r\nok\r\n0\r\n{many}\r\n")), Broken),
        row(chunked(&format!("2\r\nok\r\n0\r\nX: {long}\r\n\r\n")), Broken),
    ])
    .await;
}
