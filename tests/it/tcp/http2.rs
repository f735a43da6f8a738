//! What HTTP/2 must reject, frame by frame, and floods of what is allowed: the rows of docs/proxying.md. None of it
//! reaches the origin.

use crate::support::{
    http2::{
        ACK, CONTINUATION, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, PING, RST_STREAM, SETTINGS, WINDOW_UPDATE,
        fields, frame, get, status,
    },
    prelude::*,
};

const PROTOCOL_ERROR: u32 = 1;
const ENHANCE_YOUR_CALM: u32 = 11;
const GET: [(&str, &str); 4] = [(":method", "GET"), (":scheme", "https"), (":authority", "localhost"), (":path", "/")];

/// A field of GET's replaced.
fn but(name: &str, value: &str) -> Vec<u8> {
    fields(&GET.map(|(known, kept)| if known == name { (known, value) } else { (known, kept) }))
}

/// A field of GET's left out.
fn without(name: &str) -> Vec<u8> {
    fields(&GET.into_iter().filter(|(known, _)| *known != name).collect::<Vec<_>>())
}

#[tokio::test]
async fn malformed_requests_are_reset_without_the_origin() {
    let (origin, litequic) = Always::behind_litequic(Always::EMPTY_200, |_| {}).await;
    let crowd: Vec<(String, &str)> = (0..101).map(|n| (format!("x{n}"), "y")).collect();
    let crowd: Vec<(&str, &str)> = crowd.iter().map(|(name, value)| (name.as_str(), *value)).collect();
    let large = "a".repeat(16_000);
    let large_fields = [("x", large.as_str()), ("y", &large), ("z", &large)];
    // `None` is a reset with PROTOCOL_ERROR.
    let table: &[(&str, Vec<u8>, Option<u16>)] = &[
        ("no :method", without(":method"), None),
        ("no :scheme", without(":scheme"), None),
        ("no :path", without(":path"), None),
        ("an empty :path", but(":path", ""), None),
        (":method twice", fields(&[&GET[..], &[(":method", "GET")]].concat()), None),
        (":path twice", fields(&[&GET[..], &[(":path", "/")]].concat()), None),
        ("a pseudo-header behind a field", fields(&[&[("x", "y")], &GET[..]].concat()), None),
        (":status", get(&[(":status", "200")]), None),
        ("an unknown pseudo-header", get(&[(":x", "y")]), None),
        (":protocol", get(&[(":protocol", "websocket")]), None),
        ("an upper-case name", get(&[("X", "y")]), None),
        ("a name that is no token", get(&[("x y", "z")]), None),
        ("a value with LF", get(&[("x", "a\nb")]), None),
        ("a value with NUL", get(&[("x", "a\0b")]), None),
        ("connection", get(&[("connection", "close")]), None),
        ("keep-alive", get(&[("keep-alive", "1")]), None),
        ("proxy-connection", get(&[("proxy-connection", "close")]), None),
        ("transfer-encoding", get(&[("transfer-encoding", "chunked")]), None),
        ("upgrade", get(&[("upgrade", "h2c")]), None),
        ("te other than trailers", get(&[("te", "gzip")]), None),
        ("content-length with END_STREAM", get(&[("content-length", "5")]), None),
        ("neither :authority nor host", without(":authority"), Some(400)),
        ("host beside :authority", get(&[("host", "a.test")]), Some(400)),
        ("several host", get(&[("host", "localhost"), ("host", "localhost")]), Some(400)),
        ("user information", but(":authority", "user@localhost"), Some(400)),
        ("another scheme", but(":scheme", "ftp"), Some(400)),
        ("a dot segment", but(":path", "/a/../b"), Some(400)),
        ("an encoded dot segment", but(":path", "/%2e%2e/b"), Some(400)),
        ("a backslash", but(":path", "/a\\b"), Some(400)),
        ("*", but(":path", "*"), Some(400)),
        ("an authority that the certificate does not cover", but(":authority", "elsewhere.test"), Some(421)),
        ("TRACE", but(":method", "TRACE"), Some(501)),
        ("CONNECT", fields(&[(":method", "CONNECT"), (":authority", "localhost:443")]), Some(501)),
        ("too many fields", get(&crowd), Some(431)),
        ("too large fields", get(&large_fields), Some(431)),
    ];
    for (what, section, expected) in table {
        let mut client = Http2::connect(&litequic, &[]).await;
        let mut rest = section.as_slice();
        let mut kind = HEADERS;
        loop {
            let (now, later) = rest.split_at(rest.len().min(16_384));
            let flags = if later.is_empty() { END_HEADERS } else { 0 } | if kind == HEADERS { END_STREAM } else { 0 };
            client.say(kind, flags, 1, now).await;
            (kind, rest) = (CONTINUATION, later);
            if rest.is_empty() {
                break;
            }
        }
        let answer = client.find(&[HEADERS, RST_STREAM, GOAWAY]).await.unwrap_or_else(|| panic!("{what}: closed"));
        match expected {
            None => {
                assert_eq!((answer.kind != HEADERS).then(|| answer.code()), Some(PROTOCOL_ERROR), "{what}: {answer:?}");
            }
            Some(expected) => {
                assert_eq!(answer.kind, HEADERS, "{what}: {answer:?}");
                assert_eq!(status(&answer), *expected, "{what}");
            }
        }
    }
    assert_eq!(origin.connections(), 0);
    let answered = table.iter().filter(|(_, _, expected)| expected.is_some()).count() as u64;
    assert_eq!(litequic.sum(|worker| worker.tcp.tcp_refused_h2.get()), answered);
    litequic.stop().await;
}

