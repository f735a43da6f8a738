//! Clients' certificates: which clients are asked, which are accepted, what the origin gets (RFC 9440), and which hosts
//! a connection then serves.

pub(crate) mod person;
mod process;

use crate::support::prelude::*;
use litequic::app;
use litequic_config::{ParsedConfig, VerifyMode};
use person::{Authority, DAY, Person, by_tcp};
use quinn::ConnectionError;
use rcgen::{CertificateParams, CustomExtension, ExtendedKeyUsagePurpose};
use std::time::SystemTime;

/// RFC 9001 §4.8: 0x100 and the TLS alert (RFC 8446 §6).
const CERTIFICATE_REQUIRED: u64 = 0x100 + 116;
const BAD_CERTIFICATE: u64 = 0x100 + 42;
const UNSUPPORTED_CERTIFICATE: u64 = 0x100 + 43;
const CERTIFICATE_REVOKED: u64 = 0x100 + 44;
const CERTIFICATE_EXPIRED: u64 = 0x100 + 45;
const UNKNOWN_CA: u64 = 0x100 + 48;

/// A request for `/` of another host on a connection.
async fn ask_for(client: &Client, host: &str, path: &str) -> u16 {
    let port = client.quic.connection.remote_address().port();
    client.fetch(http::Request::get(format!("https://{host}:{port}{path}")), "").await.status.as_u16()
}

pub(crate) fn route(host: Option<&str>, path_prefix: &str, verify: VerifyMode) -> RouteConfig {
    RouteConfig {
        host: host.map(str::to_owned),
        path_prefix: path_prefix.to_owned(),
        client_certificate: Some(verify),
        ..RouteConfig::catch_all(Config::ORIGIN_NAME)
    }
}

/// litequic in front of the origin at `origin`, which trusts `ca` for clients' certificates.
pub(crate) async fn start(
    origin: SocketAddr,
    ca: &str,
    routes: &[RouteConfig],
    edit: impl FnOnce(&mut Config),
) -> Litequic {
    let directory = tempfile::tempdir().unwrap();
    let made = make_self_signed(["localhost", "127.0.0.1", "a.test", "b.test", "*.wild.test"]).unwrap();
    let put = |name: &str, text: &str| {
        let path = directory.path().join(name);
        fs::write(&path, text).unwrap();
        path
    };
    let (cert, key) = (put("tls.crt", &made.cert_pem), put("tls.key", &made.key_pem));
    let origin = format!("http://{origin}").parse().unwrap();
    let mut config = Config::with_defaults((Ipv4Addr::LOCALHOST, 0).into(), origin, cert, key);
    config.client_certificates.ca = Some(put("ca.crt", ca));
    config.client_certificates.verify = VerifyMode::Required;
    if !routes.is_empty() {
        config.routes = routes.to_vec();
    }
    config.listen.workers = Some(2.try_into().unwrap());
    edit(&mut config);
    let store = app::load_files(ParsedConfig::from_options(config.clone())).unwrap().certificates;
    Litequic::with_certificates(&config, store, made.cert_pem).await
}

async fn empty() -> Always {
    Always::new(Always::EMPTY_200).await
}

/// The values of `name` in all requests that the origin got.
fn seen<'a>(text: &'a str, name: &str) -> Vec<&'a str> {
    let fields = text.lines().filter_map(|line| line.split_once(": "));
    fields.filter(|(field, _)| field.eq_ignore_ascii_case(name)).map(|(_, value)| value).collect()
}

#[tokio::test]
async fn the_origin_learns_who_the_client_is_and_cannot_be_told_otherwise() {
    let (authority, origin) = (Authority::new("root"), empty().await);
    let between = authority.below("between");
    let shown = between.client().with(&between);
    let litequic = start(origin.address, &authority.pem(), &[], |_| {}).await;
    let person = Person::new(&litequic.cert_pem, Some(&shown));
    let client = person.connect(litequic.address, "localhost").await;
    for _ in 0..2 {
        let forged = client.request(Method::GET, "/");
        let forged = forged.header("client-cert", ":AA==:").header("client_cert_chain", ":AA==:");
        assert_eq!(client.fetch(forged.header("client-cert-chain", ":AA==:"), "").await.status, 200);
    }
    litequic.stop().await;
    let text = origin.seen();
    assert_eq!(seen(&text, "client-cert"), [shown.field(0).as_str(); 2]);
    assert!(!text.contains("client-cert-chain") && !text.contains("client_cert") && !text.contains(":AA==:"), "{text}");
}

