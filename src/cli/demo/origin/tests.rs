//! Tests the origin with raw HTTP/1.1 over 127.0.0.1.

use super::*;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::timeout,
};

const DEADLINE: Duration = Duration::from_secs(20);

async fn start() -> (SocketAddr, tokio::task::JoinHandle<()>) {
    let (address, serve) = DemoOrigin::bind_origin(([127, 0, 0, 1], 0).into()).await.unwrap();
    (address, tokio::spawn(serve))
}

/// Sends `request` and returns all bytes until the connection ends.
async fn exchange(address: SocketAddr, request: impl AsRef<[u8]>) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request.as_ref()).await.unwrap();
    let mut answer = Vec::new();
    timeout(DEADLINE, stream.read_to_end(&mut answer)).await.expect("the connection ends").unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

async fn ask(address: SocketAddr, line: &str, fields: &str) -> String {
    exchange(address, format!("{line} HTTP/1.1\r\nHost: demo\r\nConnection: close\r\n{fields}\r\n")).await
}

#[tokio::test]
async fn each_path_of_the_demo_origin_answers() {
    let (address, _task) = start().await;
    let cases = [
        ("GET /", "", "200 OK", "nextHopProtocol"),
        ("GET /?x=1", "", "200 OK", "text/html"),
        ("GET /image/3.svg", "", "200 OK", "</svg>"),
        ("GET /image/3.png", "", "404 Not Found", ""),
        ("GET /bytes/3", "", "200 OK", "content-length: 3\r\n"),
        ("GET /bytes/0", "", "200 OK", "content-length: 0\r\n"),
        ("GET /bytes/101G", "", "400 Bad Request", "at most 100000000000"),
        ("HEAD /bytes/100G", "", "200 OK", "content-length: 100000000000\r\n"),
        ("GET /bytes/100", "Range: bytes=65-69\r\n", "206 Partial Content", "\r\n\r\nABCDE"),
        ("GET /bytes/100", "Range: bytes=65-69\r\n", "206 Partial Content", "content-range: bytes 65-69/100\r\n"),
        ("GET /bytes/100", "Range: bytes=100-\r\n", "416 Range Not Satisfiable", "content-range: bytes */100\r\n"),
        ("GET /bytes/100", "Range: bytes=1-2\r\nIf-Range: \"x\"\r\n", "200 OK", "content-length: 100\r\n"),
        ("GET /slow/1", "", "200 OK", "after 1 ms\n"),
        ("GET /slow/60001", "", "400 Bad Request", "at most 60000"),
        ("GET /status/418", "", "418 I'm a teapot", "418 I'm a teapot\n"),
        ("GET /status/299", "", "299 ", ""),
        ("GET /status/101", "", "400 Bad Request", ""),
        ("GET /status/99999", "", "400 Bad Request", ""),
        ("GET /headers", "X-One: 1\r\n", "200 OK", "GET /headers HTTP/1.1\nhost: demo\nconnection: close\nx-one: 1\n"),
        ("GET /echo", "", "405 Method Not Allowed", "allow: POST, PUT\r\n"),
        ("DELETE /", "", "405 Method Not Allowed", ""),
        ("GET /nothing", "", "404 Not Found", "not found\n"),
        ("GET /bytes/3/", "", "404 Not Found", ""),
    ];
    for (line, fields, status, part) in cases {
        let answer = ask(address, line, fields).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{line}: {answer}");
        assert!(answer.contains(part), "{line}: {answer}");
    }
}

#[tokio::test]
async fn no_content_has_no_body_and_no_length() {
    let (address, _task) = start().await;
    let answer = ask(address, "GET /status/204", "").await;
    assert!(answer.starts_with("HTTP/1.1 204 ") && answer.ends_with("\r\n\r\n"), "{answer}");
    assert!(!answer.contains("content-length") && !answer.contains("transfer-encoding"), "{answer}");
}

#[tokio::test]
async fn a_body_is_echoed_while_it_is_still_sent() {
    let (address, _task) = start().await;
    let mut stream = TcpStream::connect(address).await.unwrap();
    let head =
        "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Type: a/b\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    let first = async {
        while !answer.windows(5).any(|window| window == b"first") {
            assert_ne!(stream.read_buf(&mut answer).await.unwrap(), 0);
        }
    };
    timeout(DEADLINE, first).await.expect("the first chunk comes back before the last is sent");
    let head = String::from_utf8(answer).unwrap();
    assert!(head.contains("content-type: a/b\r\n") && head.contains("transfer-encoding: chunked\r\n"), "{head}");
}

#[tokio::test]
async fn bodies_are_echoed_with_their_length_and_counted() {
    let (address, _task) = start().await;
    let body = "x".repeat(100_000);
    let fields = format!("Content-Length: {}\r\n\r\n{body}", body.len());
    // head -c 100000 /dev/zero | tr '\\0' x | sha256sum
    let counted = "100000 d69e68988157833272305aaf21f453c800346e8a3640db6578e260215542e5d4\n";
    for (line, part) in [("PUT /echo", body.as_str()), ("POST /sink", counted)] {
        let request = format!("{line} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{fields}");
        let answer = exchange(address, request).await;
        let (head, content) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("content-length: {}", part.len())), "{head}");
        assert!(content == part, "{line}: {} bytes", content.len());
    }
}

#[tokio::test]
async fn a_large_body_is_complete() {
    let (address, _task) = start().await;
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(b"GET /bytes/5M HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    timeout(DEADLINE, stream.read_to_end(&mut answer)).await.unwrap().unwrap();
    let body = &answer[answer.len() - 5_000_000..];
    assert!(body.iter().enumerate().all(|(at, byte)| usize::from(*byte) == at % 251));
}

#[tokio::test]
async fn early_hints_come_before_the_answer_and_once() {
    let (address, _task) = start().await;
    let request =
        "GET /early-hints HTTP/1.1\r\nHost: a\r\n\r\nGET /slow/0 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    let answer = exchange(address, request).await;
    let (first, rest) = answer.split_once("\r\n\r\n").unwrap();
    assert_eq!(first, "HTTP/1.1 103 Early Hints\r\nlink: </image/0.svg>; rel=preload; as=image");
    assert!(rest.starts_with("HTTP/1.1 200 OK\r\n"), "{rest}");
    assert_eq!(answer.matches("HTTP/1.1 ").count(), 3, "{answer}");
}

#[tokio::test]
async fn invalid_http_is_rejected_and_harms_no_other_client() {
    let (address, _task) = start().await;
    assert!(exchange(address, "\x16\x03\x01\r\n\r\n").await.starts_with("HTTP/1.1 400 "));
    // This upload ends early.
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(b"POST /sink HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhalf").await.unwrap();
    stream.shutdown().await.unwrap();
    let mut answer = String::new();
    timeout(DEADLINE, stream.read_to_string(&mut answer)).await.unwrap().unwrap();
    assert!(!answer.contains("200"), "{answer}");
    assert!(ask(address, "GET /bytes/1", "").await.contains(" 200 "));
}
