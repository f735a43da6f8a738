//! Whole exchanges with an origin that sends whatever it wants, whenever it wants, and ends as it likes: the proxy
//! answers each request within its timeouts, nothing of the origin's connection reaches the client, lengths are kept,
//! how the bytes were split does not matter, and what the client gets is what the table of docs/proxying.md says
//! (`support::origin_table`).
//!
//! The first four bytes are the settings, the others what the origin sends, but for [`PAUSE`] and its like.
#![no_main]

mod support;

use arc_swap::ArcSwap;
use bytes::Bytes;
use http::Method;
use http_body::{Body as _, Frame};
use libfuzzer_sys::fuzz_target;
use litequic_config::{Config, OriginAddress};
use litequic_exchange::{
    Authority, Body, BodyError, Client, Exchange, FieldNameRef, Fields, Handler, Head, InterimSender, LastForwarded,
    Protocol, Request, RequestRecord, Response, TlsIdentity, Upgrade, name,
};
use litequic_proxy::{Proxy, Routing};
use litequic_resources::memory::MemoryPressure;
use std::{
    collections::VecDeque,
    fs,
    future::{Future, poll_fn},
    path::PathBuf,
    pin::Pin,
    process,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};
use support::{
    on_a_worker,
    origin_table::{Verdict, verdict},
    settle,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{UnixListener, UnixStream},
    task::{JoinSet, spawn_local},
    time::{Sleep, sleep},
};

/// What follows is sent once nothing else moves.
const PAUSE: u8 = 0xff;
/// The connection ends, with a reset if the request was not read whole; what follows is the next connection's.
const CLOSE: u8 = 0xfe;
/// The origin sends no more, and reads on; what follows is the next connection's.
const SHUT: u8 = 0xfd;
/// What follows is sent once another request's head has come on this connection.
const HEAD: u8 = 0xfc;
/// The last [`PIECE`] bytes are sent as many times more as the next byte says.
const REPEAT: u8 = 0xfb;
/// Bytes that [`REPEAT`] repeats.
const PIECE: usize = 8;
/// How long a front end waits for a client's body.
const PATIENCE: Duration = Duration::from_secs(60);
/// Bytes that an origin sends at most: more than any limit of a head.
const MOST: usize = 256 * 1024;

fuzz_target!(|input: &[u8]| {
    let Some((settings, script)) = input.split_first_chunk::<4>() else { return };
    let settings = Settings::of(*settings);
    let pieces = run(settings, script, true);
    if settings.is_compared {
        let whole = run(settings, script, false);
        assert_eq!(pieces.is_whole(), whole.is_whole(), "{pieces:?}\n{whole:?}");
        if whole.is_whole() {
            assert_eq!(pieces, whole);
        }
        check_table(settings, script, &whole);
    }
});

#[derive(Debug, Clone, Copy)]
struct Settings {
    method: u8,
    upload: u8,
    protocol: u8,
    requests: u8,
    /// The origin does not wait for a request.
    is_early: bool,
    /// The last connection stays open.
    stays: bool,
    /// The client wants to switch protocols.
    upgrades: bool,
    /// The origin's bytes are sent at once, too.
    is_compared: bool,
}

impl Settings {
    fn of([first, second, third, fourth]: [u8; 4]) -> Self {
        let (is_early, stays, upgrades) = (fourth & 1 > 0, fourth & 2 > 0, fourth & 4 > 0);
        let (method, upload, protocol) = if upgrades {
            // Front ends make such requests without a body.
            (0, 0, third & 3)
        } else {
            (first & 7, second & 7, third & 3)
        };
        let requests = 1 + (fourth >> 4 & 3);
        // A tunnel that its origin closes in the middle ends with a reset, if something was not read yet.
        let is_compared = !is_early && !upgrades && upload == 0 && requests == 1;
        Self { method, upload, protocol, requests, is_early, stays, upgrades, is_compared }
    }

