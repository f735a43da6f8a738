//! Reads a TOML file key by key. What the reader asks for is what the file may hold: each call reads a value, notes
//! its fault, and notes the key for the schema and for the search of a misspelt one. So every fault is found at
//! once, and keys, defaults, ranges and schema stand in one place (`file.rs`).

use super::{
    fault::{Fault, Faults, nearest, quote},
    values::{Given, Kind},
};
use serde_json::{Map, Value as Json, json};
use std::{
    cell::RefCell,
    ops::{Range, RangeInclusive},
    path::Path,
};
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

/// Environment variables by name.
pub(super) type Environment<'s> = &'s dyn Fn(&str) -> Option<String>;

/// The file that is read, and what was found wrong with it.
pub(super) struct Source<'s> {
    file: &'s Path,
    text: &'s str,
    lines: Lines<'s>,
    environment: Environment<'s>,
    faults: RefCell<Vec<(usize, Fault)>>,
    strays: RefCell<Vec<Stray>>,
}

/// A key that nobody asked for. It is judged when all keys are known.
struct Stray {
    at: Range<usize>,
    section: String,
    name: String,
    value: Option<String>,
    siblings: Vec<String>,
}

impl<'s> Source<'s> {
    /// `text` as the content of `file`.
    pub(super) fn new(file: &'s Path, text: &'s str, environment: Environment<'s>) -> Self {
        Self {
            file,
            text,
            lines: Lines::new(text),
            environment,
            faults: RefCell::default(),
            strays: RefCell::default(),
        }
    }

    /// What `read` makes of the file, or every fault in the order of the file; and the schema of such files.
    pub(super) fn read<T>(
        &'s self,
        table: &'s DeTable<'s>,
        read: impl FnOnce(&mut Section<'s>) -> Option<T>,
    ) -> (Result<T, Faults>, Json) {
        let mut root = Section::new(self, Some(table), None, String::new());
        let value = read(&mut root);
        let schema = root.finish();
        for stray in self.strays.take() {
            self.judge(stray, &schema);
        }
        let mut faults = self.faults.take();
        let result = match value {
            Some(value) if faults.is_empty() => Ok(value),
            _ => {
                faults.sort_by_key(|(at, _)| *at);
                Err(Faults(faults.into_iter().map(|(_, fault)| fault).collect()))
            }
        };
        (result, schema)
    }

    fn judge(&self, stray: Stray, schema: &Json) {
        let siblings = || stray.siblings.iter().map(String::as_str);
        let near = nearest(&stray.name, siblings()).map(ToOwned::to_owned).or_else(|| elsewhere(&stray.name, schema));
        let expected = match near {
            Some(_) => None,
            None => Some(format!("one of {}", siblings().collect::<Vec<_>>().join(", "))),
        };
        let key = join(&stray.section, &stray.name);
        self.note(Some(stray.at), key, stray.value, "unknown key".into(), expected, near);
    }

    fn note(
        &self,
        at: Option<Range<usize>>,
        key: String,
        value: Option<String>,
        problem: String,
        expected: Option<String>,
        nearest: Option<String>,
    ) {
        let (line, column) = at.as_ref().map(|at| self.lines.position(at.start)).unzip();
        let fault = Fault { file: self.file.into(), line, column, key, value, problem, expected, nearest };
        self.faults.borrow_mut().push((at.map_or(usize::MAX, |at| at.start), fault));
    }

    /// `value` as it is written, unless it is a table.
    fn quote(&self, value: &Spanned<DeValue<'_>>) -> Option<String> {
        let written = self.text.get(value.span()).filter(|_| !value.get_ref().is_table())?;
        Some(quote(written))
    }

    fn value<T>(&self, key: &str, value: &Spanned<DeValue<'_>>, kind: &Kind<T>) -> Option<T> {
        let given = match value.get_ref() {
            DeValue::String(text) => expand(text, self.environment).map(Given::Text),
            DeValue::Integer(number) => {
                // What does not fit is out of every range.
                let number = i128::from_str_radix(number.as_str(), number.radix()).unwrap_or(i128::MAX);
                Ok(Given::Integer(number))
            }
            DeValue::Boolean(boolean) => Ok(Given::Boolean(*boolean)),
            other => Ok(Given::Other(other.type_str())),
        };
        let expanded = match &given {
            Ok(Given::Text(text)) if value.get_ref().as_str() != Some(text) => format!(" ({:?})", quote(text)),
            _ => String::new(),
        };
        let (problem, expected, nearest) = match given.map(|given| (kind.read)(given)) {
            Ok(Ok(value)) => return Some(value),
            Ok(Err(wrong)) => (wrong.problem, Some(kind.expected.clone()), wrong.nearest),
            Err(problem) => (problem, None, None),
        };
        let written = self.quote(value).map(|written| written + &expanded);
        self.note(Some(value.span()), key.into(), written, problem, expected, nearest);
        None
    }
}

/// The faults of a file that is not TOML. It is not read further: what its keys are is not certain.
pub(super) fn syntax_faults(file: &Path, text: &str, errors: &[toml::de::Error]) -> Faults {
    let lines = Lines::new(text);
    let fault = |error: &toml::de::Error| {
        let (line, column) = error.span().map(|span| lines.position(span.start)).unzip();
        let problem = format!("not TOML: {}", error.message().lines().collect::<Vec<_>>().join("; "));
        let file = file.into();
        Fault { file, line, column, key: String::new(), value: None, problem, expected: None, nearest: None }
    };
    let mut faults: Vec<_> = errors.iter().map(fault).collect();
    faults.sort_by_key(|fault| (fault.line, fault.column));
    Faults(faults)
}

/// Where lines begin.
struct Lines<'s> {
    text: &'s str,
    starts: Vec<usize>,
}

