//! The configuration as an operator meets it: example files, every message, the schema, the reference.

use crate::support::prelude::*;
use litequic::cli::check;
use litequic_config::{
    self as config, AckFrequency, Balance, ClientCertificates, Congestion, Io, Limits, Listen, LiteQuic, PathReading,
    RateLimit, RateLimitBy, RouteTarget, Sticky, ValuePattern, VerifyMode,
};
use proptest::prelude::*;
use serde_json::Value as Json;
use std::collections::BTreeMap;

const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/config");
const EXAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/config");

fn toml_files(directory: impl AsRef<Path>) -> Vec<PathBuf> {
    let entries = fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = entries.filter(|path| path.extension().is_some_and(|ext| ext == "toml")).collect();
    files.sort();
    assert!(!files.is_empty(), "{}", directory.as_ref().display());
    files
}

fn environment(name: &str) -> Option<String> {
    let value = match name {
        "PORT" => "8443",
        "TLS" => "/tls",
        "SCHEME" => "gopher",
        _ => return None,
    };
    Some(value.into())
}

fn parse(text: &str) -> Result<Config, config::ConfigFaults> {
    config::parse_config(text, Path::new("litequic.toml"), environment)
}

/// The configuration of a fixture that is accepted, as of a file in /etc.
fn fixture(name: &str) -> Config {
    let text = fs::read_to_string(Path::new(FIXTURES).join(name)).unwrap();
    config::parse_config(&text, Path::new("/etc/litequic.toml"), environment).unwrap()
}

/// With `LITEQUIC_BLESS=1` in the environment the messages are written instead of compared.
#[test]
fn every_invalid_file_gets_its_exact_message() {
    let bless = env::var_os("LITEQUIC_BLESS").is_some();
    for path in toml_files(Path::new(FIXTURES).join("invalid")) {
        let name = Path::new(path.file_name().unwrap());
        let faults = config::parse_config(&fs::read_to_string(&path).unwrap(), name, environment).unwrap_err();
        let message = format!("{faults}\n");
        if bless {
            fs::write(path.with_extension("txt"), &message).unwrap();
        }
        let expected = fs::read_to_string(path.with_extension("txt")).unwrap();
        assert_eq!(message, expected, "{}", path.display());
    }
}

#[test]
fn a_file_with_five_faults_names_five() {
    let path = Path::new(FIXTURES).join("invalid/five-faults.toml");
    let faults = config::load_config(&path).unwrap_err();
    let keys: Vec<_> = faults.0.iter().map(|fault| (fault.line.unwrap(), fault.key.as_str())).collect();
    assert_eq!(
        keys,
        [
            (2, "listen.udp"),
            (3, "listen.wokers"),
            (13, "limits.max_header_bytes"),
            (14, "limits.max_headers"),
            (17, "timeouts.idle")
        ]
    );
    assert!(faults.to_string().ends_with("\n5 faults"));
}

#[test]
fn every_example_is_valid() {
    for path in toml_files(EXAMPLES) {
        config::load_config(&path).unwrap_or_else(|faults| panic!("{faults}"));
    }
}

#[test]
fn check_says_what_a_file_holds() {
    for (file, summary) in [
        ("config/edge.toml", "config/edge.toml: ok (3 routes, 3 origins, 2 certificates)"),
        ("config/website.toml", "config/website.toml: ok (4 routes, 2 origins, 1 certificate)"),
        ("config/sidecar.toml", "config/sidecar.toml: ok (1 route, 1 origin, 1 certificate)"),
        ("config/servers.toml", "config/servers.toml: ok (1 route, 1 origin, 1 certificate)"),
    ] {
        // Tests run in the package's directory.
        assert_eq!(check::config_summary(Path::new(file), &config::load_config(Path::new(file)).unwrap()), summary);
    }
}

#[test]
fn check_names_an_origin_that_no_route_leads_to() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("litequic.toml");
    let text = fs::read_to_string("config/edge.toml").unwrap().replace("origin = \"packager\"", "origin = \"uploads\"");
    fs::write(&path, text).unwrap();
    assert!(check::config_summary(&path, &config::load_config(&path).unwrap()).ends_with("; no route uses packager"));
}

