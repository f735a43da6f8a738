//! The module layers of `src/`, checked in the sources: which module may use which, and where `unsafe` is allowed.
//!
//! A reader of tokens rather than of Rust: comments and literals are blanked, then every `crate::…` path counts, in a
//! `use`, a group or an expression. That a macro builds a path is not seen; none does.

use std::{fmt, fs, path::Path};

/// Modules that all others may use, the ground as well.
const BASE: &[&str] =
    &["number", "suspension", "log_writer", "sources", "half_sip_hash", "http1", "network", "clients", "priority"];

/// Modules that all others may use and that use none: the vocabulary.
const GROUND: &[&str] = &[
    "config",
    "telemetry",
    "lifecycle",
    "exchange",
    "rate",
    "budget",
    "receive_budget",
    "memory",
    "datagram",
    "descriptors",
];

/// Modules that use the ground alone and meet in `app`.
const PARTS: &[&str] = &["access_log", "acme", "net", "tls", "quic", "http3", "tcp", "proxy", "admin", "traces"];

/// What two parts agree on beside the vocabulary: uses the ground, and every part may use it.
const SEAMS: &[&str] = &["terms", "transport"];

/// Wiring: may use all modules.
const WIRING: &[&str] = &["app", "cli", "lib", "main", "allocator"];

/// Where `http::HeaderMap` is allowed: hyper and h2 have it, and the crate `http`'s requests and responses. All other
/// modules have `exchange::Fields`.
const HEADER_MAP: &[&str] = &["tcp", "cli", "admin", "exchange/fields/convert.rs", "traces/collector.rs"];

/// Where `unsafe` is allowed: system calls, and the allocator's.
const UNSAFE_MODULES: &[&str] = &["net/sys", "allocator.rs"];

#[derive(Debug, PartialEq, Eq)]
struct Crossing {
    file: String,
    line: usize,
    what: String,
}

impl fmt::Display for Crossing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "src/{}:{}: {}", self.file, self.line, self.what)
    }
}

#[test]
fn no_module_crosses_its_layer() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    collect(&root, &mut files);
    assert!(files.len() > 10, "the sources were found");
    let crossings: Vec<String> = files
        .iter()
        .flat_map(|file| {
            let name = file.strip_prefix(&root).unwrap().to_str().unwrap();
            crossings(name, &fs::read_to_string(file).unwrap())
        })
        .map(|crossing| crossing.to_string())
        .collect();
    assert!(crossings.is_empty(), "fences crossed:\n{}", crossings.join("\n"));
}

/// Documents that show the layers, between two markers.
const DOCUMENTS: [&str; 2] = ["CONTRIBUTING.md", "docs/architecture.md"];
const MARKERS: [&str; 2] = ["<!-- layers -->\n", "<!-- /layers -->"];

/// The layers as a table.
fn table() -> String {
    let names = |modules: &[&str]| modules.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    // `lib.rs` and `main.rs` are no modules.
    let wiring: Vec<&str> = WIRING.iter().copied().filter(|name| !matches!(*name, "lib" | "main")).collect();
    let rows = [
        (names(BASE), "none".to_owned()),
        (names(GROUND), "the row above: they are the vocabulary".to_owned()),
        (names(SEAMS), "the rows above: what two modules of the next row agree on".to_owned()),
        (names(PARTS), "the rows above, never each other".to_owned()),
        (names(&wiring), "all: they wire the others".to_owned()),
    ];
    let rows = rows.map(|(modules, uses)| format!("| {modules} | {uses} |\n"));
    format!("| modules | may use |\n|---|---|\n{}", rows.concat())
}

/// Renewed with the environment variable `LITEQUIC_RENEW` set.
#[test]
fn documents_show_the_layers() {
    for document in DOCUMENTS {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(document);
        let text = fs::read_to_string(&path).unwrap();
        let (before, rest) = text.split_once(MARKERS[0]).unwrap();
        let (shown, after) = rest.split_once(MARKERS[1]).unwrap();
        if std::env::var_os("LITEQUIC_RENEW").is_some() {
            fs::write(&path, [before, MARKERS[0], &table(), MARKERS[1], after].concat()).unwrap();
        } else {
            assert_eq!(shown, table(), "{document}: LITEQUIC_RENEW=1 cargo test --test text layers");
        }
    }
}

