//! The dashboard and the rules of the charts: that every metric and label of their queries is litequic's, and what
//! `promtool` says of them where there is one.

use super::{
    ROOT, read,
    rendered::{Helm, file_in, manifest},
};
use crate::docs::scrape;
use serde_json::{Value as Json, json};
use std::{
    collections::BTreeSet,
    fs,
    io::{self, Write},
    path::Path,
    process::{Command, Output, Stdio},
};

const RULES: &str = "helm/litequic-sidecar/files/rules.yaml";
const DASHBOARD: &str = "helm/litequic-sidecar/files/dashboard.json";
const UNIT_TESTS: &str = "tests/fixtures/prometheus/rules.test.yaml";

/// Every query of the dashboard, with the panel that it is in.
fn queries() -> Vec<(String, String)> {
    let dashboard: Json = serde_json::from_str(&read(DASHBOARD)).unwrap();
    let mut queries = Vec::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        let title = panel["title"].as_str().unwrap();
        for target in panel["targets"].as_array().into_iter().flatten() {
            queries.push((title.to_owned(), target["expr"].as_str().unwrap().to_owned()));
        }
    }
    for annotation in dashboard["annotations"]["list"].as_array().unwrap() {
        if let Some(query) = annotation["expr"].as_str() {
            queries.push((annotation["name"].as_str().unwrap().to_owned(), query.to_owned()));
        }
    }
    for variable in dashboard["templating"]["list"].as_array().unwrap() {
        if let Some(query) = variable["definition"].as_str() {
            queries.push((variable["name"].as_str().unwrap().to_owned(), query.to_owned()));
        }
    }
    assert!(queries.len() > 80, "{queries:?}");
    queries
}

/// The metrics that a text names, each with the matchers behind it; without those that rules record, which have colons.
fn metrics(text: &str) -> Vec<(&str, &str)> {
    let part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | ':');
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(start) = rest.find(part) {
        let word = rest[start..].split(|c| !part(c)).next().unwrap();
        rest = &rest[start + word.len()..];
        if (word.starts_with("litequic_") || word.starts_with("process_")) && !word.contains(':') {
            let matchers =
                rest.strip_prefix('{').and_then(|rest| rest.split_once('}')).map_or("", |(inside, _)| inside);
            found.push((word, matchers));
        }
    }
    found
}

/// What is wrong with a query: metrics that litequic does not have, and values of labels that they do not have.
fn unknown(text: &str, scrape: &str) -> Vec<String> {
    let mut unknown = Vec::new();
    for (metric, matchers) in metrics(text) {
        let samples: Vec<&str> = scrape
            .lines()
            .filter(|line| line.strip_prefix(metric).is_some_and(|rest| rest.starts_with(['{', ' '])))
            .collect();
        if samples.is_empty() {
            unknown.push(metric.to_owned());
        }
        for matcher in matchers.split("\",").filter(|matcher| !matcher.is_empty()) {
            let (label, values) = matcher.split_once('=').unwrap();
            let label = label.trim_end_matches('!');
            let values = values.trim_start_matches('~').trim_matches('"');
            for value in values.split('|').filter(|value| !value.starts_with('$')) {
                let wanted = format!("{label}=\"{value}\"");
                if !samples.iter().any(|sample| sample.contains(&wanted)) {
                    unknown.push(format!("{metric}{{{wanted}}}"));
                }
            }
        }
    }
    unknown
}

#[test]
fn every_metric_and_label_of_a_query_is_one_that_litequic_has() {
    let scrape = scrape();
    for (panel, query) in queries() {
        assert!(!metrics(&query).is_empty(), "{panel}: {query}");
        assert_eq!(unknown(&query, &scrape), Vec::<String>::new(), "{panel}: {query}");
    }
    assert!(metrics(&read(RULES)).len() > 40);
    assert_eq!(unknown(&read(RULES), &scrape), Vec::<String>::new(), "{RULES}");
    assert_eq!(
        unknown("rate(litequic_nope_total{job=\"a\"}[5m])", &scrape),
        ["litequic_nope_total", "litequic_nope_total{job=\"a\"}"]
    );
    assert_eq!(
        unknown("litequic_responses_total{class=\"6xx\"}", &scrape),
        ["litequic_responses_total{class=\"6xx\"}"]
    );
}

/// The names behind `key` in the rules, such as `alert: `.
fn named(key: &str) -> BTreeSet<String> {
    let rules = read(RULES);
    let names: BTreeSet<_> =
        rules.lines().filter_map(|line| line.trim_start().strip_prefix(key)).map(str::to_owned).collect();
    assert!(names.len() > 5, "{key}: {names:?}");
    names
}

