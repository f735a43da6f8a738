//! Tests that the schema's patterns agree with the parser: a pattern accepts every valid value, and rejects what the
//! parser rejects except for what a pattern cannot express, such as ranges.

use crate::access_log::log_target_kind;
use crate::acme::eab_kind;
use crate::match_conditions::pattern_kind;
use crate::origin::{grpc_service_kind, origin_server_kind, request_target_kind, status_range_kind};
use crate::rate_limit::rate_limit_kind;
use crate::reading::name_kinds::{
    address_kind, authority_kind, cookie_name_kind, exact_path_kind, field_name_kind, host_pattern_kind, method_kind,
    network_kind, path_prefix_kind, route_name_kind, upgrade_kind,
};
use crate::reading::rule_readers::{error_page_kind, field_value_kind};
use crate::reading::value_kinds::{RawValue, ValueKind, duration_kind, or_none, size_kind};
use crate::redirect::redirect_kind;
use crate::server_id::server_id_kind;
use proptest::{
    strategy::{Strategy, ValueTree},
    string::string_regex,
    test_runner::TestRunner,
};
use regex::Regex;
use serde_json::Value as Json;
use std::time::Duration;

/// Generated strings per kind.
const STRINGS_PER_KIND: usize = 500;

/// Result of the parser for a string.
type ParseResult = dyn Fn(&str) -> Result<(), String>;

/// A kind of value, reduced to its strings.
struct TextKind {
    name: &'static str,
    schema: Json,
    read: Box<ParseResult>,
    /// Errors of the parser that are permitted for strings that match the pattern.
    beyond: &'static [&'static str],
}

fn text_kind_of<T: 'static>(name: &'static str, kind: ValueKind<T>, beyond: &'static [&'static str]) -> TextKind {
    let ValueKind { schema, read, .. } = kind;
    let read = move |text: &str| read(RawValue::Text(text.into())).map(drop).map_err(|wrong| wrong.problem);
    TextKind { name, schema, read: Box::new(read), beyond }
}

fn all_text_kinds() -> Vec<TextKind> {
    const RANGE: &[&str] = &["too small", "too large"];
    let from_zero = || size_kind::<u64>(0..=u64::MAX);
    vec![
        text_kind_of("size", size_kind::<u64>(1..=1 << 40), RANGE),
        text_kind_of("size from 0", from_zero(), RANGE),
        text_kind_of("size or none", or_none(from_zero()), RANGE),
        text_kind_of("duration", duration_kind(Duration::from_nanos(1)..=Duration::from_secs(86_400)), RANGE),
        text_kind_of("duration from 0", duration_kind(Duration::ZERO..=Duration::MAX), RANGE),
        text_kind_of("address", address_kind(), &["not an address"]),
        text_kind_of(
            "origin",
            origin_server_kind(),
            &["not an IPv6 address", "not a port", "the name longer than 253", "the weight is not"],
        ),
        text_kind_of(
            "network",
            network_kind(),
            &["not a network", "the prefix is longer", "has bits beyond its prefix"],
        ),
        text_kind_of(
            "host",
            host_pattern_kind(),
            &["not an IPv6 address", "the name longer than 253", "end in a number", "ends in a number"],
        ),
        text_kind_of("authority", authority_kind(), &["not an IPv6 address", "not a port", "the name longer than 253"]),
        text_kind_of("prefix", path_prefix_kind(), &[]),
        text_kind_of("path", exact_path_kind(), &[]),
        text_kind_of("route name", route_name_kind(), &[]),
        text_kind_of("method", method_kind(), &["never reaches a route"]),
        text_kind_of("pattern", pattern_kind(), &[]),
        text_kind_of("upgrade", upgrade_kind(), &["would change the protocol between"]),
        text_kind_of("cookie name", cookie_name_kind(), &[]),
        text_kind_of("field name", field_name_kind(), &["requests have no Host field"]),
        text_kind_of("target", request_target_kind(), &["is not the path of a URL"]),
        text_kind_of("grpc service", grpc_service_kind(), &["has more than 127 bytes"]),
        text_kind_of("statuses", status_range_kind(), &["ends before it begins"]),
        text_kind_of("field value", field_value_kind(), &["is not a variable of this key"]),
        text_kind_of(
            "redirect",
            redirect_kind(),
            &[
                "is not a variable of this key",
                "{path} ",
                "{host} ",
                "not a host",
                "not a port",
                "not an IPv6 address",
                "an IPv6 address needs brackets",
                "has no host",
                "a host has no port",
                "empty",
                "needs a dot",
                "has no scheme",
            ],
        ),
        text_kind_of(
            "rate limit",
            rate_limit_kind(),
            &["too small", "too large", "unknown unit", "has no unit", "not a duration"],
        ),
        text_kind_of("page", error_page_kind(), &[]),
        text_kind_of("eab", eab_kind(), &[]),
        text_kind_of("server ID", server_id_kind(), &["has ", "neither an IPv4 address nor base64"]),
        text_kind_of("access target", log_target_kind(), &[]),
    ]
}

