//! Certificates that litequic obtains and renews by itself, from Pebble.

mod disk;
mod interposed;
mod pebble;
mod renewal;
mod strange;

use crate::support::prelude::*;
use pebble::{Pebble, Ports, Site, pebble_and_site};
use serde_json::{Value as Json, json};
use std::os::unix::fs::PermissionsExt;
use tokio::{net::UnixStream, time::Instant};

const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// Renewals begin within a minute of the start.
const RENEWAL: Duration = Duration::from_secs(100);
const OBTAINED: &str = "obtained a certificate";
const HTTP_01: &str = "challenges = [\"http-01\"]";
const TLS_ALPN_01: &str = "challenges = [\"tls-alpn-01\"]";

/// Waits until `condition` holds, for longer than others do.
async fn wait_for(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + RENEWAL;
    while !condition() {
        assert!(Instant::now() < deadline, "{what}");
        sleep(LOOK_AGAIN).await;
    }
}

#[tokio::test]
async fn a_site_obtains_its_first_certificate_by_http_01() {
    let Some((pebble, site)) = pebble_and_site(&[]).await else { return };
    site.write(&pebble, "\"a.test\"", HTTP_01);
    let litequic = site.start();
    litequic.await_stderr(OBTAINED);
    site.await_served("a.test", &pebble.root().await).await;
    assert_eq!(site.is_served("b.test", &pebble.root().await).await, [false; 2]);
    assert!(pebble.log().contains("set VALID by completed challenge"), "{}", pebble.log());

    // Validation requests are answered by the account's key; all others are redirected.
    let answer = site.plain("a.test", "/.well-known/acme-challenge/token").await;
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.contains("\r\n\r\ntoken."), "{answer}");
    for (host, path, status) in [
        ("a.test", "/.well-known/acme-challenge/to.ken", "308"),
        ("a.test", "/.well-known/acme-challenge/", "308"),
        ("a.test", "/", "308"),
        ("b.test", "/.well-known/acme-challenge/token", "421"),
    ] {
        let answer = site.plain(host, path).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{host}{path}: {answer}");
    }

    site.await_stored("a.test").await;
    let mode = |name: &str| fs::metadata(site.file(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode("state"), mode("state/a.test.pem"), mode("state/a.test.json")), (0o700, 0o600, 0o600));
    wait_for("the list", || site.ctl(&["certificates"]).stdout.starts_with("a.test  valid, expires ")).await;
    let metrics = site.ctl(&["metrics"]).success();
    for expected in [
        "litequic_acme_orders_total{result=\"issued\"} 1\n",
        "litequic_acme_challenges_total{type=\"http-01\",result=\"valid\"} 1\n",
        "litequic_acme_certificates{state=\"valid\"} 1\n",
        "litequic_certificates_expiry_timestamp_seconds{certificate=\"a.test\"} ",
    ] {
        assert!(metrics.contains(expected), "{expected}\n{metrics}");
    }

    // The next process serves it at once, and orders nothing.
    litequic.end_by("TERM").success();
    let litequic = site.start();
    litequic.await_stderr("\"ready\"");
    assert_eq!(site.is_served("a.test", &pebble.root().await).await, [true; 2]);
    litequic.end_by("TERM").success();
    assert_eq!(pebble.orders(), 1, "{}", pebble.log());
}

