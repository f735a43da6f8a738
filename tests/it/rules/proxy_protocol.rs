//! The PROXY protocol before TLS and before plain HTTP.

use super::{configured, started};
use crate::support::prelude::*;
use rustls::pki_types::ServerName;
use tokio_rustls::TlsConnector;

const FROM_HERE: &str = "listen.proxy_protocol_from = [\"127.0.0.0/8\"]";
const V1: &[u8] = b"PROXY TCP4 192.0.2.7 198.51.100.1 4433 443\r\n";

fn v2(command: u8, family: u8, payload: &[u8]) -> Vec<u8> {
    let length = u16::try_from(payload.len()).unwrap().to_be_bytes();
    [b"\r\n\r\n\0\r\nQUIT\n", &[0x20 | command, family][..], &length, payload].concat()
}

/// A connection that begins with `pieces`, each in a segment of its own, and then speaks TLS.
async fn begun(litequic: &Litequic, pieces: &[&[u8]]) -> std::io::Result<tokio_rustls::client::TlsStream<TcpStream>> {
    let mut stream = within("a TCP connection", TcpStream::connect(litequic.tcp[0])).await?;
    stream.set_nodelay(true)?;
    for piece in pieces {
        stream.write_all(piece).await?;
        tokio::task::yield_now().await;
    }
    let connector = TlsConnector::from(Arc::new(tls::config(&litequic.cert_pem, &["http/1.1"])));
    within("a TLS handshake", connector.connect(ServerName::try_from("localhost").unwrap(), stream)).await
}

async fn asked(stream: &mut tokio_rustls::client::TlsStream<TcpStream>) -> String {
    stream.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    within("an answer", stream.read_to_string(&mut answer)).await.unwrap();
    answer
}

#[tokio::test]
async fn the_client_is_whom_the_header_names() {
    let ipv6 = [&[0x20, 1, 0x0d, 0xb8][..], &[0; 11], &[7], &[0; 15], &[1], &[0x11, 0x51, 1, 0xbb]].concat();
    let (whole_v6, local) = (v2(1, 0x21, &ipv6), v2(0, 0, &[]));
    let extended =
        v2(1, 0x11, &[&[192, 0, 2, 7, 198, 51, 100, 1, 0x11, 0x51, 1, 0xbb][..], &[4, 1, 0], &[0; 256]].concat());
    let cases: [(&[&[u8]], &str); 7] = [
        (&[V1], "192.0.2.7"),
        (&[&V1[..3], &V1[3..20], &V1[20..]], "192.0.2.7"),
        (&[b"PROXY UNKNOWN\r\n"], "127.0.0.1"),
        (&[&whole_v6], "2001:db8::7"),
        (&[&whole_v6[..5], &whole_v6[5..17], &whole_v6[17..]], "2001:db8::7"),
        (&[&extended], "192.0.2.7"),
        (&[&local], "127.0.0.1"),
    ];
    for (pieces, address) in cases {
        let origin = Always::new(Always::EMPTY_200).await;
        let litequic = started(origin.address, FROM_HERE).await;
        let mut stream = begun(&litequic, pieces).await.unwrap();
        assert!(asked(&mut stream).await.starts_with("HTTP/1.1 200 "));
        let seen = origin.seen().to_ascii_lowercase();
        assert!(seen.contains(&format!("\r\nx-forwarded-for: {address}\r\n")), "{seen}");
        assert_eq!(litequic.sum(|worker| worker.tcp.tcp_proxy_headers.get()), 1);
        litequic.stop().await;
    }
}

#[tokio::test]
async fn what_is_no_header_is_closed_and_counted() {
    let origin = Always::new(Always::EMPTY_200).await;
    let litequic = started(origin.address, FROM_HERE).await;
    let too_long = [b"PROXY UNKNOWN ", &[b'x'; 200][..], b"\r\n"].concat();
    let beyond = v2(1, 0, &[0; 4097]);
    let cut = v2(1, 0x11, &[0; 5]);
    let cases: [&[u8]; 7] = [
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"PROXY TCP4 192.0.2.7 198.51.100.1 4433\r\n",
        b"PROXY \n\n\n\n\n\n\n\n",
        &too_long,
        &beyond,
        &cut,
        &v2(2, 0x11, &[0; 12]),
    ];
    for (n, bytes) in (1..).zip(cases) {
        let mut stream = TcpStream::connect(litequic.tcp[0]).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        let mut answer = Vec::new();
        // A reset, where it has not read all.
        let _ = within("the connection's end", stream.read_to_end(&mut answer)).await;
        assert_eq!(String::from_utf8_lossy(&answer), "");
        let count = |worker: &WorkerMetrics| worker.tcp.tcp_handshakes_proxy_header.get();
        litequic.wait_until("the count", count, |count| count == n).await;
    }
    // TLS without a header.
    Tls::connect(litequic.tcp[0], "localhost", tls::config(&litequic.cert_pem, &["http/1.1"])).await.err().unwrap();
    // A connection that goes away within one.
    let mut stream = TcpStream::connect(litequic.tcp[0]).await.unwrap();
    stream.write_all(&V1[..20]).await.unwrap();
    drop(stream);
    litequic.wait_until("closed", |worker| worker.tcp.tcp_handshakes_closed.get(), |count| count == 1).await;
    assert_eq!(origin.connections(), 0);
    litequic.stop().await;
}

