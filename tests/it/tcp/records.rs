//! The TLS records in which responses are sent: the first ones fit into TCP's first congestion window, and small
//! responses share them.

use crate::{
    rules::configured,
    support::{
        http2::{DATA, END_HEADERS, END_STREAM, HEADERS, frame, get},
        prelude::*,
    },
};
use tokio::{io::copy, net::TcpListener, task::JoinHandle};

/// A record of application data (RFC 8446 §5.1), and what a record has beside its plaintext: a type, and AES-GCM's tag.
const APPLICATION_DATA: u8 = 23;
const OVERHEAD: usize = 17;
const BODY: usize = 200_000;

/// Forwards one connection to `to`; returns what the server has sent, at the end.
async fn relay(to: SocketAddr) -> (SocketAddr, JoinHandle<Vec<u8>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let relayed = tokio::spawn(async move {
        let (client, _) = listener.accept().await.unwrap();
        let (mut from_client, mut to_client) = client.into_split();
        let (mut from_server, mut to_server) = TcpStream::connect(to).await.unwrap().into_split();
        let requests = tokio::spawn(async move { copy(&mut from_client, &mut to_server).await });
        let (mut sent, mut piece) = (Vec::new(), vec![0; 1 << 16]);
        loop {
            let length = from_server.read(&mut piece).await.unwrap_or(0);
            if length == 0 || to_client.write_all(&piece[..length]).await.is_err() {
                break;
            }
            sent.extend_from_slice(&piece[..length]);
        }
        requests.abort();
        sent
    });
    (address, relayed)
}

/// The lengths of the plaintexts of the records of application data.
fn plaintexts(mut sent: &[u8]) -> Vec<usize> {
    let mut lengths = Vec::new();
    while let [kind, _, _, high, low, rest @ ..] = sent {
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        if *kind == APPLICATION_DATA {
            lengths.push(length - OVERHEAD);
        }
        sent = rest.get(length..).unwrap_or_default();
    }
    lengths
}

#[tokio::test]
async fn the_first_records_of_a_connection_fit_into_the_first_congestion_window() {
    let (script, litequic) = Script::behind_litequic(|_| {}).await;
    let (address, relayed) = relay(litequic.tcp[0]).await;
    let mut client = Tls::connect(address, "localhost", tls::config(&litequic.cert_pem, &["http/1.1"])).await.unwrap();
    client.say("GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await;
    let mut peer = script.accept_request().await;
    peer.say(format!("HTTP/1.1 200 OK\r\nContent-Length: {BODY}\r\n\r\n{}", "x".repeat(BODY))).await;
    client.head().await;
    assert_eq!(client.exactly(BODY).await, vec![b'x'; BODY]);
    drop(client);
    let lengths = plaintexts(&within("the relay's end", relayed).await.unwrap());
    let mut before = 0;
    for length in &lengths {
        assert!(*length <= 4096 || before >= 32 * 1024, "{lengths:?}");
        before += length;
    }
    assert!(lengths.iter().any(|length| *length > 8 * 1024), "{lengths:?}");
    litequic.stop().await;
}

#[tokio::test]
async fn http2_responses_ready_together_share_records() {
    const STREAMS: u32 = 10;
    let route = format!("[[routes]]\npath = \"/\"\nrespond = {{ body = \"{}\" }}", "x".repeat(600));
    let litequic = Litequic::with_config(&configured(Script::new().await.address, &route)).await;
    let (address, relayed) = relay(litequic.tcp[0]).await;
    let tls = Tls::connect(address, "localhost", tls::config(&litequic.cert_pem, &["h2"])).await.unwrap();
    let mut client = Http2::over(tls, &[]).await;
    let section = get(&[]);
    let requests = (0..STREAMS).flat_map(|n| frame(HEADERS, END_HEADERS | END_STREAM, 2 * n + 1, &section));
    client.tls.say(requests.collect::<Vec<_>>()).await;
    for _ in 0..STREAMS {
        assert_eq!(client.find(&[DATA]).await.unwrap().payload.len(), 600);
    }
    drop(client);
    let lengths = plaintexts(&within("the relay's end", relayed).await.unwrap());
    // The first records are short.
    assert!(lengths.contains(&4096), "{lengths:?}");
    litequic.stop().await;
}
