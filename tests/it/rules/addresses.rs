//! `deny` and `allow`: which clients a route serves, by their addresses.

use super::{configured, configured_in, started};
use crate::{
    fields::{PROTOCOLS, Protocol, Request},
    support::{prelude::*, tunnel::switch},
};
use std::net::Ipv6Addr;

const DENIED: &str = "403 Forbidden: access from this address is not allowed\nrequest ";

const ROUTES: &str = r#"
routes = [
    { path_prefix = "/denied", origin = "origin", deny = ["192.0.2.0/24", "127.0.0.0/8"] },
    { path_prefix = "/elsewhere", origin = "origin", allow = ["192.0.2.0/24", "2001:db8::/32"] },
    { path_prefix = "/here", origin = "origin", allow = "127.0.0.1" },
    { path_prefix = "/both", origin = "origin", allow = "127.0.0.0/8", deny = "127.0.0.1" },
    { path_prefix = "/limited", origin = "origin", deny = "127.0.0.1", rate_limit = "1/h" },
    { path_prefix = "/fixed", respond = { body = "never" }, deny = "127.0.0.1" },
    { path_prefix = "/moved", redirect = "/never", deny = "127.0.0.1" },
]
"#;

#[tokio::test]
async fn a_denied_address_gets_403_over_every_protocol_and_for_tunnels() {
    let origin = Always::new(Always::EMPTY_200).await;
    let litequic = started(origin.address, ROUTES).await;
    for protocol in PROTOCOLS {
        for (path, status) in [
            ("/denied", 403),
            ("/denied/further?a", 403),
            ("/elsewhere", 403),
            ("/here", 200),
            ("/both", 403),
            ("/limited", 403),
            ("/limited", 403),
            ("/fixed", 403),
            ("/moved", 403),
            // Another reading of a path is refused before, as ever.
            ("/%64enied", 400),
            ("//denied", 400),
        ] {
            let close: &[(&str, &str)] = if protocol == Protocol::Http1 { &[] } else { &[("accept", "*/*")] };
            let (answer, body) = Request::get(path, close).ask(&litequic, protocol).await.unwrap();
            assert_eq!(answer, status, "{protocol:?} {path}: {body}");
            assert_eq!(body.starts_with(DENIED), status == 403, "{protocol:?} {path}: {body}");
        }
    }
    for over in HttpVersion::ALL {
        let switched = switch(&litequic, over, "/denied", "websocket", &[]).await;
        assert_eq!(switched.status, 403, "{over:?}");
        assert!(switched.head.contains("litequic; error=http_request_denied"), "{over:?}: {}", switched.head);
    }
    // The origin has seen the requests that were admitted, and no other.
    assert_eq!(origin.seen().matches("GET /here ").count(), 3);
    assert_eq!(origin.seen().matches("HTTP/1.1\r\n").count(), 3);
    let text = litequic.metrics.registry().render_metrics();
    for (route, count) in [("*/denied", 9), ("*/elsewhere", 3), ("*/here", 0), ("*/both", 3), ("*/limited", 6)] {
        let line = format!("litequic_route_denied_total{{route=\"{route}\",by=\"address\"}} {count}\n");
        assert!(text.contains(&line), "{line}{text}");
    }
    assert_eq!(litequic.sum(|worker| worker.proxy.limit_rate.get()), 0, "who is denied counts for no rate limit");
    litequic.stop().await;
}

#[tokio::test]
async fn a_route_that_denies_has_its_own_error_page() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("out.html"), "<p>members only").unwrap();
    let origin = Always::new(Always::EMPTY_200).await;
    let text = "routes = [{ origin = \"origin\", allow = \"192.0.2.1\", error_pages = { 403 = \"out.html\" } }]";
    let config = configured_in(folder.path(), origin.address, text);
    let litequic = Litequic::with_config(&config).await;
    let answer = Client::to(&litequic).await.get("/").await;
    assert_eq!((answer.status.as_u16(), answer.text()), (403, "<p>members only"));
    assert_eq!(answer.field("cache-control"), Some("no-store"));
    litequic.stop().await;
}

