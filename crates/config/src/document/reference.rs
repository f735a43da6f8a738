//! Formats the reference of all keys as Markdown, from the schema.

use super::config_file::json_schema;
use super::keys::{limit_metric, restart_keys};
use crate::reading::value_kinds::set_member;
use serde_json::Value as Json;

/// Returns the reference of all keys as Markdown: a table for each section, with values, defaults, descriptions,
/// restarts and metrics.
pub fn reference_page() -> String {
    let mut page = MarkdownPage { lines: Vec::new(), listed_keys: Vec::new(), need_restart: restart_keys() };
    page.push_line("# Configuration keys");
    page.push_line("");
    page.push_line("Made by `litequic reference configuration`. Related keys, and how values are written, are in");
    page.push_line(
        "[configuration.md](../configuration.md). A change of a key that needs a restart is not applied by a",
    );
    page.push_line("[reload](../operating.md#reload).");
    page.add_section("The top level", "", &json_schema());
    page.lines.join("\n") + "\n"
}

struct MarkdownPage {
    lines: Vec<String>,
    /// Tables on the page so far with their headings, so that equal ones are listed once.
    listed_keys: Vec<(Json, String)>,
    need_restart: Vec<String>,
}

impl MarkdownPage {
    fn push_line(&mut self, line: impl Into<String>) {
        self.lines.push(line.into());
    }

    /// Adds the section `heading` for the table `path`, with its nested tables.
    fn add_section(&mut self, heading: &str, path: &str, schema: &Json) {
        let keys = &schema["properties"];
        self.push_line("");
        self.push_line(format!("## {heading}"));
        self.push_line("");
        if let Some(about) = schema["description"].as_str() {
            self.push_line(about);
            self.push_line("");
        }
        if let Some((_, same)) = self.listed_keys.iter().find(|(told, _)| told == keys) {
            let line = format!("The keys of {same}.");
            self.push_line(line);
            return;
        }
        self.listed_keys.push((keys.clone(), heading.into()));
        let keys = || keys.as_object().into_iter().flatten();
        self.push_key_rows(path, keys().filter(|(_, of)| nested_tables(of).is_none()), &schema["required"]);
        for (name, of) in keys() {
            let path = key_path(path, name);
            let about = &of["description"];
            match nested_tables(of) {
                None => {}
                Some(NestedTables::One) => self.add_section(&format!("`[{}]`", table_head(&path)), &path, of),
                Some(NestedTables::Many(each)) => {
                    self.add_section(
                        &format!("`[[{}]]`", table_head(&path)),
                        &format!("{path}[]"),
                        &with_description(each, about),
                    );
                }
                Some(NestedTables::Named(each)) => {
                    let path = format!("{path}.NAME");
                    self.add_section(&format!("`[{}]`", table_head(&path)), &path, &with_description(each, about));
                }
            }
        }
    }

    fn push_key_rows<'j>(&mut self, path: &str, keys: impl Iterator<Item = (&'j String, &'j Json)>, required: &Json) {
        let mut rows = Vec::new();
        for (name, schema) in keys {
            // The operator chooses the names of these values.
            let any = if schema["additionalProperties"].is_object() { ".NAME" } else { "" };
            let key = key_path(path, name) + any;
            let is_required = required.as_array().is_some_and(|all| all.iter().any(|one| one == name));
            rows.push(format_key_row(&key, schema, is_required, self.need_restart.contains(&key)));
        }
        if !rows.is_empty() {
            self.push_line("| key | value | default | meaning |");
            self.push_line("|---|---|---|---|");
            self.lines.append(&mut rows);
        }
    }
}

/// Tables as the value of a key.
enum NestedTables<'a> {
    One,
    Many(&'a Json),
    /// Tables by names that the operator chooses.
    Named(&'a Json),
}

fn nested_tables(schema: &Json) -> Option<NestedTables<'_>> {
    if schema["properties"].is_object() {
        return Some(NestedTables::One);
    }
    let of = |key: &str| Some(&schema[key]).filter(|each| each["properties"].is_object());
    of("items").map(NestedTables::Many).or_else(|| of("additionalProperties").map(NestedTables::Named))
}

/// Returns `each` with the description `about`.
fn with_description(each: &Json, about: &Json) -> Json {
    let mut each = each.clone();
    set_member(&mut each, "description", about.clone());
    each
}

fn format_key_row(key: &str, schema: &Json, is_required: bool, needs_restart: bool) -> String {
    let value = schema["$comment"].as_str().unwrap_or_default().replace('*', "\\*").replace('|', "\\|");
    let default = match schema.get("default") {
        Some(default) => format!("`{default}`"),
        None if is_required => "required".into(),
        None => "–".into(),
    };
    let mut about = schema["description"].as_str().unwrap_or_default().replace('|', "\\|");
    if needs_restart {
        about += " Needs a restart.";
    }
    if let Some(metric) = limit_metric(key) {
        about += &format!(" Counted by `{metric}`.");
    }
    format!("| `{key}` | {value} | {default} | {about} |")
}

fn key_path(path: &str, name: &str) -> String {
    if path.is_empty() { name.into() } else { format!("{path}.{name}") }
}

/// Returns a path in the form of a table's head.
fn table_head(path: &str) -> String {
    path.replace("[]", "")
}
