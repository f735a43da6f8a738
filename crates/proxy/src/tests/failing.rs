//! Tests which failures count against a server, and its gauges across a reload.

use super::{
    Deaf, Script, Setup,
    balancing::{Answering, DONE, ask, got, setup},
    data, fed, on_a_worker, origin, request, settle, text, with_a_jumping_clock,
};
use crate::{Pages, Routing, ServerMetrics, ServerName};
use http::Method;
use litequic_config::{Config, OriginAddress, StatusRange};
use litequic_exchange::BodyError;
use std::{sync::Arc, time::Duration};
use tokio::time::sleep;

const SECOND: Duration = Duration::from_secs(1);

fn counters(setup: &Setup, server: &OriginAddress) -> Arc<ServerMetrics> {
    setup.metrics.servers.counters_for(&ServerName::new("o", &server.to_string()))
}

/// Reloads a changed configuration, for the next request.
fn reload(setup: &Setup, change: impl FnOnce(&mut Config)) {
    let mut next = setup.config.clone();
    change(&mut next);
    setup.shared.store(Arc::new(Routing::compile_after(&next, Pages::default(), Some(&setup.shared.load()))));
}

/// A proxy for a script, with this time limit for a whole request.
fn limited(script: &Script, limit: Duration) -> Setup {
    script.proxy(|config| config.timeouts.request = Some(limit))
}

#[test]
fn a_request_timeout_counts_against_a_dead_server() {
    with_a_jumping_clock(async {
        let (deaf, silent, well) = (Deaf::new(), Script::new().await, Answering::new(DONE).await);
        for dead in [deaf.address(), silent.address()] {
            let setup = super::setup_at(dead.clone(), |config| {
                config.timeouts.request = Some(SECOND);
                origin(config).servers = vec![dead.clone().into(), well.address.clone().into()];
                origin(config).eject_after = Some(3);
            });
            let statuses = ask(&setup, 20).await;
            assert_eq!(statuses.iter().filter(|status| **status == 504).count(), 3, "{dead}: {statuses:?}");
            let counters = counters(&setup, &dead);
            assert_eq!((counters.failures.get(), counters.ejections.get()), (3, 1), "{dead}");
            assert_eq!(setup.metrics.timeout_request.get(), 3, "{dead}");
        }
    });
}

#[test]
fn a_response_that_stops_before_the_request_timeout_counts_as_failure() {
    with_a_jumping_clock(async {
        let script = Script::new().await;
        let setup = limited(&script, 5 * SECOND);
        let (sent, mut peer) = script.asked_by(&setup).await;
        peer.say("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc").await;
        assert_eq!(text(got(sent).await).await.unwrap_err(), BodyError::TimedOut);
        assert_eq!(counters(&setup, &script.address()).failures.get(), 1);
    });
}

#[test]
fn a_slow_response_beyond_the_request_timeout_is_no_failure() {
    with_a_jumping_clock(async {
        let script = Script::new().await;
        let setup = limited(&script, 5 * SECOND);
        let (sent, mut peer) = script.asked_by(&setup).await;
        peer.say("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n").await;
        let body = tokio::task::spawn_local(text(got(sent).await));
        for _ in 0..4 {
            sleep(SECOND + SECOND / 10).await;
            peer.say("abc").await;
        }
        assert_eq!(body.await.unwrap().unwrap_err(), BodyError::TimedOut);
        assert_eq!(counters(&setup, &script.address()).failures.get(), 0);
    });
}

#[test]
fn time_that_the_client_took_does_not_count_against_the_server() {
    with_a_jumping_clock(async {
        // The last bytes of the client leave the server next to no time, or never come.
        for ends in [true, false] {
            let script = Script::new().await;
            let setup = limited(&script, 5 * SECOND);
            let (feed, body) = fed();
            let sent = setup.send(request(Method::POST, body));
            let mut peer = script.accept().await;
            feed.send(data("abc")).unwrap();
            peer.until("abc\r\n").await;
            sleep(4 * SECOND).await;
            let kept = (!ends).then_some(feed);
            assert_eq!(got(sent).await.status(), 504);
            assert_eq!(counters(&setup, &script.address()).failures.get(), 0, "{ends}");
            drop(kept);
        }
    });
}

#[test]
fn time_in_the_queue_does_not_count_against_the_server() {
    with_a_jumping_clock(async {
        let script = Script::new().await;
        let setup = script.proxy(|config| {
            origin(config).max_connections = Some(1);
            config.timeouts.queue = 60 * SECOND;
        });
        let (busy, mut peer) = script.asked_by(&setup).await;
        reload(&setup, |config| {
            origin(config).max_connections = Some(1);
            config.timeouts.queue = 60 * SECOND;
            config.timeouts.request = Some(5 * SECOND);
        });
        assert_eq!(got(setup.get()).await.status(), 504);
        peer.say(DONE).await;
        assert_eq!(got(busy).await.status(), 204);
        let counters = counters(&setup, &script.address());
        assert_eq!((counters.failures.get(), counters.waiting.get(), setup.metrics.timeout_request.get()), (0, 0, 1));
    });
}

