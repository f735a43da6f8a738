//! Priorities (RFC 9218) over HTTP/2: what was signalled is sent first, and no more overtakes it than h2 has of a
//! connection. Its client reads nothing until all responses are at hand, so that what it reads then was sent in order.

use crate::support::{
    http2::{ACK, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, PING, SETTINGS, WINDOW_UPDATE, frame, get, status},
    prelude::*,
    sequence::{EIGHT, PRIORITIES_OF_EIGHT, Sequence},
};
use tokio::{task::JoinHandle, time::Instant};

const PRIORITY: u8 = 2;
const PRIORITY_UPDATE: u8 = 0x10;
const PROTOCOL_ERROR: u32 = 1;
const FRAME_SIZE_ERROR: u32 = 6;
const ENHANCE_YOUR_CALM: u32 = 11;
/// Bytes that h2 has of a connection at most, while its responses compete.
const HORIZON: u64 = 64 * 1024;
const TURN: u64 = 16 * 1024;
/// Bytes of a response that is read ahead whole.
const SIZE: usize = 60_000;
/// Bytes of a response that is not read ahead whole.
const HELD: usize = 240_000;
/// More bytes than the client's socket, litequic's and its libraries hold.
const BLOCK: usize = 4_000_000;
/// On a machine that others keep busy the blocking response may have nothing at hand now and then.
const ATTEMPTS: usize = 30;
/// Windows that are never full.
const WINDOW: u32 = 1 << 30;

/// A client that notes the bytes of responses as they come.
struct Client {
    http2: Http2,
    streams: u32,
    /// The PINGs that it has sent.
    pings: u64,
}

impl Client {
    async fn connect(litequic: &Litequic, window: u32) -> Self {
        let settings = [&[0, 4][..], &window.to_be_bytes()].concat();
        let mut http2 = Http2::connect(litequic, &settings).await;
        http2.say(WINDOW_UPDATE, 0, 0, &WINDOW.to_be_bytes()).await;
        // The windows count once litequic has read them.
        http2.say(PING, 0, 0, &[0; 8]).await;
        while http2.find(&[PING]).await.expect("a PING's answer").flags & ACK == 0 {}
        Self { http2, streams: 0, pings: 0 }
    }

    /// Sends a request with those fields, and returns its stream.
    async fn request(&mut self, priority: Option<&str>) -> u32 {
        let fields: Vec<_> = priority.iter().map(|value| ("priority", *value)).collect();
        let stream = 2 * self.streams + 1;
        self.streams += 1;
        self.http2.say(HEADERS, END_HEADERS | END_STREAM, stream, &get(&fields)).await;
        stream
    }

    async fn update(&mut self, stream: u32, value: &[u8]) {
        self.http2.say(PRIORITY_UPDATE, 0, 0, &[&stream.to_be_bytes()[..], value].concat()).await;
    }

    /// Sends a PING, whose answer parts what was sent before from what is sent later.
    async fn ping(&mut self) {
        self.pings += 1;
        self.http2.say(PING, 0, 0, &self.pings.to_be_bytes()).await;
    }

    /// Reads until `count` responses have ended. Returns the bytes of those that came, and of those that came behind
    /// the answer to the last PING.
    async fn read(&mut self, count: usize) -> (Sequence, Sequence) {
        let (mut all, mut behind) = (Vec::new(), Vec::new());
        let mut is_behind = self.pings == 0;
        let mut ended = 0;
        while ended < count {
            let frame = self.http2.next().await.expect("the responses end");
            is_behind |= frame.kind == PING && frame.flags & ACK != 0 && frame.payload == self.pings.to_be_bytes();
            if frame.kind == DATA {
                let bytes = (u64::from(frame.stream), frame.payload.len() as u64);
                all.push(bytes);
                behind.extend(Some(bytes).filter(|_| is_behind));
            }
            assert!(frame.kind != GOAWAY, "{frame:?}");
            ended += usize::from([DATA, HEADERS].contains(&frame.kind) && frame.flags & END_STREAM != 0);
        }
        assert!(is_behind, "the PING was answered");
        (Sequence(all), Sequence(behind))
    }
}

/// A response whose connection serves no other: one that is read ahead whole frees it.
fn response(fields: &str, size: usize) -> String {
    format!("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {size}\r\n{fields}\r\n{}", "x".repeat(size))
}

