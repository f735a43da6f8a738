use super::*;
use http::{HeaderName, Method};
use litequic_config::{ValuePattern, VerifyMode};
use litequic_exchange::{Authority, FieldNameRef, Fields, strip_port};
use proptest::prelude::*;

/// Head of a GET without fields.
fn plain() -> Head {
    head("GET", "/", &[])
}

/// Head of a request; `path` has the query.
fn head(method: &str, path: &str, fields: &[(&str, &str)]) -> Head {
    let mut lines = Fields::new();
    fields.iter().for_each(|(name, value)| lines.append_any_case(name.as_bytes(), value.as_bytes()));
    Head::new(method.parse().unwrap(), Authority::new(""), path, lines)
}

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
    let routes = table.map(|(host, path_prefix, origin)| config::RouteConfig {
        host: host.map(str::to_owned),
        path_prefix: path_prefix.to_owned(),
        ..config::RouteConfig::catch_all(origin)
    });
    Routes::new(&routes, &BTreeMap::new(), Some(7), &ClientCertificates::default())
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
        let plain = plain();
        let chosen = routes.choose_route(strip_port(authority), path, &plain);
        let chosen = chosen.map(|route| route.and_then(|route| route.origin.as_deref()));
        assert_eq!(chosen.unwrap(), expected, "{authority} {path}");
    }
}

/// Routes by host, prefix, origin, and decoding.
fn reading(table: &[(Option<&str>, &str, &str, PathReading)]) -> Routes {
    let routes: Vec<_> = table
        .iter()
        .map(|(host, path_prefix, origin, _)| config::RouteConfig {
            host: host.map(str::to_owned),
            path_prefix: (*path_prefix).to_owned(),
            ..config::RouteConfig::catch_all(origin)
        })
        .collect();
    let origins = table.iter().map(|(_, _, name, path_reading)| {
        ((*name).to_owned(), config::OriginConfig { path_reading: *path_reading, ..config::OriginConfig::default() })
    });
    Routes::new(&routes, &origins.collect(), None, &ClientCertificates::default())
}