impl<'s> Lines<'s> {
    fn new(text: &'s str) -> Self {
        let after_newlines = text.match_indices('\n').map(|(newline, _)| newline + 1);
        Self { text, starts: std::iter::once(0).chain(after_newlines).collect() }
    }

    /// Line and column of a byte, from 1.
    fn position(&self, byte: usize) -> (usize, usize) {
        let line = self.starts.partition_point(|start| *start <= byte);
        let start = self.starts.get(line.saturating_sub(1)).copied().unwrap_or(0);
        let column = self.text.get(start..byte).unwrap_or_default().chars().count() + 1;
        (line, column)
    }
}

/// `${NAME}` replaced by the environment variable; a `$` without a brace stays.
fn expand(text: &str, environment: Environment<'_>) -> Result<String, String> {
    let mut expanded = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${") {
        expanded.push_str(before);
        let (name, after) = after.split_once('}').ok_or("`${` without `}`")?;
        if name.is_empty() || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
            return Err(format!("`${{{}}}` names no environment variable", quote(name)));
        }
        let value = environment(name).ok_or_else(|| format!("environment variable {} is not set", quote(name)))?;
        expanded.push_str(&value);
        rest = after;
    }
    expanded.push_str(rest);
    Ok(expanded)
}

/// The other table that has this key.
fn elsewhere(name: &str, schema: &Json) -> Option<String> {
    fn search(name: &str, path: &str, schema: &Json) -> Option<String> {
        let inner = schema.get("items").map(|items| (format!("{path}[]"), items));
        let inner = inner.or_else(|| schema.get("additionalProperties").map(|named| (format!("{path}.NAME"), named)));
        if let Some(found) = inner.and_then(|(path, inner)| search(name, &path, inner)) {
            return Some(found);
        }
        let properties = schema.get("properties")?.as_object()?;
        if properties.contains_key(name) {
            return Some(join(path, name));
        }
        properties.iter().find_map(|(key, inner)| search(name, &join(path, key), inner))
    }
    search(name, "", schema)
}

fn join(section: &str, key: &str) -> String {
    let bare = !key.is_empty() && key.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'));
    let key = if bare { quote(key) } else { format!("{:?}", quote(key)) };
    if section.is_empty() { key } else { format!("{section}.{key}") }
}

/// One table of the file; without a table, a place where one might stand: it reads as empty and has no faults.
pub(super) struct Section<'s> {
    source: &'s Source<'s>,
    table: Option<&'s DeTable<'s>>,
    span: Option<Range<usize>>,
    path: String,
    properties: Map<String, Json>,
    required: Vec<String>,
    /// Keys whose value was refused.
    wrong: Vec<String>,
}

impl<'s> Section<'s> {
    fn new(source: &'s Source<'s>, table: Option<&'s DeTable<'s>>, span: Option<Range<usize>>, path: String) -> Self {
        Self { source, table, span, path, properties: Map::new(), required: Vec::new(), wrong: Vec::new() }
    }

    fn get(&self, key: &str) -> Option<&'s Spanned<DeValue<'s>>> {
        self.table?.get(key)
    }

