//! Which requests have spans, and what becomes of them: retries, answers of litequic's own, failures, cancellations,
//! tunnels.

use super::{answered, fetch, parted, sent_twice, tracing};
use crate::support::{
    collector::Collector,
    origin::closed_port,
    prelude::*,
    proxy::tcp,
    tunnel::{self, websocket},
};
use futures_util::{SinkExt, StreamExt};
use litequic_config::{Auth, Redirect, RouteTarget, Template, Variable};
use tokio_tungstenite::tungstenite::Message;

#[tokio::test]
async fn a_retry_is_a_span_of_its_own() {
    let collector = Collector::http().await;
    let script = Script::new().await;
    let litequic = tracing(script.address, &collector, |_| {}).await;
    let client = Client::to(&litequic).await;
    let heads = sent_twice(&client, &script).await;
    let spans = collector.spans(5).await;
    let second = spans.iter().filter(|span| span.trace_id == heads[0].field("x-request-id").unwrap());
    let second: Vec<_> = second.cloned().collect();
    let (server, clients) = parted(&second);
    assert_eq!((server.get("url.path"), server.is_error, clients.len()), ("/second", false, 2));
    for (head, client) in heads.iter().zip(&clients) {
        assert!(head.field("traceparent").unwrap().contains(&client.span_id), "{clients:#?}");
    }
    let of = |key| (clients[0].get(key), clients[1].get(key));
    assert_eq!(of("http.request.resend_count"), ("", "1"));
    assert_eq!(of("http.response.status_code"), ("", "200"));
    assert_eq!(of("error.type"), ("connection_terminated", ""));
    assert_eq!(of("litequic.connection.reused"), ("true", "false"));
    assert_eq!((clients[0].is_error, clients[1].is_error), (true, false));
    litequic.stop().await;
}

#[tokio::test]
async fn an_answer_of_litequics_own_has_no_client_span() {
    let collector = Collector::http().await;
    let litequic = tracing(origin::demo().await, &collector, |config| {
        let path =
            |path: &str, target| RouteConfig { path: Some(path.into()), target, ..RouteConfig::catch_all("origin") };
        let redirect = Redirect {
            to: Template::parse_variables("https://a.test{path}", &[Variable::Path]).unwrap(),
            status: Redirect::DEFAULT_STATUS,
        };
        config.routes = vec![
            path("/moved", RouteTarget::Redirect(redirect)),
            RouteConfig { max_body_bytes: Some(3), ..path("/small", RouteTarget::Origin("origin".into())) },
        ];
    })
    .await;
    let client = Client::to(&litequic).await;
    assert_eq!(client.get("/moved").await.status.as_u16(), 307);
    assert_eq!(client.get("/none").await.status.as_u16(), 404);
    assert_eq!(client.post("/small", "too long").await.status.as_u16(), 413);
    let raw = Raw::to(&litequic).await;
    assert_eq!(raw.ask(&raw::request("GET", "/a/../b")).await.status(), 400);
    // Without a response.
    raw.ask(&raw::headers(&[raw::pseudo("GET", "/bad"), vec![("X", "y")]].concat())).await;
    let spans = collector.spans(5).await;
    assert!(spans.iter().all(|span| span.is_server), "{spans:#?}");
    let of = |path: &str| spans.iter().find(|span| span.get("url.path") == path).unwrap();
    for (path, name, status, error, is_error) in [
        ("/moved", "GET /moved", "307", "", false),
        ("/none", "GET", "404", "destination_not_found", false),
        ("/small", "POST /small", "413", "http_request_denied", false),
        ("/a/../b", "GET", "400", "http_request_error", false),
        ("/bad", "GET", "", "malformed", true),
    ] {
        let span = of(path);
        let found = (&*span.name, span.get("http.response.status_code"), span.get("error.type"), span.is_error);
        assert_eq!(found, (name, status, error, is_error), "{path}");
    }
    litequic.stop().await;
}