fn collect(folder: &Path, files: &mut Vec<std::path::PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

/// What is wrong with one file, given by its path below `src/`.
fn crossings(file: &str, source: &str) -> Vec<Crossing> {
    let module = file.split(['/', '.']).next().unwrap();
    let code = blank(source);
    let crossing = |at: usize, what| Crossing { file: file.into(), line: line(&code, at), what };
    let mut found = Vec::new();
    let known = [BASE, GROUND, SEAMS, PARTS, WIRING].iter().any(|modules| modules.contains(&module));
    if !known {
        found
            .push(crossing(0, format!("`{module}` has no place in the layers: give it one in tests/text/layering.rs")));
    }
    if !WIRING.contains(&module) {
        for (at, named) in named(&code, "crate").into_iter().chain(named(&code, "litequic")) {
            let allowed = named == module
                || BASE.contains(&named.as_str())
                || (PARTS.contains(&module) || SEAMS.contains(&module)) && GROUND.contains(&named.as_str())
                || PARTS.contains(&module) && SEAMS.contains(&named.as_str());
            if !allowed {
                found.push(crossing(at, format!("`{module}` uses `{named}`")));
            }
        }
        // `super` above the module is `crate` under another name.
        for (at, depth) in supers(&code) {
            if depth > depth_of(file) {
                found.push(crossing(at, format!("`super` leaves `{module}`: name the crate's module")));
            }
        }
    }
    if !UNSAFE_MODULES.iter().any(|module| Path::new(file).starts_with(module)) {
        let unsafes = words(&code).filter(|(_, word)| *word == "unsafe" || *word == "unsafe_code");
        found.extend(
            unsafes
                .map(|(at, word)| crossing(at, format!("`{word}` outside src/{}", UNSAFE_MODULES.join(" and src/")))),
        );
    }
    // Tests may use it as an oracle.
    let is_test = |file: &str| file.split('/').any(|part| part.starts_with("tests") || part == "oracle.rs");
    if !HEADER_MAP.iter().any(|module| Path::new(file).starts_with(module)) && !is_test(file) {
        let end = code.find("#[cfg(test)]\nmod tests {").unwrap_or(code.len());
        let maps = words(&code).filter(|(at, word)| *word == "HeaderMap" && *at < end);
        found.extend(maps.map(|(at, _)| crossing(at, "`HeaderMap` where `exchange::Fields` belongs".into())));
    }
    found.sort_by_key(|crossing| crossing.line);
    found
}

/// How many `super` lead from the file's module to its top-level module: `http3/mod.rs` 0, `http3/frame.rs` 1.
fn depth_of(file: &str) -> usize {
    let levels = file.split('/').count() - 1;
    if file.ends_with("/mod.rs") { levels - 1 } else { levels }
}

/// Runs of `super::`, with their length less the `mod … { }` blocks that they stand in.
fn supers(code: &str) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    let mut blocks: Vec<bool> = Vec::new();
    let (mut previous, mut before) = (String::new(), String::new());
    let mut run: Option<(usize, usize)> = None;
    for (at, token) in tokens(code) {
        match token {
            "super" => run = Some(run.map_or((at, 1), |(start, length)| (start, length + 1))),
            ":" => {}
            _ => {
                if let Some((start, length)) = run.take() {
                    let inside = blocks.iter().filter(|is_module| **is_module).count();
                    found.push((start, length.saturating_sub(inside)));
                }
                match token {
                    "{" => blocks.push(before == "mod"),
                    "}" => drop(blocks.pop()),
                    _ => {}
                }
            }
        }
        before = std::mem::replace(&mut previous, token.to_owned());
    }
    found
}

/// The top-level modules that follow `root::`, with the groups of a `use` taken apart.
fn named(code: &str, root: &str) -> Vec<(usize, String)> {
    let tokens: Vec<(usize, &str)> = tokens(code).collect();
    let text = |at: usize| tokens.get(at).map_or("", |(_, token)| *token);
    let mut found = Vec::new();
    for at in 0..tokens.len() {
        // `r::crate::x` does not exist; `my_crate::x` is another word.
        if text(at) != root || text(at + 1) != ":" || text(at + 2) != ":" {
            continue;
        }
        let first = at + 3;
        if text(first) != "{" {
            found.push((tokens[at].0, text(first).to_owned()));
            continue;
        }
        let (mut depth, mut next, mut expects_name) = (1, first + 1, true);
        while depth > 0 && next < tokens.len() {
            match text(next) {
                "{" => depth += 1,
                "}" => depth -= 1,
                "," if depth == 1 => expects_name = true,
                name if expects_name && depth == 1 => {
                    found.push((tokens[next].0, name.to_owned()));
                    expects_name = false;
                }
                _ => {}
            }
            next += 1;
        }
    }
    found
}

