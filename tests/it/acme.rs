//! Certificates that litequic obtains and renews by itself, from Pebble.

mod pebble;

use pebble::{Pebble, Ports, Site};
use std::{fs, os::unix::fs::PermissionsExt};

#[tokio::test]
async fn a_site_without_any_certificate_obtains_one_by_http_01_and_serves_it() {
    let ports = Ports::free();
    let Some(pebble) = Pebble::start(ports, &[]).await else { return };
    let site = Site::new(ports).await;
    site.write(&pebble, "\"a.test\"", "challenges = [\"http-01\"]");
    let litequic = site.start();
    litequic.await_stderr("obtained a certificate");
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

    let mode = |name: &str| fs::metadata(site.file(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode("state"), mode("state/a.test.pem"), mode("state/a.test.json")), (0o700, 0o600, 0o600));

    // The next process serves it at once, and orders nothing.
    litequic.end_by("TERM").success();
    let orders = pebble.log().matches("There are now").count();
    let litequic = site.start();
    litequic.await_stderr("\"ready\"");
    assert_eq!(site.is_served("a.test", &pebble.root().await).await, [true; 2]);
    litequic.end_by("TERM").success();
    assert_eq!(pebble.log().matches("There are now").count(), orders, "{}", pebble.log());
}
