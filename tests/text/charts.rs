//! The Helm charts and the container image: that they agree with the program, as files. What `helm` makes of them is
//! tested where there is one.

mod monitoring;
mod refused;
mod rendered;

use litequic_config as config;
use serde_json::{Value as Json, json};
use std::{env, fs, path::Path};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");
const CHARTS: [&str; 2] = ["litequic", "litequic-sidecar"];
/// The schema of both charts' values: a link in the edge chart. Which of them it judges, it sees by their values.
const SCHEMA: &str = "helm/litequic-sidecar/values.schema.json";
/// With this in the environment, what is made of other files is written instead of compared.
const WRITE: &str = "LITEQUIC_WRITE_CHARTS";

fn read(path: &str) -> String {
    fs::read_to_string(Path::new(ROOT).join(path)).unwrap()
}

/// That the file at `path` is `expected`; or has it so.
fn is_or_becomes(path: &str, expected: &str) {
    if env::var_os(WRITE).is_some() {
        fs::write(Path::new(ROOT).join(path), expected).unwrap();
    }
    assert!(read(path) == expected, "{path} is out of date: {WRITE}=1 cargo test --test text charts:: writes it");
}

#[test]
fn charts_images_and_program_have_one_version() {
    let version = env!("CARGO_PKG_VERSION");
    for chart in CHARTS {
        let text = read(&format!("helm/{chart}/Chart.yaml"));
        assert!(text.contains(&format!("\nappVersion: \"{version}\"\n")), "{chart}");
    }
    let dockerfile = read("Dockerfile");
    assert!(dockerfile.contains(&format!("\nARG VERSION={version}\n")));
    let toolchain: toml::Table = read("rust-toolchain.toml").parse().unwrap();
    let compiler = toolchain["toolchain"]["channel"].as_str().unwrap().rsplit_once('.').unwrap().0;
    assert!(dockerfile.contains(&format!("\nARG RUST_IMAGE=rust:{compiler}-")), "{compiler}");
    for workflow in ["check", "nightly", "release"] {
        let text = read(&format!(".github/workflows/{workflow}.yml"));
        assert!(text.contains(&format!("image: rust:{compiler}-bookworm\n")), "{workflow}: {compiler}");
    }
}

#[test]
fn the_images_configuration_needs_only_an_origin_and_a_certificate() {
    let file = "packaging/container/litequic.toml";
    let environment = |name: &str| (name == "LITEQUIC_ORIGIN").then(|| "app:8080".to_owned());
    let config =
        config::parse_config(&read(file), Path::new(file), environment).unwrap_or_else(|faults| panic!("{faults}"));
    assert_eq!(config.admin.listen.unwrap().to_string(), "127.0.0.1:9443");
    assert_eq!(config.certificates[0].cert, Path::new("/tls/tls.crt"));
    assert!(config::parse_config(&read(file), Path::new(file), |_| None).is_err());
}

/// The configuration's schema without what a chart sets itself, and with nothing required: that is judged when it is
/// whole.
fn schema_of_values() -> Json {
    let mut schema = config::json_schema();
    let root = schema.as_object_mut().unwrap();
    for key in ["$schema", "title", "required", "anyOf", "allOf"] {
        root.remove(key);
    }
    for path in [
        "certificates",
        "listen/udp",
        "listen/tcp",
        "listen/redirect",
        "listen/advertised_port",
        "timeouts/drain",
        "timeouts/drain_grace",
        "admin/listen",
        "admin/probes",
    ] {
        let (section, key) = path.split_once('/').unwrap_or(("", path));
        let pointer =
            if section.is_empty() { "/properties".into() } else { format!("/properties/{section}/properties") };
        let removed = schema.pointer_mut(&pointer).and_then(|keys| keys.as_object_mut()?.remove(key));
        assert!(removed.is_some(), "{path}");
    }
    say_what_patterns_expect(&mut schema);
    schema
}

/// Replaces each pattern in `schema` by a condition: helm then prints `value must be 'a duration from …'` instead of a
/// regular expression. It accepts one string more, which is that text itself.
fn say_what_patterns_expect(schema: &mut Json) {
    if let Json::Object(keys) = schema
        && let Some(Json::String(message)) = keys.remove("patternErrorMessage")
    {
        let expected = message.strip_prefix("expected ").unwrap();
        let condition = ["pattern", "not"].into_iter().filter_map(|key| keys.remove_entry(key)).collect();
        keys.insert("if".into(), Json::Object(condition));
        keys.insert("else".into(), json!({ "const": expected }));
    }
    match schema {
        Json::Object(keys) => keys.values_mut().for_each(say_what_patterns_expect),
        Json::Array(values) => values.iter_mut().for_each(say_what_patterns_expect),
        _ => {}
    }
}

#[test]
fn the_charts_schema_has_the_configurations() {
    let mut schema: Json = serde_json::from_str(&read(SCHEMA)).unwrap();
    schema["properties"]["config"] = schema_of_values();
    is_or_becomes(SCHEMA, &format!("{schema:#}\n"));
}

#[test]
fn whatever_needs_a_restart_is_in_the_checksum_that_restarts() {
    let template = read("helm/litequic-sidecar/templates/_litequic.tpl");
    let (_, checksum) = template.split_once("define \"litequic.restartChecksum\"").unwrap();
    let checksum = checksum.split_once("{{- end -}}").unwrap().0;
    for key in config::restart_keys() {
        let section = key.split_once('.').unwrap_or((&key, "")).0;
        let whole = checksum.contains(&format!("$config.{section} "));
        let alone = key.split_once('.').is_some_and(|(section, key)| checksum.contains(&format!("${section}.{key} ")));
        assert!(whole || alone, "{key}");
    }
}

/// The rows of a README: every key of a `values.yaml` with its default and what stands above it. A key without a
/// comment belongs to the one that it stands in.
fn table_of_values(text: &str) -> String {
    let mut rows = String::from("| value | default | |\n|---|---|---|\n");
    let mut comment = String::new();
    // Depth, name, whether it has a comment.
    let mut path: Vec<(usize, &str, bool)> = Vec::new();
    // What stands above the first empty line is about the file.
    for line in text.split_once("\n\n").unwrap().1.lines() {
        let bare = line.trim_start();
        if let Some(words) = bare.strip_prefix("# ") {
            comment = if comment.is_empty() { words.into() } else { format!("{comment} {words}") };
            continue;
        }
        if let Some((name, default)) = bare.split_once(':').filter(|_| !bare.starts_with('-')) {
            let depth = line.len() - bare.len();
            path.retain(|(outer, ..)| *outer < depth);
            let within = path.iter().any(|(.., commented)| *commented);
            path.push((depth, name, !comment.is_empty()));
            let default = default.trim();
            if comment.is_empty() {
                assert!(default.is_empty() || within, "{name} has no description");
            } else {
                let key = path.iter().map(|(_, name, _)| *name).collect::<Vec<_>>().join(".");
                let default = if default.is_empty() { "see `values.yaml`".into() } else { format!("`{default}`") };
                rows += &format!("| `{key}` | {default} | {comment} |\n");
            }
        }
        comment.clear();
    }
    rows
}

#[test]
fn the_charts_readmes_have_every_value() {
    const BEGIN: &str = "<!-- Made of values.yaml. -->\n";
    for chart in CHARTS {
        let table = table_of_values(&read(&format!("helm/{chart}/values.yaml")));
        let path = format!("helm/{chart}/README.md");
        let readme = read(&path);
        let (before, _) = readme.split_once(BEGIN).unwrap();
        is_or_becomes(&path, &format!("{before}{BEGIN}\n{table}"));
    }
}