#[tokio::test]
async fn tls_alpn_01_validates_names_and_addresses_independently() {
    let Some((pebble, site)) = pebble_and_site(&[("PEBBLE_AUTHZREUSE", "100")]).await else { return };
    let more = format!("{TLS_ALPN_01}\nprofile = \"shortlived\"\nkey = \"p384\"");
    site.write(&pebble, "\"blocked.test\", \"a.test\", \"127.0.0.1\"", &more);
    let litequic = site.start();
    let root = pebble.root().await;
    site.await_served("a.test", &root).await;
    litequic.await_stderr("\"host\":\"127.0.0.1\",\"expires\"");
    assert_eq!(site.is_served("127.0.0.1", &root).await, [true; 2]);
    litequic.await_stderr("cannot obtain a certificate");
    assert!(litequic.stderr().contains("rejectedIdentifier"), "{}", litequic.stderr());
    let list = site.ctl(&["certificates", "--json"]).success();
    let list: Json = serde_json::from_str(&list).unwrap();
    assert_eq!((&list[0]["host"], &list[0]["state"]), (&json!("blocked.test"), &json!("missing")));
    assert!(list[0]["problem"].as_str().unwrap().contains("blocked.test"), "{list}");
    // A quarter of an hour, a fifth more or less.
    let (next, now) =
        (list[0]["next"].as_u64().unwrap(), std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs());
    assert!((600..=1080).contains(&(next - now)), "{list}");
    let life = list[1]["expires"].as_u64().unwrap() - list[1]["valid_from"].as_u64().unwrap();
    assert!((5 * 86_400..7 * 86_400).contains(&life), "{list}");

    // The CA's connections count neither as handshakes nor as failures.
    let metrics = site.ctl(&["metrics"]).success();
    let failed = metrics.lines().filter(|line| line.starts_with("litequic_tcp_handshakes_failed_total"));
    // Those that the test made before there was a certificate ended with an alert.
    let failed: Vec<_> = failed.filter(|line| !line.ends_with(" 0") && !line.contains("\"tls\"")).collect();
    assert!(failed.is_empty(), "{failed:?}");
    assert!(metrics.contains("litequic_acme_challenges_total{type=\"tls-alpn-01\",result=\"valid\"} 2\n"), "{metrics}");
    // Once in five minutes.
    assert!(site.ctl(&["certificates", "renew", "a.test"]).answer().starts_with("ordering a certificate"));
    let again = site.ctl(&["certificates", "renew", "a.test"]);
    assert!(again.code == Some(1) && again.stderr.contains("less than five minutes ago"), "{}", again.stderr);
    let unknown = site.ctl(&["certificates", "renew", "b.test"]);
    assert!(unknown.stderr.contains("hosts are\n  blocked.test\n  a.test"), "{}", unknown.stderr);
    wait_for("the renewal", || litequic.stderr().contains("\"renewal\":true")).await;
}

#[tokio::test]
async fn a_wildcard_is_validated_by_dns_01_and_the_record_removed() {
    let ports = Ports::free();
    let (Some(curl), Some(pebble)) = (needs::program("curl"), Pebble::start(ports, &[]).await) else { return };
    let site = Site::new(ports).await;
    let more = site.write_hook(&pebble, &curl, ":");
    site.write(&pebble, "\"*.a.test\"", &more);
    let litequic = site.start();
    litequic.await_stderr(OBTAINED);
    site.await_served("b.a.test", &pebble.root().await).await;
    let seen = fs::read_to_string(site.file("seen")).unwrap();
    let calls: Vec<_> = seen.lines().map(|line| line.split(' ').take(2).collect::<Vec<_>>().join(" ")).collect();
    assert_eq!(calls, ["present _acme-challenge.a.test.", "cleanup _acme-challenge.a.test."]);
}

#[tokio::test]
async fn a_record_that_stays_is_shown_and_used() {
    let ports = Ports::free();
    let (Some(curl), Some(pebble)) = (needs::program("curl"), Pebble::start(ports, &[]).await) else { return };
    let site = Site::new(ports).await;
    site.write(&pebble, "\"*.a.test\"", "challenges = [\"dns-persist-01\"]");
    let litequic = site.start();
    litequic.await_stderr("cannot obtain a certificate");
    wait_for("the list", || site.ctl(&["certificates"]).stdout.contains("TXT record: ")).await;
    let list = site.ctl(&["certificates"]).success();
    let (_, record) = list.split_once("TXT record: ").unwrap();
    let (name, value) = record.trim().split_once(" IN TXT ").unwrap();
    assert!(name == "_validation-persist.a.test." && value.contains("policy=wildcard"), "{list}");
    let body = format!("{{\"host\": \"{name}\", \"value\": {value}}}");
    let url = format!("http://127.0.0.1:{}/set-txt", pebble.names);
    let set = Command::new(curl).args(["--silent", "--data", &body, &url]).status().unwrap();
    assert!(set.success());
    site.ctl(&["certificates", "renew", "*.a.test"]).success();
    litequic.await_stderr(OBTAINED);
    site.await_served("b.a.test", &pebble.root().await).await;
}