fn missing(worker: &WorkerMetrics) -> u64 {
    worker.tls.client_certificates_missing.get() + worker.tcp.client_certificates_missing.get()
}

fn invalid(worker: &WorkerMetrics) -> u64 {
    worker.tls.client_certificates_invalid.get() + worker.tcp.client_certificates_invalid.get()
}

#[tokio::test]
async fn without_a_required_certificate_there_is_no_connection() {
    let (authority, origin) = (Authority::new("root"), empty().await);
    let litequic = start(origin.address, &authority.pem(), &[], |_| {}).await;
    let person = Person::new(&litequic.cert_pem, None);
    assert_eq!(person.refused(litequic.address, "localhost").await, CERTIFICATE_REQUIRED);
    assert_eq!(person.asked(), 1);
    let plain = Quic::to(&litequic).await;
    let closed = within("the refusal", plain.connection.closed()).await;
    assert!(
        matches!(closed, ConnectionError::ConnectionClosed(close) if u64::from(close.error_code) == CERTIFICATE_REQUIRED)
    );
    assert_eq!(litequic.sum(missing), 2);
    assert_eq!(litequic.sum(|worker| worker.http3.connections.get()), 0);
    assert_eq!(origin.connections(), 0);
    litequic.wait_until("handshakes_open = 0", |worker| worker.quic.handshakes_open.get(), |open| open == 0).await;
    litequic.stop().await;
}

#[tokio::test]
async fn an_invalid_client_certificate_is_rejected_even_where_it_is_optional() {
    let (authority, stranger) = (Authority::new("root"), Authority::new("stranger"));
    let day = |from: i32, to: i32| {
        let at = |days: i32| match u32::try_from(days) {
            Ok(after) => SystemTime::now() + DAY * after,
            Err(_) => SystemTime::now() - DAY * days.unsigned_abs(),
        };
        move |parameters: &mut CertificateParams| {
            (parameters.not_before, parameters.not_after) = (at(from).into(), at(to).into());
        }
    };
    let large = authority.issue(|parameters| {
        parameters.custom_extensions.push(CustomExtension::from_oid_content(&[1, 3, 6, 1, 4, 1, 1], vec![0; 16_384]));
    });
    let server = authority.issue(|it| it.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth]);
    let revoked = authority.issue(|it| it.serial_number = Some(7.into()));
    let table = [
        ("expired", authority.issue(day(-3, -1)), CERTIFICATE_EXPIRED),
        ("not yet valid", authority.issue(day(1, 3)), CERTIFICATE_EXPIRED),
        ("a stranger's", stranger.client(), UNKNOWN_CA),
        ("without what stands between", authority.below("between").client(), UNKNOWN_CA),
        ("a server's", server, UNSUPPORTED_CERTIFICATE),
        ("revoked", revoked, CERTIFICATE_REVOKED),
        ("too large", large, BAD_CERTIFICATE),
    ];
    let directory = tempfile::tempdir().unwrap();
    let crl = directory.path().join("ca.crl");
    fs::write(&crl, authority.crl(&[6, 7])).unwrap();
    for verify in [VerifyMode::Optional, VerifyMode::Required] {
        let origin = empty().await;
        let litequic = start(origin.address, &authority.pem(), &[route(None, "/", verify)], |config| {
            config.client_certificates.crl = Some(crl.clone());
        })
        .await;
        for (what, shown, code) in &table {
            let person = Person::new(&litequic.cert_pem, Some(shown));
            assert_eq!(person.refused(litequic.address, "localhost").await, *code, "{what}, {verify:?}");
        }
        assert_eq!(litequic.sum(invalid), table.len() as u64);
        assert_eq!(litequic.sum(|worker| worker.http3.connections.get()), 0);
        assert_eq!(origin.connections(), 0);
        // And one that holds does.
        let person = Person::new(&litequic.cert_pem, Some(&authority.issue(|it| it.serial_number = Some(8.into()))));
        let client = person.connect(litequic.address, "localhost").await;
        assert_eq!(client.get("/").await.status, 200, "{verify:?}");
        litequic.stop().await;
    }
}