#[tokio::test]
async fn a_failed_origin_marks_both_spans_and_a_cancel_none() {
    let collector = Collector::http().await;
    let script = Script::new().await;
    let litequic =
        tracing(script.address, &collector, |config| config.timeouts.response_header = Duration::from_millis(300))
            .await;
    let raw = Raw::to(&litequic).await;
    // It closes without an answer.
    let (mut exchange, peer) = raw.asked_at(&script).await;
    drop(peer);
    assert_eq!(exchange.outcome().await.status(), 502);
    // It does not answer.
    let (mut exchange, peer) = raw.asked_at(&script).await;
    assert_eq!(exchange.outcome().await.status(), 504);
    drop(peer);
    // The client cancels within the response.
    let (mut exchange, mut peer) = raw.asked_at(&script).await;
    peer.say("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf").await;
    exchange.header().await;
    exchange.receive.stop(0x10c_u32.into()).unwrap();
    litequic.wait_until_idle().await;
    // The origin breaks off.
    let (mut exchange, mut peer) = raw.asked_at(&script).await;
    peer.say("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf").await;
    drop(peer);
    exchange.outcome().await;

    let spans = collector.spans(8).await;
    let of = |is_server: bool| {
        let spans = spans.iter().filter(move |span| span.is_server == is_server);
        let told = |span: &crate::support::collector::SeenSpan| {
            let status = span.get("http.response.status_code");
            format!("{status} {} {} {}", span.get("litequic.end"), span.get("error.type"), span.is_error)
        };
        let mut told: Vec<_> = spans.map(told).collect();
        told.sort();
        told
    };
    assert_eq!(
        of(true),
        [
            "200 cancelled  false",
            "200 failed http_response_incomplete true",
            "502 complete connection_terminated true",
            "504 complete http_response_timeout true",
        ]
    );
    assert_eq!(
        of(false),
        ["  connection_terminated true", "  http_response_timeout true", "200   false", "200   false"]
    );
    litequic.stop().await;
}

#[tokio::test]
async fn each_attempt_to_connect_to_a_dead_origin_is_a_span() {
    let collector = Collector::http().await;
    let litequic = tracing(closed_port(), &collector, |_| {}).await;
    assert_eq!(fetch(&litequic, HttpVersion::Http3, "/", &[]).await, 502);
    let spans = collector.spans(2).await;
    let (server, clients) = parted(&spans);
    assert_eq!((server.get("error.type"), server.is_error), ("connection_refused", true));
    assert_eq!((clients[0].get("error.type"), clients[0].get("url.full")), ("connection_refused", ""));
    litequic.stop().await;
}

#[tokio::test]
async fn a_tunnels_span_ends_with_it_and_an_upload_has_one() {
    let collector = Collector::http().await;
    let litequic =
        tracing(tunnel::echo().await, &collector, |config| config.routes[0].upgrade = vec!["websocket".into()]).await;
    let (mut socket, _kept) = websocket(&litequic, HttpVersion::Http3, "/").await;
    socket.send(Message::text("hello")).await.unwrap();
    within("an echo", socket.next()).await.unwrap().unwrap();
    assert_eq!(collector.requests(), 0);
    socket.close(None).await.unwrap();
    drop(socket);
    let spans = collector.spans(2).await;
    let (server, clients) = parted(&spans);
    assert_eq!(clients[0].get("http.response.status_code"), "101");
    assert!(!server.is_error, "{server:?}");
    litequic.stop().await;

    let collector = Collector::http().await;
    let litequic = tracing(origin::demo().await, &collector, |_| {}).await;
    let client = Client::to(&litequic).await;
    assert_eq!(client.post("/sink", vec![b'x'; 1_000_000]).await.status.as_u16(), 200);
    let spans = collector.spans(2).await;
    let (server, clients) = parted(&spans);
    assert_eq!((&*server.name, &*clients[0].name), ("POST /*", "POST"));
    litequic.stop().await;
}

#[tokio::test]
async fn an_authorization_request_is_a_span_of_its_request() {
    let collector = Collector::http().await;
    let (script, decider) = (Script::new().await, Script::new().await);
    let litequic = tracing(script.address, &collector, |config| {
        let decides = Auth { origin: "decider".into(), path: "/auth".into(), ..Auth::default() };
        config.routes[0].auth = Some(decides);
        config.origins.insert("decider".into(), OriginConfig::new(tcp(decider.address)));
    })
    .await;
    let client = Client::to(&litequic).await;
    let (answer, question, request) = tokio::join!(
        client.get("/a"),
        answered(&decider, "HTTP/1.1 204 No Content\r\n\r\n"),
        answered(&script, Always::EMPTY_200)
    );
    assert_eq!(answer.status.as_u16(), 200);
    let spans = collector.spans(3).await;
    let (server, clients) = parted(&spans);
    assert_eq!(server.get("http.response.status_code"), "200");
    for (client, origin, status, head) in
        [(clients[0], "decider", "204", question), (clients[1], "origin", "200", request)]
    {
        assert_eq!((client.get("litequic.origin"), client.get("http.response.status_code")), (origin, status));
        assert!(head.field("traceparent").unwrap().contains(&client.span_id), "{client:#?}");
        assert_eq!(client.get("http.request.resend_count"), "", "{client:#?}");
    }
    litequic.stop().await;
}
