use super::*;

fn routes() -> Routes {
    let table = [
        (Some("a.example.com"), "/", "exact"),
        (Some("a.example.com"), "/live", "exact-live"),
        (Some("a.example.com"), "/live/hd/", "exact-live-hd"),
        (Some("*.example.com"), "/", "wildcard"),
        (Some("*.b.example.com"), "/", "longer-wildcard"),
        (Some("only.example.com"), "/app", "only-app"),
        (Some("[::1]"), "/", "ipv6"),
        (Some("192.0.2.1"), "/", "ipv4"),
        (None, "/any", "any"),
        (None, "/any", "any-again"),
    ];
    let routes = table.map(|(host, path_prefix, origin)| config::Route {
        host: host.map(str::to_owned),
        path_prefix: path_prefix.to_owned(),
        ..config::Route::catch_all(origin)
    });
    Routes::new(&routes, Some(7), &ClientCertificates::default())
}

#[test]
fn the_most_specific_host_and_the_longest_prefix_win() {
    let routes = routes();
    for (authority, path, expected) in [
        ("a.example.com", "/", Some("exact")),
        ("A.Example.COM", "/x", Some("exact")),
        ("a.example.com.", "/x", Some("exact")),
        ("a.example.com:8443", "/x", Some("exact")),
        ("a.example.com.:8443", "/x", Some("exact")),
        ("a.example.com", "/live", Some("exact-live")),
        ("a.example.com", "/live/", Some("exact-live")),
        ("a.example.com", "/live/x", Some("exact-live")),
        ("a.example.com", "/lively", Some("exact")),
        ("a.example.com", "/live/hd", Some("exact-live-hd")),
        ("a.example.com", "/live/hd/1", Some("exact-live-hd")),
        ("a.example.com", "/live/hdr", Some("exact-live")),
        ("a.example.com", "*", Some("exact")),
        ("x.example.com", "/", Some("wildcard")),
        ("x.y.example.com", "/", Some("wildcard")),
        ("x.b.example.com", "/", Some("longer-wildcard")),
        ("b.example.com", "/", Some("wildcard")),
        ("example.com", "/", None),
        ("xexample.com", "/", None),
        ("only.example.com", "/app/x", Some("only-app")),
        ("only.example.com", "/other", Some("wildcard")),
        ("a.example.com..", "/x", Some("exact")),
        ("[::1]:443", "/", Some("ipv6")),
        ("[0:0:0:0:0:0:0:1]:443", "/", Some("ipv6")),
        ("[0::0001]", "/", Some("ipv6")),
        ("[::ffff:0:1]", "/any", Some("any")),
        ("[::FFFF:192.0.2.1]", "/", Some("ipv4")),
        ("[::ffff:c000:201]:443", "/", Some("ipv4")),
        ("192.0.2.1", "/", Some("ipv4")),
        ("elsewhere.test", "/any/thing", Some("any")),
        ("elsewhere.test", "/", None),
        ("", "/any", Some("any")),
    ] {
        let chosen = routes.choose(authority, path).map(|route| route.and_then(|route| route.origin.as_deref()));
        assert_eq!(chosen.unwrap(), expected, "{authority} {path}");
    }
}

/// Routes of one host, and of every host: prefix, origin, how it reads.
fn reading(table: &[(Option<&str>, &str, &str, PathReading)]) -> Routes {
    let routes: Vec<_> = table
        .iter()
        .map(|(host, path_prefix, origin, path_reading)| config::Route {
            host: host.map(str::to_owned),
            path_prefix: (*path_prefix).to_owned(),
            path_reading: *path_reading,
            ..config::Route::catch_all(origin)
        })
        .collect();
    Routes::new(&routes, None, &ClientCertificates::default())
}

/// The origin that a path leads to at `host`, or the one that it could be read as leading to.
fn leads<'a>(routes: &'a Routes, host: &str, path: &str) -> Result<&'a str, &'a str> {
    let origin = |route: &'a Route| route.origin.as_deref().unwrap();
    routes.choose(host, path).map(|route| route.map_or("nowhere", origin)).map_err(origin)
}