/// Returns a predicate for strings by the subset of JSON Schema that kinds use. Patterns are compiled once, because
/// compiling takes longer than matching.
fn acceptor(schema: &Json) -> Box<dyn Fn(&str) -> bool> {
    if let Some(any) = schema["anyOf"].as_array() {
        let any: Vec<_> = any.iter().map(acceptor).collect();
        return Box::new(move |text: &str| any.iter().any(|accepts| accepts(text)));
    }
    if let Some(constant) = schema.get("const").cloned() {
        return Box::new(move |text: &str| constant == text);
    }
    // Without a pattern every string matches.
    let pattern = |schema: &Json| schema["pattern"].as_str().map(|of| Regex::new(of).unwrap());
    let (wanted, unwanted) = (pattern(schema), schema.get("not").map(pattern));
    let (least, most) = (schema["minLength"].as_u64().unwrap_or(0), schema["maxLength"].as_u64().unwrap_or(u64::MAX));
    Box::new(move |text: &str| {
        let matches = |pattern: &Option<Regex>| pattern.as_ref().is_none_or(|pattern| pattern.is_match(text));
        let length = u64::try_from(text.chars().count()).unwrap();
        matches(&wanted) && (least..=most).contains(&length) && !unwanted.as_ref().is_some_and(matches)
    })
}