#[tokio::test]
async fn an_account_is_bound_to_the_key_that_the_ca_has_given() {
    let ports = Ports::free();
    let (kid, key) = ("kid-1", "zWNDZM6eQGHWpSRTPal5eIUYFTu7EajVIoguysqZ9wG44nMEtx3MUAsUDkMTQ12W");
    let more =
        format!("\"externalAccountBindingRequired\": true, \"externalAccountMACKeys\": {{ \"{kid}\": \"{key}\" }},");
    let Some(pebble) = Pebble::start_with(ports, &[], &more).await else { return };
    let site = Site::new(ports).await;
    fs::write(site.file("eab"), format!("{key}\n")).unwrap();
    let more = format!("{HTTP_01}\ncontact = \"mailto:a@a.test\"\neab = \"{kid} eab\"");
    site.write(&pebble, "\"a.test\"", &more);
    let litequic = site.start();
    litequic.await_stderr(OBTAINED);
    site.await_served("a.test", &pebble.root().await).await;
}

#[tokio::test]
async fn a_ca_that_refuses_every_second_nonce_issues_all_certificates() {
    let Some((pebble, site)) = pebble_and_site(&[("PEBBLE_WFE_NONCEREJECT", "50")]).await else { return };
    site.write(&pebble, "\"a.test\", \"b.test\", \"c.test\", \"d.test\"", HTTP_01);
    let litequic = site.start();
    for host in ["a.test", "b.test", "c.test", "d.test"] {
        site.await_served(host, &pebble.root().await).await;
    }
    assert!(!litequic.stderr().contains("cannot obtain a certificate"), "{}", litequic.stderr());
}

#[tokio::test]
async fn an_unknown_acme_account_is_registered_again_with_its_key() {
    let Some((mut pebble, site)) = pebble_and_site(&[]).await else { return };
    site.write(&pebble, "\"a.test\"", HTTP_01);
    let litequic = site.start();
    litequic.await_stderr(OBTAINED);
    let answer = async || {
        let answer = site.plain("a.test", "/.well-known/acme-challenge/token").await;
        answer.split_once("\r\n\r\n").unwrap().1.to_owned()
    };
    let before = answer().await;
    pebble.restart(&[]).await;
    site.ctl(&["certificates", "renew", "a.test"]).success();
    litequic.await_stderr("registering it again");
    litequic.await_stderr("\"renewal\":true");
    site.await_served("a.test", &pebble.root().await).await;
    assert_eq!(answer().await, before);
}

/// Ends a process at each step of an order, as `LITEQUIC_PANIC_IN` has it before the step's name, and has the next one
/// continue the order.
async fn end_at_each_step(how: &str, ended_so: impl Fn(&Ended) -> bool) {
    for step in ["ordered", "prepared", "validated", "finalized", "downloaded", "stored"] {
        let Some((pebble, site)) = pebble_and_site(&[]).await else { return };
        site.write(&pebble, "\"a.test\"", TLS_ALPN_01);
        let place = format!("{how}acme-{step}");
        let ended = site.start_with(&[("LITEQUIC_PANIC_IN", &place)]).end();
        assert!(ended_so(&ended), "{step}: {ended:?}");
        let litequic = site.start();
        litequic.await_stderr("\"ready\"");
        site.await_served("a.test", &pebble.root().await).await;
        assert_eq!(pebble.orders(), 1, "{step}: {}", litequic.stderr());
        assert_eq!(fs::read_dir(site.file("state/challenges")).unwrap().count(), 0, "{step}");
        litequic.end_by("TERM").success();
    }
}

#[tokio::test]
async fn a_process_that_panics_during_an_order_does_not_order_twice() {
    end_at_each_step("", |ended| ended.stderr.contains("panic requested by the environment, in")).await;
}

#[tokio::test]
async fn a_process_killed_during_an_order_does_not_order_twice() {
    end_at_each_step("kill:", |ended| ended.code.is_none() && !ended.stderr.contains("panic")).await;
}