#[tokio::test]
async fn an_optional_certificate_is_asked_for_and_may_be_missing() {
    let (authority, origin) = (Authority::new("root"), empty().await);
    let litequic = start(origin.address, &authority.pem(), &[route(None, "/", VerifyMode::Optional)], |_| {}).await;
    let shown = authority.client();
    for shown in [None, Some(&shown)] {
        let person = Person::new(&litequic.cert_pem, shown);
        let client = person.connect(litequic.address, "localhost").await;
        let forged = client.request(Method::GET, "/").header("client-cert", ":AA==:");
        assert_eq!(client.fetch(forged, "").await.status, 200);
        assert_eq!(person.asked(), 1);
    }
    assert_eq!(seen(&origin.seen(), "client-cert"), [shown.field(0).as_str()]);
    litequic.stop().await;
}

#[tokio::test]
async fn no_client_is_asked_where_no_route_wants_a_certificate() {
    let (authority, origin) = (Authority::new("root"), empty().await);
    let routes = [route(None, "/", VerifyMode::None), route(Some("a.test"), "/", VerifyMode::Required)];
    let litequic = start(origin.address, &authority.pem(), &routes, |_| {}).await;
    let person = Person::new(&litequic.cert_pem, Some(&authority.client()));
    for name in ["localhost", "127.0.0.1", "b.test"] {
        let client = person.connect(litequic.address, name).await;
        assert_eq!(client.get("/").await.status, 200, "{name}");
        assert_eq!(person.asked(), 0, "{name}");
    }
    assert_eq!(person.connect(litequic.address, "a.test").await.get("/").await.status, 200);
    assert_eq!(person.asked(), 1);
    assert_eq!(seen(&origin.seen(), "client-cert").len(), 1);
    litequic.stop().await;
}

#[tokio::test]
async fn where_paths_differ_the_one_that_needs_a_certificate_says_403() {
    let (authority, origin) = (Authority::new("root"), empty().await);
    let routes = [route(None, "/", VerifyMode::None), route(None, "/admin", VerifyMode::Required)];
    let litequic = start(origin.address, &authority.pem(), &routes, |_| {}).await;
    let anonymous = Person::new(&litequic.cert_pem, None).connect(litequic.address, "localhost").await;
    assert_eq!(anonymous.get("/").await.status, 200);
    let answer = anonymous.get("/admin/x").await;
    assert_eq!(answer.status, 403);
    assert!(answer.text().starts_with("403 Forbidden: a client certificate is required\n"), "{}", answer.text());
    let reason = answer.field("proxy-status").unwrap();
    assert!(reason.starts_with("litequic; error=http_request_denied; details=\"request "), "{reason}");

    let shown = authority.client();
    let known = Person::new(&litequic.cert_pem, Some(&shown)).connect(litequic.address, "localhost").await;
    for path in ["/", "/admin/y"] {
        assert_eq!(known.get(path).await.status, 200);
    }
    let text = origin.seen();
    assert!(!text.contains("GET /admin/x"), "{text}");
    assert_eq!(seen(&text, "client-cert"), [shown.field(0).as_str()], "on the route that asks alone");
    litequic.stop().await;
}

