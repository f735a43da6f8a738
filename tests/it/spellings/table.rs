//! Origins by what their documentation says that they do to a path before they compare it, none of which shares code
//! with litequic. Go's and Express' rows were tried against Go 1.26 and Express 5.

use crate::support::prelude::*;
use litequic_exchange::{
    self as exchange, Authority, Client, Fields, Head, LastForwarded, Protocol, TlsIdentity, name,
};
use litequic_proxy::{Routing, convert_request_head};
use proptest::prelude::*;

/// One thing done to a path.
#[derive(Debug, Clone, Copy)]
enum Step {
    /// Percent-decodes.
    Decode,
    /// The same with http.sys' `%uXXXX`.
    DecodeUnicode,
    /// Removes `;` up to the next slash.
    Cut,
    /// A slash for each backslash.
    Backslash,
    /// One slash for several.
    Merge,
    /// No slash at the end, and one at the beginning.
    Trim,
    /// Lower case.
    Fold,
    /// What is behind a NUL is lost.
    EndAtNul,
    /// What is behind a `?` or `#` is lost.
    EndAtQuery,
}

use Step::{Backslash, Cut, Decode, DecodeUnicode, EndAtNul, EndAtQuery, Fold, Merge, Trim};

const ORIGINS: &[(&str, &[Step])] = &[
    ("bytes", &[]),
    // ngx_http_core_module: location, merge_slashes (on).
    ("nginx", &[Decode, Merge]),
    ("nginx, merge_slashes off", &[Decode]),
    // PEP 3333 and wsgiref, uWSGI, gunicorn: PATH_INFO is decoded; Werkzeug merges slashes.
    ("WSGI", &[Decode]),
    ("Werkzeug", &[Decode, Merge]),
    // Express: "case sensitive routing" and "strict routing" are off by default; express.static decodes.
    ("Express, a route", &[Fold, Trim]),
    ("express.static", &[Decode, Merge]),
    // net/http: URL.Path is decoded; gorilla/mux and others clean it.
    ("Go", &[Decode]),
    ("Go, cleaned", &[Decode, Merge, Trim]),
    // Apache: MergeSlashes (on), AllowEncodedSlashes.
    ("PHP by Apache, AllowEncodedSlashes On", &[Decode, Merge]),
    // Symfony and Laravel: rawurldecode of REQUEST_URI's path, trimmed.
    ("PHP, a front controller", &[Decode, Trim]),
    ("PHP, parse_url behind rawurldecode", &[Decode, EndAtQuery, Trim]),
    // Tomcat: parameters first, then decoded, then normalized (encodedSolidusHandling, allowBackslash).
    ("Tomcat", &[Cut, Decode, Merge]),
    ("Tomcat, allowBackslash", &[Cut, Decode, Backslash, Merge]),
    ("Tomcat behind a proxy that decodes", &[Decode, Cut, Decode, Merge]),
    ("Tomcat behind Tomcat", &[Cut, Decode, Cut, Decode, Backslash, Merge]),
    ("Spring, removeSemicolonContent", &[Decode, Cut, Merge]),
    // http.sys (PercentUAllowed), ASP.NET: case does not count; allowDoubleEscaping.
    ("IIS", &[DecodeUnicode, Backslash, Merge, Fold]),
    ("IIS, allowDoubleEscaping", &[DecodeUnicode, Decode, Backslash, Merge, Fold]),
    ("C", &[Decode, EndAtNul, Merge]),
    ("C, twice", &[Decode, Decode, Merge, EndAtNul]),
];

fn does(step: Step, path: &[u8]) -> Vec<u8> {
    match step {
        Decode | DecodeUnicode => decode(path, matches!(step, DecodeUnicode)),
        Cut => {
            let segments = path.split(|byte| *byte == b'/');
            let cut = segments.map(|segment| segment.split(|byte| *byte == b';').next().unwrap());
            cut.collect::<Vec<_>>().join(&b'/')
        }
        Backslash => path.iter().map(|byte| if *byte == b'\\' { b'/' } else { *byte }).collect(),
        Merge => {
            let mut merged: Vec<u8> = Vec::new();
            for byte in path {
                if !(*byte == b'/' && merged.last() == Some(&b'/')) {
                    merged.push(*byte);
                }
            }
            merged
        }
        Trim => {
            let inner = String::from_utf8_lossy(path).trim_matches('/').to_owned();
            format!("/{inner}").into_bytes()
        }
        Fold => path.to_ascii_lowercase(),
        EndAtNul => path.split(|byte| *byte == 0).next().unwrap().to_vec(),
        EndAtQuery => path.split(|byte| matches!(byte, b'?' | b'#')).next().unwrap().to_vec(),
    }
}

fn decode(path: &[u8], unicode: bool) -> Vec<u8> {
    let hex = |digits: &[u8]| {
        let all = digits.iter().all(u8::is_ascii_hexdigit);
        all.then(|| u32::from_str_radix(std::str::from_utf8(digits).unwrap(), 16).unwrap())
    };
    let (mut out, mut at) = (Vec::new(), 0);
    while at < path.len() {
        let escaped = path.get(at + 1..at + 3).filter(|_| path[at] == b'%').and_then(hex);
        let wide = path.get(at + 2..at + 6).filter(|_| unicode && path[at..].starts_with(b"%u")).and_then(hex);
        let (byte, length) = match (escaped, wide) {
            (Some(byte), _) => (u8::try_from(byte).unwrap(), 3),
            (_, Some(wide)) => (u8::try_from(wide).unwrap_or(b'\xff'), 6),
            _ => (path[at], 1),
        };
        out.push(byte);
        at += length;
    }
    out
}

fn is_below(path: &[u8], prefix: &str) -> bool {
    path.strip_prefix(prefix.as_bytes()).is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
}