/// h2 cuts `:path` at `#` before litequic reads it: what is left is the same for the route, the log and the origin.
#[tokio::test]
async fn a_fragment_never_reaches_the_origin() {
    let (origin, litequic) = Always::behind_litequic(Always::EMPTY_200, |_| {}).await;
    let mut client = Http2::connect(&litequic, &[]).await;
    client.say(HEADERS, END_HEADERS | END_STREAM, 1, &but(":path", "/a#b")).await;
    let answer = client.find(&[HEADERS, RST_STREAM]).await.unwrap();
    assert!(answer.kind == RST_STREAM || status(&answer) != 200 || !origin.seen().contains('#'), "{answer:?}");
    assert!(!origin.seen().contains('#') && !origin.seen().contains("%23"), "{}", origin.seen());
    litequic.stop().await;
}

#[tokio::test]
async fn a_body_of_wrong_length_is_reset_and_incomplete_at_the_origin() {
    let (origin, litequic) = Always::behind_litequic("", |_| {}).await;
    for body in ["hell", "hello!"] {
        let mut client = Http2::connect(&litequic, &[]).await;
        let post = fields(&[
            (":method", "POST"),
            (":scheme", "https"),
            (":authority", "localhost"),
            (":path", "/"),
            ("content-length", "5"),
        ]);
        client.say(HEADERS, END_HEADERS, 1, &post).await;
        client.say(DATA, END_STREAM, 1, body.as_bytes()).await;
        let answer = client.find(&[HEADERS, RST_STREAM, GOAWAY]).await.unwrap();
        assert_eq!((answer.kind != HEADERS).then(|| answer.code()), Some(PROTOCOL_ERROR), "{body}: {answer:?}");
    }
    litequic.wait_until_idle().await;
    assert!(!origin.seen().contains("hello"), "{}", origin.seen());
    litequic.stop().await;
}

/// CVE-2023-44487: requests that are cancelled as soon as they are sent, all at once. The bound is h2's, for those that
/// wait to be accepted; litequic's, where it keeps up with its client.
#[tokio::test]
async fn a_flood_of_resets_ends_the_connection() {
    let (_origin, litequic) = Always::behind_litequic("", |config| config.limits.max_resets = 2).await;
    let mut client = Http2::connect(&litequic, &[]).await;
    let section = get(&[]);
    for stream in (1..400_u32).step_by(2) {
        let headers = frame(HEADERS, END_HEADERS | END_STREAM, stream, &section);
        let reset = frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes());
        if !client.try_say(&[headers, reset].concat()).await {
            break;
        }
    }
    let end = client.find(&[GOAWAY]).await;
    assert!(end.is_none_or(|goaway| goaway.code() == ENHANCE_YOUR_CALM));
    litequic.stop_when_idle().await;
}