    fn method(self) -> Method {
        match self.method {
            1 => Method::HEAD,
            2 => Method::POST,
            3 => Method::PUT,
            4 => Method::OPTIONS,
            5 => Method::DELETE,
            _ => Method::GET,
        }
    }

    fn protocol(self) -> Protocol {
        match self.protocol {
            0 => Protocol::Http1,
            1 => Protocol::Http2,
            _ => Protocol::Http3,
        }
    }
}

/// The result of a request.
#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    /// `None` if there was no response.
    status: Option<u16>,
    /// litequic's own answer.
    is_own: bool,
    body: Vec<u8>,
    trailers: Option<Fields>,
    /// The body ended as it should.
    ended: bool,
}

impl Outcome {
    /// Whether it is the origin's, and all of it.
    fn is_whole(&self) -> bool {
        self.status.is_some() && !self.is_own && self.ended
    }
}

/// What the client got of an origin that sends all it has behind the request is what the table says.
fn check_table(settings: Settings, script: &[u8], outcome: &Outcome) {
    let first = connections(script, false).into_iter().next().unwrap_or_default();
    let (bytes, end) = match first.as_slice() {
        [Step::Send(bytes)] => (bytes, !settings.stays),
        [Step::Send(bytes), Step::Close | Step::Shut] => (bytes, true),
        // It waits for another request.
        _ => return,
    };
    let is_head = settings.method() == Method::HEAD;
    match verdict(bytes, end, is_head) {
        Verdict::Forwarded(status, body) => {
            assert!(
                outcome.is_whole() && outcome.status == Some(status) && outcome.body == body,
                "{status}: {outcome:?}"
            );
        }
        Verdict::Refused => assert!(outcome.is_own && outcome.status.is_some(), "refused: {outcome:?}"),
        Verdict::BrokenOff => assert!(!outcome.is_whole(), "broken off: {outcome:?}"),
        Verdict::Open => {}
    }
}

/// The outcome of the last request.
fn run(settings: Settings, script: &[u8], in_pieces: bool) -> Outcome {
    on_a_worker(|| async {
        let path = socket();
        let _ = fs::remove_file(&path);
        let listener = UnixListener::bind(&path).expect("a socket");
        let connections = connections(script, in_pieces);
        spawn_local(origin(listener, connections, settings));
        let config = Config::with_defaults(
            ([127, 0, 0, 1], 0).into(),
            OriginAddress::Unix(path.clone()),
            PathBuf::new(),
            PathBuf::new(),
        );
        let routing = Arc::new(ArcSwap::from_pointee(Routing::new(&config)));
        let proxy = Proxy::new(routing, Arc::default(), MemoryPressure::default());
        let mut outcome = request(&proxy, settings).await;
        for _ in 1..settings.requests {
            settle().await;
            outcome = request(&proxy, settings).await;
        }
        drop(proxy);
        settle().await;
        let _ = fs::remove_file(path);
        outcome
    })
}

/// The origin's, in a folder of this process.
fn socket() -> PathBuf {
    std::env::temp_dir().join(format!("litequic-fuzz-{}.socket", process::id()))
}

