//! The reference of all keys, as Markdown: the schema, for people.

use super::file::schema;
use super::keys::{metric, needs_restart};
use serde_json::Value as Json;

/// Every key of the file with its values, default and purpose, whether it needs a restart, and which metric counts when
/// its limit is reached: a table for each section.
pub fn reference() -> String {
    let mut page = Page { lines: Vec::new(), told: Vec::new(), need_restart: needs_restart() };
    page.say("# Configuration keys");
    page.say("");
    page.say("Made by `litequic reference configuration`. Related keys, and how values are written, are in");
    page.say("[configuration.md](../configuration.md). What needs a restart is not followed by a");
    page.say("[reload](../operating.md#reload).");
    page.section("The top level", "", &schema());
    page.lines.join("\n") + "\n"
}

struct Page {
    lines: Vec<String>,
    /// The keys that the page has, and under which heading: repeated ones are listed once.
    told: Vec<(Json, String)>,
    need_restart: Vec<String>,
}

impl Page {
    fn say(&mut self, line: impl Into<String>) {
        self.lines.push(line.into());
    }

    /// The table `heading`, whose keys stand below `path`, and the tables within it.
    fn section(&mut self, heading: &str, path: &str, schema: &Json) {
        let keys = &schema["properties"];
        self.say("");
        self.say(format!("## {heading}"));
        self.say("");
        if let Some(about) = schema["description"].as_str() {
            self.say(about);
            self.say("");
        }
        if let Some((_, same)) = self.told.iter().find(|(told, _)| told == keys) {
            let line = format!("The keys of {same}.");
            self.say(line);
            return;
        }
        self.told.push((keys.clone(), heading.into()));
        let keys = || keys.as_object().into_iter().flatten();
        self.rows(path, keys().filter(|(_, of)| table(of).is_none()), &schema["required"]);
        for (name, of) in keys() {
            let path = join(path, name);
            let about = &of["description"];
            match table(of) {
                None => {
                    if let Some(each) = table_in_list(of) {
                        let about = format!("A table among the values of `{path}`.").into();
                        self.section(&format!("`[[{path}]]`"), &format!("{path}[]"), &told_as(each, &about));
                    }
                }
                Some(Table::One) => self.section(&format!("`[{}]`", head(&path)), &path, of),
                Some(Table::Many(each)) => {
                    self.section(&format!("`[[{}]]`", head(&path)), &format!("{path}[]"), &told_as(each, about));
                }
                Some(Table::Named(each)) => {
                    let path = format!("{path}.NAME");
                    self.section(&format!("`[{}]`", head(&path)), &path, &told_as(each, about));
                }
            }
        }
    }

    fn rows<'j>(&mut self, path: &str, keys: impl Iterator<Item = (&'j String, &'j Json)>, required: &Json) {
        let mut rows = Vec::new();
        for (name, schema) in keys {
            // Of values by names that the operator gives.
            let any = if schema["additionalProperties"].is_object() { ".NAME" } else { "" };
            let key = join(path, name) + any;
            let is_required = required.as_array().is_some_and(|all| all.iter().any(|one| one == name));
            rows.push(row(&key, schema, is_required, self.need_restart.contains(&key)));
        }
        if !rows.is_empty() {
            self.say("| key | value | default | what it is |");
            self.say("|---|---|---|---|");
            self.lines.append(&mut rows);
        }
    }
}

/// A key whose value is a table, or are tables.
enum Table<'a> {
    One,
    Many(&'a Json),
    /// By names that the operator gives.
    Named(&'a Json),
}

fn table(schema: &Json) -> Option<Table<'_>> {
    if schema["properties"].is_object() {
        return Some(Table::One);
    }
    let of = |key: &str| Some(&schema[key]).filter(|each| each["properties"].is_object());
    of("items").map(Table::Many).or_else(|| of("additionalProperties").map(Table::Named))
}

/// Alternatives to a value in a list, if that is a table.
fn table_in_list(schema: &Json) -> Option<&Json> {
    schema["anyOf"].as_array()?.iter().find(|one| one["properties"].is_object())
}

/// `each` with the description of all.
fn told_as(each: &Json, about: &Json) -> Json {
    let mut each = each.clone();
    if let Some(fields) = each.as_object_mut() {
        fields.insert("description".into(), about.clone());
    }
    each
}

fn row(key: &str, schema: &Json, is_required: bool, needs_restart: bool) -> String {
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
    if let Some(metric) = metric(key) {
        about += &format!(" Counted by `{metric}`.");
    }
    format!("| `{key}` | {value} | {default} | {about} |")
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.into() } else { format!("{path}.{name}") }
}

/// A path as it is written in a table's head.
fn head(path: &str) -> String {
    path.replace("[]", "")
}
