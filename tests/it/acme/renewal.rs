//! When certificates are renewed: by the CA's renewal information, under load, and by clocks that are not the CA's.

use super::{HTTP_01, LOOK_AGAIN, OBTAINED, RENEWAL, Site, pebble_and_site, wait_for};
use crate::support::prelude::*;
use humantime::format_rfc3339_seconds;
use serde_json::{Value as Json, json};
use std::{
    sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    time::SystemTime,
};
use tokio::{task::JoinSet, time::Instant};

const HOUR: u64 = 3600;
const DAY: u64 = 24 * HOUR;
const YEAR: u64 = 365 * DAY;
/// Ninety days: without a profile Pebble takes any.
const DEFAULT: &str = "challenges = [\"http-01\"]\nprofile = \"default\"";
/// Clients of each protocol.
const CLIENTS: usize = 4;
/// Requests of a connection, after which its client opens another one.
const REQUESTS: usize = 50;
/// Bytes of a response.
const BODY: usize = 10_000;

fn now() -> u64 {
    SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs()
}

/// The time `name` of a certificate in the list.
fn time(certificate: &Json, name: &str) -> u64 {
    certificate[name].as_u64().unwrap_or_else(|| panic!("{name} of {certificate}"))
}

/// Clients that request one page after another, until they are told to stop.
struct Load {
    clients: JoinSet<()>,
    is_over: Arc<AtomicBool>,
    requests: Arc<AtomicUsize>,
    connections: Arc<AtomicUsize>,
}

impl Load {
    fn start(site: &Site, root: &str) -> Self {
        let mut load = Self {
            clients: JoinSet::new(),
            is_over: Arc::default(),
            requests: Arc::default(),
            connections: Arc::default(),
        };
        for client in 0..2 * CLIENTS {
            let (address, root) = (site.https(), root.to_owned());
            let (is_over, requests) = (Arc::clone(&load.is_over), Arc::clone(&load.requests));
            let connections = Arc::clone(&load.connections);
            load.clients.spawn(async move {
                while !is_over.load(Relaxed) {
                    connections.fetch_add(1, Relaxed);
                    if client < CLIENTS {
                        let quic = Quic::try_connect(address, "a.test", &root, quinn::TransportConfig::default()).await;
                        let client = Client::over(quic.unwrap(), "a.test").await;
                        for _ in 0..REQUESTS {
                            let answer = client.get(&format!("/bytes/{BODY}")).await;
                            assert_eq!((answer.status.as_u16(), answer.body.len()), (200, BODY));
                            requests.fetch_add(1, Relaxed);
                        }
                    } else {
                        let tls = Tls::connect(address, "a.test", tls::config(&root, &["http/1.1"])).await;
                        let mut client = tls.unwrap();
                        for _ in 0..REQUESTS {
                            client.say(format!("GET /bytes/{BODY} HTTP/1.1\r\nHost: a.test\r\n\r\n")).await;
                            let head = client.head().await;
                            assert!(head.starts_with("http/1.1 200 "), "{head}");
                            client.exactly(BODY).await;
                            requests.fetch_add(1, Relaxed);
                        }
                    }
                }
            });
        }
        load
    }

    /// Ends it; returns how many requests were answered over how many connections. A client that failed fails the test.
    async fn stop(mut self) -> (usize, usize) {
        self.is_over.store(true, Relaxed);
        while let Some(client) = self.clients.join_next().await {
            client.unwrap();
        }
        (self.requests.load(Relaxed), self.connections.load(Relaxed))
    }
}