/// Has `peer` send all of a response.
fn says(mut peer: Peer, response: String) -> JoinHandle<Peer> {
    tokio::spawn(async move {
        peer.head().await;
        peer.say(response).await;
        peer
    })
}

/// Bytes of bodies that were read from origins.
fn read_from_origins(litequic: &Litequic) -> u64 {
    let sample = "litequic_route_response_body_bytes_total{route=\"*/\"} ";
    let text = litequic.metrics.registry().render_metrics();
    text.lines().find_map(|line| line.strip_prefix(sample)?.parse().ok()).unwrap_or(0)
}

/// Waits until litequic has read all of the responses of `origin`: it closes their connections then.
async fn at_hand(origin: Vec<JoinHandle<Peer>>) {
    for peer in origin {
        within("an origin's response", peer).await.unwrap().rest().await;
    }
}

/// Waits until litequic reads no more of the blocking response. Until it does the others may be sent, too.
async fn blocked(litequic: &Litequic) {
    let mut read = 0;
    loop {
        sleep(Duration::from_millis(50)).await;
        let now = read_from_origins(litequic);
        if now > 0 && now == read {
            return;
        }
        read = now;
    }
}

/// Has one response block the connection, and behind it responses to requests with the fields of `requests`, which the
/// origin gives with those fields. `meanwhile` runs once all are at hand. Returns the bytes that were sent from then on:
/// those of the blocking response on the stream 1, of the others on 3, 5 and so on.
async fn ordered(
    requests: &[(Option<&str>, &str)],
    meanwhile: impl AsyncFn(&mut Client),
    edit: impl Fn(&mut Config),
) -> Sequence {
    ordered_behind(Some("u=0"), requests, SIZE, meanwhile, edit).await
}

/// As [`ordered`], with the priority of the blocking request, and with the size of the other responses.
async fn ordered_behind(
    blocking: Option<&str>,
    requests: &[(Option<&str>, &str)],
    size: usize,
    meanwhile: impl AsyncFn(&mut Client),
    edit: impl Fn(&mut Config),
) -> Sequence {
    for _ in 0..ATTEMPTS {
        let (script, litequic) = Script::behind_litequic(|config| {
            // Enough to read all of them ahead.
            config.limits.connection_send_buffer = 16 << 20;
            edit(config);
        })
        .await;
        let mut client = Client::connect(&litequic, WINDOW).await;
        client.request(blocking).await;
        let block = says(script.accept().await, response("", BLOCK));
        blocked(&litequic).await;
        let mut origin = Vec::new();
        for (priority, fields) in requests {
            client.request(*priority).await;
            origin.push(says(script.accept().await, response(fields, size)));
        }
        at_hand(origin).await;
        meanwhile(&mut client).await;
        client.ping().await;
        // The answer is queued behind what the kernel has; nothing is sent in between.
        let (_, behind) = client.read(requests.len() + 1).await;
        drop(client);
        within("an origin's response", block).await.unwrap();
        litequic.stop_when_idle().await;
        let others: u64 = (1..=requests.len() as u64).map(|index| behind.of(2 * index + 1)).sum();
        if others == (requests.len() * size) as u64 {
            return behind;
        }
    }
    panic!("responses were sent before all were at hand");
}

async fn nothing(_: &mut Client) {}

fn came_in_order(bytes: &Sequence, streams: &[(u8, bool)]) {
    let streams: Vec<_> = (1..).map(|index| 2 * index + 1).zip(streams.iter().copied()).collect();
    bytes.is_in_order(&streams, (HORIZON, TURN, SIZE as u64));
    for (first, (urgency, _)) in &streams {
        let less_urgent = streams.iter().filter(|(_, (other, _))| other > urgency);
        let overtook: u64 = less_urgent.map(|(other, _)| bytes.before_the_last_of(*first, *other)).sum();
        assert!(overtook <= HORIZON, "{overtook} bytes came before the last of {first}");
    }
}

#[tokio::test]
async fn eight_responses_come_in_the_order_of_their_priorities() {
    let bytes = ordered(&EIGHT, nothing, |_| {}).await;
    came_in_order(&bytes, &PRIORITIES_OF_EIGHT);
}

#[tokio::test]
async fn a_priority_update_holds_during_its_request() {
    let requests = [(Some("u=1"), ""), (Some("u=2"), ""), (Some("u=7"), ""), (Some("u=7"), "Priority: u=2, i=?0\r\n")];
    let change = async |client: &mut Client| {
        client.update(3, b"u=6").await;
        client.update(7, b"u=0").await;
    };
    let bytes = ordered(&requests, change, |_| {}).await;
    came_in_order(&bytes, &[(6, false), (2, false), (0, false), (2, false)]);
}