/// The same, each once it has begun at the origin: work that h2 does not bound.
#[tokio::test]
async fn requests_that_are_reset_when_they_have_begun_end_their_connection() {
    let (_origin, litequic) = Always::behind_litequic("", |config| config.limits.max_resets = 2).await;
    let mut client = Http2::connect(&litequic, &[]).await;
    let section = get(&[]);
    // Ten seconds' worth are taken at once, and more as time passes.
    for n in 0..200_u32 {
        if litequic.sum(|worker| worker.shared.limit_resets.get()) > 0 {
            break;
        }
        let stream = 2 * n + 1;
        if !client.try_say(&frame(HEADERS, END_HEADERS | END_STREAM, stream, &section)).await {
            break;
        }
        let begun = |worker: &WorkerMetrics| worker.tcp.requests_h2.get() + worker.shared.limit_resets.get();
        litequic.wait_until("a request", begun, |now| now > n.into()).await;
        if !client.try_say(&frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes())).await {
            break;
        }
        let cancelled =
            |worker: &WorkerMetrics| worker.shared.streams_reset_by_client.get() + worker.shared.limit_resets.get();
        litequic.wait_until("a reset", cancelled, |now| now > n.into()).await;
    }
    let end = client.find(&[GOAWAY]).await;
    assert!(end.is_none_or(|goaway| goaway.code() == ENHANCE_YOUR_CALM));
    assert_eq!(litequic.sum(|worker| worker.shared.limit_resets.get()), 1);
    litequic.stop_when_idle().await;
}

#[tokio::test]
async fn floods_of_frames_that_move_nothing_end_their_connection() {
    let (_origin, litequic) = Always::behind_litequic("", |config| {
        config.limits.max_control_frames = 20;
    })
    .await;
    let post = fields(&http2::pseudo("POST", "/"));
    for (what, one, counted) in [
        ("PING", frame(PING, 0, 0, &[7; 8]), 1_u64),
        ("SETTINGS", frame(SETTINGS, 0, 0, &[]), 2),
        ("SETTINGS ACK", frame(SETTINGS, ACK, 0, &[]), 2),
        ("WINDOW_UPDATE", frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1]), 3),
        ("an unknown kind", frame(200, 0, 0, &[0; 3]), 4),
        ("empty DATA", frame(DATA, 0, 1, b""), 4),
    ] {
        let mut client = Http2::connect(&litequic, &[]).await;
        client.say(HEADERS, END_HEADERS, 1, &post).await;
        let flood = one.repeat(500);
        let closed = async { while client.try_say(&flood).await {} };
        within(what, closed).await;
        let bitten = litequic.sum(|worker| worker.shared.limit_control_frames.get() + worker.tcp.limit_h2.get());
        assert!(bitten >= counted.min(bitten + 1) || what.contains("ACK"), "{what}: {bitten}");
    }
    assert!(litequic.sum(|worker| worker.shared.limit_control_frames.get()) >= 3);
    assert!(litequic.sum(|worker| worker.tcp.limit_h2.get()) >= 1);
    litequic.wait_until_idle().await;
    let bitten = litequic.sum(|worker| worker.shared.limit_control_frames.get() + worker.tcp.limit_h2.get());
    assert_eq!(litequic.sum(|worker| worker.tcp.tcp_closed_flood.get()), bitten);
    litequic.stop().await;
}

/// CVE-2024-27316 and its like: a header block that does not end.
#[tokio::test]
async fn a_flood_of_continuation_frames_ends_its_connection() {
    let (origin, litequic) = Always::behind_litequic("", |_| {}).await;
    let mut client = Http2::connect(&litequic, &[]).await;
    client.say(HEADERS, END_STREAM, 1, &get(&[])).await;
    let more = frame(CONTINUATION, 0, 1, &fields(&[("x", &"y".repeat(1000))]));
    within("its end", async { while client.try_say(&more).await {} }).await;
    assert_eq!(origin.connections(), 0);
    litequic.stop().await;
}