#[tokio::test]
async fn a_renewal_follows_the_ca_and_loses_no_request_under_load() {
    let Some((pebble, site)) = pebble_and_site(&[]).await else { return };
    site.write(&pebble, "\"a.test\"", HTTP_01);
    let litequic = site.start();
    litequic.await_stderr(OBTAINED);
    let root = pebble.root().await;
    site.await_served("a.test", &root).await;
    site.await_stored("a.test").await;
    litequic.end_by("TERM").success();

    // A window that is over: the next request for renewal information says so.
    let pem = fs::read_to_string(site.file("state/a.test.pem")).unwrap();
    let window = json!({ "suggestedWindow": { "start": "2020-01-01T00:00:00Z", "end": "2020-01-02T00:00:00Z" } });
    pebble.set_renewal_info(&pem, &window.to_string()).await;
    site.forget_renewal_info("a.test");

    let litequic = site.start();
    litequic.await_stderr("\"ready\"");
    let load = Load::start(&site, &root);
    let deadline = Instant::now() + RENEWAL;
    while !litequic.stderr().contains("\"renewal\":true") {
        assert!(Instant::now() < deadline, "{}", litequic.stderr());
        sleep(LOOK_AGAIN).await;
    }
    // It is served before it is stored.
    wait_for("the file", || fs::read_to_string(site.file("state/a.test.pem")).unwrap() != pem).await;
    let connections = load.connections.load(Relaxed);
    wait_for("connections with the new one", || load.connections.load(Relaxed) > connections + 2 * CLIENTS).await;
    let (requests, connections) = load.stop().await;
    println!("{requests} requests over {connections} connections, none was lost");
    // `replaces` is accepted once for a certificate.
    assert!(!litequic.stderr().contains("cannot obtain a certificate"), "{}", litequic.stderr());
}

#[tokio::test]
async fn invalid_renewal_information_renews_at_the_usual_time() {
    let Some((pebble, site)) = pebble_and_site(&[]).await else { return };
    site.write(&pebble, "\"a.test\"", DEFAULT);
    let mut litequic = site.start();
    litequic.await_stderr(OBTAINED);
    site.await_served("a.test", &pebble.root().await).await;
    site.await_stored("a.test").await;
    let pem = fs::read_to_string(site.file("state/a.test.pem")).unwrap();
    let year = {
        let date = |ahead| format_rfc3339_seconds(SystemTime::now() + Duration::from_secs(ahead)).to_string();
        json!({ "suggestedWindow": { "start": date(YEAR), "end": date(YEAR + 2 * DAY) } }).to_string()
    };
    // With a sixth of the lifetime left at the latest; after two thirds of it where nothing is suggested.
    for (answer, has_window, due) in [(year.as_str(), true, (5, 6)), ("<html>soon</html>", false, (2, 3))] {
        litequic.end_by("TERM").success();
        pebble.set_renewal_info(&pem, answer).await;
        site.forget_renewal_info("a.test");
        litequic = site.start();
        litequic.await_stderr("\"ready\"");
        wait_for("the answer", || site.plan("a.test")["renewal"].is_object()).await;
        let plan = site.plan("a.test");
        assert_eq!(plan["renewal"]["window"].is_object(), has_window, "{plan}");
        // Pebble's Retry-After, and litequic's own delay.
        let ask = time(&plan["renewal"], "ask");
        assert!((now() + 6 * HOUR - 60..=now() + 6 * HOUR).contains(&ask), "{plan}");
        wait_for("the list", || site.certificates()[0]["state"] == "valid").await;
        let listed = site.certificates();
        let (from, until) = (time(&listed[0], "valid_from"), time(&listed[0], "expires"));
        let expected = from + (until - from) / due.1 * due.0;
        assert!(time(&listed[0], "next").abs_diff(expected) < 10, "{expected}: {listed}");
    }
    assert_eq!(pebble.orders(), 1);
    litequic.end_by("TERM").success();
}