    fn describe(&mut self, key: &str, mut schema: Json, default: Option<Json>, about: &str) {
        if let Some(schema) = schema.as_object_mut() {
            schema.insert("description".into(), about.into());
            schema.extend(default.map(|default| ("default".into(), default)));
        }
        self.properties.insert(key.into(), schema);
    }

    fn read<T>(&mut self, key: &str, kind: &Kind<T>) -> Option<T> {
        let given = self.get(key)?;
        let value = self.source.value(&join(&self.path, key), given, kind);
        if value.is_none() {
            self.wrong.push(key.into());
        }
        value
    }

    /// Whether this is a table of the file, and in it none of `keys` was refused.
    pub(super) fn is_right(&self, keys: &[&str]) -> bool {
        self.table.is_some() && !self.wrong.iter().any(|wrong| keys.contains(&wrong.as_str()))
    }

    /// Whether the file has `key`, right or wrong.
    pub(super) fn has(&self, key: &str) -> bool {
        self.get(key).is_some()
    }

    /// Whether the file has an array without elements as `key`.
    pub(super) fn is_empty_list(&self, key: &str) -> bool {
        self.get(key).and_then(|value| value.get_ref().as_array()).is_some_and(|array| array.iter().next().is_none())
    }

    /// The value of `key`, or `default`; also where the value is wrong.
    pub(super) fn value<T>(&mut self, key: &str, kind: Kind<T>, default: T, about: &str) -> T {
        let value = self.read(key, &kind);
        self.describe(key, kind.schema, Some((kind.show)(&default)), about);
        value.unwrap_or(default)
    }

    /// The value of `key`; `None` where it is missing or wrong.
    pub(super) fn optional<T>(&mut self, key: &str, kind: Kind<T>, about: &str) -> Option<T> {
        let value = self.read(key, &kind);
        self.describe(key, kind.schema, None, about);
        value
    }

    /// The value of `key`, which must be there; `None` where it is missing or wrong, and that is noted.
    pub(super) fn required<T>(&mut self, key: &str, kind: Kind<T>, about: &str) -> Option<T> {
        if !self.has(key) {
            self.missing(key, &kind.expected);
        }
        self.required.push(key.into());
        self.optional(key, kind, about)
    }

    /// The values of `key` with their positions: an array of so many, or a single one as it is. `None` where the key is
    /// missing; what is wrong is left out.
    pub(super) fn list<T>(
        &mut self,
        key: &str,
        kind: Kind<T>,
        count: RangeInclusive<usize>,
        default: &[T],
        about: &str,
    ) -> Option<Vec<(usize, T)>> {
        let path = join(&self.path, key);
        let values = self.get(key).map(|value| match value.get_ref() {
            DeValue::Array(array) if !count.contains(&array.len()) => {
                let problem = format!("has {} values", array.len());
                self.note_at(path, value, &problem, Some(&format!("{} to {}", count.start(), count.end())), None);
                Vec::new()
            }
            DeValue::Array(array) => {
                let read = |(n, value)| Some((n, self.source.value(&format!("{path}[{n}]"), value, &kind)?));
                array.iter().enumerate().filter_map(read).collect()
            }
            _ => self.source.value(&path, value, &kind).map(|value| (0, value)).into_iter().collect(),
        });
        let default: Vec<_> = default.iter().map(|value| (kind.show)(value)).collect();
        let array =
            json!({ "type": "array", "items": kind.schema, "minItems": count.start(), "maxItems": count.end() });
        self.describe(key, json!({ "anyOf": [kind.schema, array] }), Some(default.into()), about);
        values
    }