#[test]
fn check_names_no_origin_that_a_route_asks() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("litequic.toml");
    let text = fs::read_to_string("config/sidecar.toml").unwrap();
    let auth = "[origins.sign-in]\nurl = \"http://127.0.0.1:2\"\n[[routes]]\norigin = \"origin\"\n\
                auth = { origin = \"sign-in\", path = \"/\" }\n";
    fs::write(&path, format!("{text}\n{auth}")).unwrap();
    let summary = check::config_summary(&path, &config::load_config(&path).unwrap());
    assert!(summary.ends_with("(1 route, 2 origins, 1 certificate)"), "{summary}");
}

#[test]
fn the_full_example_is_the_defaults() {
    let certificate = |file| Path::new(EXAMPLES).join("tls").join(file);
    let origin = "http://127.0.0.1:8080".parse().unwrap();
    let defaults =
        Config::with_defaults(Listen::DEFAULT_ADDRESS, origin, certificate("tls.crt"), certificate("tls.key"));
    assert_eq!(config::load_config(&Path::new(EXAMPLES).join("full.toml")).unwrap(), defaults);
    let sidecar = config::load_config(&Path::new(EXAMPLES).join("sidecar.toml")).unwrap();
    assert_eq!(Config { admin: defaults.admin.clone(), ..sidecar }, defaults);
}

/// Renewed with the environment variable `LITEQUIC_RENEW` set.
#[test]
fn the_full_example_has_every_key_that_has_a_default() {
    let path = Path::new(EXAMPLES).join("full.toml");
    let mut text = fs::read_to_string(&path).unwrap();
    let renews = env::var_os("LITEQUIC_RENEW").is_some();
    for (key, property) in keys() {
        let shown_elsewhere =
            ["acme[]", "routes[]", "origins.NAME", "origin.health.", "origin.tls.", "listen.server_id."]
                .iter()
                .any(|elsewhere| key.starts_with(elsewhere));
        let Some(default) = property.get("default").filter(|_| !shown_elsewhere) else { continue };
        let table = toml::Value::Table(text.parse().unwrap());
        let found = key.split('.').try_fold(&table, |value, key| value.get(key)).is_some();
        if !found && renews {
            text = with_key(&text, &key, default);
            fs::write(&path, &text).unwrap();
            continue;
        }
        assert!(found, "{key}: LITEQUIC_RENEW=1 cargo test --test it the_full_example_has");
    }
}

/// `text` with `key` at the end of its section. JSON's strings, numbers and lists are TOML's.
fn with_key(text: &str, key: &str, default: &Json) -> String {
    let (section, name) = key.rsplit_once('.').unwrap();
    let begin = text.find(&format!("[{section}]\n")).expect("a section of the example");
    let end = text[begin..].find("\n\n").map_or(text.len(), |end| begin + end + 1);
    format!("{}{name} = {default}\n{}", &text[..end], &text[end..])
}

#[test]
fn an_authority_makes_certificates_required_where_no_route_says_otherwise() {
    let config = fixture("valid/client-certificates.toml");
    let expected = ClientCertificates {
        ca: Some("/etc/ca.crt".into()),
        crl: Some("/tls/ca.crl".into()),
        verify: VerifyMode::Required,
    };
    assert_eq!(config.client_certificates, expected);
    let said: Vec<_> = config.routes.iter().map(|route| route.client_certificate).collect();
    assert_eq!(said, [Some(VerifyMode::None), Some(VerifyMode::Optional), None]);
}