async fn request(proxy: &Proxy, settings: Settings) -> Outcome {
    let client = Client {
        address: ([192, 0, 2, 1], 4711).into(),
        local: ([192, 0, 2, 2], 443).into(),
        protocol: settings.protocol(),
        server_name: None,
        forwarded: LastForwarded::default(),
        identity: TlsIdentity::default(),
        connection: 0,
    };
    let mut head = Head::new(settings.method(), Authority::new("a.test"), "/x?y=1", Fields::new());
    if settings.upload == 5 {
        head.fields.append(name::EXPECT, b"100-continue");
    }
    if settings.upgrades {
        head.upgrade = Some(Upgrade(b"websocket".as_slice().into()));
    }
    let request = Request { head, body: Upload::of(settings.upload) };
    let (interim, queue) = InterimSender::open_channel();
    let exchange = Exchange { request, client: Rc::new(client), interim, record: RequestRecord::default() };
    let answer = proxy.handle(exchange).await;
    let mut interims = 0;
    poll_fn(|context| {
        while let Poll::Ready((status, fields)) = queue.poll_interim(context) {
            assert!(status.is_informational() && status.as_u16() != 101, "{status}");
            check_fields(&fields);
            interims += 1;
        }
        Poll::Ready(())
    })
    .await;
    let Ok(response) = answer else {
        return Outcome { status: None, is_own: true, body: Vec::new(), trailers: None, ended: false };
    };
    let Response { status, fields, mut body } = response;
    let status = status.as_u16();
    assert!(status >= 200 || (status == 101 && settings.upgrades), "{status}");
    if status == 101 {
        return tunnel(body).await;
    }
    check_fields(&fields);
    let lengths: Vec<_> = fields.all_values(name::CONTENT_LENGTH).collect();
    assert!(lengths.len() <= 1, "{lengths:?}");
    let is_own = fields.contains(name::PROXY_STATUS);
    let (mut bytes, mut trailers, mut ended) = (Vec::new(), None, true);
    while let Some(frame) = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
        match frame.map(Frame::into_data) {
            Ok(Ok(data)) => bytes.extend_from_slice(&data),
            Ok(Err(frame)) => {
                trailers = frame.into_trailers().ok().map(Fields::from);
                trailers.iter().for_each(check_fields);
            }
            Err(_) => {
                ended = false;
                break;
            }
        }
    }
    let has_body = settings.method() != Method::HEAD && status != 204 && status != 304;
    if let Some(length) = lengths.first().filter(|_| has_body) {
        let length: u64 = std::str::from_utf8(length).ok().and_then(|length| length.parse().ok()).expect("a length");
        let came = bytes.len() as u64;
        assert!(came <= length && (!ended || came == length), "{came} of {length}");
    }
    // Front ends leave out the body of an answer to HEAD.
    assert!(has_body || is_own || bytes.is_empty(), "a body where there is none");
    Outcome { status: Some(status), is_own, body: bytes, trailers, ended }
}

/// Reads a tunnel to its end.
async fn tunnel(body: Body) -> Outcome {
    let mut tunnel = body.into_tunnel().expect("the body of a 101");
    let mut body = Vec::new();
    let _ = tunnel.write_all(b"of the client").await;
    let _ = tunnel.shutdown().await;
    let quiet = tunnel.expiry_handle();
    let ended = tokio::select! {
        biased;
        read = tunnel.read_to_end(&mut body) => read.is_ok(),
        _ = quiet.wait_for_expiry() => false,
    };
    Outcome { status: Some(101), is_own: false, body, trailers: None, ended }
}

/// Nothing in them is about the connection to the origin.
fn check_fields(fields: &Fields) {
    for name in ["connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade"] {
        assert!(!fields.contains(FieldNameRef::from_lower_case_token(name)), "{name}: {fields:?}");
    }
}

/// The body of a request.
struct Upload {
    pieces: VecDeque<Result<&'static str, BodyError>>,
    length: Option<u64>,
    /// Nothing follows the pieces, not even the end, until the front end waits no longer.
    hangs: Option<Pin<Box<Sleep>>>,
}

impl Upload {
    fn of(kind: u8) -> Body {
        let upload = |pieces: &[Result<&'static str, BodyError>], length, hangs: bool| {
            let hangs = hangs.then(|| Box::pin(sleep(PATIENCE)));
            Body::from_stream(Self { pieces: pieces.iter().copied().collect(), length, hangs })
        };
        match kind {
            0 => Body::empty(),
            1 => upload(&[Ok("hello"), Ok(" world")], Some(11), false),
            2 | 5 => upload(&[Ok("hello"), Ok(" world")], None, false),
            3 => upload(&[Ok("hello")], None, true),
            4 => upload(&[Ok("hello"), Err(BodyError::Cancelled)], None, false),
            _ => upload(&[Ok("hello")], Some(11), true),
        }
    }
}

