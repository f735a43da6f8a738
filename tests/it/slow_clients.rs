//! Clients that send or take next to nothing a second: they end, and until then they lock no other out.

use crate::support::{
    bystander::{SHORT, beside_a_bystander, counts},
    http2::{DATA, END_HEADERS, END_STREAM, HEADERS, RST_STREAM, fields, status},
    prelude::*,
};
use litequic_config::Sources;
use litequic_http3::ErrorCode;

/// Connections to an origin beyond its 512 for sources that hold none: an eighth. Each connection is a source here.
const RESERVE: usize = 64;
/// Fewer bytes a second than any of these tests' clients move.
const FAST: u64 = 1 << 20;

fn post(path: &str) -> Vec<u8> {
    fields(&http2::pseudo("POST", path))
}

#[tokio::test]
async fn uploads_below_the_minimum_rate_are_408_over_each_protocol() {
    let edit = |config: &mut Config| (config.limits.min_rate, config.limits.rate_grace) = (FAST, SHORT);
    beside_a_bystander(origin::demo().await, edit, async |litequic, _| {
        let slow =
            |expected| counts(litequic, "min_upload_rate", |worker| worker.shared.limit_upload_rate.get(), expected);
        let client = Raw::to(litequic).await;
        let mut three = client.open(&raw::request("POST", "/sink")).await;
        let mut one = Tls::http1(litequic).await;
        one.say("POST /sink HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n").await;
        let mut two = Http2::connect(litequic, &[]).await;
        two.say(HEADERS, END_HEADERS, 1, &post("/sink")).await;
        // A byte each moves the clock of silence alone.
        for _ in 0..200 {
            if litequic.sum(|worker| worker.shared.limit_upload_rate.get()) == 3 {
                break;
            }
            three.send(&raw::data("a")).await;
            one.try_say(b"a").await;
            two.try_say(&http2::frame(DATA, 0, 1, b"a")).await;
            sleep(Duration::from_millis(20)).await;
        }
        slow(3).await;
        assert_eq!(three.outcome().await.status(), 408);
        assert!(one.head().await.starts_with("http/1.1 408 "));
        assert_eq!(status(&two.find(&[HEADERS]).await.unwrap()), 408);
        assert_eq!(litequic.sum(|worker| worker.shared.timeout_request_body.get()), 0);
    })
    .await;
}

#[tokio::test]
async fn downloads_below_the_minimum_rate_are_reset_and_their_connection_goes_on() {
    let edit = |config: &mut Config| (config.limits.min_rate, config.limits.rate_grace) = (FAST, SHORT);
    beside_a_bystander(origin::demo().await, edit, async |litequic, _| {
        let slow = |expected| {
            counts(litequic, "min_download_rate", |worker| worker.shared.limit_download_rate.get(), expected)
        };
        let client = Raw::with_window(litequic, 16 * 1024).await;
        let mut three = client.open(&raw::request("GET", "/bytes/1G")).await;
        three.finish();
        slow(1).await;
        assert_eq!(three.outcome().await, Outcome::Reset(ErrorCode::RequestCancelled.wire_value()));
        assert_eq!(client.ask(&raw::request("GET", "/bytes/10")).await.status(), 200);
        let mut two = Http2::connect(litequic, &[0, 4, 0, 0, 0, 10]).await;
        let get = |path| fields(&http2::pseudo("GET", path));
        two.say(HEADERS, END_HEADERS | END_STREAM, 1, &get("/bytes/1G")).await;
        slow(2).await;
        assert_eq!(two.find(&[RST_STREAM]).await.unwrap().stream, 1);
        two.say(HEADERS, END_HEADERS | END_STREAM, 3, &get("/status/204")).await;
        assert_eq!(status(&two.find(&[HEADERS]).await.unwrap()), 204);
        assert_eq!(litequic.sum(|worker| worker.shared.timeout_send.get()), 0);
    })
    .await;
}

/// The attack of one client that asks a slow endpoint as often as there are connections, beside one of another network.
#[tokio::test]
async fn requests_of_a_slow_endpoint_leave_connections_to_others() {
    let litequic = Litequic::demo(|config| {
        config.origins.values_mut().for_each(|origin| origin.max_connections = Some(8));
        config.sources = Sources::default();
        config.trusted_proxies = vec!["127.0.0.0/8".parse().unwrap()];
    })
    .await;
    let asked = async |of: &Raw, client: &str, path: &str| {
        let fields = [raw::pseudo("GET", path), vec![("x-forwarded-for", client)]].concat();
        let mut stream = of.open(&raw::headers(&fields)).await;
        stream.finish();
        stream
    };
    // From one network first, then from so many that each holds two.
    for networks in [1, 5] {
        let attacker = Raw::to(&litequic).await;
        let mut held = Vec::new();
        for nth in 0..40 {
            held.push(asked(&attacker, &format!("198.51.{}.1", nth % networks), "/slow/20000").await);
        }
        litequic
            .wait_until("every connection", |worker| worker.proxy.origin_requests.get(), |requests| requests >= 8)
            .await;
        let honest = Raw::to(&litequic).await;
        for nth in 0..3 {
            let client = format!("203.0.{nth}.{networks}");
            assert_eq!(asked(&honest, &client, "/bytes/10").await.outcome().await.status(), 200, "{client}");
        }
    }
    litequic.stop().await;
}

/// The attack on every proxy that gives an upload a connection to its origin with its header: as many of them as there
/// are connections, a byte a minute each.
#[tokio::test]
async fn uploads_of_a_byte_each_leave_connections_to_others_over_each_protocol() {
    let litequic = Litequic::demo(|_| {}).await;
    let mut attackers = Vec::new();
    // The last ones take what is reserved for connections that hold nothing.
    for uploads_each in [128; 4].into_iter().chain([1; RESERVE]) {
        let client = Raw::to(&litequic).await;
        let mut uploads = Vec::new();
        for _ in 0..uploads_each {
            let head = raw::request("POST", "/sink");
            uploads.push(client.open(&[head, raw::data("a")].concat()).await);
        }
        attackers.push((client, uploads));
    }
    litequic
        .wait_until(
            "every connection",
            |worker| worker.proxy.origin_requests.get(),
            |requests| requests == 512 + RESERVE as u64,
        )
        .await;
    let honest = Client::to(&litequic).await;
    for _ in 0..3 {
        assert_eq!(honest.get("/bytes/10").await.status, 200);
        assert_eq!(honest.post("/sink", vec![b'a'; 100_000]).await.status, 200);
    }
    let mut one = Tls::http1(&litequic).await;
    one.say("GET /bytes/10 HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
    assert!(one.head().await.starts_with("http/1.1 200 "));
    let ended = litequic.sum(|worker| worker.proxy.evicted_slow_uploads.get());
    assert!((1..=256).contains(&ended), "{ended}: at most as many as were in the way");
    drop(attackers);
    litequic.stop().await;
}
