//! Tests requests' bodies that come slowly: which bytes are read before there is a connection, and which uploads are
//! evicted.

use super::{
    Response, Script, Setup, config, data, fed, fed_known, origin, request, settle, setup_at, with_a_jumping_clock,
};
use http::{HeaderValue, Method};
use litequic_exchange::{Abort, BodyError};
use std::time::Duration;
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep},
};

type Sent = JoinHandle<Result<Response, Abort>>;

async fn status(sent: Sent) -> u16 {
    sent.await.unwrap().unwrap().status().as_u16()
}

/// Number of connections that were opened.
fn connections(setup: &Setup) -> u64 {
    setup.metrics.origin_connections.get()
}

#[test]
fn a_short_body_is_read_completely_before_connecting() {
    with_a_jumping_clock(async {
        let script = Script::new().await;
        let setup = script.proxy(|_| {});
        let (feed, body) = fed_known(6);
        let sent = setup.send(request(Method::POST, body));
        for piece in ["abc", "def"] {
            feed.send(data(piece)).unwrap();
            sleep(Duration::from_secs(5)).await;
            assert_eq!(connections(&setup), 0);
        }
        drop(feed);
        let mut peer = script.accept().await;
        assert!(peer.until("\r\n\r\nabcdef").await.contains("content-length: 6\r\n"));
        peer.say("HTTP/1.1 204 No Content\r\n\r\n").await;
        assert_eq!(status(sent).await, 204);
    });
}

#[test]
fn a_long_body_gets_its_connection_with_its_first_bytes() {
    with_a_jumping_clock(async {
        let script = Script::new().await;
        let setup = script.proxy(|config| origin(config).request_buffer = 5);
        for known in [true, false] {
            let (feed, body) = if known { fed_known(6) } else { fed() };
            let sent = setup.send(request(Method::POST, body));
            settle().await;
            assert_eq!(connections(&setup), u64::from(!known));
            feed.send(data("a")).unwrap();
            let mut peer = script.accept().await;
            peer.until(if known { "\r\n\r\na" } else { "1\r\na\r\n" }).await;
            feed.send(data("bcdef")).unwrap();
            drop(feed);
            peer.until(if known { "bcdef" } else { "bcdef\r\n0\r\n\r\n" }).await;
            peer.say("HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n").await;
            assert_eq!(status(sent).await, 204);
        }
    });
}

/// Such a body may be that of a client which waits for its response's header, or for 100 (Continue).
#[test]
fn a_body_that_does_not_begin_is_not_waited_for_long() {
    with_a_jumping_clock(async {
        for (expects, at_least, at_most) in [(false, 900, 1_500), (true, 0, 500)] {
            let script = Script::new().await;
            let setup = script.proxy(|_| {});
            let (_feed, body) = fed();
            let mut asked = request(Method::POST, body);
            if expects {
                asked.headers_mut().insert("expect", HeaderValue::from_static("100-continue"));
            }
            let began = Instant::now();
            let _sent = setup.send(asked);
            script.accept().await.head().await;
            let waited = began.elapsed().as_millis();
            assert!((at_least..=at_most).contains(&waited), "{expects}: {waited} ms");
        }
    });
}

#[test]
fn a_body_that_fails_before_connecting_opens_no_connection() {
    with_a_jumping_clock(async {
        let nowhere = config::OriginAddress::Unix("/nonexistent/socket".into());
        for (error, answer) in [
            (BodyError::Cancelled, None),
            (BodyError::Malformed, None),
            (BodyError::TimedOut, Some(408)),
            (BodyError::TooLarge, Some(413)),
        ] {
            let setup = setup_at(nowhere.clone(), |_| {});
            let (feed, body) = fed_known(10);
            feed.send(data("abc")).unwrap();
            let sent = setup.send(request(Method::POST, body));
            settle().await;
            feed.send(Err(error)).unwrap();
            match (sent.await.unwrap(), answer) {
                (Ok(response), Some(status)) => assert_eq!(response.status().as_u16(), status),
                (Err(Abort::Request), None) => {}
                (other, _) => panic!("{error:?}: {other:?}"),
            }
        }
    });
}

#[test]
fn a_body_that_was_only_read_ahead_is_sent_to_another_server() {
    with_a_jumping_clock(async {
        let script = Script::new().await;
        let nowhere = config::OriginAddress::Unix("/nonexistent/socket".into());
        let setup = setup_at(nowhere, |config| origin(config).servers.push(script.address().into()));
        for _ in 0..2 {
            let (feed, body) = fed_known(3);
            feed.send(data("abc")).unwrap();
            drop(feed);
            let sent = setup.send(request(Method::POST, body));
            let mut peer = script.accept().await;
            peer.until("\r\n\r\nabc").await;
            peer.say("HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n").await;
            assert_eq!(status(sent).await, 204);
        }
        assert_eq!(setup.metrics.origin_retries.get(), 1);
    });
}
