use super::*;
use crate::{
    AccessField, AccessLog, AckFrequency, Admin, AmbiguousFields, Congestion, ErrorStatuses, Fraction, HealthCheck, Io,
    Listen, LiteQuic, LogConfig, LogFormat, LogSeverity, LogTarget, OriginAddress, OriginConfig, OriginServer,
    PathReading, RateLimit, RateLimitBy, Redirect, ReservedFields, RouteConfig, RouteTarget, Sticky, Template,
    TlsVersion, VerifyMode, reading::changes::shorten_list,
};
use litequic_base::network::Network;
use std::time::Duration;

fn config() -> Config {
    let mut config = Config::with_defaults(
        Listen::DEFAULT_ADDRESS,
        "http://127.0.0.1:8080".parse().unwrap(),
        "tls/tls.crt".into(),
        "tls/tls.key".into(),
    );
    config.origins.insert("packager".into(), OriginConfig::new("unix:/run/a.sock".parse().unwrap()));
    config
}

fn said(old: &Config, new: &Config) -> Vec<String> {
    old.changes_to(new).iter().map(ToString::to_string).collect()
}

fn server(url: &str) -> OriginServer {
    url.parse::<OriginAddress>().unwrap().into()
}

fn health() -> HealthCheck {
    HealthCheck { path: "/health".into(), ..HealthCheck::default() }
}

/// Returns the reload's changes when the names of routes change from `was` to `is`.
fn routes_changed(was: &[&str], is: &[&str]) -> Vec<String> {
    let with = |hosts: &[&str]| {
        let route =
            |host: &&str| RouteConfig { host: Some((*host).into()), ..RouteConfig::catch_all(Config::ORIGIN_NAME) };
        Config { routes: hosts.iter().map(route).collect(), ..config() }
    };
    with(was).changes_to(&with(is)).iter().map(ToString::to_string).collect()
}

#[test]
fn routes_that_come_and_go_are_named() {
    for (was, is, expected) in [
        (&["a.test"][..], &["a.test", "b.test"][..], &["routes: + b.test/"][..]),
        (&["a.test", "b.test"], &["b.test"], &["routes: - a.test/"]),
        (&["a.test", "b.test"], &["b.test", "c.test"], &["routes: + c.test/, - a.test/"]),
        (&["a.test", "b.test"], &["b.test", "a.test"], &["routes: another order"]),
        (&["a.test"], &["b.test"], &["routes[0].host: a.test → b.test"]),
        (
            &[],
            &["a.test", "b.test", "c.test", "d.test", "e.test"],
            &["routes: + a.test/, + b.test/, + c.test/, + d.test/, and 1 more"],
        ),
        (&["a.test"], &["a.test"], &[]),
    ] {
        assert_eq!(routes_changed(was, is), expected, "{was:?} {is:?}");
    }
}

#[test]
fn of_checks_that_stay_their_keys_are_compared() {
    let (mut old, mut new) = (config(), config());
    for (config, interval) in [(&mut old, Duration::from_secs(5)), (&mut new, Duration::from_secs(1))] {
        let origin = config.origins.get_mut("packager").unwrap();
        origin.health = Some(HealthCheck { interval, ..health() });
    }
    assert_eq!(said(&old, &new), ["origins.packager.health.interval: 5s → 1s"]);
}

#[test]
fn equal_values_are_not_listed() {
    assert_eq!(config().changes_to(&config()), []);
}