/// Words and single marks.
fn tokens(code: &str) -> impl Iterator<Item = (usize, &str)> {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || !byte.is_ascii();
    let mut at = 0;
    std::iter::from_fn(move || {
        let bytes = code.as_bytes();
        while bytes.get(at)?.is_ascii_whitespace() {
            at += 1;
        }
        let start = at;
        while bytes.get(at).is_some_and(|byte| is_word(*byte)) {
            at += 1;
        }
        at = at.max(start + 1);
        Some((start, &code[start..at]))
    })
}

fn words(code: &str) -> impl Iterator<Item = (usize, &str)> {
    tokens(code).filter(|(_, token)| token.starts_with(|first: char| first.is_alphabetic()))
}

fn line(code: &str, at: usize) -> usize {
    code[..at].matches('\n').count() + 1
}

/// The source with comments and literals blanked, every line where it was.
fn blank(source: &str) -> String {
    let bytes = source.as_bytes();
    let mut code = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let rest = &source.as_bytes()[at..];
        let starts_word = at == 0 || !(bytes[at - 1].is_ascii_alphanumeric() || bytes[at - 1] == b'_');
        let length = if rest.starts_with(b"//") {
            rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len())
        } else if rest.starts_with(b"/*") {
            block_comment(rest)
        } else if rest.starts_with(b"\"") {
            string(rest)
        } else if starts_word && (rest.starts_with(b"r") || rest.starts_with(b"br")) {
            raw_string(rest)
        } else if rest.starts_with(b"'") {
            character(rest)
        } else {
            0
        };
        for byte in &mut code[at..at + length] {
            if *byte != b'\n' {
                *byte = b' ';
            }
        }
        at += length.max(1);
    }
    String::from_utf8(code).unwrap()
}

