//! Gives an example of each table, for faults where a file has another value in its place.

/// Examples by the paths of tables; `origin` stands for every origin.
const TABLE_EXAMPLES: &[(&str, &str)] = &[
    ("access_log", r#"{ path = "stderr" }"#),
    ("admin", r#"{ listen = "127.0.0.1:9443" }"#),
    ("client_certificates", r#"{ ca = "clients.pem", verify = "required" }"#),
    ("error_pages", r#"{ "404" = "404.html" }"#),
    ("limits", r#"{ max_body_bytes = "1 GiB" }"#),
    ("listen", r#"{ udp = "[::]:8443" }"#),
    ("listen.server_id", r#"{ id = "192.0.2.1" }"#),
    ("litequic", r#"{ congestion = "bbr" }"#),
    ("log", r#"{ level = "info" }"#),
    ("origin", r#"{ url = "http://127.0.0.1:8080" }"#),
    ("origin.health", r#"{ path = "/healthz" }"#),
    ("origin.tls", r#"{ name = "app.internal", ca = "ca.pem" }"#),
    ("origins", r#"{ app = { url = "http://127.0.0.1:8080" } }"#),
    ("reload", r#"{ on_change = "certificates" }"#),
    ("request_headers", r#"{ set = { x-real-ip = "{client}" } }"#),
    ("request_headers.add", r#"{ x-via = "litequic" }"#),
    ("request_headers.set", r#"{ x-real-ip = "{client}" }"#),
    ("response_headers", r#"{ set = { x-frame-options = "DENY" } }"#),
    ("response_headers.add", r#"{ vary = "accept" }"#),
    ("response_headers.set", r#"{ x-frame-options = "DENY" }"#),
    ("routes[].auth", r#"{ origin = "auth", path = "/verify", copy = ["Remote-User"] }"#),
    ("routes[].match", r#"{ methods = ["GET"] }"#),
    ("routes[].match.headers", r#"{ x-canary = "1" }"#),
    ("routes[].match.query", r#"{ v = "2" }"#),
    ("routes[].respond", r#"{ status = 200, body = "ok" }"#),
    ("routes[].timeouts", r#"{ response_header = "5m" }"#),
    ("timeouts", r#"{ idle = "1m" }"#),
    ("traces", r#"{ endpoint = "http://127.0.0.1:4318" }"#),
    ("traces.attributes", r#"{ "deployment.environment.name" = "production" }"#),
    ("traces.headers", r#"{ x-token = "secret" }"#),
];

/// Returns the example of a table. A route has tables of the top level, too.
fn table_example(generic: &str) -> Option<&'static str> {
    let example = |of: &str| TABLE_EXAMPLES.iter().find(|(table, _)| *table == of).map(|(_, example)| *example);
    example(generic).or_else(|| example(generic.strip_prefix("routes[].")?))
}

/// Returns the expected value for the table `path`, to follow "expected"; `is_list` if the file has a list there.
pub(crate) fn expected_table(path: &str, is_list: bool) -> String {
    let generic = generic_path(path);
    let key = generic.rsplit('.').next().unwrap_or_default();
    if is_list && generic == "origin" {
        return format!("[{path}] once, with url = [\"…\", \"…\"] for several servers");
    }
    if is_list {
        return format!("[{}] once", path.replace("[0]", ""));
    }
    match table_example(&generic) {
        Some(example) => format!("a table, such as {key} = {example}"),
        None => "a table".into(),
    }
}

/// Returns the path of the table in general: `routes[]` for `routes[1]`, and `origin` for each origin.
pub(crate) fn generic_path(path: &str) -> String {
    let of_origin = path.strip_prefix("origins.").map(|name| match name.split_once('.') {
        Some((_, inner)) => format!("origin.{inner}"),
        None => "origin".into(),
    });
    of_origin.unwrap_or_else(|| match path.split_once('[').zip(path.split_once(']')) {
        Some(((before, _), (_, after))) => format!("{before}[]{after}"),
        None => path.into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{json_schema, parse_config};
    use serde_json::Value as Json;
    use std::{collections::BTreeSet, path::Path};

    fn tables(path: &str, schema: &Json, all: &mut BTreeSet<String>) {
        let has = |key: &str| schema[key].is_object();
        if !path.is_empty() && !path.ends_with("[]") && (has("properties") || has("additionalProperties")) {
            all.insert(generic_path(path));
        }
        for (name, inner) in schema["properties"].as_object().into_iter().flatten() {
            tables(&if path.is_empty() { name.clone() } else { format!("{path}.{name}") }, inner, all);
        }
        if has("items") {
            tables(&format!("{path}[]"), &schema["items"], all);
        }
        if path == "origins" {
            tables("origins.NAME", &schema["additionalProperties"], all);
        }
    }

    #[test]
    fn every_table_has_an_example_and_each_is_right() {
        let mut all = BTreeSet::new();
        tables("", &json_schema(), &mut all);
        assert!(TABLE_EXAMPLES.iter().all(|(path, _)| all.contains(*path)));
        for path in &all {
            let example = table_example(path).unwrap_or_else(|| panic!("{path} has no example"));
            let (table, key) = path.rsplit_once('.').unwrap_or(("", path));
            let head = match table {
                "" => String::new(),
                "routes[]" => "[[routes]]\n".into(),
                "acme[]" => "[[acme]]\n".into(),
                inner if inner.starts_with("routes[].") => format!("[[routes]]\n[{}]\n", inner.replace("[]", "")),
                table => format!("[{table}]\n"),
            };
            let faults =
                parse_config(&format!("{head}{key} = {example}\n"), Path::new("a.toml"), |_| None).unwrap_err();
            // The example alone lacks other required keys, and has no other fault.
            let wrong: Vec<_> = faults.0.iter().filter(|fault| !fault.problem.contains("missing")).collect();
            let elsewhere = |problem: &str| {
                problem == "has no effect without client_certificates.ca"
                    || problem.starts_with("no origin has the name")
            };
            let wrong: Vec<_> = wrong.iter().filter(|fault| !elsewhere(&fault.problem)).collect();
            assert!(wrong.is_empty(), "{path}: {wrong:?}");
        }
    }
}