#[test]
fn every_change_is_listed_with_its_key() {
    type Edit = fn(&mut Config);
    let table: &[(Edit, &[&str])] = &[
        (
            |config| config.listen.udp.push(([127, 0, 0, 1], 1).into()),
            &["listen.udp: [::]:8443 → [::]:8443, 127.0.0.1:1 (needs a restart)"],
        ),
        (|config| config.listen.workers = Some(2.try_into().unwrap()), &["listen.workers: auto → 2 (needs a restart)"]),
        (
            |config| config.listen.secret_file = Some("secret".into()),
            &["listen.secret_file: none → secret (needs a restart)"],
        ),
        (
            |config| config.listen.replica = Some("edge-1".into()),
            &["listen.replica: the host's name → edge-1 (needs a restart)"],
        ),
        (|config| config.listen.tls_min = TlsVersion::Tls12, &["listen.tls_min: 1.3 → 1.2"]),
        (|config| config.listen.migration = false, &["listen.migration: true → false"]),
        (
            |config| config.trusted_proxies.push(Network { address: [10, 0, 0, 0].into(), prefix: 8 }),
            &["trusted_proxies: none → 10.0.0.0/8"],
        ),
        (|config| config.certificates[0].key = "b.key".into(), &["certificates[0].key: tls/tls.key → b.key"]),
        (|config| config.certificates.push(config.certificates[0].clone()), &["certificates: + tls/tls.crt"]),
        (
            |config| {
                config.origins.get_mut("packager").unwrap().servers = vec![server("http://b")];
                config.origins.get_mut("origin").unwrap().idle_timeout = Duration::from_secs(5);
            },
            &["origin.idle_timeout: 1m → 5s", "origins.packager.url: unix:/run/a.sock → http://b:80"],
        ),
        (
            |config| {
                config.origins.remove("packager");
                config.origins.insert("video".into(), OriginConfig::new("http://video:81".parse().unwrap()));
            },
            &["origins.packager: removed", "origins.video: added, http://video:81"],
        ),
        (
            |config| {
                let origin = config.origins.get_mut("origin").unwrap();
                origin.servers.push(OriginServer { weight: 3, backup: true, ..server("http://b") });
                origin.slow_start = Some(Duration::from_secs(30));
                origin.sticky = Some(Sticky::default());
                origin.eject_after = None;
                origin.path_reading = PathReading::Raw;
                origin.health = Some(health());
                origin.ambiguous_fields = AmbiguousFields::Reject;
                let items = ["client", "!cf-connecting-ip"];
                origin.reserved_fields = ReservedFields::new(items.map(|item| item.parse().unwrap()).into());
            },
            &[
                "origin.url: http://127.0.0.1:8080 → http://127.0.0.1:8080, http://b:80 weight=3 backup",
                "origin.slow_start: none → 30s",
                "origin.sticky: none → cookie:origin_server",
                "origin.eject_after: 5 → none",
                "origin.health: none → /health",
                "origin.path_reading: any → raw",
                "origin.ambiguous_fields: drop → reject",
                "origin.reserved_fields: client, url → client, !cf-connecting-ip",
            ],
        ),
        (|config| config.routes.push(RouteConfig::catch_all("packager")), &["routes: + */#2"]),
        (|config| config.routes[0].upgrade.clear(), &["routes[0].upgrade: websocket → none"]),
        (|config| config.limits.max_streams = 1, &["limits.max_streams: 128 → 1"]),
        (
            |config| {
                config.routes[0].target = RouteTarget::Origin("packager".into());
                config.routes[0].host = Some("a.test".into());
                config.routes[0].max_body_bytes = Some(1024);
                config.routes[0].client_certificate = Some(VerifyMode::Optional);
            },
            &[
                "routes[0].host: any → a.test",
                "routes[0].origin: origin → packager",
                "routes[0].max_body_bytes: limits.max_body_bytes → 1 KiB",
                "routes[0].client_certificate: client_certificates.verify → optional",
            ],
        ),
        (
            |config| {
                let network = Network { address: [10, 0, 0, 0].into(), prefix: 8 };
                config.listen.proxy_protocol_from.push(network);
                config.error_pages.insert(ErrorStatuses::Class(5), "5xx.html".into());
                let route = &mut config.routes[0];
                let to = Template::parse_variables("/login", &[]).unwrap();
                route.target = RouteTarget::Redirect(Redirect { to: to.clone(), status: Redirect::DEFAULT_STATUS });
                route.rewrite_prefix = Some("/".into());
                route.request_headers.set.push((http::header::AUTHORIZATION, to));
                route.response_headers.remove.push(http::header::SERVER);
                route.timeouts.request = Some(None);
                let per = Duration::from_secs(60);
                route.rate_limit = Some(RateLimit { requests: 5, per, burst: 9, by: RateLimitBy::Route });
                route.intercept_errors = true;
            },
            &[
                "listen.proxy_protocol_from: none → 10.0.0.0/8",
                "routes[0].origin: origin → none",
                "routes[0].redirect: none → 307 /login",
                "routes[0].rewrite_prefix: none → /",
                "routes[0].request_headers: none → set authorization",
                "routes[0].response_headers: none → remove server",
                "routes[0].timeouts.request: timeouts.request → none",
                "routes[0].rate_limit: none → 5/1m burst=9 by=route",
                "routes[0].intercept_errors: false → true",
                "error_pages: none → 5xx 5xx.html",
            ],
        ),
        (
            |config| {
                let clients = &mut config.client_certificates;
                (clients.ca, clients.verify) = (Some("ca.crt".into()), VerifyMode::Required);
            },
            &["client_certificates.ca: none → ca.crt", "client_certificates.verify: none → required"],
        ),
        (
            |config| {
                config.limits.max_headers = 7;
                config.limits.max_body_bytes = Some(5 << 20);
            },
            &["limits.max_headers: 99 → 7", "limits.max_body_bytes: none → 5 MiB"],
        ),
        (
            |config| {
                config.timeouts.idle = Duration::from_millis(1500);
                config.timeouts.request = Some(Duration::from_secs(60));
            },
            &["timeouts.idle: 30s → 1s 500ms", "timeouts.request: none → 1m"],
        ),
        (
            |config| {
                let ack_frequency = AckFrequency::Fixed(10);
                config.litequic = LiteQuic {
                    io: Io::S2nQuic,
                    receive_batch: 7,
                    gso: false,
                    gro: false,
                    ack_merge: false,
                    receive_moderation: false,
                    ack_frequency,
                    congestion: Congestion::Bbr,
                    initial_window: 40,
                    max_mtu: 1440,
                    priorities: false,
                };
            },
            &[
                "litequic.io: auto → s2n-quic (needs a restart)",
                "litequic.receive_batch: 128 → 7 (needs a restart)",
                "litequic.gso: true → false (needs a restart)",
                "litequic.gro: true → false (needs a restart)",
                "litequic.ack_merge: true → false (needs a restart)",
                "litequic.receive_moderation: true → false (needs a restart)",
                "litequic.ack_frequency: adaptive → 10 (needs a restart)",
                "litequic.congestion: cubic → bbr",
                "litequic.initial_window: 24 → 40",
                "litequic.max_mtu: 1500 → 1440",
                "litequic.priorities: true → false",
            ],
        ),
        (
            |config| {
                config.admin.listen = Some(([127, 0, 0, 1], 9443).into());
                config.admin.ready_needs_origin = true;
                config.admin.token_file = Some("token".into());
                config.admin.handover = Some("h.sock".into());
            },
            &[
                "admin.listen: none → 127.0.0.1:9443 (needs a restart)",
                "admin.ready_needs_origin: false → true",
                "admin.token_file: none → token (needs a restart)",
                "admin.handover: none → h.sock (needs a restart)",
            ],
        ),
        (
            |config| config.log = LogConfig { level: LogSeverity::Debug, format: LogFormat::Json },
            &["log.level: info → debug", "log.format: auto → json (needs a restart)"],
        ),
        (
            |config| {
                config.access_log = AccessLog {
                    path: Some(LogTarget::File("/var/log/a".into())),
                    fields: vec![AccessField::Time, AccessField::Status],
                    sample: Fraction(12_500),
                };
            },
            &[
                "access_log.path: none → /var/log/a",
                "access_log.fields: time, request_id, client, protocol, and 16 more → time, status",
                "access_log.sample: 1.0 → 0.0125",
            ],
        ),
    ];
    for (edit, expected) in table {
        let mut new = config();
        edit(&mut new);
        assert_eq!(said(&config(), &new), *expected);
    }
}