#[tokio::test]
async fn only_a_trusted_proxy_says_which_client_it_is() {
    let origin = Always::new(Always::EMPTY_200).await;
    let routes = "routes = [{ origin = \"origin\", allow = [\"198.51.100.0/24\", \"2001:db8::/32\"] }]";
    for (trusted, fields, status) in [
        ("", vec![("x-forwarded-for", "198.51.100.1"), ("forwarded", "for=198.51.100.1")], 403),
        ("", vec![("x_forwarded_for", "198.51.100.1"), ("x-real-ip", "198.51.100.1")], 403),
        ("127.0.0.0/8", vec![], 403),
        ("127.0.0.0/8", vec![("forwarded", "for=198.51.100.1"), ("x-real-ip", "198.51.100.1")], 403),
        ("127.0.0.0/8", vec![("x-forwarded-for", "198.51.100.1")], 200),
        // An IPv4-mapped network is its IPv4 network.
        ("::ffff:127.0.0.0/104", vec![("x-forwarded-for", "198.51.100.1")], 200),
        ("::ffff:128.0.0.0/104", vec![("x-forwarded-for", "198.51.100.1")], 403),
        ("127.0.0.0/8", vec![("x-forwarded-for", "[2001:db8::7]:4433")], 200),
        ("127.0.0.0/8", vec![("x-forwarded-for", "::ffff:198.51.100.1")], 200),
        // The client's own claim stands before what the proxy has seen.
        ("127.0.0.0/8", vec![("x-forwarded-for", "198.51.100.1, 203.0.113.5")], 403),
        ("127.0.0.0/8", vec![("x-forwarded-for", "198.51.100.1"), ("x-forwarded-for", "203.0.113.5")], 403),
        ("127.0.0.0/8", vec![("x-forwarded-for", "203.0.113.5, 198.51.100.1, 127.0.0.9")], 200),
        ("127.0.0.0/8", vec![("x-forwarded-for", "198.51.100.1, unknown")], 403),
    ] {
        let litequic = started(origin.address, &format!("trusted_proxies = [{}]\n{routes}", quoted(trusted))).await;
        let client = Client::to(&litequic).await;
        let mut request = client.request(Method::GET, "/");
        for (name, value) in &fields {
            request = request.header(*name, *value);
        }
        assert_eq!(client.fetch(request, "").await.status, status, "{trusted} {fields:?}");
        litequic.stop().await;
    }
}

fn quoted(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!("\"{text}\"") }
}

/// A socket for both families has IPv4 clients at mapped addresses.
#[tokio::test]
async fn ipv6_clients_and_mapped_ones_are_told_apart() {
    let origin = Always::new(Always::EMPTY_200).await;
    for (rule, by_ipv4, by_ipv6) in [
        ("deny = \"127.0.0.0/8\"", 403, 200),
        ("deny = \"::ffff:127.0.0.0/104\"", 403, 200),
        ("deny = \"::1\"", 200, 403),
        ("deny = \"::/0\"", 200, 403),
        ("allow = \"::1\"", 403, 200),
        ("allow = [\"127.0.0.1\", \"::/64\"]", 200, 200),
    ] {
        let mut config = configured(origin.address, &format!("routes = [{{ origin = \"origin\", {rule} }}]"));
        let (tcp, udp) = (&mut config.listen.tcp, &mut config.listen.udp);
        tcp.iter_mut().chain(udp).for_each(|address| *address = (Ipv6Addr::UNSPECIFIED, 0).into());
        let litequic = Litequic::with_config(&config).await;
        for (host, status) in [("127.0.0.1", by_ipv4), ("[::1]", by_ipv6)] {
            let address = format!("{host}:{}", litequic.address.port()).parse().unwrap();
            let client = Client::connect(address, &litequic.cert_pem, quinn::TransportConfig::default()).await;
            assert_eq!(client.get("/").await.status, status, "{rule} {host}");
        }
        litequic.stop().await;
    }
}
