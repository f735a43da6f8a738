//! Uploads that are answered before they have ended: the client sees the answer, whatever it sends meanwhile, and sends
//! no more than it may.

use crate::support::{chromium::Browser, prelude::*};

const NO_ERROR: u64 = 0x100;

/// litequic that takes no body of more than 1000 bytes, nor discards more than `bytes` of one.
async fn small(bytes: u64) -> Litequic {
    let origin = origin::demo().await;
    Litequic::start(origin, |config| {
        config.limits.max_body_bytes = Some(1000);
        config.limits.max_lingering_bytes = bytes;
    })
    .await
}

/// Paths, methods and statuses of answers that come before the upload is read: litequic's own, and the origin's.
const EARLY: [(&str, &str, u64); 2] = [("POST", "/sink", 413), ("PUT", "/headers", 405)];

#[tokio::test]
async fn a_browser_reads_the_response_to_an_upload_over_http3_and_http2() {
    for (quic, status) in [(true, 413), (true, 405), (false, 413), (false, 405)] {
        let certificate = make_self_signed(["localhost"]).unwrap();
        let spki = certificate.spki_sha256.clone();
        // The origin takes no PUT: its 405 comes before it has read the body.
        let edit = |config: &mut Config| config.limits.max_body_bytes = (status == 413).then_some(1000);
        let litequic = Litequic::showing(&[certificate], origin::demo().await, edit).await;
        let address = litequic.address;
        let seen = spawn_blocking(move || answers(address, &spki, quic)).await.unwrap();
        let Some(seen) = seen else { return };
        let protocol = if quic { "h3" } else { "h2" };
        for (size, seen) in seen {
            assert_eq!(seen, (protocol.to_owned(), status), "{size} bytes");
        }
        litequic.stop().await;
    }
}

/// The result of a browser's `fetch` of uploads: size, protocol, status.
fn answers(address: SocketAddr, spki: &str, quic: bool) -> Option<Vec<(usize, (String, u64))>> {
    let mut browser = Browser::trusting(spki, quic.then_some(address.port()), &[])?;
    browser.open(&format!("https://localhost:{}/headers", address.port()));
    browser.wait_for("location.pathname == '/headers' && document.readyState == 'complete'");
    let upload = |size: usize| {
        format!(
            "(async () => {{
                const url = '/headers?{size}';
                const late = new Promise(done => setTimeout(() => done({{ status: 0 }}), 15000));
                const answer = fetch(url, {{ method: 'PUT', body: new Uint8Array({size}) }}).then(async answer => {{
                    await answer.text();
                    return answer;
                }}, () => ({{ status: 1 }}));
                const {{ status }} = await Promise.race([answer, late]);
                const seen = performance.getEntriesByName(location.origin + url)[0];
                return [seen ? seen.nextHopProtocol : 'nothing', status];
            }})()"
        )
    };
    let sizes = [1_500, 200_000, 3_000_000, 20_000_000];
    let seen = sizes.map(|size| {
        let seen = browser.evaluate(&upload(size));
        (size, (seen[0].as_str().unwrap().to_owned(), seen[1].as_u64().unwrap()))
    });
    Some(seen.into())
}

#[tokio::test]
async fn curl_sees_the_answer_to_an_upload_by_http1_and_by_http2() {
    let Some(curl) = needs::program("curl") else { return };
    let folder = tempfile::tempdir().unwrap();
    let (ca, body) = (folder.path().join("ca.pem"), folder.path().join("body"));
    fs::write(&body, vec![b'x'; 20_000_000]).unwrap();
    for (method, path, status) in EARLY {
        let litequic = Litequic::demo(|config| config.limits.max_body_bytes = (status == 413).then_some(1000)).await;
        fs::write(&ca, &litequic.cert_pem).unwrap();
        for protocol in ["--http1.1", "--http2"] {
            for known in [true, false] {
                let mut command = Command::new(&curl);
                command.args([
                    "--silent",
                    "--show-error",
                    "--noproxy",
                    "*",
                    "--max-time",
                    "30",
                    "--output",
                    "/dev/null",
                ]);
                command.args(["--write-out", "%{http_code}", protocol, "--request", method, "--cacert"]).arg(&ca);
                // Sent at once, as most clients do.
                command.args(["--header", "Expect:"]);
                if known {
                    command.arg("--data-binary").arg(format!("@{}", body.display()));
                } else {
                    command.args(["--header", "Transfer-Encoding: chunked", "--upload-file"]).arg(&body);
                }
                command.arg(format!("https://localhost:{}{path}", litequic.tcp[0].port()));
                let output = spawn_blocking(move || command.output()).await.unwrap().unwrap();
                let said = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
                assert_eq!((&*said.0, &*said.1), (&*status.to_string(), ""), "{protocol}, known {known}");
            }
        }
        litequic.stop_when_idle().await;
    }
}