#[test]
fn a_path_that_could_be_read_as_another_routes_is_refused() {
    use PathReading::{Any, CaseSensitive, Raw};
    let routes = reading(&[
        (None, "/", "default", Any),
        (None, "/v1/login", "login", Any),
        (None, "/admin", "admin", Any),
        (None, "/api", "raw", Raw),
        (None, "/api/admin", "api-admin", Any),
        (None, "/files", "files", CaseSensitive),
        (None, "/files/Secret", "secret", Any),
        (None, "/caf%C3%A9", "cafe", Any),
        (Some("a.test"), "/admin/local", "local", Any),
    ]);
    for (path, expected) in [
        ("/", Ok("default")),
        ("*", Ok("default")),
        ("/x%20y", Ok("default")),
        ("/x//y;z/%2f", Ok("default")),
        ("/V1", Ok("default")),
        ("/v1/login", Ok("login")),
        ("/v1/login/a%2fb//;c", Ok("login")),
        ("/v1/loginx", Ok("default")),
        ("/v1/login%41", Ok("default")),
        ("/v1/login%", Ok("default")),
        ("/v1/login.", Ok("default")),
        ("/v1/login%c0%af", Ok("default")),
        ("/v1/%6cogin", Err("login")),
        ("/v1/%256cogin", Err("login")),
        ("/v1//login", Err("login")),
        ("//v1/login", Err("login")),
        ("/v1/login%2f", Err("login")),
        ("/v1%2flogin", Err("login")),
        ("/v1%5clogin", Err("login")),
        ("/v1/login;a=b", Err("login")),
        ("/v1;a=b/login/x", Err("login")),
        ("/v1/login%00", Err("login")),
        ("/v1/login%3fa", Err("login")),
        ("/v1/Login", Err("login")),
        ("/ADMIN", Err("admin")),
        ("/%41dmin/", Err("admin")),
        // What the origin of the route that takes a path reads counts, and not what the other's does.
        ("/api/x%2fy", Ok("raw")),
        ("/api//admin", Ok("raw")),
        ("/%61pi/x", Err("raw")),
        ("/api%2fadmin", Err("api-admin")),
        ("/api/admin", Ok("api-admin")),
        ("/files/secret", Ok("files")),
        ("/files/%53ecret", Err("secret")),
        ("/files/%73ecret", Ok("files")),
        ("/Files/x", Err("files")),
        ("/caf%C3%A9/x", Ok("cafe")),
        ("/caf%c3%a9/x", Err("cafe")),
        ("/caf%25C3%25A9/x", Err("cafe")),
        ("/admin/local", Ok("admin")),
    ] {
        assert_eq!(leads(&routes, "b.test", path), expected, "{path}");
    }
    // A route of a more specific host comes before, whatever its length.
    assert_eq!(leads(&routes, "a.test", "/admin/local"), Ok("local"));
    assert_eq!(leads(&routes, "a.test", "/admin/%6cocal"), Err("local"));
    assert_eq!(leads(&routes, "a.test", "/%61dmin/local"), Err("local"));
}

#[test]
fn a_plain_path_could_be_that_of_a_route_whose_prefix_has_capitals_or_escapes() {
    use PathReading::{Any, CaseSensitive};
    let table = [(None, "/", "default", Any), (None, "/Admin", "admin", Any), (None, "/%61pp", "app", Any)];
    for (path, expected) in [("/admin/x", Err("admin")), ("/app", Err("app")), ("/other", Ok("default"))] {
        assert_eq!(leads(&reading(&table), "a.test", path), expected, "{path}");
    }
    let sensitive = table.map(|(host, prefix, origin, _)| (host, prefix, origin, CaseSensitive));
    for (path, expected) in [("/admin/x", Ok("default")), ("/app", Err("app"))] {
        assert_eq!(leads(&reading(&sensitive), "a.test", path), expected, "{path}");
    }
}

#[test]
fn routes_that_are_read_alike_are_one_to_such_an_origin() {
    let any = PathReading::Any;
    let routes = reading(&[
        (None, "/app", "app", any),
        (None, "/app;v=1", "one", any),
        (None, "/APP;v=2", "two", any),
        (None, "/a%62c/d", "spelled", any),
        (None, "/abc", "abc", any),
    ]);
    for (path, expected) in [
        ("/app", Ok("app")),
        ("/app/x;y", Ok("app")),
        ("/app;v=1", Ok("one")),
        ("/app;v=1/x", Ok("one")),
        ("/APP;v=2", Ok("two")),
        // No route takes it by its bytes.
        ("/app;v=3", Err("one")),
        ("/other", Ok("nowhere")),
        ("/abc", Ok("abc")),
        ("/abc/%64", Err("spelled")),
        ("/a%62c/d/x", Ok("spelled")),
    ] {
        assert_eq!(leads(&routes, "b.test", path), expected, "{path}");
    }
}

