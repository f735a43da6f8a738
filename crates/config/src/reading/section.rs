//! Reads a TOML table key by key. The keys that are read define the valid keys of the file: each call reads a value,
//! records its fault, and adds the key to the schema and to the suggestions for misspelt keys. So every fault is found
//! at once, and keys, ranges, defaults and schema are in one place (`table.rs`).

use super::examples;
use super::source::{SourceText, UnknownKey, join_path};
use super::value_kinds::{RawValue, ValueError, ValueKind, set_member};
use serde_json::{Map, Value as Json, json};
use std::{
    cell::RefCell,
    collections::BTreeMap,
    ops::{Range, RangeInclusive},
    path::Path,
};
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

/// A table of the file; if the file lacks it, it reads as empty and has no faults.
pub(crate) struct ConfigSection<'s> {
    source: &'s SourceText<'s>,
    table: Option<&'s DeTable<'s>>,
    span: Option<Range<usize>>,
    path: String,
    /// Whether the schema of the table is wanted: not of one of many tables, as an example has it.
    is_described: bool,
    /// Keys that were read, with their schemas if these are wanted.
    properties: Map<String, Json>,
    required: Vec<String>,
    /// Keys of which one is required.
    required_alternatives: Vec<&'static str>,
    /// Tables that the file may have and the schema lacks.
    beside_schema: Vec<&'static str>,
    /// Required keys that are missing, with the expected value of each.
    missing: RefCell<Vec<(String, String)>>,
    /// Keys with rejected values.
    wrong: Vec<String>,
    /// Indexes of the accepted values of each array, by key.
    valid: BTreeMap<String, Vec<usize>>,
}

impl<'s> SourceText<'s> {
    /// Reads the whole file by `read`, and returns its result with the schema of such files. Faults are collected.
    pub(crate) fn read_root<T>(
        &'s self,
        table: &'s DeTable<'s>,
        read: impl FnOnce(&mut ConfigSection<'s>) -> T,
    ) -> (T, Json) {
        let mut root = ConfigSection::new(self, Some(table), None, String::new());
        let value = read(&mut root);
        let schema = root.finish_section();
        for unknown in self.unknown_keys.take() {
            self.note_unknown_key(unknown, &schema);
        }
        (value, schema)
    }
}

impl<'s> ConfigSection<'s> {
    /// Creates a section for `table` under `path`, with its head at `span`.
    pub(crate) fn new(
        source: &'s SourceText<'s>,
        table: Option<&'s DeTable<'s>>,
        span: Option<Range<usize>>,
        path: String,
    ) -> Self {
        Self {
            source,
            table,
            span,
            path,
            is_described: true,
            properties: Map::new(),
            required: Vec::new(),
            required_alternatives: Vec::new(),
            beside_schema: Vec::new(),
            missing: RefCell::default(),
            wrong: Vec::new(),
            valid: BTreeMap::new(),
        }
    }

    /// Returns the folder to which paths are relative.
    pub(crate) fn base_directory(&self) -> &'s Path {
        self.source.file_directory()
    }

    fn get_value(&self, key: &str) -> Option<&'s Spanned<DeValue<'s>>> {
        self.table?.get(key)
    }

    /// Returns this table, which is one of many, without a schema.
    fn without_schema(self) -> Self {
        Self { is_described: false, ..self }
    }

    /// Adds `key` to the keys that were read; what `make` makes is its schema without the description.
    fn describe_key(&mut self, key: &str, about: &str, make: impl FnOnce() -> Json) {
        let mut schema = if self.is_described { make() } else { Json::Null };
        set_member(&mut schema, "description", about);
        self.properties.insert(key.into(), schema);
    }

    /// Adds a `key` as [`Self::describe_key`] does; `make` makes the schema of its values, the expected values for
    /// people, and the default.
    fn describe_value(&mut self, key: &str, about: &str, make: impl FnOnce() -> (Json, String, Option<Json>)) {
        self.describe_key(key, about, || {
            let (mut schema, expected, default) = make();
            set_member(&mut schema, "$comment", expected);
            if let Some(default) = default {
                set_member(&mut schema, "default", default);
            }
            schema
        });
    }

