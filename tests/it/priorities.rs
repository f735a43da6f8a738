//! Priorities (RFC 9218), as the wire shows them: what was signalled is sent first, and no more than the horizon
//! overtakes it.

use crate::support::{
    client::tls_config,
    picture,
    prelude::*,
    raw::PRIORITY_UPDATE,
    sequence::{EIGHT, PRIORITIES_OF_EIGHT, Sequence},
};
use http::HeaderName;
use litequic_config::{Template, TemplatePart};
use s2n_quic::{
    Client, Connection,
    client::Connect,
    provider::{
        event::{ConnectionInfo, ConnectionMeta, Subscriber, events},
        tls,
    },
    stream::{BidirectionalStream, SendStream},
};
use std::collections::BTreeMap;

/// Bytes a second of a link on which a horizon takes some time.
const RATE: u32 = 625_000;
/// Bytes that may be handed over and unsent at that rate, and packets' headers.
const HORIZON: u64 = 32 * 1024;
/// A turn of an incremental response.
const TURN: u64 = 16 * 1024;
/// Bytes of a response that is read ahead whole.
const SIZE: usize = 60_000;
/// A machine that others keep busy may have sent what blocks before the rest is at hand.
const ATTEMPTS: usize = 30;

/// Notes each STREAM frame that comes, in the order of packets.
#[derive(Debug, Clone, Default)]
struct Frames(Arc<Mutex<Vec<Received>>>);

#[derive(Debug, Clone, Copy)]
struct Received {
    packet: u64,
    stream: u64,
    offset: u64,
    end: u64,
}

impl Subscriber for Frames {
    type ConnectionContext = ();

    fn create_connection_context(&mut self, _: &ConnectionMeta, _: &ConnectionInfo<'_>) {}

    fn on_frame_received(&mut self, (): &mut (), _: &ConnectionMeta, event: &events::FrameReceived<'_>) {
        let events::PacketHeader::OneRtt { number: packet, .. } = event.packet_header else { return };
        if let events::Frame::Stream { id, offset, len, .. } = event.frame {
            let received = Received { packet, stream: id, offset, end: offset + u64::from(len) };
            self.0.lock().unwrap().push(received);
        }
    }
}

impl Frames {
    /// Bytes of request streams in the order of their packets, each once.
    fn bytes(&self) -> Sequence {
        self.bytes_unless_lost().expect("nothing was lost")
    }

    /// As [`Self::bytes`]; `None` if packets were lost, as sockets lose some on a machine that others keep busy.
    fn bytes_unless_lost(&self) -> Option<Sequence> {
        let mut frames = self.0.lock().unwrap().clone();
        frames.sort_by_key(|frame| frame.packet);
        let mut ends = BTreeMap::<u64, u64>::new();
        let mut bytes = Vec::new();
        for Received { stream, offset, end, .. } in frames {
            let known = ends.entry(stream).or_default();
            if stream % 4 == 0 && end > *known {
                if offset > *known {
                    return None;
                }
                bytes.push((stream, end - *known));
                *known = end;
            }
        }
        Some(Sequence(bytes))
    }
}

/// A connection whose frames are noted.
struct Noted {
    connection: Connection,
    frames: Frames,
    control: SendStream,
    _client: Client,
}

impl Noted {
    async fn connect(litequic: &Litequic, address: SocketAddr) -> Self {
        let frames = Frames::default();
        let client = Client::builder()
            .with_tls(tls::rustls::Client::from(tls_config(&litequic.cert_pem)))
            .unwrap()
            .with_io("127.0.0.1:0")
            .unwrap()
            .with_event(frames.clone())
            .unwrap()
            .start()
            .unwrap();
        let connect = client.connect(Connect::new(address).with_server_name("localhost"));
        let mut connection = within("a handshake", connect).await.unwrap();
        let mut control = connection.open_send_stream().await.unwrap();
        control.send([vec![0x00], raw::frame(raw::SETTINGS, [])].concat().into()).await.unwrap();
        Self { connection, frames, control, _client: client }
    }

    async fn request(&mut self, priority: Option<&str>) -> BidirectionalStream {
        let mut stream = self.connection.open_bidirectional_stream().await.unwrap();
        let fields: Vec<_> = priority.iter().map(|value| ("priority", *value)).collect();
        stream.send(raw::with("GET", &fields).into()).await.unwrap();
        stream.finish().unwrap();
        stream
    }