#[test]
fn what_the_examples_do_not_show_is_read_as_well() {
    let config = fixture("valid/everything-else.toml");
    assert_eq!(config.listen.udp, ["127.0.0.1:8443".parse().unwrap(), "[::1]:8444".parse().unwrap()]);
    assert_eq!(config.listen.workers, Some(2.try_into().unwrap()));
    assert_eq!(config.certificates[0].cert, Path::new("/tls/tls.crt"));
    assert_eq!(config.certificates[0].key, Path::new("/etc/tls.key"));
    let route = RouteConfig {
        host: Some("example.com".into()),
        rewrite_host: Some("origin:8080".into()),
        max_body_bytes: Some(u64::MAX),
        upgrade: vec!["chat/2".into()],
        ..RouteConfig::catch_all("socket")
    };
    assert_eq!(config.routes, [route]);
    assert_eq!(config.origins["socket"].servers[0].to_string(), "unix:/etc/app.sock");
    assert_eq!(config.origins["socket"].idle_timeout.as_secs(), 1);
    let servers = &config.origins["servers"];
    assert_eq!(servers.servers.len(), 2);
    assert_eq!((servers.balance, servers.eject_after, servers.retry_share), (Balance::LeastRequests, None, None));
    let health = servers.health.as_ref().unwrap();
    assert_eq!((health.path.as_str(), health.host.as_deref()), ("/health?deep=1", Some("app.test")));
    assert!(
        health.accepts_status(200)
            && health.accepts_status(404)
            && !health.accepts_status(300)
            && !health.accepts_status(500)
    );
    assert_eq!(config.origins["unused"].servers[0].to_string(), "http://[::1]:80");
    assert_eq!(config.limits.max_body_bytes, Some(1000));
    assert_eq!(config.limits.worker_send_buffer, 3 << 29);
    assert_eq!(config.timeouts.drain_grace.as_secs(), 90);
    let ack_frequency = AckFrequency::Fixed(10);
    let congestion = Congestion::Bbr;
    let litequic = LiteQuic {
        io: Io::IoUring,
        receive_batch: 64,
        gso: false,
        gro: false,
        ack_merge: false,
        receive_moderation: false,
        ack_frequency,
        congestion,
        initial_window: 40,
        max_mtu: 1440,
        priorities: false,
    };
    assert_eq!(servers.path_reading, PathReading::Raw);
    let Limits { min_rate, retry_handshakes, stream_send_buffer, .. } = config.limits;
    assert_eq!((min_rate, retry_handshakes, stream_send_buffer), (0, 250, 3 << 27));
    assert_eq!(config.litequic, litequic);
    assert_eq!(config.trusted_proxies[0].prefix, 32);
}

#[test]
fn an_ipv4_mapped_network_is_an_ipv4_network_in_every_key() {
    let text = |network: &str| {
        format!(
            "trusted_proxies = \"{network}\"\nlisten.proxy_protocol_from = \"{network}\"\n\
             limits.source_exempt = \"{network}\"\nroutes = [{{ respond = {{}}, deny = \"{network}\", \
             allow = [\"{network}\"] }}]\ncertificates = [{{ cert = \"c\", key = \"k\" }}]\n"
        )
    };
    let config = parse(&text("::ffff:10.0.0.0/104")).unwrap_or_else(|faults| panic!("{faults}"));
    let network = Network { address: [10, 0, 0, 0].into(), prefix: 8 };
    let route = &config.routes[0];
    let allow = route.allow.as_ref().unwrap();
    for networks in
        [&config.trusted_proxies, &config.listen.proxy_protocol_from, &config.sources.exempt, &route.deny, allow]
    {
        assert_eq!(networks, &[network]);
    }
    // An address behind none of the two is a source; one of the network is none of its own.
    assert_eq!(config.source_of_client([10, 1, 2, 3].into()), None);
    assert!(config.source_of_client([11, 1, 2, 3].into()).is_some());
    // Not all of IPv4, and not addresses that no client has: a fault in each.
    let faults = parse(&text("::ffff:0:0/90")).unwrap_err().to_string();
    let expected = "\"::ffff:0:0/90\": has IPv4-mapped addresses, whose prefix is at least 96 bits";
    assert_eq!(faults.matches(expected).count(), 5, "{faults}");
    assert!(faults.contains("0.0.0.0/0"), "{faults}");
}