#[tokio::test]
async fn a_host_that_asks_for_something_else_is_misdirected_both_ways() {
    let (authority, origin) = (Authority::new("root"), empty().await);
    let routes = [
        route(Some("localhost"), "/", VerifyMode::None),
        route(Some("a.test"), "/", VerifyMode::None),
        route(Some("b.test"), "/", VerifyMode::Required),
        route(Some("*.wild.test"), "/", VerifyMode::Required),
        route(Some("either.wild.test"), "/", VerifyMode::Optional),
    ];
    let litequic = start(origin.address, &authority.pem(), &routes, |_| {}).await;
    let shown = authority.client();
    let table = [
        ("a.test", "a.test", 200),
        ("a.test", "localhost", 200),
        ("a.test", "b.test", 421),
        ("a.test", "either.wild.test", 421),
        ("b.test", "a.test", 421),
        ("b.test", "one.wild.test", 200),
        ("b.test", "either.wild.test", 421),
        ("two.wild.test", "b.test", 200),
        ("either.wild.test", "a.test", 421),
        ("either.wild.test", "b.test", 421),
        // The certificate covers it, but no route serves it: it is held to the general rule.
        ("127.0.0.1", "127.0.0.1", 404),
        ("127.0.0.1", "a.test", 421),
    ];
    for (name, host, expected) in table {
        let path = format!("/{name}/{host}");
        let client = Person::new(&litequic.cert_pem, Some(&shown)).connect(litequic.address, name).await;
        assert_eq!(ask_for(&client, host, &path).await, expected, "{name}, {host}");
        assert_eq!(origin.seen().contains(&path), expected == 200, "{name}, {host}");
    }
    litequic.stop().await;
}

#[tokio::test]
async fn a_client_without_sni_gets_the_address_routes_certificate_rules() {
    let (authority, origin) = (Authority::new("root"), empty().await);
    let routes = [route(None, "/", VerifyMode::None), route(Some("127.0.0.1"), "/secret", VerifyMode::Required)];
    let litequic = start(origin.address, &authority.pem(), &routes, |_| {}).await;
    let person = Person::new(&litequic.cert_pem, None);
    let client = person.connect(litequic.address, "127.0.0.1").await;
    assert_eq!(person.asked(), 1);
    for (host, path, expected) in
        [("127.0.0.1", "/", 200), ("127.0.0.1", "/secret", 403), ("10.0.0.1", "/secret", 200), ("localhost", "/", 421)]
    {
        assert_eq!(ask_for(&client, host, path).await, expected, "{host}{path}");
    }
    let shown = authority.client();
    let client = Person::new(&litequic.cert_pem, Some(&shown)).connect(litequic.address, "127.0.0.1").await;
    assert_eq!(ask_for(&client, "127.0.0.1", "/secret").await, 200);
    litequic.stop().await;
}

#[tokio::test]
async fn every_handshake_that_asks_is_a_full_one() {
    let (authority, origin) = (Authority::new("root"), empty().await);
    for verify in [VerifyMode::Optional, VerifyMode::Required] {
        let litequic = start(origin.address, &authority.pem(), &[route(None, "/", verify)], |_| {}).await;
        let person = Person::new(&litequic.cert_pem, Some(&authority.client()));
        for times in 1..=4 {
            let client = person.connect(litequic.address, "localhost").await;
            assert_eq!(client.get("/").await.status, 200);
            assert_eq!(person.asked(), times, "{verify:?}");
        }
        litequic.stop().await;
    }
}

/// The same policy, authorities and field, over another protocol.
#[tokio::test]
async fn over_tcp_clients_are_asked_and_told_of_in_the_same_way() {
    let (authority, origin) = (Authority::new("root"), empty().await);
    let routes = [route(None, "/", VerifyMode::Required), route(Some("a.test"), "/", VerifyMode::None)];
    let litequic = start(origin.address, &authority.pem(), &routes, |_| {}).await;
    let shown = authority.client();
    // For these clients the handshake is complete when they have sent their part.
    let stranger = Authority::new("root").client();
    for refused in [None, Some(&stranger)] {
        assert_eq!(by_tcp(&litequic, "localhost", refused).await.rest().await, (String::new(), false));
    }
    litequic.wait_until("missing", missing, |count| count == 1).await;
    litequic.wait_until("invalid", invalid, |count| count == 1).await;
    let get = |host: &str| format!("GET / HTTP/1.1\r\nHost: {host}\r\nClient-Cert: :AA==:\r\n\r\n");
    for (name, certificate, other) in [("localhost", Some(&shown), "a.test"), ("a.test", None, "localhost")] {
        let mut client = by_tcp(&litequic, name, certificate).await;
        client.say(get(name)).await;
        assert!(client.head().await.starts_with("http/1.1 200 "), "{name}");
        client.say(get(other)).await;
        assert!(client.head().await.starts_with("http/1.1 421 "), "{other} as {name}");
    }
    assert_eq!(seen(&origin.seen(), "client-cert"), [shown.field(0)]);
    litequic.stop().await;
}