#[tokio::test]
async fn from_others_a_header_is_no_header() {
    let origin = Always::new(Always::EMPTY_200).await;
    let litequic = started(origin.address, "listen.proxy_protocol_from = \"192.0.2.0/24\"").await;
    begun(&litequic, &[V1]).await.err().unwrap();
    litequic.wait_until("plain", |worker| worker.tcp.tcp_handshakes_plain.get(), |count| count == 1).await;
    let mut stream = begun(&litequic, &[]).await.unwrap();
    assert!(asked(&mut stream).await.starts_with("HTTP/1.1 200 "));
    assert!(origin.seen().to_ascii_lowercase().contains("x-forwarded-for: 127.0.0.1\r\n"));
    litequic.stop().await;
}

#[tokio::test]
async fn a_header_that_does_not_come_in_time_ends_its_connection() {
    let origin = Always::new(Always::EMPTY_200).await;
    let mut config = configured(origin.address, FROM_HERE);
    config.timeouts.handshake = Duration::from_millis(100);
    let litequic = Litequic::with_config(&config).await;
    for begin in [&V1[..20], b""] {
        let before = litequic.sum(|worker| worker.tcp.timeout_handshake.get());
        let mut stream = TcpStream::connect(litequic.tcp[0]).await.unwrap();
        stream.write_all(begin).await.unwrap();
        let _ = within("the connection's end", stream.read_to_end(&mut Vec::new())).await;
        litequic.wait_until("counted", |worker| worker.tcp.timeout_handshake.get(), |count| count == before + 1).await;
    }
    litequic.stop().await;
}

#[tokio::test]
async fn plain_http_may_begin_with_a_header_too() {
    let origin = Always::new(Always::EMPTY_200).await;
    let mut config = configured(origin.address, FROM_HERE);
    config.listen.redirect = vec![([127, 0, 0, 1], 0).into()];
    let litequic = Litequic::with_config(&config).await;
    let request = b"GET /a HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    let mut stream = TcpStream::connect(litequic.redirects[0]).await.unwrap();
    stream.write_all(&[V1, request].concat()).await.unwrap();
    let mut answer = String::new();
    within("a redirect", stream.read_to_string(&mut answer)).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 308 "), "{answer}");

    let mut stream = TcpStream::connect(litequic.redirects[0]).await.unwrap();
    stream.write_all(request).await.unwrap();
    let mut answer = Vec::new();
    let _ = within("the connection's end", stream.read_to_end(&mut answer)).await;
    assert!(answer.is_empty());
    litequic.stop().await;
}

/// The header's client is who a proxy is trusted as, and whose requests are counted.
#[tokio::test]
async fn rules_and_trust_go_by_the_headers_client() {
    let origin = Always::new(Always::EMPTY_200).await;
    let text = format!(
        "trusted_proxies = \"127.0.0.0/8\"\n{FROM_HERE}\n\
         routes = [{{ origin = \"origin\", rate_limit = \"1/h\" }}]"
    );
    let litequic = started(origin.address, &text).await;
    for (source, status) in [("192.0.2.7", "200"), ("192.0.2.7", "429"), ("192.0.2.8", "200")] {
        let header = format!("PROXY TCP4 {source} 198.51.100.1 4433 443\r\n");
        let mut stream = begun(&litequic, &[header.as_bytes()]).await.unwrap();
        stream
            .write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Forwarded-For: 6.6.6.6\r\nConnection: close\r\n\r\n")
            .await
            .unwrap();
        let mut answer = String::new();
        within("an answer", stream.read_to_string(&mut answer)).await.unwrap();
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{source}: {answer}");
    }
    assert!(!origin.seen().contains("6.6.6.6"));
    litequic.stop().await;
}

#[tokio::test]
async fn who_may_come_in_goes_by_the_headers_client() {
    let origin = Always::new(Always::EMPTY_200).await;
    let text = format!("{FROM_HERE}\nroutes = [{{ origin = \"origin\", deny = [\"192.0.2.7\", \"2001:db8::/32\"] }}]");
    let litequic = started(origin.address, &text).await;
    for (header, status) in [
        ("PROXY TCP4 192.0.2.7 198.51.100.1 4433 443\r\n", "403"),
        ("PROXY TCP4 192.0.2.8 198.51.100.1 4433 443\r\n", "200"),
        ("PROXY TCP6 2001:db8::7 2001:db8::1 4433 443\r\n", "403"),
        ("PROXY TCP6 ::ffff:192.0.2.7 2001:db8::1 4433 443\r\n", "403"),
        ("PROXY UNKNOWN\r\n", "200"),
    ] {
        let mut stream = begun(&litequic, &[header.as_bytes()]).await.unwrap();
        let answer = asked(&mut stream).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{header}: {answer}");
    }
    litequic.stop().await;
}