#[tokio::test]
async fn only_chromiums_weights_change_a_priority() {
    let requests =
        [(Some("i"), ""), (Some("i"), ""), (Some("i"), "Priority: u=2\r\n"), (Some("i"), ""), (Some("u=2, i"), "")];
    let change = async |client: &mut Client| {
        let weight = |exclusive: u8, weight: u8| [exclusive, 0, 0, 0, weight];
        // What every other client has may be any weight, and depends on a stream beside others.
        client.http2.say(PRIORITY, 0, 3, &weight(0, 219)).await;
        client.http2.say(PRIORITY, 0, 5, &weight(0x80, 200)).await;
        // Urgency 4 and 1.
        client.http2.say(PRIORITY, 0, 7, &weight(0x80, 109)).await;
        client.http2.say(PRIORITY, 0, 9, &weight(0x80, 219)).await;
    };
    let bytes = ordered(&requests, change, |_| {}).await;
    came_in_order(&bytes, &[(3, true), (3, true), (4, true), (1, true), (2, true)]);
}

#[tokio::test]
async fn an_update_counts_before_its_request_and_none_after_its_response() {
    let (script, litequic) = Script::behind_litequic(|_| {}).await;
    let mut client = Client::connect(&litequic, WINDOW).await;
    client.update(3, b"u=6").await;
    client.update(5, b"u=1").await;
    client.update(5, b"u=\"1").await;
    client.update(5, &[b' '; 61]).await;
    let shared =
        |read: fn(&litequic_telemetry::RequestMetrics) -> u64| move |worker: &WorkerMetrics| read(&worker.shared);
    litequic.wait_until("skipped", shared(|shared| shared.priority_updates_skipped.get()), |count| count == 1).await;
    let counts = [
        shared(|shared| shared.priority_updates_early.get()),
        shared(|shared| shared.priority_updates_invalid.get()),
        shared(|shared| shared.priority_updates_late.get()),
    ];
    assert_eq!(counts.map(|read| litequic.sum(read)), [2, 1, 0]);
    client.request(Some("u=0")).await;
    let _block = says(script.accept().await, response("", BLOCK));
    blocked(&litequic).await;
    let mut origin = Vec::new();
    for priority in ["u=0", "u=7"] {
        client.request(Some(priority)).await;
        origin.push(says(script.accept().await, response("", SIZE)));
    }
    at_hand(origin).await;
    client.ping().await;
    let (_, behind) = client.read(3).await;
    came_in_order(&behind, &[(6, false), (1, false)]);
    client.update(5, b"u=1").await;
    litequic.wait_until("late", shared(|shared| shared.priority_updates_late.get()), |count| count == 1).await;
    drop(client);
    litequic.stop_when_idle().await;
}

#[tokio::test]
async fn without_a_signal_responses_come_one_after_the_other() {
    // The blocking response and those behind it have none.
    let bytes = ordered_behind(None, &[(None, ""); 3], SIZE, nothing, |_| {}).await;
    came_in_order(&bytes, &[(3, false); 3]);
}

#[tokio::test]
async fn without_an_order_an_urgent_response_shares_the_connection() {
    let requests: Vec<_> = (0..8).map(|urgency| (Some(["u=7", "u=0"][usize::from(urgency == 7)]), "")).collect();
    let share = async |edit: fn(&mut Config)| {
        let bytes = ordered(&requests, nothing, edit).await;
        // The urgent one is the last, on the stream 17.
        let beside: u64 = (1..8).map(|index| bytes.before_the_last_of(17, 2 * index + 1)).sum();
        assert!(beside > 2 * SIZE as u64, "{beside} bytes of the others");
    };
    share(|config| config.litequic.priorities = false).await;
    share(|config| config.trusted_proxies = vec![Network { address: [127, 0, 0, 0].into(), prefix: 8 }]).await;
}