    /// The table `key`, as `read` makes it; an empty one where it is missing.
    pub(super) fn table<T>(&mut self, key: &str, about: &str, read: impl FnOnce(&mut Section<'s>) -> T) -> T {
        let value = self.get(key);
        let mut section = self.inner(join(&self.path, key), value, "a table");
        let result = read(&mut section);
        let schema = section.finish();
        self.describe(key, schema, None, about);
        result
    }

    /// Each table of the array `key`, as `read` makes it.
    pub(super) fn tables<T>(&mut self, key: &str, about: &str, mut read: impl FnMut(&mut Section<'s>) -> T) -> Vec<T> {
        let path = join(&self.path, key);
        let expected = format!("tables that each begin with [[{path}]]");
        let array = self.get(key).and_then(|value| {
            let array = value.get_ref().as_array();
            if array.is_none() {
                self.wrong_type(&path, value, &expected);
            }
            array
        });
        let mut results = Vec::new();
        for (n, value) in array.into_iter().flat_map(|array| array.iter()).enumerate() {
            let mut section = self.inner(format!("{path}[{n}]"), Some(value), "a table");
            if section.table.is_some() {
                results.push(read(&mut section));
            }
            section.finish();
        }
        let mut example = Section::new(self.source, None, None, path);
        read(&mut example);
        let schema = json!({ "type": "array", "items": example.finish() });
        self.describe(key, schema, None, about);
        results
    }

    /// Each table within the table `key`, by name, as `read` makes it.
    pub(super) fn named_tables<T>(
        &mut self,
        key: &str,
        about: &str,
        mut read: impl FnMut(&str, &mut Section<'s>) -> T,
    ) -> Vec<(String, T)> {
        let path = join(&self.path, key);
        let outer = self.inner(path.clone(), self.get(key), "a table of tables");
        let mut results = Vec::new();
        for (name, value) in outer.table.into_iter().flatten() {
            let mut section = self.inner(join(&path, name.get_ref()), Some(value), "a table");
            if section.table.is_some() {
                results.push((name.get_ref().to_string(), read(name.get_ref(), &mut section)));
            }
            section.finish();
        }
        let mut example = Section::new(self.source, None, None, path);
        read("", &mut example);
        let schema = json!({ "type": "object", "additionalProperties": example.finish() });
        self.describe(key, schema, None, about);
        results
    }

    fn inner(&self, path: String, value: Option<&'s Spanned<DeValue<'s>>>, expected: &str) -> Section<'s> {
        let table = value.and_then(|value| value.get_ref().as_table());
        if let Some(value) = value.filter(|_| table.is_none()) {
            self.wrong_type(&path, value, expected);
        }
        Section::new(self.source, table, value.map(Spanned::span), path)
    }

    fn wrong_type(&self, path: &str, value: &Spanned<DeValue<'_>>, expected: &str) {
        let problem = Given::Other(value.get_ref().type_str()).wrong_type().problem;
        self.source.note(
            Some(value.span()),
            path.into(),
            self.source.quote(value),
            problem,
            Some(expected.into()),
            None,
        );
    }

    /// Notes that `key`, which this table needs, is not there.
    pub(super) fn missing(&self, key: &str, expected: &str) {
        if self.table.is_some() {
            let path = join(&self.path, key);
            self.source.note(self.span.clone(), path, None, "missing".into(), Some(expected.into()), None);
        }
    }

    /// Notes a fault of a value that is right by itself.
    pub(super) fn fault(&self, key: &str, problem: &str, expected: Option<&str>, nearest: Option<&str>) {
        if let Some(value) = self.get(key) {
            self.note_at(join(&self.path, key), value, problem, expected, nearest);
        }
    }

    /// Notes a fault of this table as a whole.
    pub(super) fn fault_here(&self, problem: &str, expected: &str) {
        if self.table.is_some() {
            self.source.note(self.span.clone(), self.path.clone(), None, problem.into(), Some(expected.into()), None);
        }
    }

    /// The same for the `n`th value of a [`Section::list`].
    pub(super) fn fault_in_list(&self, key: &str, n: usize, problem: &str) {
        let Some(value) = self.get(key) else { return };
        let path = join(&self.path, key);
        match value.get_ref().as_array().and_then(|array| array.get(n)) {
            Some(element) => self.note_at(format!("{path}[{n}]"), element, problem, None, None),
            None => self.note_at(path, value, problem, None, None),
        }
    }

    fn note_at(
        &self,
        path: String,
        value: &Spanned<DeValue<'_>>,
        problem: &str,
        expected: Option<&str>,
        nearest: Option<&str>,
    ) {
        let (expected, nearest) = (expected.map(Into::into), nearest.map(Into::into));
        self.source.note(Some(value.span()), path, self.source.quote(value), problem.into(), expected, nearest);
    }

    /// Notes the keys that nobody asked for. Returns the table's schema.
    fn finish(self) -> Json {
        for (name, value) in self.table.into_iter().flatten() {
            if !self.properties.contains_key(name.get_ref().as_ref()) {
                self.source.strays.borrow_mut().push(Stray {
                    at: name.span(),
                    section: self.path.clone(),
                    name: name.get_ref().to_string(),
                    value: self.source.quote(value),
                    siblings: self.properties.keys().cloned().collect(),
                });
            }
        }
        let mut schema = json!({ "type": "object", "properties": self.properties, "additionalProperties": false });
        if let Some(schema) = schema.as_object_mut().filter(|_| !self.required.is_empty()) {
            schema.insert("required".into(), self.required.into());
        }
        schema
    }
}