    /// Sends a request of the highest urgency and one of the lowest. Returns their streams, and the connections on which
    /// the origin of `script` has them.
    async fn urgent_and_not(&mut self, script: &Script) -> (Vec<BidirectionalStream>, [Peer; 2]) {
        let mut streams = vec![self.request(Some("u=0")).await];
        let first = script.accept_request().await;
        streams.push(self.request(Some("u=7")).await);
        let second = script.accept_request().await;
        (streams, [first, second])
    }

    async fn update(&mut self, stream: u64, value: &str) {
        self.control.send(update(stream, value).into()).await.unwrap();
    }
}

/// A PRIORITY_UPDATE frame.
fn update(stream: u64, value: &str) -> Vec<u8> {
    raw::frame(PRIORITY_UPDATE, [raw::varint(stream), value.as_bytes().to_vec()].concat())
}

fn link(litequic: &Litequic) -> Link {
    let delay = Duration::from_millis(10);
    let down = Way { delay, rate: Some(RATE), queue: 8192, ..Way::default() };
    Link::between(litequic.address, Faults { up: Way { delay, ..Way::default() }, down, seed: 1 })
}

/// What the origin says to a request.
fn response(fields: &str, size: usize) -> String {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {size}\r\n{fields}\r\n{}", "x".repeat(size))
}

async fn read_to_the_end(streams: Vec<BidirectionalStream>) {
    for mut stream in streams {
        while within("a response", stream.receive()).await.unwrap().is_some() {}
    }
}

fn body_bytes(worker: &WorkerMetrics) -> u64 {
    worker.shared.response_body_bytes.get()
}

/// Has one response of two trains and more block the connection, and after it responses to requests with the fields of
/// `requests`, which the origin gives in the order of the requests, with those fields. `meanwhile` runs once all are at
/// hand. Returns the frames; the blocking response is on the stream 0, the others on 4, 8 and so on.
async fn at_hand(
    requests: &[(Option<&str>, &str)],
    meanwhile: impl AsyncFn(&mut Noted),
    edit: impl Fn(&mut Config),
) -> Frames {
    at_hand_behind(Some("u=0"), async |_: &Litequic, _: &mut Noted| {}, requests, meanwhile, edit).await
}

/// As [`at_hand`], with the priority of the blocking request, and what is done before it.
async fn at_hand_behind(
    blocking: Option<&str>,
    before: impl AsyncFn(&Litequic, &mut Noted),
    requests: &[(Option<&str>, &str)],
    meanwhile: impl AsyncFn(&mut Noted),
    edit: impl Fn(&mut Config),
) -> Frames {
    let mut attempt = 0;
    loop {
        attempt += 1;
        let (script, litequic) = Script::behind_litequic(&edit).await;
        let link = link(&litequic);
        let mut client = Noted::connect(&litequic, link.address).await;
        before(&litequic, &mut client).await;
        let block = async |client: &mut Noted| {
            let stream = client.request(blocking).await;
            let peer = script.accept_request().await;
            (stream, peer)
        };
        let (stream, mut blocks) = block(&mut client).await;
        let mut streams = vec![stream];
        let mut peers: Vec<(Peer, &str)> = Vec::new();
        for (request, fields) in requests {
            streams.push(client.request(*request).await);
            let peer = script.accept_request().await;
            peers.push((peer, fields));
        }
        let block_size = 2 * SIZE;
        blocks.say(response("", block_size)).await;
        for (peer, fields) in &mut peers {
            peer.say(response(fields, SIZE)).await;
        }
        let all = (block_size + peers.len() * SIZE) as u64;
        litequic.wait_until("all at hand", body_bytes, |bytes| bytes >= all).await;
        let blocked = |bytes: Sequence| bytes.of(0) < (block_size as u64).saturating_sub(HORIZON);
        let in_time = client.frames.bytes_unless_lost().is_some_and(blocked);
        meanwhile(&mut client).await;
        read_to_the_end(streams).await;
        let frames = client.frames.clone();
        drop(client);
        litequic.stop_when_idle().await;
        if in_time && frames.bytes_unless_lost().is_some() {
            return frames;
        }
        assert!(attempt < ATTEMPTS, "what blocks was sent before the rest was at hand");
    }
}

async fn nothing(_: &mut Noted) {}

/// Checks that each pair of streams came in their order, up to a horizon. `streams` are urgency and whether it is
/// incremental, of the streams 4, 8 and so on.
fn came_in_order(frames: &Frames, streams: &[(u8, bool)]) {
    let streams: Vec<_> = (1..).map(|index| 4 * index).zip(streams.iter().copied()).collect();
    frames.bytes().is_in_order(&streams, (HORIZON, TURN, SIZE as u64));
}

#[tokio::test]
async fn eight_responses_come_in_the_order_of_their_priorities() {
    let frames = at_hand(&EIGHT, nothing, |_| {}).await;
    came_in_order(&frames, &PRIORITIES_OF_EIGHT);
    if !picture::is_wanted() {
        return;
    }
    // The same without an order, for the picture in the documents.
    let without = at_hand(&EIGHT, nothing, |config| config.litequic.priorities = false).await;
    let mut rows = vec![(0, "the first request".to_owned())];
    let fields = EIGHT.map(|(priority, _)| priority.unwrap_or("no field"));
    rows.extend((1..).zip(fields).map(|(index, priority)| (4 * index, priority.to_owned())));
    let part = |title, frames: &Frames| picture::Part { title, rows: &rows, bytes: frames.bytes() };
    let parts = [part("By priorities", &frames), part("With litequic.priorities = false", &without)];
    picture::draw("eight-responses.svg", "Eight responses by priorities and without", &parts);
}

#[tokio::test]
async fn with_the_key_off_eight_responses_share_the_connection() {
    let requests: Vec<_> = (0..8).map(|urgency| (Some(["u=7", "u=0"][usize::from(urgency == 7)]), "")).collect();
    let frames = at_hand(&requests, nothing, |config| config.litequic.priorities = false).await;
    // The urgent one is the last, on the stream 32.
    let beside: u64 = (1..8).map(|index| frames.bytes().before_the_last_of(32, 4 * index)).sum();
    assert!(beside > 2 * SIZE as u64, "{beside} bytes of the others");
}

#[tokio::test]
async fn a_routes_rule_gives_responses_their_priority() {
    let rule = |config: &mut Config| {
        let value = Template(vec![TemplatePart::Text("u=3".to_owned())]);
        config.routes[0].response_headers.set.push((HeaderName::from_static("priority"), value));
    };
    let requests = [(Some("u=7"), ""), (Some("u=1"), "Priority: u=0\r\n")];
    let frames = at_hand(&requests, nothing, rule).await;
    came_in_order(&frames, &[(3, false), (3, false)]);
}

#[tokio::test]
async fn an_interim_response_waits_only_for_bytes_already_handed_over() {
    const LONG: usize = 1_000_000;
    let (script, litequic) = Script::behind_litequic(|_| {}).await;
    let link = link(&litequic);
    let mut client = Noted::connect(&litequic, link.address).await;
    let (streams, [mut first, mut second]) = client.urgent_and_not(&script).await;
    let says = async {
        first.say(response("", LONG)).await;
    };
    let hints = async {
        second.say("HTTP/1.1 103 Early Hints\r\nLink: </a>; rel=preload\r\n\r\n").await;
        let interim = |worker: &WorkerMetrics| worker.shared.responses_1xx.get();
        litequic.wait_until("the interim response", interim, |count| count == 1).await;
        second.say(response("", 10)).await;
    };
    tokio::join!(says, hints, read_to_the_end(streams));
    if let Some(bytes) = client.frames.bytes_unless_lost() {
        let before = bytes.before_the_first_of(4, 0);
        assert!(before < LONG as u64 / 2, "{before} bytes of a more urgent response came before it");
    }
    drop(client);
    litequic.stop().await;
}

#[tokio::test]
async fn throttled_responses_leave_origin_connections_to_the_next_request() {
    leave_a_connection(90, SIZE).await;
}

#[tokio::test]
async fn throttled_long_responses_leave_an_origin_connection_free() {
    // More than is read ahead: each keeps its connection.
    leave_a_connection(20, 3 * SIZE).await;
}

/// Requests a page of as many responses of `size` bytes that are not urgent, then an urgent one.
async fn leave_a_connection(page: usize, size: usize) {
    let (origin, litequic) = Always::behind_litequic(response("", size), |config| {
        for origin in config.origins.values_mut() {
            origin.max_connections = Some(10);
        }
    })
    .await;
    let link = link(&litequic);
    let mut client = Noted::connect(&litequic, link.address).await;
    let mut streams = Vec::new();
    for index in 0..=page {
        let mut stream = client.request(Some(if index == page { "u=0" } else { "u=5" })).await;
        // All are read at once, so that no window is shut.
        streams.push(tokio::spawn(async move {
            let mut length = 0;
            while let Some(chunk) = within("a response", stream.receive()).await.unwrap() {
                length += chunk.len();
            }
            length
        }));
    }
    for stream in streams {
        assert!(within("a response", stream).await.unwrap() > size, "not a 503");
    }
    assert!(origin.connections() <= 10);
    drop(client);
    litequic.stop_when_idle().await;
}

#[tokio::test]
async fn a_priority_update_holds_before_and_during_its_request() {
    let requests = [(Some("u=1"), ""), (Some("u=2"), ""), (Some("u=7"), ""), (Some("u=7"), "Priority: u=2, i=?0\r\n")];
    let change = async |client: &mut Noted| {
        client.update(4, "u=6").await;
        client.update(12, "u=0").await;
    };
    let frames = at_hand(&requests, change, |_| {}).await;
    came_in_order(&frames, &[(6, false), (2, false), (0, false), (2, false)]);

    let early = async |litequic: &Litequic, client: &mut Noted| {
        client.update(4, "u=6").await;
        client.update(8, "u=1").await;
        let early = |worker: &WorkerMetrics| worker.shared.priority_updates_early.get();
        litequic.wait_until("both updates", early, |updates| updates == 2).await;
    };
    let requests = [(Some("u=0"), ""), (Some("u=7"), "")];
    let frames = at_hand_behind(Some("u=0"), early, &requests, nothing, |_| {}).await;
    came_in_order(&frames, &[(6, false), (1, false)]);
}

#[tokio::test]
async fn without_a_signal_responses_come_one_after_the_other() {
    let unsignalled = [(None, ""); 3];
    let frames = at_hand_behind(None, async |_: &Litequic, _: &mut Noted| {}, &unsignalled, nothing, |_| {}).await;
    came_in_order(&frames, &[(3, false); 3]);
}

#[tokio::test]
async fn without_an_order_responses_share_the_connection() {
    let share = async |edit: fn(&mut Config), blocking: Option<&str>, requests: &[(Option<&str>, &str)]| {
        for _ in 0..ATTEMPTS {
            let frames =
                at_hand_behind(blocking, async |_: &Litequic, _: &mut Noted| {}, requests, nothing, edit).await;
            let bytes = frames.bytes();
            // On a machine that others keep busy one may be sent before the other is at hand.
            if bytes.before_the_first_of(4, 8).max(bytes.before_the_first_of(8, 4)) > TURN {
                continue;
            }
            let difference = bytes.greatest_difference(&[4, 8]);
            assert!(difference <= HORIZON + TURN, "one was {difference} bytes ahead of the other");
            return;
        }
        panic!("one was sent before the other was at hand");
    };
    let both = [(Some("u=7"), ""), (Some("u=0"), "")];
    share(|config| config.litequic.priorities = false, Some("u=0"), &both).await;
    share(|config| config.trusted_proxies = vec![Network { address: [127, 0, 0, 0].into(), prefix: 8 }], None, &both)
        .await;
}

#[tokio::test]
async fn a_client_that_does_not_read_its_urgent_response_gets_the_others() {
    let (script, litequic) = Script::behind_litequic(|_| {}).await;
    let raw = Raw::with_window(&litequic, 20_000).await;
    let mut urgent = raw.open(&raw::with("GET", &[("priority", "u=0")])).await;
    urgent.finish();
    let mut peer = script.accept_request().await;
    peer.say(response("", 2 * SIZE)).await;
    for _ in 0..3 {
        let mut other = raw.open(&raw::with("GET", &[("priority", "u=7")])).await;
        other.finish();
        let mut peer = script.accept_request().await;
        peer.say(response("", 2 * SIZE)).await;
        assert_eq!(other.outcome().await.response().body.len(), 2 * SIZE);
    }
    assert_eq!(urgent.outcome().await.response().body.len(), 2 * SIZE);
    litequic.stop_when_idle().await;
}

#[tokio::test]
async fn a_throttled_response_outlasts_the_client_timeout() {
    /// Bytes for which the link takes more than twice the timeout.
    const LONG: usize = 3_000_000;
    for _ in 0..ATTEMPTS {
        let (script, litequic) = Script::behind_litequic(|config| config.timeouts.send = Duration::from_secs(1)).await;
        let link = link(&litequic);
        let mut client = Noted::connect(&litequic, link.address).await;
        let (streams, [mut first, mut second]) = client.urgent_and_not(&script).await;
        // More than is read ahead.
        let (one, other) = (response("", LONG), response("", 4 * SIZE));
        let said = async { tokio::join!(first.say(one), second.say(other)) };
        tokio::join!(said, async {
            for mut stream in streams {
                let mut length = 0;
                while let Some(chunk) = within("a response", stream.receive()).await.unwrap() {
                    length += chunk.len();
                }
                assert!(length > 4 * SIZE);
            }
        });
        assert_eq!(litequic.sum(|worker| worker.shared.timeout_send.get()), 0);
        // A sixteenth went to the one that waited, and more when the urgent one had nothing at hand.
        let rest = litequic.sum(|worker| worker.quic.priority_rest_bytes.get());
        assert!(rest <= LONG as u64 / 16, "{rest}");
        let overtook = client.frames.bytes_unless_lost().map(|bytes| bytes.before_the_last_of(0, 4));
        drop(client);
        litequic.stop().await;
        if let Some(overtook) = overtook.filter(|overtook| *overtook <= HORIZON + LONG as u64 / 16) {
            assert!(rest > 0 || overtook > 0, "it got something");
            return;
        }
    }
    panic!("none was held back");
}

#[tokio::test]
async fn redundant_priority_updates_are_a_flood() {
    let (script, litequic) = Script::behind_litequic(|_| {}).await;
    let mut raw = Raw::to(&litequic).await;
    // Each changes what the last one has said.
    let max_streams = 100;
    for round in 0..100 {
        let value = if round % 2 == 0 { "u=1" } else { "u=2, i" };
        let updates: Vec<u8> = (0..max_streams).flat_map(|index| update(4 * index, value)).collect();
        within("the updates", raw.control().write_all(&updates)).await.unwrap();
    }
    let early = |worker: &WorkerMetrics| worker.shared.priority_updates_early.get();
    litequic.wait_until("the updates", early, |updates| updates == 100 * max_streams).await;
    let (mut exchange, mut peer) = raw.asked_at(&script).await;
    peer.say(response("", 10)).await;
    assert_eq!(exchange.outcome().await.status(), 200);
    // All the same.
    let updates = update(4, "u=2, i").repeat(2_000);
    let _ = raw.control().write_all(&updates).await;
    let closed = within("the connection's end", raw.quic.connection.closed()).await;
    assert!(closed.to_string().contains("263") || closed.to_string().contains("0x107"), "H3_EXCESSIVE_LOAD: {closed}");
    litequic.stop().await;
}

#[tokio::test]
async fn priority_updates_for_future_streams_are_bounded() {
    const STREAMS: u64 = 10_000;
    let script = Script::new().await;
    let edit = |config: &mut Config| config.limits.max_streams = u32::try_from(STREAMS).unwrap();
    let litequic = Litequic::start(script.address, edit).await;
    let mut raw = Raw::to(&litequic).await;
    for round in 1..=3 {
        let updates: Vec<u8> = (0..STREAMS).flat_map(|index| update(4 * index, &format!("u={round}"))).collect();
        within("the updates", raw.control().write_all(&updates)).await.unwrap();
        let early = |worker: &WorkerMetrics| worker.shared.priority_updates_early.get();
        litequic.wait_until("the updates", early, |updates| updates == round * STREAMS).await;
    }
    let long = update(4, &"a".repeat(600)).repeat(3);
    within("long ones", raw.control().write_all(&long)).await.unwrap();
    let skipped = |worker: &WorkerMetrics| worker.shared.priority_updates_skipped.get();
    litequic.wait_until("skipped", skipped, |count| count == 3).await;
    let (mut exchange, mut peer) = raw.asked_at(&script).await;
    peer.say(response("", 10)).await;
    assert_eq!(exchange.outcome().await.status(), 200);
    litequic.stop().await;
}

#[tokio::test]
async fn an_update_for_a_stream_that_cannot_come_yet_closes_the_connection() {
    let (script, litequic) = Script::behind_litequic(|config| config.limits.max_streams = 10).await;
    for (stream, is_allowed) in [(36, true), (40, false), (1 << 40, false)] {
        let mut raw = Raw::to(&litequic).await;
        raw.control().write_all(&update(stream, "u=1")).await.unwrap();
        if is_allowed {
            let (mut exchange, mut peer) = raw.asked_at(&script).await;
            peer.say(response("", 10)).await;
            assert_eq!(exchange.outcome().await.status(), 200);
        } else {
            let closed = within("the connection's end", raw.quic.connection.closed()).await;
            assert!(
                closed.to_string().contains("264") || closed.to_string().contains("0x108"),
                "H3_ID_ERROR: {closed}"
            );
        }
    }
    litequic.stop().await;
}