#[test]
fn connections_of_before_a_reload_and_of_after_it_are_counted_together() {
    on_a_worker(async {
        let script = Script::new().await;
        let setup = script.proxy(|config| origin(config).max_connections = Some(2));
        let counters = counters(&setup, &script.address());
        let (before, mut old) = script.asked_by(&setup).await;
        reload(&setup, |config| origin(config).max_connections = Some(3));
        let (after, mut new) = script.asked_by(&setup).await;
        assert_eq!(counters.connections.get(), 2);
        old.say(DONE).await;
        assert_eq!(got(before).await.status(), 204);
        assert_eq!(old.rest().await, "", "no request needs it");
        assert_eq!(counters.connections.get(), 1);
        new.say(DONE).await;
        assert_eq!(got(after).await.status(), 204);
        assert_eq!((counters.connections.get(), setup.metrics.origin_connections_open.get()), (1, 1));
    });
}

#[test]
fn who_has_left_the_queue_waits_no_more() {
    with_a_jumping_clock(async {
        let script = Script::new().await;
        let setup = script.proxy(|config| {
            origin(config).max_connections = Some(1);
            config.timeouts.queue = 2 * SECOND;
        });
        let counters = counters(&setup, &script.address());
        let (_busy, _peer) = script.asked_by(&setup).await;
        let (late, gone) = (setup.get(), setup.get());
        settle().await;
        assert_eq!(counters.waiting.get(), 2);
        gone.abort();
        settle().await;
        assert_eq!(counters.waiting.get(), 1, "its client went away");
        assert_eq!(got(late).await.status(), 503);
        assert_eq!(counters.waiting.get(), 0, "its time was up");
    });
}

#[test]
fn a_reload_to_a_single_server_ends_its_ejection() {
    on_a_worker(async {
        const BAD: &str = "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n";
        let (bad, well) = (Answering::new(BAD).await, Answering::new(DONE).await);
        // The server's connections stay, or new ones are made.
        for max_connections in [8, 9] {
            let setup = setup(&[&bad.address, &well.address], |origin| {
                origin.eject_after = Some(1);
                origin.eject_statuses = vec![StatusRange { first: 503, last: 503 }];
                origin.max_connections = Some(8);
            });
            let counters = counters(&setup, &bad.address);
            ask(&setup, 4).await;
            assert_eq!(counters.ejected.get(), 1);
            reload(&setup, |config| {
                origin(config).servers = vec![bad.address.clone().into()];
                origin(config).max_connections = Some(max_connections);
            });
            assert_eq!(ask(&setup, 2).await, [503; 2]);
            assert_eq!((counters.ejections.get(), counters.ejected.get()), (1, 0), "{max_connections}");
        }
    });
}

#[test]
fn a_request_of_before_a_reload_ejects_no_server_after_it() {
    on_a_worker(async {
        let (stays, goes) = (Script::new().await, Script::new().await);
        let setup = setup(&[&stays.address(), &goes.address()], |origin| origin.eject_after = Some(1));
        let counters = counters(&setup, &stays.address());
        let sent = [setup.get(), setup.get()];
        let (mut old, _gone) = (stays.accept().await, goes.accept().await);
        old.head().await;
        reload(&setup, |config| origin(config).servers = vec![stays.address().into()]);
        let (after, mut new) = stays.asked_by(&setup).await;
        new.say(DONE).await;
        assert_eq!(got(after).await.status(), 204);
        old.say("nonsense\r\n\r\n").await;
        settle().await;
        let failed = || counters.failures.get() > 0;
        while !failed() {
            settle().await;
            sleep(Duration::from_millis(1)).await;
        }
        assert_eq!((counters.ejections.get(), counters.ejected.get()), (0, 0));
        drop(sent);
    });
}

#[test]
fn a_body_that_fails_at_once_fails_the_trial() {
    with_a_jumping_clock(async {
        const BAD: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\nhello\n0\n\n";
        let (bad, well) = (Answering::new(BAD).await, Answering::new(DONE).await);
        let setup = setup(&[&bad.address, &well.address], |origin| {
            origin.eject_after = Some(1);
            origin.eject_time = SECOND;
        });
        let counters = counters(&setup, &bad.address);
        for ejections in 1..=2 {
            let statuses = ask(&setup, 6).await;
            assert_eq!(statuses.iter().filter(|status| **status == 502).count(), 1, "{statuses:?}");
            assert_eq!((counters.failures.get(), counters.ejections.get()), (ejections, ejections));
            sleep(2 * SECOND).await;
        }
    });
}