#[test]
fn a_change_that_needs_a_restart_is_listed_until_it_is_applied() {
    let mut new = config();
    new.listen.workers = Some(2.try_into().unwrap());
    new.listen.proxy_protocol_from.push(Network { address: [10, 0, 0, 0].into(), prefix: 8 });
    new.admin = Admin { probes: Some(([0, 0, 0, 0], 9444).into()), ready_needs_origin: true, ..Admin::default() };
    new.log = LogConfig { level: LogSeverity::Warn, format: LogFormat::Human };
    new.limits.max_streams = 1;
    new.litequic.gso = false;
    (new.litequic.congestion, new.litequic.initial_window) = (Congestion::Bbr, 40);
    let running = config().apply_reload(new.clone());
    assert_eq!(running.listen.proxy_protocol_from, new.listen.proxy_protocol_from);
    assert_eq!((running.litequic.congestion, running.litequic.initial_window), (Congestion::Bbr, 40));
    let left = running.changes_to(&new);
    assert!(left.iter().all(ConfigChange::waits_for_restart));
    let keys: Vec<&str> = left.iter().map(|change| change.key.as_str()).collect();
    assert_eq!(keys, ["listen.workers", "litequic.gso", "admin.probes", "log.format"]);
}

#[test]
fn a_long_list_is_cut() {
    assert_eq!(shorten_list(&join_or([1, 2, 3, 4, 5, 6].iter(), "none")), "1, 2, 3, 4, and 2 more");
    assert_eq!(shorten_list(&join_or([1, 2, 3, 4].iter(), "none")), "1, 2, 3, 4");
}