/// The origin of the route for a path at `host`, or of the one that the path could be read for.
fn leads<'a>(routes: &'a Routes, host: &str, path: &str) -> Result<&'a str, &'a str> {
    let origin = |route: &'a CompiledRoute| route.origin.as_deref().unwrap();
    routes.choose_route(host, path, &plain()).map(|route| route.map_or("nowhere", origin)).map_err(origin)
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
        // The reading of the matching route's origin counts, and not that of the other's.
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
fn a_plain_path_is_compared_with_prefixes_in_capitals_or_escapes() {
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
        // No route matches the path's bytes.
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
    let (routes, plain) = (routes(), plain());
    assert_eq!(routes.choose_route("a.example.com", "/", &plain).unwrap().unwrap().max_body_bytes, Some(7));
}

fn asking(verify: VerifyMode, table: &[(Option<&str>, &str, Option<VerifyMode>)]) -> Routes {
    let routes: Vec<_> = table
        .iter()
        .map(|(host, path_prefix, verify)| config::RouteConfig {
            host: host.map(str::to_owned),
            path_prefix: (*path_prefix).to_owned(),
            client_certificate: *verify,
            ..config::RouteConfig::catch_all("o")
        })
        .collect();
    Routes::new(&routes, &BTreeMap::new(), None, &ClientCertificates { verify, ..ClientCertificates::default() })
}

#[test]
fn a_handshake_asks_for_what_all_routes_of_its_host_ask_for() {
    use VerifyMode::{None as Nothing, Optional, Required};
    let (none, optional, required) = (Some(Nothing), Some(Optional), Some(Required));
    let routes = asking(
        Required,
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
    let (none, required) = (Some(VerifyMode::None), Some(VerifyMode::Required));
    let routes = asking(
        VerifyMode::None,
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
    let (none, required) = (Some(VerifyMode::None), Some(VerifyMode::Required));
    let routes = asking(VerifyMode::None, &[(Some("192.0.2.1"), "/", required), (Some("[::1]"), "/", none)]);
    for host in [None, Some("192.0.2.1"), Some("192.0.2.2"), Some("[::1]")] {
        assert_eq!(routes.certificate_request(host), CertificateRequest::Optional, "{host:?}");
    }
    assert_eq!(routes.certificate_request(Some("a.test")), CertificateRequest::None);
}

#[test]
fn a_host_that_no_route_serves_is_held_to_the_general_rule() {
    let routes = asking(VerifyMode::Required, &[(Some("a.test"), "/", Some(VerifyMode::None))]);
    assert_eq!(routes.certificate_request(Some("b.test")), CertificateRequest::Required);
    assert_eq!(routes.certificate_request(None), CertificateRequest::Required);
    assert_eq!(routes.certificate_request(Some("a.test")), CertificateRequest::None);
}

fn conditions(methods: &[&str], fields: &[(&'static str, &str)], query: &[(&str, &str)]) -> MatchConditions {
    let field =
        |(name, pattern): &(&'static str, &str)| (HeaderName::from_static(name), ValuePattern::parse_pattern(pattern));
    MatchConditions {
        methods: methods.iter().map(|method| Method::from_bytes(method.as_bytes()).unwrap()).collect(),
        headers: fields.iter().map(field).collect(),
        query: query.iter().map(|(name, pattern)| ((*name).to_owned(), ValuePattern::parse_pattern(pattern))).collect(),
    }
}

/// A route by its origin: host, path with `=` before an exact one, conditions.
fn route(origin: &str, host: Option<&str>, path: &str, conditions: MatchConditions) -> config::RouteConfig {
    let route =
        config::RouteConfig { host: host.map(str::to_owned), conditions, ..config::RouteConfig::catch_all(origin) };
    match path.strip_prefix('=') {
        Some(path) => config::RouteConfig { path: Some(path.into()), ..route },
        None => config::RouteConfig { path_prefix: path.into(), ..route },
    }
}

fn taken<'a>(routes: &'a Routes, host: &str, head: &Head) -> Result<&'a str, &'a str> {
    let origin = |route: &'a CompiledRoute| route.origin.as_deref().unwrap();
    let chosen = routes.choose_route(host, head.path_without_query(), head);
    chosen.map(|route| route.map_or("nowhere", origin)).map_err(origin)
}

#[test]
fn host_comes_before_path_and_path_before_conditions() {
    let any = MatchConditions::default;
    let table = [
        route("a", Some("a.test"), "/", any()),
        route("a-post", Some("a.test"), "/", conditions(&["POST"], &[], &[])),
        route("a-exact", Some("a.test"), "=/file", any()),
        route("a-canary", Some("a.test"), "/", conditions(&[], &[("x-canary", "*")], &[])),
        route("a-canary-2", Some("a.test"), "/", conditions(&[], &[("x-canary", "2")], &[])),
        route("a-canary-2x", Some("a.test"), "/", conditions(&[], &[("x-canary", "2*")], &[])),
        route("a-preview", Some("a.test"), "/", conditions(&[], &[], &[("preview", "*")])),
        route("a-both", Some("a.test"), "/", conditions(&[], &[("x-canary", "*")], &[("preview", "1")])),
        route("b-only-post", Some("b.test"), "/", conditions(&["POST"], &[], &[])),
        route("any", None, "/", any()),
        route("any-live", None, "/live", any()),
        route("any-exact-live", None, "=/live", any()),
        route("any-exact-live-slash", None, "=/live/", any()),
        route("any-put", None, "/", conditions(&["PUT"], &[("x-canary", "*")], &[("a", "*"), ("b", "*")])),
    ];
    // The order of the file decides nothing here.
    for reversed in [false, true] {
        let mut table = table.to_vec();
        if reversed {
            table.reverse();
        }
        let routes = Routes::new(&table, &BTreeMap::new(), None, &ClientCertificates::default());
        for (host, method, path, fields, expected) in [
            ("a.test", "GET", "/", &[][..], "a"),
            ("a.test", "HEAD", "/", &[], "a"),
            ("a.test", "POST", "/x", &[], "a-post"),
            ("a.test", "POST", "/file", &[], "a-exact"),
            ("a.test", "GET", "/file", &[("x-canary", "2")], "a-exact"),
            ("a.test", "GET", "/file/", &[], "a"),
            ("a.test", "GET", "/file?x", &[], "a-exact"),
            ("a.test", "GET", "/", &[("x-canary", "")], "a-canary"),
            ("a.test", "GET", "/", &[("X-Canary", "2")], "a-canary-2"),
            ("a.test", "GET", "/", &[("x-canary", "1"), ("x-canary", "2")], "a-canary-2"),
            ("a.test", "GET", "/", &[("x-canary", "21")], "a-canary-2x"),
            ("a.test", "POST", "/", &[("x-canary", "2")], "a-post"),
            ("a.test", "GET", "/?preview", &[], "a-preview"),
            ("a.test", "GET", "/?a&preview=x&b", &[], "a-preview"),
            ("a.test", "GET", "/?previews=1", &[], "a"),
            ("a.test", "GET", "/?Preview=1", &[], "a"),
            ("a.test", "GET", "/?%70review=1", &[], "a"),
            ("a.test", "GET", "/?preview=1", &[("x-canary", "2")], "a-both"),
            ("a.test", "GET", "/?preview=2&preview=1", &[("x-canary", "2")], "a-both"),
            ("a.test", "GET", "/?preview=2", &[("x-canary", "1")], "a-canary"),
            // If no route of the host matches, the next host's are tried.
            ("b.test", "POST", "/live", &[], "b-only-post"),
            ("b.test", "GET", "/live", &[], "any-exact-live"),
            ("b.test", "GET", "/live/", &[], "any-exact-live-slash"),
            ("b.test", "GET", "/live/x", &[], "any-live"),
            ("b.test", "PUT", "/live/x?a&b", &[("x-canary", "1")], "any-live"),
            ("b.test", "PUT", "/?a&b", &[("x-canary", "1")], "any-put"),
            ("b.test", "PUT", "/?a", &[("x-canary", "1")], "any"),
        ] {
            let head = head(method, path, fields);
            assert_eq!(taken(&routes, host, &head), Ok(expected), "{method} {host} {path} {fields:?}");
        }
    }
}

#[test]
fn of_routes_alike_the_first_of_the_file_wins() {
    let a = route("a", None, "/", conditions(&[], &[("a", "1")], &[]));
    let b = route("b", None, "/", conditions(&[], &[("b", "1")], &[]));
    let head = head("GET", "/", &[("a", "1"), ("b", "1")]);
    for (table, expected) in [([a.clone(), b.clone()], "a"), ([b, a], "b")] {
        let routes = Routes::new(&table, &BTreeMap::new(), None, &ClientCertificates::default());
        assert_eq!(taken(&routes, "a.test", &head), Ok(expected));
    }
}

#[test]
fn an_ambiguous_path_is_rejected_only_if_the_conditions_are_met() {
    let table = [
        route("default", None, "/", MatchConditions::default()),
        route("exact", None, "=/admin", MatchConditions::default()),
        route("slash", None, "=/admin/", conditions(&["PUT"], &[], &[])),
        route("post", None, "/login", conditions(&["POST"], &[], &[])),
        route("field", None, "=/secret", conditions(&[], &[("x-a", "*")], &[])),
    ];
    let routes = Routes::new(&table, &BTreeMap::new(), None, &ClientCertificates::default());
    for (method, path, fields, expected) in [
        ("GET", "/admin", &[][..], Ok("exact")),
        ("GET", "/admin/", &[], Ok("default")),
        ("GET", "/admin/x", &[], Ok("default")),
        ("GET", "/%61dmin", &[], Err("exact")),
        ("GET", "//admin", &[], Err("exact")),
        ("GET", "/Admin", &[], Err("exact")),
        ("GET", "/admin;a=b", &[], Err("exact")),
        ("GET", "/admin%00", &[], Err("exact")),
        ("GET", "/%61dmin/x", &[], Ok("default")),
        ("GET", "/%61dmin/", &[], Ok("default")),
        ("PUT", "/%61dmin/", &[], Err("slash")),
        ("POST", "/login/x", &[], Ok("post")),
        ("GET", "/%6cogin/x", &[], Ok("default")),
        ("POST", "/%6cogin/x", &[], Err("post")),
        ("GET", "/%73ecret", &[], Ok("default")),
        ("GET", "/%73ecret", &[("x-a", "1")], Err("field")),
    ] {
        let head = head(method, path, fields);
        assert_eq!(taken(&routes, "a.test", &head), expected, "{method} {path} {fields:?}");
    }
}

#[test]
fn handshakes_see_routes_behind_conditions_and_exact_paths() {
    use VerifyMode::{Optional, Required};
    let asks = |first: config::RouteConfig| {
        let first = config::RouteConfig { client_certificate: Some(Required), ..first };
        let second = config::RouteConfig {
            client_certificate: Some(VerifyMode::None),
            ..route("o", None, "/", MatchConditions::default())
        };
        Routes::new(&[first, second], &BTreeMap::new(), None, &ClientCertificates::default())
            .certificate_request(Some("a.test"))
    };
    let host = Some("a.test");
    assert_eq!(asks(route("o", host, "/", MatchConditions::default())), Required);
    assert_eq!(asks(route("o", host, "/", conditions(&["POST"], &[], &[]))), Optional);
    assert_eq!(asks(route("o", host, "=/", MatchConditions::default())), Optional);
}

#[test]
fn routes_have_names_that_tell_them_apart_and_no_values() {
    let table = [
        route("o", None, "/", MatchConditions::default()),
        route("o", Some("a.test"), "/live/", MatchConditions::default()),
        route("o", Some("a.test"), "=/live/", MatchConditions::default()),
        route("o", None, "/", conditions(&["POST", "PUT"], &[("x-key", "secret")], &[("v", "2")])),
        route("o", None, "/", conditions(&["POST", "PUT"], &[("x-key", "other")], &[("v", "2")])),
        config::RouteConfig { name: Some("shop".into()), ..route("o", None, "/shop", MatchConditions::default()) },
    ];
    let names = config::RouteConfig::unique_route_names(&table);
    assert_eq!(
        names,
        ["*/", "a.test/live/", "a.test=/live/", "*/[POST,PUT,x-key,?v]", "*/[POST,PUT,x-key,?v]#2", "shop"]
    );
}

/// The precedence of two routes, as the documents have it: the greater first.
fn rank(route: &config::RouteConfig, host: &str) -> (usize, bool, usize, bool, usize, usize, usize) {
    let host_rank = match route.host.as_deref() {
        Some(own) if own == host => usize::MAX,
        Some(own) => own.len(),
        None => 0,
    };
    let path = route.path.as_deref().unwrap_or_else(|| route.normalized_prefix());
    let MatchConditions { methods, headers, query } = &route.conditions;
    let patterns = headers.iter().map(|(_, pattern)| pattern).chain(query.iter().map(|(_, pattern)| pattern));
    let length = patterns.map(|pattern| match pattern {
        ValuePattern::Present => 0,
        ValuePattern::Prefix(text) => text.len(),
        ValuePattern::Equal(text) => text.len() + 1,
    });
    (host_rank, route.path.is_some(), path.len(), !methods.is_empty(), headers.len(), query.len(), length.sum())
}

fn takes(route: &config::RouteConfig, host: &str, head: &Head) -> bool {
    let host = match route.host.as_deref() {
        None => true,
        Some(own) => own == host || own.strip_prefix('*').is_some_and(|end| host.ends_with(end)),
    };
    let path = match route.path.as_deref() {
        Some(path) => path == head.path_without_query(),
        None => format!("{}/", head.path_without_query()).starts_with(&format!("{}/", route.normalized_prefix())),
    };
    let MatchConditions { methods, headers, query } = &route.conditions;
    let fits = |pattern: &ValuePattern, value: &str| match pattern {
        ValuePattern::Present => true,
        ValuePattern::Prefix(text) => value.starts_with(text),
        ValuePattern::Equal(text) => value == text,
    };
    let pairs: Vec<(String, String)> = head.query().map_or_else(Vec::new, |query| {
        let pair = |pair: &str| match pair.find('=') {
            Some(at) => (pair[..at].to_owned(), pair[at + 1..].to_owned()),
            None => (pair.to_owned(), String::new()),
        };
        query.split('&').map(pair).collect()
    });
    host && path
        && (methods.is_empty() || methods.contains(&head.method))
        && headers.iter().all(|(name, pattern)| {
            head.fields
                .all_values(FieldNameRef::from_lower_case_token(name.as_str()))
                .any(|value| fits(pattern, str::from_utf8(value).unwrap()))
        })
        && query.iter().all(|(name, pattern)| pairs.iter().any(|(known, value)| known == name && fits(pattern, value)))
}

fn some_pattern() -> impl Strategy<Value = ValuePattern> {
    prop::sample::select(vec!["*", "1", "12", "1*", "12*", ""]).prop_map(ValuePattern::parse_pattern)
}

fn some_route() -> impl Strategy<Value = config::RouteConfig> {
    let host = prop::sample::select(vec![None, Some("a.b.test"), Some("*.b.test"), Some("*.test")]);
    let path = prop::sample::select(vec!["/", "/a", "/a/", "/a/b", "/ab", "=/", "=/a", "=/a/", "=/a/b"]);
    let methods = prop::sample::subsequence(vec![Method::GET, Method::POST, Method::PUT], 0..=2);
    let name = || prop::sample::select(vec!["x", "y"]);
    let headers = prop::collection::vec((name().prop_map(HeaderName::from_static), some_pattern()), 0..3);
    let query = prop::collection::vec((name().prop_map(str::to_owned), some_pattern()), 0..3);
    (host, path, methods, headers, query).prop_map(|(host, path, methods, headers, query)| {
        route("o", host, path, MatchConditions { methods, headers, query })
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, ..ProptestConfig::default() })]

    /// The route is the one that a search over all of them finds, which uses only the rule.
    #[test]
    fn a_request_takes_the_most_specific_of_the_routes_that_take_it(
        table in prop_oneof![prop::collection::vec(some_route(), 1..8), prop::collection::vec(some_route(), 60..90)],
        host in prop::sample::select(vec!["a.b.test", "c.b.test", "c.test", "other"]),
        path in prop::sample::select(vec!["/", "/a", "/a/", "/a/b", "/a/b/c", "/ab", "/abc"]),
        query in prop::sample::select(vec!["", "?", "?x", "?x=1", "?y=12&x=123", "?x=&x=12", "?xy=1"]),
        method in prop::sample::select(vec!["GET", "POST", "PUT", "HEAD"]),
        fields in prop::collection::vec(
            (prop::sample::select(vec!["x", "y"]), prop::sample::select(vec!["", "1", "12", "123"])), 0..3
        ),
    ) {
        let head = head(method, &format!("{path}{query}"), &fields);
        let takers = table.iter().enumerate().filter(|(_, route)| takes(route, host, &head));
        // Of equal routes `max_by_key` returns the last one, which is the file's first.
        let expected = takers.rev().max_by_key(|(_, route)| rank(route, host)).map(|(number, _)| number);
        let routes = Routes::new(&table, &BTreeMap::new(), None, &ClientCertificates::default());
        let chosen = routes.choose_route(host, path, &head);
        prop_assert_eq!(chosen.unwrap().map(|route| route.number), expected);
    }

    /// Many routes are found by an index, few by a look at each.
    #[test]
    fn the_index_finds_what_a_look_at_each_route_finds(
        table in prop::collection::vec((some_route(), any::<bool>()), 17..60),
        path in "(/|a|A|b|%61|%2f|%2F|;x|//|\\.\\.){1,6}",
        query in prop::sample::select(vec!["", "?x=1", "?y=12&x=123", "?x=&x=12"]),
        method in prop::sample::select(vec!["GET", "POST"]),
        fields in prop::collection::vec(
            (prop::sample::select(vec!["x", "y"]), prop::sample::select(vec!["", "1", "12", "123"])), 0..3
        ),
    ) {
        let guarded = |(route, users): (config::RouteConfig, bool)| config::RouteConfig {
            host: None,
            users: users.then(|| "users".into()),
            ..route
        };
        let table: Vec<_> = table.into_iter().map(guarded).collect();
        let mut routes = Routes::new(&table, &BTreeMap::new(), None, &ClientCertificates::default());
        let path = format!("/{path}");
        let head = head(method, &format!("{path}{query}"), &fields);
        let number = |routes: &Routes| {
            let chosen = routes.choose_route("a.test", &path, &head);
            chosen.map(|route| route.map(|route| route.number)).map_err(|route| route.number)
        };
        prop_assert!(routes.any.indexes.is_some());
        let by_index = number(&routes);
        routes.any.indexes = None;
        prop_assert_eq!(by_index, number(&routes));
    }

    /// If `litequic check` does not warn, the order of the file has no effect: for requests without a field or a
    /// parameter twice.
    #[test]
    fn the_order_of_the_file_decides_only_where_there_is_a_warning(
        table in prop::collection::vec(some_route(), 2..5),
        method in prop::sample::select(vec!["GET", "POST"]),
        values in (
            prop::option::of(prop::sample::select(vec!["", "1", "12"])),
            prop::option::of(prop::sample::select(vec!["1", "12"])),
            prop::option::of(prop::sample::select(vec!["", "1", "12"])),
        ),
    ) {
        let is_twice = |names: Vec<&str>| names.len() == 2 && names.first() == names.get(1);
        let mut seen = std::collections::BTreeSet::new();
        // All routes have one host and path; two with equal conditions are a fault.
        let table = table.into_iter().map(|of| route("o", None, "/", of.conditions)).filter(|route| {
            let MatchConditions { headers, query, .. } = &route.conditions;
            let headers = headers.iter().map(|(name, _)| name.as_str()).collect();
            let query = query.iter().map(|(name, _)| name.as_str()).collect();
            !is_twice(headers) && !is_twice(query) && seen.insert(format!("{:?}", route.conditions))
        });
        let table: Vec<config::RouteConfig> = table.collect();
        prop_assume!(config::find_ambiguous_routes(&table).is_empty());
        let (x, y, query) = values;
        let fields: Vec<_> = [("x", x), ("y", y)].into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
        let target = query.map_or_else(|| "/".to_owned(), |value| format!("/?x={value}"));
        let head = head(method, &target, &fields);
        let taken = |table: &[config::RouteConfig]| {
            let routes = Routes::new(table, &BTreeMap::new(), None, &ClientCertificates::default());
            let number = routes.choose_route("a.test", "/", &head).unwrap().map(|route| route.number);
            number.map(|number| table[number].clone())
        };
        let reversed: Vec<_> = table.iter().rev().cloned().collect();
        prop_assert_eq!(taken(&table), taken(&reversed));
    }
}

#[test]
fn a_guarded_exact_path_is_not_reached_by_another_slash() {
    let exact = |path: &str, users: bool| config::RouteConfig {
        path: Some(path.into()),
        users: users.then(|| "users".into()),
        ..config::RouteConfig::catch_all("app")
    };
    let all =
        [exact("/admin", true), exact("/board/", true), exact("/open", false), config::RouteConfig::catch_all("app")];
    let routes = Routes::new(&all, &BTreeMap::new(), None, &ClientCertificates::default());
    let number = |path: &str| routes.choose_route("a.test", path, &plain()).map(|route| route.unwrap().number);
    for (path, expected) in
        [("/admin", 0), ("/board/", 1), ("/open", 2), ("/open/", 3), ("/admin/x", 3), ("/administer", 3)]
    {
        assert_eq!(number(path).ok(), Some(expected), "{path}");
    }
    for path in ["/admin/", "/admin//", "/ADMIN/", "/admin%2f", "/admin/;x", "/admin;/", "/board", "/Board", "/%62oard"]
    {
        assert!(number(path).is_err(), "{path}");
    }
}