#[tokio::test]
async fn an_unread_http3_upload_is_discarded_up_to_the_limit() {
    let litequic = small(100_000).await;
    let client = Raw::to(&litequic).await;
    let mut whole = client.open(&raw::with("POST", &[("content-length", "90000")])).await;
    assert_eq!(whole.outcome().await.status(), 413);
    whole.send(&raw::data(vec![0; 90_000])).await;
    whole.finish();
    assert_eq!(whole.stopped().await, None, "all of it was taken");
    litequic.wait_until("bytes", |worker| worker.shared.lingering_bytes.get(), |bytes| bytes >= 90_000).await;

    let mut long = client.open(&raw::with("POST", &[("content-length", "100000000")])).await;
    assert_eq!(long.outcome().await.status(), 413);
    long.send(&raw::data(vec![0; 100_000_000])).await; // an error once it is stopped
    assert_eq!(long.stopped().await, Some(NO_ERROR));
    assert_eq!(litequic.sum(|worker| worker.shared.limit_lingering_bytes.get()), 1);
    let discarded = litequic.sum(|worker| worker.shared.lingering_bytes.get());
    assert!((190_000..190_000 + (2 << 20)).contains(&discarded), "{discarded}");
    // A fault of a request is answered at once.
    let mut wrong = client.open(&raw::with("POST", &[("connection", "close")])).await;
    assert_eq!(wrong.stopped().await, Some(0x10e));
    litequic.stop().await;
}

#[tokio::test]
async fn an_unread_http2_upload_is_discarded_up_to_the_limit() {
    let litequic = small(100_000).await;
    let post = [(":method", "POST"), (":scheme", "https"), (":authority", "localhost"), (":path", "/echo")];
    for (length, pieces) in [("90000", 9), ("100000000", 10_000)] {
        let mut client = Http2::connect(&litequic, &[]).await;
        // litequic's windows hold from here on.
        client.find(&[http2::SETTINGS]).await.unwrap();
        client.say(http2::SETTINGS, http2::ACK, 0, &[]).await;
        let head = http2::fields(&[&post[..], &[("content-length", length)]].concat());
        client.say(http2::HEADERS, http2::END_HEADERS, 1, &head).await;
        assert_eq!(http2::status(&client.find(&[http2::HEADERS]).await.unwrap()), 413);
        while client.find(&[http2::DATA]).await.unwrap().flags & http2::END_STREAM == 0 {}
        for piece in 1..=pieces.min(12) {
            let flags = if piece == pieces { http2::END_STREAM } else { 0 };
            client.say(http2::DATA, flags, 1, &[0; 10_000]).await;
        }
        if pieces == 9 {
            let discarded = |worker: &WorkerMetrics| worker.shared.lingering_bytes.get();
            litequic.wait_until("discarded", discarded, |bytes| bytes == 90_000).await;
            client.say(http2::PING, 0, 0, &[7; 8]).await;
            // h2 pings for itself.
            let answer = loop {
                let next = client.find(&[http2::RST_STREAM, http2::GOAWAY, http2::PING]).await.unwrap();
                if next.kind != http2::PING || next.flags & http2::ACK != 0 {
                    break next;
                }
            };
            assert_eq!(answer.kind, http2::PING, "nothing was wrong: {answer:?}");
        } else {
            let reset = client.find(&[http2::RST_STREAM, http2::GOAWAY]).await.unwrap();
            assert_eq!((reset.kind, reset.code()), (http2::RST_STREAM, 0), "NO_ERROR");
        }
    }
    assert_eq!(litequic.sum(|worker| worker.shared.limit_lingering_bytes.get()), 1);
    let discarded = litequic.sum(|worker| worker.shared.lingering_bytes.get());
    assert!((190_000..=210_000).contains(&discarded), "{discarded}");
    litequic.stop().await;
}

