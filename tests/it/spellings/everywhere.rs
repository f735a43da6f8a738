//! Over HTTP/1.1 in both forms of its target, HTTP/2 and HTTP/3 alike.

use super::{Answer, Way, spellings};
use crate::support::prelude::*;
use litequic::app;
use litequic_config::{self as config, Listen, ParsedConfig};
use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};

/// The ways in which what a route adds is lost where another takes its requests.
const ROUTES: &str = r#"
routes = [
    { path_prefix = "/", origin = "origin" },
    { path_prefix = "/v1/login", origin = "origin", rate_limit = "1/h by=route" },
    { path_prefix = "/admin", origin = "origin", client_certificate = "required" },
    { path_prefix = "/old", redirect = "/new{path}" },
    { path_prefix = "/api", origin = "raw" },
    { path_prefix = "/api/admin", origin = "origin", client_certificate = "required" },
    { path_prefix = "/case", origin = "sensitive" },
    { path_prefix = "/case/Admin", origin = "origin", client_certificate = "required" },
    { host = "[::ffff:192.0.2.1]", path_prefix = "/", redirect = "/address" },
    { host = "[0:0::7]", path_prefix = "/", redirect = "/address" },
]
"#;

/// litequic with `routes` before an origin at `origin`, of which clients may show certificates of an authority.
async fn started(origin: SocketAddr, routes: &str) -> Litequic {
    let mut parameters = CertificateParams::new(Vec::new()).unwrap();
    parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = parameters.self_signed(&KeyPair::generate().unwrap()).unwrap();
    let made = make_self_signed(["localhost", "192.0.2.1", "::7"]).unwrap();
    let directory = tempfile::tempdir().unwrap();
    for (name, text) in [("ca.crt", authority.pem()), ("tls.crt", made.cert_pem.clone()), ("tls.key", made.key_pem)] {
        fs::write(directory.path().join(name), text).unwrap();
    }
    let whole = format!(
        "{routes}\n[[certificates]]\ncert = \"tls.crt\"\nkey = \"tls.key\"\n\
         [client_certificates]\nca = \"ca.crt\"\nverify = \"none\"\n[origin]\nurl = \"http://{origin}\"\n\
         [origins.raw]\nurl = \"http://{origin}\"\npath_reading = \"raw\"\n\
         [origins.sensitive]\nurl = \"http://{origin}\"\npath_reading = \"case-sensitive\"\n"
    );
    let parsed = config::parse_config(&whole, &directory.path().join("litequic.toml"), |_| None);
    let mut config: Config = parsed.unwrap_or_else(|faults| panic!("{faults}"));
    config.listen = Listen::at_address((Ipv4Addr::LOCALHOST, 0).into());
    let store = app::load_files(ParsedConfig::from_options(config.clone())).unwrap().certificates;
    Litequic::with_certificates(&config, store, made.cert_pem).await
}

#[tokio::test]
async fn a_spelling_of_another_routes_path_is_answered_400_by_every_protocol() {
    let origin = Always::new(Always::EMPTY_200).await;
    let litequic = started(origin.address, ROUTES).await;
    let mut refused = 0;
    for path in ["/v1/login", "/admin", "/old"] {
        for spelling in spellings(path) {
            for way in Way::ALL {
                let Answer { status, body } = way.ask(&litequic, "localhost", &spelling).await;
                assert_eq!(status, 400, "{way:?} {spelling}");
                let said =
                    "400 Bad Request: the request's path is ambiguous: an origin could read it as another route's\n";
                assert!(body.starts_with(said), "{way:?} {spelling}: {body}");
                refused += 1;
            }
        }
    }
    assert_eq!(litequic.sum(|worker| worker.proxy.ambiguous_paths.get()), refused);
    assert!(
        litequic.metrics.registry().render_metrics().contains(&format!("litequic_ambiguous_paths_total {refused}\n"))
    );
    assert_eq!(origin.connections(), 0);

    // The paths themselves are held to their routes, and what is spelled oddly elsewhere passes as it came.
    assert!(by_http3(&litequic, "/v1/login").await == 200 && by_http3(&litequic, "/v1/login/%2f").await == 429);
    assert_eq!(by_http3(&litequic, "/admin//x").await, 403);
    assert_eq!(by_http3(&litequic, "/old").await, 307);
    for way in Way::ALL {
        for path in ["/other//%61;b%2fc", "/loginx", "/v1/login2", "/v1/log%20in", "//", "/ADMINS"] {
            assert_eq!(way.ask(&litequic, "localhost", path).await.status, 200, "{way:?} {path}");
            assert!(origin.seen().contains(&format!("GET {path} HTTP/1.1\r\n")), "{way:?} {path}");
        }
    }
    assert_eq!(litequic.sum(|worker| worker.proxy.ambiguous_paths.get()), refused);
    litequic.stop().await;
}