#[test]
fn the_laboratory_sets_constants_beside_the_schema() {
    let base = "[[certificates]]\ncert = 'c'\nkey = 'k'\n[origin]\nurl = 'http://a'\n[origins.b]\nurl = 'http://b'\n";
    let config = parse(&format!(
        "{base}[laboratory]\nmax_control_frames = 1\nmax_small_frames = 2\nmax_resets = 3\nrate_grace = '4s'\n\
         source_ipv4_prefix = 24\nrequest_buffer = 0\n"
    ))
    .unwrap();
    let Limits { max_control_frames, max_small_frames, max_resets, rate_grace, .. } = config.limits;
    assert_eq!((max_control_frames, max_small_frames, max_resets, rate_grace.as_secs()), (1, 2, 3, 4));
    assert_eq!(config.sources.ipv4_prefix, 24);
    assert!(config.origins.values().all(|origin| origin.request_buffer == 0));
    assert!(config::json_schema()["properties"].get("laboratory").is_none());
    // Shown where it is set alone.
    let shown =
        |config: &Config| config.keys_and_values().iter().filter(|(key, _)| key.starts_with("laboratory.")).count();
    let without = parse(base).unwrap();
    assert_eq!((shown(&config), shown(&without)), (9, 0));
    let changes: Vec<String> = without.changes_to(&config).iter().map(ToString::to_string).collect();
    assert!(changes.contains(&"laboratory.max_resets: default → 3".into()) && changes.len() == 6, "{changes:?}");

    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("litequic.toml");
    fs::write(&path, format!("{base}[laboratory]\nmax_resets = 3\n")).unwrap();
    let config::ParsedConfig { config, faults: findings } = config::ParsedConfig::load_file(&path);
    let (_, warnings) = findings.into_result(config).unwrap();
    let [config::ConfigWarning(warning)] = warnings.as_slice() else { panic!("{warnings:?}") };
    assert_eq!((warning.line, warning.key.as_str()), (Some(8), "laboratory"));
    assert!(warning.problem.contains("is for experiments"), "{warning}");
}

#[test]
fn what_routes_say_beside_their_origins_is_read() {
    let config = fixture("valid/rules.toml");
    assert_eq!(config.listen.proxy_protocol_from.len(), 1);
    let pages: Vec<_> =
        config.error_pages.iter().map(|(errors, path)| format!("{errors} {}", path.display())).collect();
    assert_eq!(pages, ["404 /etc/pages/404.html", "5xx /pages/5xx.json"]);
    // `[origin]` adds none: the second takes every request.
    let [first, second] = config.routes.as_slice() else { panic!("{:?}", config.routes) };
    assert_eq!((first.target_origin(), first.rewrite_prefix.as_deref()), (Some("origin"), Some("/")));
    assert_eq!(first.request_headers.remove, ["accept-encoding"]);
    let (name, value) = &first.request_headers.set[0];
    assert_eq!((name.as_str(), value.to_string().as_str()), ("x-real-ip", "{client}"));
    assert_eq!(first.response_headers.add[0].1.to_string(), "<https://{host}/>; rel=canonical");
    let seconds = |seconds| Some(Duration::from_secs(seconds));
    let timeouts = (first.timeouts.request, first.timeouts.response_header, first.timeouts.response_body);
    assert_eq!(timeouts, (Some(None), seconds(5), seconds(6)));
    let limit =
        |requests, seconds, burst, by| Some(RateLimit { requests, per: Duration::from_secs(seconds), burst, by });
    assert_eq!(first.rate_limit, limit(10, 1, 10, RateLimitBy::Address));
    assert_eq!(first.error_pages.values().next().unwrap(), Path::new("/etc/own.txt"));
    assert!(first.intercept_errors && !second.intercept_errors);
    let RouteTarget::Redirect(redirect) = &second.target else { panic!("{:?}", second.target) };
    assert_eq!((redirect.to.to_string().as_str(), redirect.status.as_u16()), ("https://www.{host}{path}", 307));
    assert_eq!(second.rate_limit, limit(10, 60, 20, RateLimitBy::Route));
}

#[test]
fn what_routes_match_and_answer_is_read() {
    let config = fixture("valid/matching.toml");
    let names = RouteConfig::unique_route_names(&config.routes);
    // The last is that of `[origin]`.
    let expected = [
        "robots",
        "*/robots.txt",
        "*=/health[GET,HEAD]",
        "*/[M-SEARCH,x-canary,accept,?v,?a[b]]",
        "*=/association",
        "*=/nothing",
        "*/",
    ];
    let sorted = |name: &str| {
        let mut parts: Vec<_> = name.split(['[', ',', ']']).map(str::to_owned).collect();
        parts.sort();
        parts
    };
    let (found, expected): (Vec<_>, Vec<_>) =
        (names.iter().map(|name| sorted(name)).collect(), expected.iter().map(|name| sorted(name)).collect());
    assert_eq!(found, expected);
    let answers = config.routes.iter().map(|route| match &route.target {
        RouteTarget::Respond(respond) => respond.to_string(),
        _ => "none".into(),
    });
    let answers: Vec<String> = answers.collect();
    assert_eq!(
        answers,
        ["200 /etc/robots.txt", "none", "200 with 2 bytes", "none", "404 /etc/no.extension", "204", "none"]
    );
    let conditions = &config.routes[3].conditions;
    assert!(conditions.query.contains(&("a[b]".into(), ValuePattern::Equal(String::new()))));
    assert!(conditions.headers.contains(&(http::header::ACCEPT, ValuePattern::Prefix("*/".into()))));
    assert!(conditions.headers.iter().any(|(name, pattern)| name == "x-canary" && *pattern == ValuePattern::Present));
    assert_eq!((config.routes[0].path.as_deref(), config.routes[1].path.as_deref()), (Some("/robots.txt"), None));
}