fn block_comment(rest: &[u8]) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < rest.len() {
        if rest[at..].starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if rest[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    rest.len()
}

fn string(rest: &[u8]) -> usize {
    let mut at = 1;
    while at < rest.len() {
        match rest[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

/// 0 when it is a word that starts with `r`, or a raw identifier.
fn raw_string(rest: &[u8]) -> usize {
    let prefix = if rest[0] == b'b' { 2 } else { 1 };
    let hashes = rest[prefix..].iter().take_while(|byte| **byte == b'#').count();
    if rest.get(prefix + hashes) != Some(&b'"') {
        return 0;
    }
    let end = format!("\"{}", "#".repeat(hashes));
    let body = prefix + hashes + 1;
    let found = rest[body..].windows(end.len()).position(|window| window == end.as_bytes());
    found.map_or(rest.len(), |found| body + found + end.len())
}

/// 0 for a lifetime.
fn character(rest: &[u8]) -> usize {
    if rest.get(1) == Some(&b'\\') {
        return rest.iter().skip(3).position(|byte| *byte == b'\'').map_or(rest.len(), |end| end + 4);
    }
    let longest = rest.len().min(6);
    let end = rest[..longest].iter().skip(2).position(|byte| *byte == b'\'').map(|end| end + 2);
    // One character lies between, of one to four bytes.
    end.filter(|end| std::str::from_utf8(&rest[1..*end]).is_ok_and(|inside| inside.chars().count() == 1))
        .map_or(0, |end| end + 1)
}

#[test]
fn the_checker_sees_every_way_across() {
    let cases: &[(&str, &str, &[&str])] = &[
        ("proxy/mod.rs", "use crate::http3::Frame;", &["src/proxy/mod.rs:1: `proxy` uses `http3`"]),
        ("proxy/pool/idle.rs", "\n\nuse crate::net;\n", &["src/proxy/pool/idle.rs:3: `proxy` uses `net`"]),
        (
            "quic/mod.rs",
            "use crate::{\n    config::{Limits, self},\n    tls,\n    net::{sys::{a, b}, c},\n};",
            &["src/quic/mod.rs:3: `quic` uses `tls`", "src/quic/mod.rs:4: `quic` uses `net`"],
        ),
        ("http3/mod.rs", "fn f() { crate :: proxy::f() }", &["src/http3/mod.rs:1: `http3` uses `proxy`"]),
        ("http3/mod.rs", "fn f(a: &litequic_quic::Q) {}", &["src/http3/mod.rs:1: `http3` uses `quic`"]),
        ("config/mod.rs", "use crate::telemetry;", &["src/config/mod.rs:1: `config` uses `telemetry`"]),
        ("lifecycle.rs", "pub use crate::config::Config;", &["src/lifecycle.rs:1: `lifecycle` uses `config`"]),
        ("admin/mod.rs", "use crate::*;", &["src/admin/mod.rs:1: `admin` uses `*`"]),
        ("tls/mod.rs", "use super::net;", &["src/tls/mod.rs:1: `super` leaves `tls`: name the crate's module"]),
        (
            "tls/a.rs",
            "mod b { use super::super::super::net; }",
            &["src/tls/a.rs:1: `super` leaves `tls`: name the crate's module"],
        ),
        (
            "util/mod.rs",
            "",
            &["src/util/mod.rs:1: `util` has no place in the layers: give it one in tests/text/layering.rs"],
        ),
        (
            "net/udp.rs",
            "fn f() { unsafe { g() } }",
            &["src/net/udp.rs:1: `unsafe` outside src/net/sys and src/allocator.rs"],
        ),
        (
            "app.rs",
            "#[allow(unsafe_code)]\nfn f() {}",
            &["src/app.rs:1: `unsafe_code` outside src/net/sys and src/allocator.rs"],
        ),
        ("proxy/mod.rs", "const R: &str = r#\"\"#; use crate::tls::A;", &["src/proxy/mod.rs:1: `proxy` uses `tls`"]),
        ("proxy/mod.rs", "const C: char = '\"'; use crate::tls::A;", &["src/proxy/mod.rs:1: `proxy` uses `tls`"]),
        ("proxy/mod.rs", "fn f<'a>(a: &'a crate::tls::A) {}", &["src/proxy/mod.rs:1: `proxy` uses `tls`"]),
        (
            "proxy/mod.rs",
            "#[cfg(test)]\nmod tests;\nfn f(fields: &http::HeaderMap) {}",
            &["src/proxy/mod.rs:3: `HeaderMap` where `exchange::Fields` belongs"],
        ),
    ];
    for (file, source, expected) in cases {
        let found: Vec<String> = crossings(file, source).iter().map(Crossing::to_string).collect();
        assert_eq!(found, *expected, "{file}: {source}");
    }
}

#[test]
fn the_checker_lets_through_what_is_allowed() {
    let cases = [
        ("proxy/mod.rs", "use crate::{config::{net, tls}, exchange::Body, lifecycle::Watch, telemetry};"),
        ("proxy/pool/idle.rs", "use crate::proxy::routes; use super::super::routes;"),
        ("tls/mod.rs", "mod a { use super::b; } #[cfg(test)] mod tests { use super::*; }"),
        ("tls/a.rs", "use super::b; mod tests { fn f() { if x { super::super::c() } } }"),
        ("app.rs", "use crate::{http3, proxy, quic};"),
        ("main.rs", "fn main() { litequic::cli::main() }"),
        ("net/sys/mmsg.rs", "#![expect(unsafe_code, reason = \"a\")] fn f() { unsafe { g() } }"),
        (
            "net/mod.rs",
            "//! unsafe, crate::proxy\n/* crate::tls /* unsafe */ */ fn f() { g(\"crate::quic \\\" unsafe\") }",
        ),
        (
            "net/mod.rs",
            "const A: &[u8] = br##\"unsafe \"# crate::tls\"##; const B: char = '\\''; const C: &str = \"unsafe\";",
        ),
        ("http3/mod.rs", "use s2n_quic::connection; use my_crate::proxy;"),
        ("tcp/request.rs", "use http::HeaderMap;"),
        ("exchange/fields/convert.rs", "use http::HeaderMap;"),
        ("proxy/tests/pooling.rs", "use http::HeaderMap;"),
        ("proxy/mod.rs", "// HeaderMap\n#[cfg(test)]\nmod tests { use http::HeaderMap; }"),
        ("http3/frame.rs", "pub(crate) fn f() {} pub(super) fn g() {} pub(in crate::http3) fn h() {}"),
    ];
    for (file, source) in cases {
        assert_eq!(crossings(file, source), [], "{file}: {source}");
    }
}