const PROTECTED: [&str; 4] = ["/admin", "/v1/login", "/v1/login/2fa", "/b"];

fn routing() -> Routing {
    let mut config = Config::with_defaults(
        "127.0.0.1:443".parse().unwrap(),
        "http://127.0.0.1:80".parse().unwrap(),
        "cert".into(),
        "key".into(),
    );
    let route = |path_prefix: &str| RouteConfig {
        path_prefix: path_prefix.into(),
        // Shows the route. It is a port because no host has such a name.
        rewrite_host: Some(format!("r{}", path_prefix.replace('/', "-"))),
        ..RouteConfig::catch_all(Config::ORIGIN_NAME)
    };
    config.routes = std::iter::once("/").chain(PROTECTED).map(route).collect();
    Routing::new(&config)
}

/// The route that litequic sends `path` by, if it does.
fn taken(routing: &Routing, path: &str) -> Option<String> {
    exchange::check_path(&Method::GET, path.as_bytes()).ok()?;
    let mut head = Head::new(Method::GET, Authority::new("localhost"), path, Fields::new());
    let client = Client {
        address: "192.0.2.7:1".parse().unwrap(),
        local: "192.0.2.1:443".parse().unwrap(),
        protocol: Protocol::Http3,
        server_name: None,
        forwarded: LastForwarded::default(),
        identity: TlsIdentity::default(),
        connection: 0,
    };
    convert_request_head(routing, &mut head, &client).ok()?;
    assert_eq!(head.target(), path, "what the origin gets");
    Some(String::from_utf8(head.fields.get(name::HOST).unwrap().to_vec()).unwrap())
}

fn check(routing: &Routing, path: &str) {
    let Some(route) = taken(routing, path) else { return };
    for (name, steps) in ORIGINS {
        let served = steps.iter().fold(path.as_bytes().to_vec(), |path, step| does(*step, &path));
        // The longest that it is below: its route, or one before that.
        let protected = PROTECTED.iter().filter(|prefix| is_below(&served, prefix)).max_by_key(|prefix| prefix.len());
        if let Some(prefix) = protected {
            let by = format!("r{}", prefix.replace('/', "-"));
            assert!(route.starts_with(&by), "{path}: {name} serves {prefix}, and it came by {route}");
        }
    }
}

#[test]
fn litequic_is_no_stricter_than_it_has_to_be() {
    let routing = routing();
    for (path, expected) in [
        ("/", Some("r-")),
        ("/admin", Some("r-admin")),
        ("/admin/%2f;x//Y", Some("r-admin")),
        ("/administrator", Some("r-")),
        ("/v1/log%20in", Some("r-")),
        ("/files/a%2fb%20c;d//e", Some("r-")),
        ("/v1/login", Some("r-v1-login")),
        ("/v1/login/2fa/x", Some("r-v1-login-2fa")),
        ("/v1/login/2f%61", None),
        ("/%61dmin", None),
        ("/Admin", None),
    ] {
        assert_eq!(taken(&routing, path).as_deref(), expected, "{path}");
    }
}

/// Every way to write each of a protected path's characters and to separate its segments, two at a time.
#[test]
fn no_pair_of_path_changes_bypasses_a_protected_route() {
    const BETWEEN: [&str; 16] = [
        "/",
        "//",
        "/;/",
        ";a/",
        "/;a=b/",
        "%2f",
        "%2F/",
        "%252f",
        "%5c",
        "%255C",
        ";a%2fb/",
        ";a%2f",
        "%3ba/",
        "%253ba%2f",
        "%u002f",
        "%u005c",
    ];
    const BEHIND: [&str; 16] = [
        "", "/", "//", ";", ";a=b", ";/x", "%2f", "%2fx", "%252f", "%5c", "%3b", "%253bx", "%00", "%2500x", "%3fx",
        "%2523",
    ];
    let routing = routing();
    let mut number = 0;
    for prefix in PROTECTED {
        let last = prefix.rsplit('/').next().unwrap();
        let (first, rest) = last.split_at(1);
        let byte = first.as_bytes()[0];
        let spelled = [
            first.to_owned(),
            first.to_ascii_uppercase(),
            format!("%{byte:02x}"),
            format!("%{byte:02X}"),
            format!("%25{byte:02x}"),
            format!("%%32%35{byte:02x}"),
            format!("%u00{byte:02x}"),
        ];
        let parents: Vec<&str> = prefix.split('/').skip(1).take(prefix.matches('/').count() - 1).collect();
        for (before, between) in BETWEEN.iter().flat_map(|before| BETWEEN.map(|between| (before, between))) {
            for (first, behind) in spelled.iter().flat_map(|first| BEHIND.map(|behind| (first, behind))) {
                let parents: String = parents.iter().map(|parent| format!("{parent}{between}")).collect();
                let slash = if before.starts_with('/') { "" } else { "/" };
                check(&routing, &format!("{slash}{before}{parents}{first}{rest}{behind}"));
                number += 1;
            }
        }
    }
    assert!(number > 100_000, "{number}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 5_000, ..ProptestConfig::default() })]

    #[test]
    fn no_origin_serves_a_protected_path_by_a_laxer_route(pieces in prop::collection::vec(
        prop::sample::select(vec![
            "/", "/", "/", "admin", "v1", "login", "2fa", "b", "B", "ADMIN", ";", ";x", "%2f", "%2F", "%252f", "%5c",
            "%255c", "%3b", "%253b", "%61", "%2561", "%62", "%2562", "%25", "%", "62", "%00", "%3f", "%2523", "%u0062", "x", ".",
            "%u002f",
        ]),
        0..16,
    )) {
        check(&routing(), &format!("/{}", pieces.concat()));
    }
}