    fn read_value<T>(&mut self, key: &str, kind: &ValueKind<T>) -> Option<T> {
        let given = self.get_value(key)?;
        let value = self.source.parse_value(&join_path(&self.path, key), given, kind);
        if value.is_none() {
            self.wrong.push(key.into());
        }
        value
    }

    /// Whether the file has this table, and none of its values for `keys` was rejected.
    pub(crate) fn has_valid_keys(&self, keys: &[&str]) -> bool {
        self.table.is_some() && !self.wrong.iter().any(|wrong| keys.contains(&wrong.as_str()))
    }

    /// Returns the names of the tables within the table `key`.
    pub(crate) fn table_names_within(&self, key: &str) -> impl Iterator<Item = &'s str> {
        let table = self.get_value(key).and_then(|value| value.get_ref().as_table());
        let tables = table.into_iter().flatten().filter(|(_, value)| value.get_ref().is_table());
        tables.map(|(name, _)| name.get_ref().as_ref())
    }

    /// Whether the file has `key`, valid or not.
    pub(crate) fn has_key(&self, key: &str) -> bool {
        self.get_value(key).is_some()
    }

    /// Whether the file has an empty array as `key`.
    pub(crate) fn is_empty_list(&self, key: &str) -> bool {
        self.get_value(key)
            .and_then(|value| value.get_ref().as_array())
            .is_some_and(|array| array.iter().next().is_none())
    }

    /// Whether the file has a nonempty table as `key`, valid or not, or another value.
    pub(crate) fn has_entries(&self, key: &str) -> bool {
        self.get_value(key)
            .is_some_and(|value| value.get_ref().as_table().is_none_or(|table| table.iter().next().is_some()))
    }

    /// Reads `key`, with `default` for a missing or rejected value.
    pub(crate) fn value_or_default<T>(&mut self, key: &str, kind: ValueKind<T>, default: T, about: &str) -> T {
        let value = self.read_value(key, &kind);
        self.describe_value(key, about, || (kind.schema, kind.expected, Some((kind.show)(&default))));
        value.unwrap_or(default)
    }

    /// Reads `key`; `None` if the value is missing or rejected.
    pub(crate) fn optional_value<T>(&mut self, key: &str, kind: ValueKind<T>, about: &str) -> Option<T> {
        let value = self.read_value(key, &kind);
        self.describe_value(key, about, || (kind.schema, kind.expected, None));
        value
    }

    /// Adds `key` to the required keys, and records a fault if it is missing.
    fn require_key(&mut self, key: &str, expected: &str) {
        if !self.has_key(key) {
            self.note_missing(key, expected);
        }
        self.required.push(key.into());
    }

    /// Reads the required `key`; `None` if the value is missing or rejected, which is a fault.
    pub(crate) fn required_value<T>(&mut self, key: &str, kind: ValueKind<T>, about: &str) -> Option<T> {
        self.require_key(key, &kind.expected);
        self.optional_value(key, kind, about)
    }

    /// Reads the array `key`, whose length is in `count`, or a single value. `None` if the key is missing; rejected
    /// values are left out. `default` is for the schema alone.
    pub(crate) fn list_values<T>(
        &mut self,
        key: &str,
        kind: ValueKind<T>,
        count: RangeInclusive<usize>,
        default: Option<&[T]>,
        about: &str,
    ) -> Option<Vec<T>> {
        let values =
            self.read_elements(key, &count, |section, path, value| section.source.parse_value(path, value, &kind));
        self.describe_value(key, about, || {
            let (least, most) = (count.start(), count.end());
            let array = json!({ "type": "array", "items": kind.schema, "minItems": least, "maxItems": most });
            let expected = format!("{least} to {most} of: {}; a single one needs no list", kind.expected);
            let default = default.map(|default| default.iter().map(|value| (kind.show)(value)).collect());
            (json!({ "anyOf": [kind.schema, array] }), expected, default)
        });
        values
    }

    /// Reads the required array `key`, whose length is in `count`, or a single value. Rejected values are left out, and
    /// a missing key is a fault.
    pub(crate) fn required_list<T>(
        &mut self,
        key: &str,
        kind: ValueKind<T>,
        count: RangeInclusive<usize>,
        about: &str,
    ) -> Vec<T> {
        self.require_key(key, &kind.expected);
        self.list_values(key, kind, count, None, about).unwrap_or_default()
    }

    /// Calls `read` with path and value of each element of the array `key`, whose length is in `count`, or of a single
    /// value. `None` if the key is missing; rejected values are left out.
    fn read_elements<T>(
        &mut self,
        key: &str,
        count: &RangeInclusive<usize>,
        mut read: impl FnMut(&Self, &str, &'s Spanned<DeValue<'s>>) -> Option<T>,
    ) -> Option<Vec<T>> {
        let path = join_path(&self.path, key);
        let value = self.get_value(key)?;
        let values: Vec<(usize, T)> = match value.get_ref() {
            DeValue::Array(array) if !count.contains(&array.len()) => {
                let problem = format!("has {} values", array.len());
                let expected = format!("{} to {}", count.start(), count.end());
                self.note_value_fault(path, value, ValueError::from(problem).expecting(expected));
                Vec::new()
            }
            DeValue::Array(array) => {
                let read = |(n, value)| Some((n, read(&*self, &format!("{path}[{n}]"), value)?));
                array.iter().enumerate().filter_map(read).collect()
            }
            _ => read(&*self, &path, value).map(|value| (0, value)).into_iter().collect(),
        };
        let (right, values) = values.into_iter().unzip();
        self.valid.insert(key.into(), right);
        Some(values)
    }

    /// Whether all values of the array `key`, or the single value, were accepted.
    pub(crate) fn is_valid_list(&self, key: &str) -> bool {
        let count = self.get_value(key).map_or(0, |value| value.get_ref().as_array().map_or(1, |array| array.len()));
        self.valid.get(key).is_some_and(|right| right.len() == count)
    }

    /// Reads the table `key` by `read`; a missing one is empty.
    pub(crate) fn read_subtable<T>(
        &mut self,
        key: &str,
        about: &str,
        read: impl FnOnce(&mut ConfigSection<'s>) -> T,
    ) -> T {
        let value = self.get_value(key);
        let mut section = self.open_inner(join_path(&self.path, key), value);
        let result = read(&mut section);
        let schema = section.finish_section();
        self.describe_key(key, about, || schema);
        result
    }

    /// Reads the table `key` by `read`, and keeps it out of the schema.
    pub(crate) fn read_hidden_table<T>(
        &mut self,
        key: &'static str,
        read: impl FnOnce(&mut ConfigSection<'s>) -> T,
    ) -> T {
        let result = self.read_subtable(key, "", read);
        self.properties.remove(key);
        self.beside_schema.push(key);
        result
    }

    /// Reads each table of the array `key` by `read`.
    pub(crate) fn read_table_array<T>(
        &mut self,
        key: &str,
        about: &str,
        mut read: impl FnMut(&mut ConfigSection<'s>) -> T,
    ) -> Vec<T> {
        let path = join_path(&self.path, key);
        let expected = format!("tables that each begin with [[{path}]]");
        let array = self.get_value(key).and_then(|value| {
            let array = value.get_ref().as_array();
            if array.is_none() {
                self.note_wrong_type(&path, value, &expected);
            }
            array
        });
        let mut results = Vec::new();
        for (n, value) in array.into_iter().flat_map(|array| array.iter()).enumerate() {
            let mut section = self.open_inner(format!("{path}[{n}]"), Some(value)).without_schema();
            // An element that is not a table reads as an empty one, so that later elements keep their index.
            results.push(read(&mut section));
            section.finish_section();
        }
        let source = self.source;
        self.describe_key(key, about, || {
            let mut example = ConfigSection::new(source, None, None, path);
            read(&mut example);
            json!({ "type": "array", "items": example.finish_section() })
        });
        results
    }

    /// Reads each table within the table `key` by `read`, by name.
    pub(crate) fn read_named_tables<T>(
        &mut self,
        key: &str,
        about: &str,
        mut read: impl FnMut(&str, &mut ConfigSection<'s>) -> T,
    ) -> Vec<(String, T)> {
        let path = join_path(&self.path, key);
        let outer = self.open_inner(path.clone(), self.get_value(key));
        let mut results = Vec::new();
        for (name, value) in outer.table.into_iter().flatten() {
            let mut section = self.open_inner(join_path(&path, name.get_ref()), Some(value)).without_schema();
            if section.table.is_some() {
                results.push((name.get_ref().to_string(), read(name.get_ref(), &mut section)));
            }
            section.finish_section();
        }
        let source = self.source;
        self.describe_key(key, about, || {
            let mut example = ConfigSection::new(source, None, None, path);
            read("", &mut example);
            json!({ "type": "object", "additionalProperties": example.finish_section() })
        });
        results
    }

    /// Reads the table `key` as a map: keys match the pattern `names` and are converted by `name`, values are read by
    /// `kind`; `most` entries at most. Rejected entries are left out.
    pub(crate) fn read_map<K, T>(
        &mut self,
        key: &str,
        names: &str,
        name: impl Fn(&str) -> Result<K, ValueError>,
        kind: ValueKind<T>,
        most: usize,
        about: &str,
    ) -> Vec<(K, T)> {
        let path = join_path(&self.path, key);
        let outer = self.open_inner(path.clone(), self.get_value(key));
        let mut results = Vec::new();
        for (written, value) in outer.table.into_iter().flatten() {
            let path = join_path(&path, written.get_ref());
            match name(written.get_ref()) {
                Ok(name) => results.extend(self.source.parse_value(&path, value, &kind).map(|value| (name, value))),
                Err(fault) => {
                    self.source.record_fault(Some(written.span()), path, self.source.quote_value(value), fault);
                }
            }
        }
        if outer.table.is_some_and(|table| table.len() > most) {
            outer.note_table_fault("has too many keys", &format!("at most {most}"));
        }
        self.describe_value(key, about, || {
            let mut schema = kind.schema;
            set_member(&mut schema, "description", about);
            let names = json!({ "pattern": format!("^({names})$") });
            let schema = json!({
                "type": "object", "propertyNames": names, "additionalProperties": schema, "maxProperties": most
            });
            (schema, format!("at most {most}, each {}", kind.expected), None)
        });
        results
    }

    fn open_inner(&self, path: String, value: Option<&'s Spanned<DeValue<'s>>>) -> ConfigSection<'s> {
        let table = value.and_then(|value| value.get_ref().as_table());
        match value {
            Some(value) if table.is_none() => {
                let is_list =
                    value.get_ref().as_array().is_some_and(|array| array.iter().any(|one| one.get_ref().is_table()));
                self.note_wrong_type(&path, value, &examples::expected_table(&path, is_list));
            }
            Some(value) => self.source.record_position(&path, value),
            None => {}
        }
        let section = ConfigSection::new(self.source, table, value.map(Spanned::span), path);
        ConfigSection { is_described: self.is_described, ..section }
    }

    fn note_wrong_type(&self, path: &str, value: &Spanned<DeValue<'_>>, expected: &str) {
        let is_tables =
            value.get_ref().as_array().is_some_and(|array| array.iter().any(|one| one.get_ref().is_table()));
        self.source.record_fault(
            Some(value.span()),
            path.into(),
            // A table's head is not shown as a value.
            self.source.quote_value(value).filter(|_| !is_tables),
            RawValue::Other(value.get_ref().type_str()).wrong_type_error().expecting(expected),
        );
    }

    /// Records that the required `key` is missing.
    pub(crate) fn note_missing(&self, key: &str, expected: &str) {
        if self.table.is_some() {
            self.missing.borrow_mut().push((key.into(), expected.into()));
        }
    }

    /// Records a fault unless the table has one of `keys`; the first one counts as missing.
    pub(crate) fn require_one_of<const N: usize>(&mut self, keys: [&'static str; N], expected: &str) {
        if let Some(first) = keys.first().filter(|_| !keys.iter().any(|key| self.has_key(key))) {
            self.note_missing(first, expected);
        }
        self.required_alternatives.extend(keys);
    }

    /// Whether the table has only tables under unknown names, as if `[origin.NAME]` was meant as `[origins.NAME]`.
    fn is_misnamed_table(&self) -> bool {
        let known = |name: &str| self.properties.contains_key(name);
        let mut entries = self.table.into_iter().flatten().peekable();
        let is_empty = entries.peek().is_none();
        !is_empty && entries.all(|(name, value)| value.get_ref().is_table() && !known(name.get_ref()))
    }

    /// Records a fault of a value that is valid by itself.
    pub(crate) fn note_fault(&self, key: &str, fault: impl Into<ValueError>) {
        if let Some(value) = self.get_value(key) {
            self.note_value_fault(join_path(&self.path, key), value, fault);
        }
    }

    /// Records a fault of a value that is valid by itself, where `expected` was expected.
    pub(crate) fn note_fault_expecting(&self, key: &str, problem: impl Into<String>, expected: &str) {
        self.note_fault(key, ValueError::from(problem).expecting(expected));
    }

    /// Line of the table's beginning; 0 if it is not in the file.
    pub(crate) fn line(&self) -> usize {
        self.span.as_ref().map_or(0, |span| self.source.line_number(span.start))
    }

    /// Records a fault of the table as a whole.
    pub(crate) fn note_table_fault(&self, problem: &str, expected: &str) {
        if self.table.is_some() {
            let fault = ValueError::from(problem).expecting(expected);
            self.source.record_fault(self.span.clone(), self.path.clone(), None, fault);
        }
    }

    /// Records a fault of the `n`th value that [`ConfigSection::list_values`] returned.
    pub(crate) fn note_list_fault(&self, key: &str, n: usize, problem: impl Into<String>) {
        let right = self.valid.get(key).and_then(|right| right.get(n));
        let (Some(value), Some(&n)) = (self.get_value(key), right) else { return };
        let path = join_path(&self.path, key);
        match value.get_ref().as_array().and_then(|array| array.get(n)) {
            Some(element) => self.note_value_fault(format!("{path}[{n}]"), element, problem),
            None => self.note_value_fault(path, value, problem),
        }
    }

    /// Records `problem` for each of the `values` of the array `key` that an earlier one equals.
    pub(crate) fn note_repeated_values<T: PartialEq>(&self, key: &str, values: &[T], problem: &str) {
        for (n, value) in values.iter().enumerate() {
            if values.iter().take(n).any(|earlier| earlier == value) {
                self.note_list_fault(key, n, problem);
            }
        }
    }

    fn note_value_fault(&self, path: String, value: &Spanned<DeValue<'_>>, fault: impl Into<ValueError>) {
        self.source.record_fault(Some(value.span()), path, self.source.quote_value(value), fault.into());
    }

    /// Records missing and unknown keys, and returns the table's schema.
    pub(crate) fn finish_section(self) -> Json {
        let is_another = !self.path.is_empty() && self.is_misnamed_table();
        for (key, expected) in self.missing.take().into_iter().filter(|_| !is_another) {
            let path = join_path(&self.path, &key);
            self.source.record_fault(self.span.clone(), path, None, ValueError::from("missing").expecting(expected));
        }
        for (name, value) in self.table.into_iter().flatten() {
            let name_text = name.get_ref().as_ref();
            if !self.properties.contains_key(name_text) && !self.beside_schema.contains(&name_text) {
                self.source.add_unknown_key(UnknownKey {
                    at: name.span(),
                    section: self.path.clone(),
                    name: name.get_ref().to_string(),
                    value: self.source.quote_value(value),
                    is_table: value.get_ref().is_table(),
                    is_origin: value.get_ref().as_table().is_some_and(|table| table.contains_key("url")),
                    siblings: self.properties.keys().cloned().collect(),
                });
            }
        }
        if !self.is_described {
            return Json::Null;
        }
        let mut schema = json!({ "type": "object", "properties": self.properties, "additionalProperties": false });
        if !self.required.is_empty() {
            set_member(&mut schema, "required", self.required);
        }
        if !self.required_alternatives.is_empty() {
            let required = self.required_alternatives.iter().map(|key| json!({ "required": [key] }));
            set_member(&mut schema, "anyOf", required.collect::<Json>());
        }
        schema
    }
}