#[test]
fn a_route_without_a_body_limit_has_the_general_one() {
    assert_eq!(routes().choose("a.example.com", "/").unwrap().unwrap().max_body_bytes, Some(7));
}

fn asking(verify: Verify, table: &[(Option<&str>, &str, Option<Verify>)]) -> Routes {
    let routes: Vec<_> = table
        .iter()
        .map(|(host, path_prefix, verify)| config::Route {
            host: host.map(str::to_owned),
            path_prefix: (*path_prefix).to_owned(),
            client_certificate: *verify,
            ..config::Route::catch_all("o")
        })
        .collect();
    Routes::new(&routes, None, &ClientCertificates { verify, ..ClientCertificates::default() })
}

#[test]
fn a_handshake_asks_for_what_all_routes_of_its_host_ask_for() {
    use CertificateRequest::{None as Nothing, Optional, Required};
    let (none, optional, required) = (Some(Verify::None), Some(Verify::Optional), Some(Verify::Required));
    let routes = asking(
        Verify::Required,
        &[
            (Some("strict.test"), "/", None),
            (Some("mixed.test"), "/", none),
            (Some("mixed.test"), "/admin", required),
            (Some("falls.test"), "/admin", required),
            (Some("either.test"), "/", optional),
            (Some("hidden.test"), "/api", none),
            (Some("*.hidden.test"), "/", none),
            (Some("x.hidden.test"), "/api", none),
            (Some("*.wild.test"), "/", required),
            (Some("*.b.wild.test"), "/", none),
            (None, "/", none),
            (None, "/api/v1", none),
        ],
    );
    for (host, expected) in [
        (Some("strict.test"), Required),
        (Some("STRICT.test."), Required),
        (Some("mixed.test"), Optional),
        // Other paths are served by the routes of any host.
        (Some("falls.test"), Optional),
        (Some("either.test"), Optional),
        (Some("hidden.test"), Nothing),
        (Some("x.hidden.test"), Nothing),
        (Some("x.wild.test"), Required),
        (Some("x.y.wild.test"), Required),
        (Some("x.b.wild.test"), Nothing),
        (Some("wild.test"), Nothing),
        (Some("unknown.test"), Nothing),
        (None, Nothing),
    ] {
        assert_eq!(routes.certificate_request(host), expected, "{host:?}");
    }
}

#[test]
fn a_route_that_no_path_leads_to_asks_for_nothing() {
    let (none, required) = (Some(Verify::None), Some(Verify::Required));
    let routes = asking(
        Verify::None,
        &[
            (Some("a.test"), "/", required),
            (Some("b.test"), "/api", required),
            (Some("*.test"), "/api/v1/", none),
            (Some("*.test"), "/", required),
            (None, "/", none),
        ],
    );
    for host in ["a.test", "b.test", "c.b.test"] {
        let expected = if host == "c.b.test" { CertificateRequest::Optional } else { CertificateRequest::Required };
        assert_eq!(routes.certificate_request(Some(host)), expected, "{host}");
    }
}

#[test]
fn addresses_are_one_host_because_no_handshake_can_name_one() {
    let (none, required) = (Some(Verify::None), Some(Verify::Required));
    let routes = asking(Verify::None, &[(Some("192.0.2.1"), "/", required), (Some("[::1]"), "/", none)]);
    for host in [None, Some("192.0.2.1"), Some("192.0.2.2"), Some("[::1]")] {
        assert_eq!(routes.certificate_request(host), CertificateRequest::Optional, "{host:?}");
    }
    assert_eq!(routes.certificate_request(Some("a.test")), CertificateRequest::None);
}

#[test]
fn a_host_that_no_route_serves_is_held_to_the_general_rule() {
    let routes = asking(Verify::Required, &[(Some("a.test"), "/", Some(Verify::None))]);
    assert_eq!(routes.certificate_request(Some("b.test")), CertificateRequest::Required);
    assert_eq!(routes.certificate_request(None), CertificateRequest::Required);
    assert_eq!(routes.certificate_request(Some("a.test")), CertificateRequest::None);
}