/// HTTP/2's statuses are read by hand, and not all of them.
async fn by_http3(litequic: &Litequic, path: &str) -> u16 {
    Raw::to(litequic).await.ask(&raw::request("GET", path)).await.status()
}

#[tokio::test]
async fn a_tunnel_is_opened_by_no_other_spelling_either() {
    let origin = Always::new(Always::EMPTY_200).await;
    let litequic = started(origin.address, ROUTES).await;
    for spelling in ["/%61dmin", "//admin", "/admin;x"] {
        let fields = [
            (":method", "CONNECT"),
            (":protocol", "websocket"),
            (":scheme", "https"),
            (":authority", "localhost"),
            (":path", spelling),
        ];
        assert_eq!(Raw::to(&litequic).await.ask(&raw::headers(&fields)).await.status(), 400, "{spelling}");
        let mut tls = Tls::http1(&litequic).await;
        let upgrade = "Connection: Upgrade\r\nUpgrade: websocket";
        tls.say(format!("GET {spelling} HTTP/1.1\r\nHost: localhost\r\n{upgrade}\r\n\r\n")).await;
        assert!(tls.head().await.starts_with("http/1.1 400 "), "{spelling}");
    }
    assert_eq!(origin.connections(), 0);
    litequic.stop().await;
}

#[tokio::test]
async fn routes_for_case_sensitive_origins_are_accepted() {
    let origin = Always::new(Always::EMPTY_200).await;
    let litequic = started(origin.address, ROUTES).await;
    for way in Way::ALL {
        for (path, status) in [
            ("/api/projects/group%2fproject", 200),
            ("/api//admin", 200),
            ("/api/%61dmin", 200),
            ("/api%2fadmin", 400),
            ("/%61pi/admin", 400),
            ("/API/admin", 400),
            ("/case/admin", 200),
            ("/case/%61dmin", 200),
            ("/case/%41dmin", 400),
            // Dots are not a matter of routes alone.
            ("/api/%252e%252e/admin", 400),
            ("/api/..%00/admin", 400),
            ("/api/x%252f..%252f", 400),
        ] {
            assert_eq!(way.ask(&litequic, "localhost", path).await.status, status, "{way:?} {path}");
        }
    }
    litequic.stop().await;
}

#[tokio::test]
async fn a_configuration_with_one_route_refuses_nothing_for_its_spelling() {
    let origin = Always::new(Always::EMPTY_200).await;
    let litequic = started(origin.address, "").await;
    for spelling in spellings("/v1/login") {
        for way in Way::ALL {
            assert_eq!(way.ask(&litequic, "localhost", &spelling).await.status, 200, "{way:?} {spelling}");
        }
    }
    assert_eq!(litequic.sum(|worker| worker.proxy.ambiguous_paths.get()), 0);
    litequic.stop().await;
}

#[tokio::test]
async fn a_host_in_another_spelling_is_the_same_host_or_none() {
    let origin = Always::new(Always::EMPTY_200).await;
    let litequic = started(origin.address, ROUTES).await;
    // Which route it is shows in the `Location` of HTTP/1.1, without a name in the handshake for addresses.
    for (host, expected) in [
        ("192.0.2.1", "307"),
        ("[::ffff:192.0.2.1]", "307"),
        ("[::FFFF:C000:201]:443", "307"),
        ("[0:0:0:0:0:ffff:192.0.2.1]", "307"),
        ("[::7]", "307"),
        ("[0::0007]:443", "307"),
        ("[0:0:0:0:0:0:0:7]", "307"),
        ("192.0.513", "400"),
        ("0xc0.0.2.1", "400"),
        ("3221225985", "400"),
        ("0300.0.2.1", "400"),
        ("localhost..", "400"),
        ("192.0.2.1..", "400"),
        ("[::7]..", "400"),
    ] {
        for target in [String::from("/"), format!("https://{host}/")] {
            let config = tls::config(&litequic.cert_pem, &["http/1.1"]);
            let mut tls = Tls::connect(litequic.tcp[0], "192.0.2.1", config).await.unwrap();
            tls.say(format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n")).await;
            let head = tls.head().await;
            assert!(head.starts_with(&format!("http/1.1 {expected} ")), "{host} {target}: {head}");
        }
        if expected == "400" {
            for way in [Way::Http2, Way::Http3] {
                assert_eq!(way.ask(&litequic, host, "/").await.status, 400, "{way:?} {host}");
            }
        }
    }
    assert_eq!(origin.connections(), 0);
    litequic.stop().await;
}