#[test]
fn servers_have_weights_and_may_be_backups() {
    let config = fixture("valid/servers.toml");
    let servers = |origin: &str| config.origins[origin].servers.iter().map(ToString::to_string).collect::<Vec<_>>();
    let expected = ["http://10.0.0.5:8080 weight=3", "http://10.0.0.6:8080", "unix:/etc/app.sock backup"];
    assert_eq!(servers("origin"), expected);
    assert_eq!(servers("tables"), ["http://10.0.0.7:80", "http://10.0.0.8:80 weight=256"]);
    assert_eq!(servers("cookies"), ["http://gopher:8080"]);
    let sticky = |origin: &str| config.origins[origin].sticky.clone().unwrap();
    assert_eq!((sticky("origin"), sticky("cookies")), (Sticky::Cookie("shop_server".into()), Sticky::default()));
    assert_eq!(sticky("tables"), Sticky::Header("x-user".parse().unwrap()));
    assert_eq!(sticky("addresses"), Sticky::Address);
    let seconds = config.origins["origin"].slow_start.map(|time| time.as_secs());
    assert_eq!((seconds, config.origins["tables"].slow_start), (Some(30), None));
}

#[test]
fn origin_serves_what_no_route_takes() {
    let base = "[[certificates]]\ncert = 'c'\nkey = 'k'\n[origin]\nurl = 'http://a'\n[origins.b]\nurl = 'http://b'\n";
    for (route, origins) in [
        ("", &["origin"][..]),
        ("[[routes]]\npath_prefix = '/b'\norigin = 'b'", &["b", "origin"]),
        ("[[routes]]\nhost = 'b'\norigin = 'b'", &["b", "origin"]),
        ("[[routes]]\norigin = 'b'", &["b"]),
        ("[[routes]]\norigin = 'origin'\nmax_body_bytes = 5", &["origin"]),
    ] {
        let config = parse(&format!("{base}{route}")).unwrap();
        let found: Vec<_> = config.routes.iter().map(|route| route.target_origin().unwrap()).collect();
        assert_eq!(found, origins, "{route}");
    }
}

#[test]
fn without_litequics_own_batches_clients_are_asked_for_a_number_or_nothing() {
    let base = "[[certificates]]\ncert = 'c'\nkey = 'k'\n[origin]\nurl = 'http://a'\n[litequic]\n";
    for (keys, expected) in [
        ("", AckFrequency::Adaptive),
        ("ack_frequency = 'off'", AckFrequency::Off),
        ("io = 's2n-quic'", AckFrequency::Off),
        ("io = 's2n-quic'\nack_frequency = 32", AckFrequency::Fixed(32)),
    ] {
        assert_eq!(parse(&format!("{base}{keys}")).unwrap().litequic.ack_frequency, expected, "{keys}");
    }
}

#[test]
fn a_file_that_cannot_be_read_is_a_fault() {
    let directory = tempfile::tempdir().unwrap();
    let large = directory.path().join("large.toml");
    fs::write(&large, "#".repeat((1 << 20) + 1)).unwrap();
    let binary = directory.path().join("binary.toml");
    fs::write(&binary, b"a = \"\xff\"").unwrap();
    for (path, problem) in [
        (directory.path().join("absent.toml"), "cannot be read: No such file or directory (os error 2)"),
        (directory.path().into(), "cannot be read: Is a directory (os error 21)"),
        (large, "is larger than 1 MiB"),
        (binary, "is not UTF-8"),
    ] {
        let message = config::load_config(&path).unwrap_err().to_string();
        assert_eq!(message, format!("{}: {problem}; expected a file of TOML\n1 fault", path.display()));
    }
}

#[test]
fn deep_nesting_is_refused_and_not_followed() {
    for text in [
        format!("a = {}", "[".repeat(100_000)),
        format!("a = {}", "{b=".repeat(100_000)),
        format!("{}x = 1", "a.".repeat(50_000)),
    ] {
        parse(&text).unwrap_err();
    }
}

