//! Clients that switch protocols over each HTTP version, and an origin that echoes WebSocket messages.

use super::prelude::*;
use futures_util::{SinkExt, StreamExt};
use http::Request;
use http_body_util::{BodyExt, Empty};
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::io::Cursor;
use tokio::{
    io::{AsyncRead, AsyncWrite, duplex, join, split},
    task::JoinSet,
};
use tokio_tungstenite::{WebSocketStream, accept_async, tungstenite::protocol::Role};

/// By which a client comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HttpVersion {
    Http1,
    Http2,
    Http3,
}

impl HttpVersion {
    pub(crate) const ALL: [Self; 3] = [Self::Http1, Self::Http2, Self::Http3];

    /// The status of a successful switch.
    pub(crate) const fn yes(self) -> u16 {
        match self {
            Self::Http1 => 101,
            Self::Http2 | Self::Http3 => 200,
        }
    }
}

/// Bytes both ways.
pub(crate) trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

/// What a client sees of its request: the answer, and the tunnel if that was a yes.
pub(crate) struct Switched {
    pub(crate) status: u16,
    /// In lower case, a line each.
    pub(crate) head: String,
    pub(crate) body: String,
    pub(crate) stream: Option<Box<dyn Duplex>>,
    /// What the connection needs to go on.
    _kept: JoinSet<()>,
}

impl Switched {
    /// The tunnel, and what has to be kept for it.
    pub(crate) fn tunnel(self) -> (Box<dyn Duplex>, JoinSet<()>) {
        (self.stream.unwrap_or_else(|| panic!("{}: {}", self.head, self.body)), self._kept)
    }
}

/// Requests `protocol` at `path` `over` an HTTP version, with `more` fields.
pub(crate) async fn switch(
    litequic: &Litequic,
    over: HttpVersion,
    path: &str,
    protocol: &'static str,
    more: &[(&str, &str)],
) -> Switched {
    match over {
        HttpVersion::Http1 => by_http1(litequic, path, protocol, more).await,
        HttpVersion::Http2 => by_http2(litequic, path, protocol, more).await,
        HttpVersion::Http3 => by_http3(litequic, path, protocol, more).await,
    }
}

/// A WebSocket at `path` `over` an HTTP version.
pub(crate) async fn websocket(
    litequic: &Litequic,
    over: HttpVersion,
    path: &str,
) -> (WebSocketStream<Box<dyn Duplex>>, JoinSet<()>) {
    if over == HttpVersion::Http1 {
        // With the client's own handshake, which checks the answer to its key.
        let stream: Box<dyn Duplex> = Box::new(Tls::http1(litequic).await.stream);
        let asked = tokio_tungstenite::client_async(format!("wss://localhost{path}"), stream);
        return (within("a WebSocket", asked).await.unwrap().0, JoinSet::new());
    }
    let (stream, kept) = switch(litequic, over, path, "websocket", &[("sec-websocket-version", "13")]).await.tunnel();
    (WebSocketStream::from_raw_socket(stream, Role::Client, None).await, kept)
}

async fn by_http1(litequic: &Litequic, path: &str, protocol: &str, more: &[(&str, &str)]) -> Switched {
    let mut tls = Tls::http1(litequic).await;
    let more: String = more.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: {protocol}\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{more}\r\n"
    );
    tls.say(request).await;
    let head = tls.head().await;
    let status = head[9..12].parse().unwrap();
    let mut switched = Switched { status, head, body: String::new(), stream: None, _kept: JoinSet::new() };
    if status == 101 {
        let (stream, seen) = tls.into_parts();
        let (read, write) = split(stream);
        switched.stream = Some(Box::new(join(Cursor::new(seen).chain(read), write)));
    }
    switched
}