impl http_body::Body for Upload {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match (self.pieces.pop_front(), &mut self.hangs) {
            (None, Some(sleep)) => sleep.as_mut().poll(context).map(|()| Some(Err(BodyError::TimedOut))),
            (piece, _) => {
                Poll::Ready(piece.map(|piece| piece.map(|text| Frame::data(Bytes::from_static(text.as_bytes())))))
            }
        }
    }

    fn size_hint(&self) -> http_body::SizeHint {
        self.length.map_or_else(http_body::SizeHint::default, http_body::SizeHint::with_exact)
    }
}

/// What an origin does on a connection.
#[derive(Debug)]
enum Step {
    Send(Vec<u8>),
    Pause,
    Head,
    Close,
    Shut,
}

/// The steps of each connection. Without pauses if not `in_pieces`: the bytes are the same.
fn connections(script: &[u8], in_pieces: bool) -> Vec<Vec<Step>> {
    let (mut connections, mut steps, mut left) = (Vec::new(), Vec::new(), MOST);
    // Sent since the last step, and where it pauses.
    let (mut bytes, mut pauses) = (Vec::new(), Vec::new());
    let mut script = script.iter();
    while let Some(byte) = script.next() {
        match *byte {
            PAUSE => pauses.push(bytes.len()),
            REPEAT => {
                let times = script.next().copied().unwrap_or_default();
                let piece = bytes[bytes.len().saturating_sub(PIECE)..].repeat(times.into());
                bytes.extend_from_slice(&piece[..piece.len().min(left)]);
                left = left.saturating_sub(piece.len());
            }
            HEAD | CLOSE | SHUT => {
                send(&mut steps, &mut bytes, &mut pauses, in_pieces);
                steps.push(match *byte {
                    HEAD => Step::Head,
                    CLOSE => Step::Close,
                    _ => Step::Shut,
                });
                if *byte != HEAD {
                    connections.push(std::mem::take(&mut steps));
                }
            }
            _ => bytes.push(*byte),
        }
    }
    send(&mut steps, &mut bytes, &mut pauses, in_pieces);
    connections.push(steps);
    connections
}

fn send(steps: &mut Vec<Step>, bytes: &mut Vec<u8>, pauses: &mut Vec<usize>, in_pieces: bool) {
    let mut sent = 0;
    for pause in std::mem::take(pauses).into_iter().filter(|_| in_pieces) {
        steps.push(Step::Send(bytes[sent..pause].to_vec()));
        steps.push(Step::Pause);
        sent = pause;
    }
    steps.push(Step::Send(bytes.split_off(sent)));
    bytes.clear();
}

async fn origin(listener: UnixListener, connections: Vec<Vec<Step>>, settings: Settings) {
    let mut connections = connections.into_iter();
    let mut serving = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        serving.spawn_local(serve(stream, connections.next().unwrap_or_default(), settings));
    }
}

async fn serve(mut stream: UnixStream, steps: Vec<Step>, settings: Settings) {
    let mut ends = false;
    if !settings.is_early {
        head(&mut stream).await;
    }
    for step in steps {
        match step {
            Step::Send(bytes) => {
                if stream.write_all(&bytes).await.is_err() {
                    return;
                }
            }
            Step::Pause => settle().await,
            Step::Head => head(&mut stream).await,
            Step::Close => return,
            Step::Shut => {
                ends = true;
                let _ = stream.shutdown().await;
            }
        }
    }
    if ends || settings.stays {
        while stream.read(&mut [0; 4096]).await.is_ok_and(|read| read > 0) {}
    }
}

/// Reads until a head has come, byte by byte, or the connection has ended.
async fn head(stream: &mut UnixStream) {
    let mut last = [0; 4];
    while last != *b"\r\n\r\n" {
        last.rotate_left(1);
        if !stream.read_exact(&mut last[3..]).await.is_ok_and(|read| read > 0) {
            return;
        }
    }
}