/// Strings from the examples and tests of all kinds, and near misses.
const SAMPLE_TEXTS: &[&str] = &[
    "",
    " ",
    "none",
    "0",
    "7",
    "0s",
    "0 B",
    "64 KiB",
    "64KiB",
    "64 kB",
    " 64 kb ",
    "1.5 MiB",
    "1. MB",
    ".5 GB",
    "1e3 B",
    "4 G",
    "8 Ki",
    "8 MB/s",
    "64 XB",
    "-1 KiB",
    "1_000",
    "30s",
    "500ms",
    "1m 30s",
    "1h30m",
    "1 day",
    "2 days",
    "1.5h",
    "1 0 s",
    "5µs",
    "1 eon",
    "30x",
    "30",
    "never",
    "-5s",
    "${NAME}",
    "a${NAME}",
    "[::]:8443",
    "127.0.0.1:9443",
    ":8443",
    "localhost:80",
    "::1",
    "[::1]",
    "[fe80::1%2]:80",
    "127.0.0.1:0",
    "127.0.0.1:08443",
    "http://a",
    "HTTP://A:80/",
    "http://[::1]:8080",
    "https://a",
    "http://a/b",
    "http://a:0",
    "http://a:+80",
    "http://user@a",
    "web:80",
    "unix:/run/a.sock",
    "unix:a.sock",
    "unix:///run/a b.sock",
    "unix://run/a.sock",
    "unix:",
    "http://a weight=3",
    "http://a backup weight=0",
    "http://a max_fails=3",
    "unix:/run/a b.sock backup",
    "10/s",
    "10/1m burst=20 by=route",
    "10r/s",
    "KEY-ID /etc/eab.key",
    "KEY-ID  my keys/eab.key ",
    "KEY-ID ",
    "192.0.2.1 rotation=0",
    "0x2a01  rotation=6 ",
    "KgE= rotation=7",
    "KgE= rotation=",
    "0x2a01 rotation=1 rotation=2",
    "0x2a01 ",
    "0x2a",
    "10.0.0.0/8",
    "fd00::/8",
    "::/0",
    "192.0.2.1",
    "10.0.0.0/33",
    "10.0.0.0/08",
    "10.0.0.0/",
    "10.1.2.3/8",
    "example.com",
    "*.example.com",
    "Example.COM.",
    "a..b",
    "*",
    "*.",
    "a.*.b",
    "a_b",
    "example.com:443",
    "a:b",
    "bücher.de",
    "/",
    "/live",
    "/live/",
    "//",
    "/a%20b/c",
    "/live/*",
    "/a?b",
    "/a#b",
    "/a/../b",
    "/.",
    "/..",
    "/.a",
    "/...",
    "/a/..b",
    "/..a/b",
    "/ü",
    "GET",
    "get",
    "M-SEARCH",
    "TRACE",
    "shop",
    "shop 1",
    "v2*",
    "*/*",
    "websocket",
    "WebSocket/1.0",
    "a/",
    "web socket",
    "H2C",
    "200",
    "299-200",
    "200-299",
    "2xx",
    "0200",
    "{client}",
    "a{b}c",
    "{\"group\":\"x\"}",
    " blank",
    "tab\there",
    "ü",
    "https://example.com",
    "https://example.com{path}",
    "https://{host}{path}",
    "301 https://{host}{path}",
    "308 /new",
    "200 /new",
    "301 ",
    "https://www.{host}{path}",
    "https://{host}/login?from=a#b",
    "/login?from=here",
    "/new{path}",
    "https://example.com?a",
    "https://[::1]:8443/a{path}",
    "http://example.com/new{path}",
    "https://example.com:8443{path}",
    "https://a.{path}",
    "/{path}",
    "{path}",
    "//example.com",
    "javascript:alert(1)",
    "404.html",
    "a/b.svg",
    ".html",
    "a/.html",
    "..html",
    "a.html/",
    "a.php",
    "stderr",
    "/var/log/a.log",
];

#[test]
fn a_pattern_accepts_whatever_the_parser_accepts() {
    let mut wrong = Vec::new();
    for TextKind { name, schema, read, beyond } in all_text_kinds() {
        let accepts = acceptor(&schema);
        for word in SAMPLE_TEXTS.iter().filter(|word| !word.contains("${")) {
            let (accepted, read) = (accepts(word), read(word));
            let excused = read.as_ref().is_err_and(|problem| beyond.iter().any(|known| problem.contains(known)));
            if accepted != read.is_ok() && !(accepted && excused) {
                wrong.push(format!("{name}: {word:?}: {read:?}, and the pattern: {accepted}"));
            }
        }
        for variable in ["${NAME}", "a${NAME}b"] {
            assert!(accepts(variable), "{name}: {variable}");
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Checks strings generated from the patterns with the parser.
#[test]
fn a_pattern_accepts_little_more_than_the_parser() {
    let mut runner = TestRunner::default();
    let mut wrong = Vec::new();
    for TextKind { name, schema, read, beyond } in all_text_kinds() {
        let Some(pattern) = schema["pattern"].as_str() else { continue };
        // The alternative for environment variables is not generated.
        let own = pattern.strip_prefix(r"\$\{|^(").unwrap().strip_suffix(")$").unwrap();
        let (accepts, strategy) = (acceptor(&schema), string_regex(own).unwrap());
        for _ in 0..STRINGS_PER_KIND {
            let text = strategy.new_tree(&mut runner).unwrap().current();
            if text.contains("${") || !accepts(&text) {
                continue;
            }
            if let Err(problem) = read(&text)
                && !beyond.iter().any(|known| problem.contains(known))
            {
                wrong.push(format!("{name}: {text:?}: {problem}"));
                break;
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