/// Every key of the schema that holds a value, by its path.
fn keys() -> BTreeMap<String, Json> {
    fn collect(path: &str, schema: &Json, keys: &mut BTreeMap<String, Json>) {
        if let Some(properties) = schema["properties"].as_object() {
            for (key, inner) in properties {
                let key = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                collect(&key, inner, keys);
            }
        } else if schema["items"].is_object() {
            collect(&format!("{path}[]"), &schema["items"], keys);
        } else if schema["additionalProperties"].is_object() {
            collect(&format!("{path}.NAME"), &schema["additionalProperties"], keys);
        } else {
            keys.insert(path.into(), schema.clone());
        }
    }
    let mut keys = BTreeMap::new();
    collect("", &config::json_schema(), &mut keys);
    keys
}

#[test]
fn the_schema_knows_every_key_with_its_description() {
    let keys = keys();
    assert_eq!(keys["limits.max_header_bytes"]["default"], "32 KiB");
    assert_eq!(keys["limits.max_header_bytes"]["maximum"], 1 << 20);
    assert_eq!(keys["log.level"]["enum"][1], "warn");
    for key in ["certificates[].cert", "routes[].origin", "origins.NAME.url", "origin.health.path", "trusted_proxies"] {
        assert!(keys.contains_key(key), "{key}");
    }
    for (key, property) in keys {
        assert!(property["description"].as_str().is_some_and(|text| text.ends_with('.')), "{key}");
    }
}

#[test]
fn the_schema_takes_every_example() {
    fn check(at: &str, value: &Json, schema: &Json) {
        if let Some(table) = value.as_object() {
            for required in schema["required"].as_array().into_iter().flatten() {
                assert!(table.contains_key(required.as_str().unwrap()), "{at}: {required}");
            }
            for (key, value) in table {
                let inner = schema["properties"].get(key).unwrap_or(&schema["additionalProperties"]);
                assert!(inner.is_object(), "{at}.{key}");
                check(&format!("{at}.{key}"), value, inner);
            }
        } else if let (Some(array), true) = (value.as_array(), schema["items"].is_object()) {
            array.iter().for_each(|value| check(at, value, &schema["items"]));
        } else {
            let kinds = schema["anyOf"].as_array().map_or_else(|| std::slice::from_ref(schema), Vec::as_slice);
            let kind = match value {
                Json::String(_) => "string",
                Json::Number(_) => "integer",
                Json::Bool(_) => "boolean",
                _ => "array",
            };
            let fits = |schema: &Json| {
                schema["const"] == *value
                    || schema["type"] == kind
                    || schema["type"].as_array().is_some_and(|types| types.iter().any(|one| one == kind))
            };
            assert!(kinds.iter().any(fits), "{at}: {value} is not {schema}");
        }
    }
    for path in toml_files(EXAMPLES).into_iter().chain(toml_files(Path::new(FIXTURES).join("valid"))) {
        let table: toml::Table = fs::read_to_string(&path).unwrap().parse().unwrap();
        check(&path.display().to_string(), &serde_json::to_value(table).unwrap(), &config::json_schema());
    }
}

proptest! {
    #[test]
    fn no_text_makes_the_parser_panic(text in any::<String>()) {
        let _ = parse(&text);
    }

    #[test]
    fn no_change_of_a_file_makes_the_parser_panic(
        file in prop::sample::select(toml_files(EXAMPLES).into_iter().chain(toml_files(Path::new(FIXTURES).join("invalid"))).collect::<Vec<_>>()),
        cuts in prop::collection::vec((any::<prop::sample::Index>(), 0..12_usize, "[\\[\\]{}=.\"'$#,\n 0-9a-z_é-]{0,6}"), 1..6),
    ) {
        let mut text: Vec<char> = fs::read_to_string(file).unwrap().chars().collect();
        for (index, length, insert) in cuts {
            let start = index.index(text.len() + 1);
            let end = (start + length).min(text.len());
            text.splice(start..end, insert.chars());
        }
        if let Err(faults) = parse(&text.into_iter().collect::<String>()) {
            prop_assert!(!faults.0.is_empty());
            prop_assert!(faults.0.iter().all(|fault| !fault.to_string().contains('\n')));
        }
    }
}