#[tokio::test]
async fn streams_above_the_limit_are_refused() {
    let (_origin, litequic) = Always::behind_litequic("", |config| config.limits.max_streams = 2).await;
    let mut client = Http2::connect(&litequic, &[]).await;
    let settings = client.find(&[SETTINGS]).await.unwrap();
    assert!(settings.payload.chunks(6).any(|setting| setting == [0, 3, 0, 0, 0, 2]), "{settings:?}");
    for stream in [1, 3, 5] {
        client.say(HEADERS, END_HEADERS | END_STREAM, stream, &get(&[])).await;
    }
    let refused = client.find(&[RST_STREAM]).await.unwrap();
    assert_eq!((refused.stream, refused.code()), (5, 7), "REFUSED_STREAM");
    drop(client);
    litequic.stop_when_idle().await;
}

/// A worker's budget for uploads in [`Uploads`].
const BUDGET: u64 = 4 << 20;
const UPLOADS: usize = 48;

/// litequic before an origin that reads no upload, and clients that together send more than the budget for uploads.
pub(super) struct Uploads {
    pub(super) litequic: Litequic,
    pub(super) clients: Vec<Http2>,
    _origin: (Http2, Peer),
}

impl Uploads {
    pub(super) async fn begin() -> Self {
        let (script, litequic) = Script::behind_litequic(|config| {
            config.limits.connection_receive_buffer = 1 << 20;
            config.limits.stream_receive_buffer = 1 << 20;
            config.limits.worker_receive_buffer = BUDGET;
            config.origins.get_mut(Config::ORIGIN_NAME).unwrap().max_connections = Some(1);
        })
        .await;
        // The origin's one connection is in use: what comes after waits, its body unread.
        let mut first = Http2::connect(&litequic, &[]).await;
        first.say(HEADERS, END_HEADERS | END_STREAM, 1, &get(&[])).await;
        let peer = script.accept_request().await;
        let mut clients = Vec::new();
        for _ in 0..UPLOADS {
            let mut client = Http2::connect(&litequic, &[]).await;
            let settings = client.find(&[SETTINGS]).await.unwrap();
            let window = settings.payload.chunks(6).find(|setting| setting[..2] == [0, 4]).expect("a window");
            assert_eq!(u64::from(u32::from_be_bytes(window[2..].try_into().unwrap())), BUDGET / 32);
            // Until then the window is 65,535.
            client.say(SETTINGS, ACK, 0, &[]).await;
            clients.push(client);
        }
        for client in &mut clients {
            client.say(HEADERS, END_HEADERS, 1, &but(":method", "POST")).await;
            for _ in 0..8 {
                // One that was closed takes nothing.
                client.try_say(&frame(DATA, 0, 1, &[7; 16_384])).await;
            }
        }
        Self { litequic, clients, _origin: (first, peer) }
    }
}

/// As over QUIC, out of the same budget: a 32nd of what is left of it, whatever idle connections there are.
#[tokio::test]
async fn receive_windows_come_from_the_workers_bounded_budget() {
    let Uploads { litequic, clients, _origin: origin } = Uploads::begin().await;
    let workers = litequic.metrics.worker_metrics().len() as u64;
    let closed = |worker: &WorkerMetrics| worker.shared.limit_receive_held.get();
    litequic.wait_until("closed", closed, |closed| closed > 0).await;
    let held = litequic.sum(|worker| worker.worker.receive_held.get());
    assert!(held <= workers * BUDGET + UPLOADS as u64 * (64 << 10), "{held}");
    drop((clients, origin));
    litequic.wait_until("given back", |worker| worker.worker.receive_held.get(), |held| held == 0).await;
    litequic.stop().await;
}

#[tokio::test]
async fn a_stalled_header_block_is_closed_after_the_idle_timeout() {
    let (origin, litequic) =
        Always::behind_litequic("", |config| config.timeouts.idle = Duration::from_millis(200)).await;
    let mut half = Http2::connect(&litequic, &[]).await;
    half.say(HEADERS, END_STREAM, 1, &get(&[])).await;
    let mut silent = Http2::connect(&litequic, &[]).await;
    for client in [&mut half, &mut silent] {
        while client.next().await.is_some() {}
    }
    assert_eq!(litequic.sum(|worker| worker.tcp.timeout_idle.get()), 2);
    assert_eq!(origin.connections(), 0);
    litequic.stop().await;
}