#[tokio::test]
async fn a_client_that_gives_its_urgent_response_no_window_gets_the_others() {
    let (script, litequic) = Script::behind_litequic(|_| {}).await;
    let mut client = Client::connect(&litequic, 20_000).await;
    client.request(Some("u=0")).await;
    let mut origin = vec![says(script.accept().await, response("", SIZE))];
    for _ in 0..3 {
        let stream = client.request(Some("u=7")).await;
        client.http2.say(WINDOW_UPDATE, 0, stream, &WINDOW.to_be_bytes()).await;
        origin.push(says(script.accept().await, response("", SIZE)));
        let (bytes, _) = client.read(1).await;
        assert_eq!(bytes.of(stream.into()), SIZE as u64);
    }
    client.http2.say(WINDOW_UPDATE, 0, 1, &WINDOW.to_be_bytes()).await;
    client.read(1).await;
    drop(client);
    litequic.stop_when_idle().await;
}

#[tokio::test]
async fn a_throttled_response_outlasts_the_client_timeout() {
    for _ in 0..ATTEMPTS {
        if was_held_back().await < HELD {
            return;
        }
    }
    panic!("none was held back");
}

/// Holds back a response for longer than `timeouts.send`, and checks that it is not cut off. Returns how many of its
/// bytes came in that time.
async fn was_held_back() -> usize {
    let script = Script::new().await;
    let timeout = Duration::from_secs(1);
    let litequic = Litequic::start(script.address, |config| {
        config.timeouts.send = timeout;
        config.limits.min_rate = 20_000;
    })
    .await;
    let mut client = Client::connect(&litequic, WINDOW).await;
    client.request(Some("u=0")).await;
    let long = says(script.accept().await, response("", BLOCK));
    client.request(Some("u=7")).await;
    let held = says(script.accept().await, response("", HELD));
    let (began, mut ended, mut overtook) = (Instant::now(), Vec::new(), 0);
    while ended.len() < 2 {
        let frame = client.http2.next().await.expect("both responses end");
        if frame.kind == DATA {
            ended.extend(Some(frame.stream).filter(|_| frame.flags & END_STREAM != 0));
            // A client that takes some all the time, and less than the sockets in front of it have.
            if began.elapsed() < 3 * timeout {
                overtook += if frame.stream == 3 { frame.payload.len() } else { 0 };
                sleep(Duration::from_millis(20)).await;
            }
        }
        assert!(![GOAWAY, 3].contains(&frame.kind), "{frame:?}");
    }
    let ends = |worker: &WorkerMetrics| worker.shared.timeout_send.get() + worker.shared.limit_download_rate.get();
    assert_eq!(litequic.sum(ends), 0);
    for peer in [long, held] {
        within("an origin's response", peer).await.unwrap();
    }
    drop(client);
    litequic.stop().await;
    overtook
}

/// PRIORITY_UPDATE frames: the rule, what a client sends, its bytes, and the error code that ends the connection, if one
/// does, while ten requests may be open.
pub(crate) fn updates() -> [(&'static str, &'static str, Vec<u8>, Option<u32>); 12] {
    const RULE: &str = "9218 §7.1";
    let update = |stream: u32, value: &[u8]| frame(PRIORITY_UPDATE, 0, 0, &[&stream.to_be_bytes()[..], value].concat());
    let idle = |count: u32| (0..count).flat_map(|index| update(2 * index + 1, b"u=1")).collect::<Vec<u8>>();
    [
        (RULE, "one of a request that is to come", update(1, b"u=1"), None),
        (RULE, "as many of requests to come as may be open", idle(10), None),
        (RULE, "of more requests to come than may be open", idle(11), Some(PROTOCOL_ERROR)),
        (RULE, "the same one a hundred times", update(5, b"u=1").repeat(100), None),
        (RULE, "a value that does not parse, to be ignored", update(1, b"u=\""), None),
        (RULE, "an empty value", update(1, b""), None),
        (RULE, "a value of 10,000 bytes", update(1, &[b'a'; 10_000]), None),
        ("9113 §4.1", "a reserved bit before the stream ID, to be ignored", update(0x8000_0001, b"u=1"), None),
        (RULE, "one on a stream", frame(PRIORITY_UPDATE, 0, 1, b"\0\0\0\x01u=1"), Some(PROTOCOL_ERROR)),
        (RULE, "one of stream 0", update(0, b"u=1"), Some(PROTOCOL_ERROR)),
        (RULE, "one of a push", update(2, b"u=1"), Some(PROTOCOL_ERROR)),
        ("9113 §4.2", "one with half its stream ID", frame(PRIORITY_UPDATE, 0, 0, b"\0\0\x01"), Some(FRAME_SIZE_ERROR)),
    ]
}