#[tokio::test]
async fn an_unread_http1_upload_is_discarded_up_to_the_limit() {
    let litequic = small(10_000_000).await;
    for (length, reads) in [(9_000_000, true), (1_000_000_000, false)] {
        let mut client = Tls::http1(&litequic).await;
        client.say(format!("POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n")).await;
        assert!(client.head().await.starts_with("http/1.1 413 "));
        let mut sent = 0;
        while sent < length && client.try_say(&[0; 100_000]).await {
            sent += 100_000;
        }
        assert_eq!(sent == length, reads, "{sent} of {length}");
    }
    assert_eq!(litequic.sum(|worker| worker.shared.limit_lingering_bytes.get()), 1);
    litequic.wait_until("closed", |worker| worker.tcp.tcp_connections_open.get(), |open| open == 0).await;
    litequic.stop().await;
}

#[tokio::test]
async fn a_stalled_upload_ends_at_its_timeout() {
    let litequic = Litequic::demo(|config| {
        config.limits.max_body_bytes = Some(1000);
        config.timeouts.lingering = Duration::from_millis(300);
    })
    .await;
    let three = Raw::to(&litequic).await;
    let mut exchange = three.open(&raw::with("POST", &[("content-length", "5000")])).await;
    assert_eq!(exchange.outcome().await.status(), 413);
    assert_eq!(exchange.stopped().await, Some(NO_ERROR));
    let mut two = Http2::connect(&litequic, &[]).await;
    let post = [(":method", "POST"), (":scheme", "https"), (":authority", "localhost"), (":path", "/echo")];
    let head = http2::fields(&[&post[..], &[("content-length", "5000")]].concat());
    two.say(http2::HEADERS, http2::END_HEADERS, 1, &head).await;
    assert_eq!(two.find(&[http2::RST_STREAM]).await.unwrap().code(), 0);
    let mut one = Tls::http1(&litequic).await;
    one.say("POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5000\r\n\r\n").await;
    assert!(one.rest().await.0.starts_with("HTTP/1.1 413"));
    litequic.wait_until("timeouts", |worker| worker.shared.timeout_lingering.get(), |times| times == 3).await;
    litequic.stop().await;
}

#[tokio::test]
async fn with_a_limit_of_0_an_upload_is_stopped_at_once() {
    let litequic = small(0).await;
    let client = Raw::to(&litequic).await;
    let mut exchange = client.open(&raw::with("POST", &[("content-length", "5000")])).await;
    assert_eq!(exchange.stopped().await, Some(NO_ERROR));
    assert_eq!(exchange.outcome().await.status(), 413);
    assert_eq!(litequic.sum(|worker| worker.shared.lingering_bytes.get()), 0);
    litequic.stop().await;
}

/// What a client still sends holds no connection open that drains for longer than it may.
#[tokio::test]
async fn a_drain_waits_for_what_is_discarded() {
    let (_script, litequic) = Script::behind_litequic(|config| {
        config.limits.max_body_bytes = Some(1000);
        config.timeouts.lingering = Duration::from_secs(2);
    })
    .await;
    let client = Raw::to(&litequic).await;
    let mut exchange = client.open(&raw::with("POST", &[("content-length", "5000")])).await;
    assert_eq!(exchange.outcome().await.status(), 413);
    litequic.lifecycle.advance_phase(litequic_base::lifecycle::ProcessPhase::Draining);
    exchange.send(&raw::data([0; 5000])).await;
    exchange.finish();
    assert_eq!(exchange.stopped().await, None);
    assert_eq!(client.quic.closed().await, NO_ERROR);
    litequic.ended().await;
}