#[tokio::test]
async fn a_crash_loop_asks_for_nothing() {
    let Some((pebble, site)) = pebble_and_site(&[]).await else { return };
    site.write(&pebble, "\"a.test\"", HTTP_01);
    let ended = site.start_with(&[("LITEQUIC_PANIC_IN", "acme-begun")]).end();
    assert!(ended.stderr.contains("panic requested by the environment, in"), "{}", ended.stderr);
    let litequic = site.start();
    litequic.await_stderr("\"ready\"");
    let list = || serde_json::from_str::<Json>(&site.ctl(&["certificates", "--json"]).success()).unwrap();
    wait_for("the list", || list()[0]["attempts"] == 1).await;
    assert_eq!(pebble.orders(), 0);
    // A load balancer that sends nothing to a litequic that is not ready would keep the CA out.
    let mut admin = UnixStream::connect(site.file("admin.sock")).await.unwrap();
    admin.write_all(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    within("an answer", admin.read_to_string(&mut answer)).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    // Over QUIC and over TCP.
    assert_eq!(site.is_served("a.test", &pebble.root().await).await, [false; 2]);
    let metrics = site.ctl(&["metrics"]).success();
    assert!(metrics.contains("litequic_handshakes_without_certificate_total 2\n"), "{metrics}");
    site.ctl(&["certificates", "renew", "a.test"]).success();
    litequic.await_stderr(OBTAINED);
}

/// Forwards the connections of `port` to `backends` by turns.
async fn balance(port: u16, backends: Vec<u16>) {
    let mut turns = backends.into_iter().cycle();
    let server = Server::at((Ipv4Addr::LOCALHOST, port), move |mut client| {
        let backend = turns.next().unwrap();
        async move {
            let Ok(mut server) = TcpStream::connect((Ipv4Addr::LOCALHOST, backend)).await else { return };
            let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
        }
    });
    server.await.detach();
}

#[tokio::test]
async fn of_three_replicas_behind_a_balancer_one_orders_and_all_serve() {
    for challenge in [HTTP_01, TLS_ALPN_01] {
        let front = Ports::free();
        let Some(pebble) = Pebble::start(front, &[]).await else { return };
        let first = Site::new(Ports::free()).await;
        let sites = [first.beside(Ports::free()).await, first.beside(Ports::free()).await, first];
        balance(front.https, sites.iter().map(|site| site.ports.https).collect()).await;
        balance(front.http, sites.iter().map(|site| site.ports.http).collect()).await;
        let start = |site: &Site| {
            site.write(&pebble, "\"a.test\"", challenge);
            site.start()
        };
        let replicas: Vec<Process> = sites.iter().map(start).collect();
        let root = pebble.root().await;
        let logs = || replicas.iter().map(Process::stderr).collect::<String>();
        for site in &sites {
            let deadline = Instant::now() + RENEWAL;
            while site.is_served("a.test", &root).await != [true; 2] {
                assert!(Instant::now() < deadline, "{challenge}: {}\n{}", logs(), pebble.log());
                sleep(LOOK_AGAIN).await;
            }
        }
        assert_eq!(pebble.orders(), 1, "{challenge}");
        let logs = logs();
        assert_eq!(logs.matches(OBTAINED).count(), 1, "{logs}");
        assert!(!logs.contains("cannot obtain a certificate"), "{logs}");
    }
}

#[tokio::test]
async fn an_upgrade_in_the_middle_of_an_order_continues_it() {
    let ports = Ports::free();
    let variables = [("PEBBLE_VA_NOSLEEP", "0"), ("PEBBLE_VA_SLEEPTIME", "10")];
    let Some(pebble) = Pebble::start(ports, &variables).await else { return };
    let site = Site::new(ports).await;
    site.write(&pebble, "\"a.test\"", TLS_ALPN_01);
    let litequic = site.start();
    litequic.await_stderr("\"ready\"");
    let has_challenge = || fs::read_dir(site.file("state/challenges")).is_ok_and(|mut files| files.next().is_some());
    wait_for("the challenge", has_challenge).await;
    litequic.signal("USR2");
    litequic.await_stderr("continuing the order of a certificate");
    site.await_served("a.test", &pebble.root().await).await;
    assert_eq!(pebble.orders(), 1, "{}", litequic.stderr());
    // Its successor, which no variable holds.
    let drained = site.ctl(&["drain"]);
    assert!(drained.code == Some(0), "{}", drained.stderr);
}

#[tokio::test]
async fn hosts_follow_a_reload() {
    let Some((pebble, site)) = pebble_and_site(&[]).await else { return };
    site.write(&pebble, "\"a.test\"", HTTP_01);
    let litequic = site.start();
    let root = pebble.root().await;
    site.await_served("a.test", &root).await;
    site.write(&pebble, "\"b.test\"", HTTP_01);
    litequic.signal("HUP");
    site.await_served("b.test", &root).await;
    assert_eq!(site.is_served("a.test", &root).await, [false; 2], "a host that was removed is served no more");
    assert!(site.file("state/a.test.pem").is_file(), "its file stays");
    site.write(&pebble, "\"a.test\", \"b.test\"", HTTP_01);
    litequic.signal("HUP");
    site.await_served("a.test", &root).await;
    assert_eq!(pebble.orders(), 2);
    until("the list", async || site.ctl(&["certificates"]).success().contains("a.test  valid")).await;
}