#[tokio::test]
async fn a_wrong_update_ends_the_connection_as_rfc_9218_has_it() {
    let (script, litequic) = Script::behind_litequic(|config| config.limits.max_streams = 10).await;
    for (_, what, bytes, expected) in updates() {
        let mut client = Client::connect(&litequic, WINDOW).await;
        client.http2.tls.say(bytes).await;
        match expected {
            Some(code) => {
                let end = client.http2.find(&[GOAWAY]).await.unwrap_or_else(|| panic!("{what}: no GOAWAY"));
                assert_eq!(end.code(), code, "{what}");
            }
            None => {
                client.request(None).await;
                let peer = says(script.accept().await, response("", 10));
                let answer = client.http2.find(&[HEADERS, GOAWAY]).await.unwrap_or_else(|| panic!("{what}: closed"));
                assert_eq!((answer.kind, status(&answer)), (HEADERS, 200), "{what}");
                within("the origin's response", peer).await.unwrap();
            }
        }
    }
    let broken = |worker: &WorkerMetrics| worker.tcp.tcp_closed_broken.get();
    litequic.wait_until("closed for that", broken, |count| count == 5).await;
    litequic.stop().await;

    let off = |config: &mut Config| config.litequic.priorities = false;
    let litequic = Litequic::start(script.address, off).await;
    let mut client = Client::connect(&litequic, WINDOW).await;
    client.http2.tls.say(frame(PRIORITY_UPDATE, 0, 1, b"\0\0\0\x01u=1")).await;
    client.request(None).await;
    let _peer = says(script.accept().await, response("", 10));
    let answer = client.http2.find(&[HEADERS, GOAWAY]).await.unwrap();
    assert_eq!(status(&answer), 200, "a frame of an unknown type");
    litequic.stop().await;
}

#[tokio::test]
async fn settings_announce_rfc_9218_unless_disabled() {
    const NO_RFC7540_PRIORITIES: [u8; 6] = [0, 9, 0, 0, 0, 1];
    for is_on in [true, false] {
        let (script, litequic) = Script::behind_litequic(|config| config.litequic.priorities = is_on).await;
        let mut http2 = Http2::connect(&litequic, &[]).await;
        let first = http2.next().await.unwrap();
        assert_eq!((first.kind, first.flags), (SETTINGS, 0));
        let has_setting = first.payload.chunks(6).any(|setting| setting == NO_RFC7540_PRIORITIES);
        assert_eq!(has_setting, is_on, "{first:?}");
        http2.say(HEADERS, END_HEADERS | END_STREAM, 1, &get(&[])).await;
        let _peer = says(script.accept().await, response("", 10));
        assert_eq!(status(&http2.find(&[HEADERS, GOAWAY]).await.unwrap()), 200);
        drop(http2);
        litequic.stop_when_idle().await;
    }
}

#[tokio::test]
async fn throttled_long_responses_leave_an_origin_connection_free() {
    const PAGE: usize = 100;
    let (_origin, litequic) = Always::behind_litequic(response("", HELD), |config| {
        config.limits.max_streams = 200;
        for origin in config.origins.values_mut() {
            origin.max_connections = Some(10);
        }
    })
    .await;
    let mut client = Client::connect(&litequic, WINDOW).await;
    for _ in 0..PAGE {
        client.request(Some("u=5")).await;
    }
    blocked(&litequic).await;
    client.request(Some("u=0")).await;
    let (bytes, _) = client.read(PAGE + 1).await;
    for index in 0..=PAGE as u64 {
        assert_eq!(bytes.of(2 * index + 1), HELD as u64, "not a 503");
    }
    drop(client);
    litequic.stop_when_idle().await;
}

#[tokio::test]
async fn too_many_updates_are_a_flood() {
    let (_script, litequic) = Script::behind_litequic(|config| config.limits.max_control_frames = 10).await;
    let mut client = Client::connect(&litequic, WINDOW).await;
    let update = frame(PRIORITY_UPDATE, 0, 0, b"\0\0\0\x01u=1");
    while client.http2.try_say(&update.repeat(1_000)).await {}
    let end = client.http2.find(&[GOAWAY]).await;
    assert!(end.is_none_or(|end| end.code() == ENHANCE_YOUR_CALM));
    assert_eq!(litequic.sum(|worker| worker.shared.limit_control_frames.get()), 1);
    litequic.stop().await;
}