#[tokio::test]
async fn an_authorization_that_is_valid_already_is_not_validated_again() {
    let Some((pebble, site)) = pebble_and_site(&[("PEBBLE_AUTHZREUSE", "100")]).await else { return };
    site.write(&pebble, "\"a.test\"", DEFAULT);
    let litequic = site.start();
    litequic.await_stderr(OBTAINED);
    site.await_served("a.test", &pebble.root().await).await;
    wait_for("the list", || site.certificates()[0]["state"] == "valid").await;
    site.ctl(&["certificates", "renew", "a.test"]).success();
    litequic.await_stderr("\"renewal\":true");
    let metrics = site.ctl(&["metrics"]).success();
    for expected in [
        "litequic_acme_orders_total{result=\"issued\"} 2\n",
        "litequic_acme_challenges_total{type=\"http-01\",result=\"valid\"} 1\n",
    ] {
        assert!(metrics.contains(expected), "{expected}\n{metrics}");
    }
    site.await_served("a.test", &pebble.root().await).await;
}

const CLOCK_DIFFERS: &str = "the clock of this machine differs from the CA's";

/// A certificate has expired by then, and so has each that the CA issues.
#[tokio::test]
async fn a_clock_a_year_ahead_renews_once_and_is_reported() {
    let Some((pebble, site)) = pebble_and_site(&[]).await else { return };
    let Some(clock) = needs::Clock::of(site.file("time")) else { return };
    site.write(&pebble, "\"a.test\"", DEFAULT);
    let mut command = site.command();
    command.envs(clock.variables());
    let litequic = Process::spawn(command);
    litequic.await_stderr(OBTAINED);
    assert!(!litequic.stderr().contains(CLOCK_DIFFERS), "{}", litequic.stderr());
    let root = pebble.root().await;
    site.await_served("a.test", &root).await;

    // No timer sees it: the next look at the clock does, within a minute.
    clock.set(i64::try_from(YEAR).unwrap());
    wait_for("the renewal", || litequic.stderr().contains("\"renewal\":true")).await;
    litequic.await_stderr(CLOCK_DIFFERS);
    wait_for("the list", || time(&site.certificates()[0], "next") > now() + YEAR).await;
    let listed = site.certificates();
    assert_eq!(listed[0]["state"], "missing", "{listed}");
    let next = time(&listed[0], "next");
    assert!((now() + YEAR + 23 * HOUR..=now() + YEAR + 25 * HOUR).contains(&next), "{listed}");
    assert_eq!(site.is_served("a.test", &root).await, [true; 2], "clients judge it by their own clocks");

    // Set right again, it is a certificate like any other.
    clock.set(0);
    litequic.signal("HUP");
    wait_for("the list", || site.certificates()[0]["state"] == "valid").await;
    let listed = site.certificates();
    assert!((now() + 59 * DAY..now() + 61 * DAY).contains(&time(&listed[0], "next")), "{listed}");
    assert_eq!(pebble.orders(), 2, "{}", litequic.stderr());
    assert_eq!(litequic.stderr().matches(CLOCK_DIFFERS).count(), 1);
}

/// Each certificate becomes valid tomorrow.
#[tokio::test]
async fn a_clock_a_day_behind_obtains_one_certificate_and_serves_it() {
    let Some((pebble, site)) = pebble_and_site(&[]).await else { return };
    let Some(clock) = needs::Clock::of(site.file("time")) else { return };
    clock.set(-i64::try_from(DAY).unwrap());
    site.write(&pebble, "\"a.test\"", DEFAULT);
    let mut command = site.command();
    command.envs(clock.variables());
    let litequic = Process::spawn(command);
    litequic.await_stderr(CLOCK_DIFFERS);
    litequic.await_stderr(OBTAINED);
    site.await_served("a.test", &pebble.root().await).await;
    wait_for("the list", || site.certificates()[0]["state"] == "valid").await;
    for ahead in [0, -i64::try_from(DAY).unwrap()] {
        clock.set(ahead);
        litequic.signal("HUP");
        let listed = site.certificates();
        assert!((now() + 58 * DAY..now() + 61 * DAY).contains(&time(&listed[0], "next")), "{listed}");
    }
    assert_eq!(pebble.orders(), 1, "{}", litequic.stderr());
}