async fn by_http2(litequic: &Litequic, path: &str, protocol: &'static str, more: &[(&str, &str)]) -> Switched {
    let tls = Tls::connect(litequic.tcp[0], "localhost", tls::config(&litequic.cert_pem, &["h2"])).await.unwrap();
    let io = TokioIo::new(tls.stream);
    let (mut requests, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await.expect("HTTP/2");
    // h2 sends no `:protocol` before the server's SETTINGS allow it.
    let mut connection = Box::pin(connection);
    let enabled = async {
        while !connection.is_extended_connect_protocol_enabled() {
            let ended = timeout(LOOK_AGAIN, connection.as_mut()).await;
            assert!(ended.is_err(), "the connection ended: {ended:?}");
        }
    };
    within("SETTINGS_ENABLE_CONNECT_PROTOCOL", enabled).await;
    let mut kept = JoinSet::new();
    kept.spawn(async move {
        // The streams report how it ends.
        let _ = connection.await;
    });
    let mut request = Request::builder().method(Method::CONNECT).uri(format!("https://localhost{path}"));
    for (name, value) in more {
        request = request.header(*name, *value);
    }
    let request = request.extension(hyper::ext::Protocol::from_static(protocol)).body(Empty::<Bytes>::new());
    let mut response = within("a response", requests.send_request(request.unwrap())).await.unwrap();
    let status = response.status().as_u16();
    let head = format!("{:?}", response.headers());
    let mut switched = Switched { status, head, body: String::new(), stream: None, _kept: kept };
    if status == 200 {
        let upgraded = within("the stream", hyper::upgrade::on(&mut response)).await.unwrap();
        switched.stream = Some(Box::new(TokioIo::new(upgraded)));
    } else {
        let body = within("the body", response.into_body().collect()).await.unwrap().to_bytes();
        switched.body = String::from_utf8_lossy(&body).into_owned();
    }
    // Dropped, it would end the connection in time.
    switched._kept.spawn(async move {
        let _requests = requests;
        std::future::pending::<()>().await;
    });
    switched
}

/// The header of an extended CONNECT.
pub(crate) fn connect<'a>(path: &'a str, protocol: &'a str, more: &[(&'a str, &'a str)]) -> Vec<u8> {
    let fields = [raw::pseudo("CONNECT", path), vec![(":protocol", protocol)], more.to_vec()].concat();
    raw::headers(&fields)
}

async fn by_http3(litequic: &Litequic, path: &str, protocol: &str, more: &[(&str, &str)]) -> Switched {
    let raw = Raw::to(litequic).await;
    let mut exchange = raw.open(&connect(path, protocol, more)).await;
    let (fields, rest) = exchange.header_and_rest().await;
    let (status, head) = (fields.status(), format!("{:?}", fields.0));
    let mut switched = Switched { status, head, body: String::new(), stream: None, _kept: JoinSet::new() };
    if status != 200 {
        exchange.finish();
        let body = within("the body", exchange.receive.read_to_end(usize::MAX)).await.unwrap_or_default();
        switched.body = String::from_utf8_lossy(&[rest, body].concat()).into_owned();
        return switched;
    }
    let (ours, theirs) = duplex(64 * 1024);
    let (mut from_us, mut to_us) = split(theirs);
    let (mut send, mut receive) = (exchange.send, exchange.receive);
    switched._kept.spawn(async move {
        let mut piece = vec![0; 16 * 1024];
        while let Ok(length @ 1..) = from_us.read(&mut piece).await {
            if send.write_all(&raw::data(&piece[..length])).await.is_err() {
                return;
            }
        }
        // An error means that litequic has closed it.
        let _ = send.finish();
        let _ = send.stopped().await;
    });
    switched._kept.spawn(async move {
        let _connection = raw;
        let mut seen = rest;
        loop {
            while let Some((payload, length)) = raw::next_data(&seen) {
                to_us.write_all(payload).await.expect("a reader");
                seen.drain(..length);
            }
            match receive.read_chunk(usize::MAX, true).await {
                Ok(Some(chunk)) => seen.extend_from_slice(&chunk.bytes),
                Ok(None) => break,
                // A reader sees that less came than it wanted.
                Err(_) => break,
            }
        }
        let _ = to_us.shutdown().await;
        // Until the client has ended its half.
        std::future::pending::<()>().await;
    });
    switched.stream = Some(Box::new(ours));
    switched
}

/// An origin that takes WebSockets and echoes every message; at the word `close` it closes.
pub(crate) async fn echo() -> SocketAddr {
    echo_beside("").await
}

/// The same, which gives all others `page`.
pub(crate) async fn echo_beside(page: &'static str) -> SocketAddr {
    let serve = async move |stream| {
        if asks_for_a_websocket(&stream).await {
            converse(stream).await;
        } else {
            give(stream, page).await;
        }
    };
    Server::start(serve).await.detach()
}

/// litequic writes a head in one piece.
async fn asks_for_a_websocket(stream: &TcpStream) -> bool {
    let mut head = vec![0; 16 * 1024];
    let length = stream.peek(&mut head).await.unwrap_or(0);
    String::from_utf8_lossy(&head[..length]).to_ascii_lowercase().contains("upgrade: websocket")
}

async fn converse(stream: TcpStream) {
    let Ok(mut socket) = accept_async(stream).await else { return };
    while let Some(Ok(message)) = socket.next().await {
        if message.to_text().is_ok_and(|text| text == "close") {
            // An error means that the client has closed as well.
            let _ = socket.close(None).await;
        } else if (message.is_text() || message.is_binary()) && socket.send(message).await.is_err() {
            return;
        }
    }
}

/// Closed at once, it would take back what was not read yet.
async fn give(mut stream: TcpStream, page: &str) {
    let length = page.len();
    let fields = format!("Content-Type: text/html\r\nContent-Length: {length}\r\nConnection: close\r\n");
    let _ = stream.write_all(format!("HTTP/1.1 200 OK\r\n{fields}\r\n{page}").as_bytes()).await;
    let _ = stream.read_to_end(&mut Vec::new()).await;
}