#[test]
fn the_version_is_that_of_the_keys_and_values() {
    let (mut other, version) = (config(), config().config_version());
    assert!(version.len() == 2 * VERSION_BYTES && version.bytes().all(|byte| byte.is_ascii_hexdigit()), "{version}");
    assert_eq!(other.config_version(), version);
    other.timeouts.send += Duration::from_millis(1);
    assert_ne!(other.config_version(), version);
}

#[test]
fn the_key_list_merges_general_header_rules_into_each_route() {
    let template = |text: &str| Template(vec![crate::TemplatePart::Text(text.into())]);
    let name = http::HeaderName::from_static;
    let mut config = config();
    config.response_headers.set = vec![(name("x-a"), template("1")), (name("x-b"), template("1"))];
    config.routes[0].response_headers.remove = vec![name("x-a")];
    let list: BTreeMap<_, _> = config.keys_and_values().into_iter().collect();
    assert_eq!(list["response_headers"], "set x-a, set x-b");
    assert_eq!(list["routes[0].response_headers"], "remove x-a, set x-b");
    let mut next = config.clone();
    next.response_headers.set.pop();
    let changes: Vec<_> = config.changes_to(&next).iter().map(ToString::to_string).collect();
    assert_eq!(changes, ["response_headers: set x-a, set x-b → set x-a"]);
}

#[test]
fn the_list_has_every_key_with_its_value() {
    let list: BTreeMap<_, _> = config().keys_and_values().into_iter().collect();
    for (key, value) in [
        ("listen.udp", "[::]:8443"),
        ("certificates[0].key", "tls/tls.key"),
        ("origins.packager.url", "unix:/run/a.sock"),
        ("routes[0].origin", "origin"),
        ("timeouts.request", "none"),
        ("access_log.sample", "1.0"),
    ] {
        assert_eq!(list[key], value, "{key}");
    }
    assert!(list.len() > 60 && list["access_log.fields"].ends_with(", end, error"));
}