#[test]
fn every_alert_and_every_recorded_metric_has_a_unit_test() {
    let tests = read(UNIT_TESTS);
    for alert in named("- alert: ") {
        let fires = tests
            .split(&format!("alertname: {alert}\n"))
            .skip(1)
            .any(|rest| rest.trim_start().starts_with("exp_alerts:\n"));
        assert!(fires, "{alert} fires in no test of {UNIT_TESTS}");
    }
    for record in named("- record: ") {
        assert!(tests.contains(&format!("- expr: {record}")), "{record} is in no test of {UNIT_TESTS}");
    }
    // What an alert reads is recorded.
    for word in read(RULES).split(|c: char| !c.is_ascii_alphanumeric() && !matches!(c, '_' | ':')) {
        assert!(!word.starts_with("job:") || named("- record: ").contains(word), "{word} is not recorded");
    }
}

#[test]
fn panels_have_places_and_names_of_their_own() {
    let dashboard: Json = serde_json::from_str(&read(DASHBOARD)).unwrap();
    let mut taken = BTreeSet::new();
    let mut ids = BTreeSet::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        let [x, y, w, h] = ["x", "y", "w", "h"].map(|key| panel["gridPos"][key].as_u64().unwrap());
        assert!(x + w <= 24, "{panel}");
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "{panel}");
        for place in (x..x + w).flat_map(|x| (y..y + h).map(move |y| (x, y))) {
            assert!(taken.insert(place), "{} covers another panel", panel["title"]);
        }
    }
}

/// `promtool` with these arguments; `None` on a machine without one.
fn promtool(arguments: &[&str]) -> Option<Output> {
    match Command::new("promtool").current_dir(ROOT).args(arguments).output() {
        Ok(output) => Some(output),
        Err(_) => {
            // Past the harness, which would show it of tests that fail alone.
            let _ = writeln!(io::stderr(), "skipped: there is no promtool");
            None
        }
    }
}

/// Of Debian 12's Prometheus, which rejects the types of OpenMetrics.
#[test]
fn metrics_as_plain_text_pass_promtools_check() {
    let text = litequic_telemetry::to_prometheus_text(&scrape());
    let mut command = Command::new("promtool");
    let started = command.args(["check", "metrics"]).stdin(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let Ok(mut checker) = started else { return };
    checker.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = checker.wait_with_output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
}

#[test]
fn rules_pass_their_unit_tests() {
    for arguments in [["check", "rules", RULES], ["test", "rules", UNIT_TESTS]] {
        let Some(output) = promtool(&arguments) else { return };
        assert!(output.status.success(), "{arguments:?}: {output:?}");
    }
}

/// For a Prometheus without the operator: the ConfigMap's file, where the unit tests read the chart's.
#[test]
fn rules_in_a_config_map_pass_the_same_unit_tests() {
    let Some(helm) = Helm::find() else { return };
    let rendered =
        helm.rendered("litequic", &["--set", "config.origin.url=http://web:8080,metrics.rules.enabled=true"]);
    let folder = tempfile::tempdir().unwrap();
    let rules = folder.path().join("rules.yaml");
    let map = manifest(&rendered, "ConfigMap", "it-litequic-rules").unwrap();
    fs::write(&rules, file_in(map, "it-litequic.yaml")).unwrap();
    let tests = read(UNIT_TESTS);
    let (before, after) = tests.split_once("\nrule_files:").unwrap();
    let after = after.split_once('\n').unwrap().1;
    let file = folder.path().join("tests.yaml");
    fs::write(&file, format!("{before}\nrule_files: [{}]\n{after}", rules.display())).unwrap();
    let Some(output) = promtool(&["test", "rules", file.to_str().unwrap()]) else { return };
    assert!(output.status.success(), "{output:?}");
}

/// As rules, whose queries promtool parses.
#[test]
fn queries_of_the_dashboard_are_promql() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("queries.yaml");
    let queries = queries().into_iter().filter(|(_, query)| !query.starts_with("label_values("));
    let rules: Vec<_> = queries
        .enumerate()
        .map(|(n, (_, query))| json!({ "record": format!("query_{n}"), "expr": query.replace("$__rate_interval", "5m") }))
        .collect();
    // JSON is YAML.
    fs::write(&file, json!({ "groups": [{ "name": "queries", "rules": rules }] }).to_string()).unwrap();
    let Some(output) = promtool(&["check", "rules", file.to_str().unwrap()]) else { return };
    assert!(output.status.success(), "{output:?}");
}

/// The demo's Prometheus and Grafana read the charts' files.
#[test]
fn the_demo_provisions_what_the_charts_have() {
    let compose = read("demo/compose.yaml");
    for file in [RULES, DASHBOARD] {
        assert!(compose.contains(&format!("../{file}:")), "{file}");
    }
    let prometheus = read("demo/prometheus/prometheus.yml");
    let (_, rules) = compose.split_once(&format!("../{RULES}:")).unwrap();
    let inside = rules.split(':').next().unwrap();
    assert!(prometheus.contains(&format!("rule_files: [{inside}]\n")), "{inside}");
    for file in ["demo/grafana/datasources.yaml", "demo/grafana/dashboards.yaml"] {
        assert!(Path::new(ROOT).join(file).exists() && compose.contains(file.trim_start_matches("demo/")), "{file}");
    }
}
