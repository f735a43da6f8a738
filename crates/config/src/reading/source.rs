//! Holds the file while it is read: text, positions of keys, and the faults found so far.

use super::fault::{ConfigFault, nearest_word, quote_line};
use super::position::{KeyPosition, KeyPositions};
use super::removed_keys;
use super::value_kinds::{RawValue, ValueError, ValueKind};
use crate::reading::foreign::{self, ForeignHint};
use serde_json::Value as Json;
use std::{cell::RefCell, collections::BTreeMap, ops::Range, path::Path};
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

/// Looks up an environment variable by name.
pub(crate) type VariableLookup<'s> = &'s dyn Fn(&str) -> Option<String>;

/// Variables that other programs set in the environment, with the conditions.
const INJECTED_VARIABLES: [(&str, &str); 2] = [
    (
        "AWS_LBC_QUIC_SERVER_ID",
        "the AWS Load Balancer Controller injects it into pods with the annotation \
         service.beta.kubernetes.io/aws-load-balancer-quic-enabled-containers that were created after their Service",
    ),
    ("POD_IP", "the charts set it with podIP: true"),
];

/// Number of unknown keys in a message at most: each is compared with all known keys.
const MAX_UNKNOWN_KEYS: usize = 100;
/// Number of syntax faults in a message at most: one may cause others.
const MAX_SYNTAX_FAULTS: usize = 20;

/// Text of the configuration file, with the faults found so far.
pub(crate) struct SourceText<'s> {
    file: &'s Path,
    text: &'s str,
    lines: LineIndex<'s>,
    environment: VariableLookup<'s>,
    /// Positions of all values and tables that were read, by key.
    positions: RefCell<BTreeMap<String, KeyPosition>>,
    faults: RefCell<Vec<ConfigFault>>,
    pub(crate) unknown_keys: RefCell<Vec<UnknownKey>>,
}

/// An unknown key, which is reported once all keys are known.
pub(crate) struct UnknownKey {
    pub(crate) at: Range<usize>,
    pub(crate) section: String,
    pub(crate) name: String,
    pub(crate) value: Option<String>,
    pub(crate) is_table: bool,
    /// Whether the value is a table with a `url`, like an origin.
    pub(crate) is_origin: bool,
    pub(crate) siblings: Vec<String>,
}

impl UnknownKey {
    /// Returns a description of the fault, and the key that was probably meant, as far as known.
    fn suggest_key(&self, schema: &Json) -> (Option<String>, Option<String>) {
        if self.is_origin && self.section == "origin" {
            return (None, Some(format!("[{}]", join_path("origins", &self.name))));
        }
        if let Some(hint) = removed_keys::removed_hint(&self.section, &self.name) {
            return (Some(hint), None);
        }
        if let Some(own) =
            self.siblings.iter().find(|own| foreign::without_separators(own) == foreign::without_separators(&self.name))
        {
            return (None, Some(own.clone()));
        }
        match foreign::foreign_hint(&self.section, &self.name) {
            Some(ForeignHint::Key(key)) => return (None, Some(key.into())),
            Some(ForeignHint::Line(line)) => return (Some(line.into()), None),
            None => {}
        }
        if let Some(near) = nearest_word(&self.name, self.siblings.iter().map(String::as_str)) {
            return (None, Some(near.into()));
        }
        match find_in_other_table(&self.name, schema) {
            Some(key) if key == self.name && self.is_table => {
                (Some(format!("write [{key}] at the top level of the file")), None)
            }
            Some(key) if key == self.name => {
                (Some("write it at the top level of the file, before the first [table]".into()), None)
            }
            key => (None, key),
        }
    }
}

impl<'s> SourceText<'s> {
    /// Creates a source with `text` as the content of `file`.
    pub(crate) fn new(file: &'s Path, text: &'s str, environment: VariableLookup<'s>) -> Self {
        Self {
            file,
            text,
            lines: LineIndex::new(text),
            environment,
            positions: RefCell::default(),
            faults: RefCell::default(),
            unknown_keys: RefCell::default(),
        }
    }

    /// Returns the folder of the file.
    pub(crate) fn file_directory(&self) -> &'s Path {
        self.file.parent().unwrap_or(Path::new(""))
    }

    /// Takes the positions of all values that were read, and every fault.
    pub(crate) fn take_results(&self) -> (KeyPositions, Vec<ConfigFault>) {
        (KeyPositions::new(self.file, self.positions.take()), self.faults.take())
    }

    /// Stores an unknown key until all keys are known.
    pub(crate) fn add_unknown_key(&self, unknown: UnknownKey) {
        let mut unknown_keys = self.unknown_keys.borrow_mut();
        if unknown_keys.len() < MAX_UNKNOWN_KEYS {
            unknown_keys.push(unknown);
        }
    }

    pub(crate) fn note_unknown_key(&self, unknown: UnknownKey, schema: &Json) {
        let (hint, near) = unknown.suggest_key(schema);
        let problem = match hint {
            Some(hint) if hint.starts_with(removed_keys::REMOVED_PREFIX) => hint,
            Some(hint) => format!("unknown key; {hint}"),
            None => "unknown key".into(),
        };
        let expected =
            (near.is_none() && problem == "unknown key").then(|| format!("one of {}", unknown.siblings.join(", ")));
        let path = join_path(&unknown.section, &unknown.name);
        self.record_fault(Some(unknown.at), path, unknown.value, ValueError { problem, expected, nearest: near });
    }

    /// Records a fault.
    pub(crate) fn record_fault(
        &self,
        at: Option<Range<usize>>,
        key: String,
        value: Option<String>,
        ValueError { problem, expected, nearest }: ValueError,
    ) {
        let (line, column) = at.as_ref().map(|at| self.lines.line_and_column(at.start)).unzip();
        let fault = ConfigFault { file: self.file.into(), line, column, key, value, problem, expected, nearest };
        self.faults.borrow_mut().push(fault);
    }

    /// Number of the line at the position `byte`.
    pub(crate) fn line_number(&self, byte: usize) -> usize {
        self.lines.line_and_column(byte).0
    }

    /// Returns `value` as written; `None` for a table.
    pub(crate) fn quote_value(&self, value: &Spanned<DeValue<'_>>) -> Option<String> {
        let written = self.text.get(value.span()).filter(|_| !value.get_ref().is_table())?;
        Some(quote_line(written))
    }

    /// Records the position of `value`.
    pub(crate) fn record_position(&self, key: &str, value: &Spanned<DeValue<'_>>) {
        let (line, column) = self.lines.line_and_column(value.span().start);
        self.positions.borrow_mut().insert(key.into(), KeyPosition { line, column, value: self.quote_value(value) });
    }

    /// Reads a value by `kind`; `None` if it is rejected, which is recorded as a fault.
    pub(crate) fn parse_value<T>(&self, key: &str, value: &Spanned<DeValue<'_>>, kind: &ValueKind<T>) -> Option<T> {
        self.record_position(key, value);
        let given = match value.get_ref() {
            DeValue::String(text) => expand_variables(text, self.environment).map(RawValue::Text),
            DeValue::Integer(number) => {
                // A number beyond i128 is outside every range.
                let number = i128::from_str_radix(number.as_str(), number.radix()).unwrap_or(i128::MAX);
                Ok(RawValue::Integer(number))
            }
            DeValue::Boolean(boolean) => Ok(RawValue::Boolean(*boolean)),
            DeValue::Float(float) => Ok(RawValue::Float(float.as_str().parse().unwrap_or(f64::NAN))),
            other => Ok(RawValue::Other(other.type_str())),
        };
        let expanded = match &given {
            Ok(RawValue::Text(text)) if value.get_ref().as_str() != Some(text) => format!(" ({:?})", quote_line(text)),
            _ => String::new(),
        };
        let fault = match given.map(|given| (kind.read)(given)) {
            Ok(Ok(value)) => return Some(value),
            Ok(Err(fault)) if fault.expected.is_none() => fault.expecting(&*kind.expected),
            Ok(Err(fault)) => fault,
            Err(problem) => problem.into(),
        };
        let written = self.quote_value(value).map(|written| written + &expanded);
        self.record_fault(Some(value.span()), key.into(), written, fault);
        None
    }
}

/// Returns the fault of a TOML file for another program; `None` if it is for litequic.
pub(crate) fn find_foreign_fault(file: &Path, text: &str, root: &DeTable<'_>) -> Option<ConfigFault> {
    foreign::detect_by_keys(root).map(|(program, at)| foreign_format_fault(file, text, program, at))
}

/// Returns the faults of a file that is not TOML, as far as `root` could be parsed. The values are not read, because
/// their keys are uncertain.
pub(crate) fn list_syntax_faults(
    file: &Path,
    text: &str,
    root: &DeTable<'_>,
    errors: &[toml::de::Error],
) -> Vec<ConfigFault> {
    if let Some((program, at)) = foreign::detect_by_lines(text).or_else(|| foreign::detect_by_keys(root)) {
        return vec![foreign_format_fault(file, text, program, at)];
    }
    let lines = LineIndex::new(text);
    let fault = |error: &toml::de::Error| {
        let (line, column) = error.span().map(|span| lines.line_and_column(span.start)).unzip();
        let problem = match error.message() {
            "duplicate key" => {
                error.span().map_or_else(|| "duplicate key".into(), |at| lines.describe_duplicate(root, at))
            }
            message => format!("not TOML: {}", message.lines().collect::<Vec<_>>().join("; ")),
        };
        ConfigFault { file: file.into(), line, column, problem, ..ConfigFault::default() }
    };
    errors.iter().take(MAX_SYNTAX_FAULTS).map(fault).collect()
}

fn foreign_format_fault(file: &Path, text: &str, program: foreign::ForeignFormat, at: usize) -> ConfigFault {
    let (line, column) = LineIndex::new(text).line_and_column(at);
    ConfigFault {
        file: file.into(),
        line: Some(line),
        column: Some(column),
        problem: format!("is {program}"),
        expected: Some(program.describe_expected()),
        ..ConfigFault::default()
    }
}

/// Index of the beginnings of lines.
struct LineIndex<'s> {
    text: &'s str,
    starts: Vec<usize>,
}

impl<'s> LineIndex<'s> {
    fn new(text: &'s str) -> Self {
        let after_newlines = text.match_indices('\n').map(|(newline, _)| newline + 1);
        Self { text, starts: std::iter::once(0).chain(after_newlines).collect() }
    }

    /// Returns line and column of a byte, from 1.
    fn line_and_column(&self, byte: usize) -> (usize, usize) {
        let line = self.starts.partition_point(|start| *start <= byte);
        let start = self.starts.get(line.saturating_sub(1)).copied().unwrap_or(0);
        let column = self.text.get(start..byte).unwrap_or_default().chars().count() + 1;
        (line, column)
    }

    /// Describes the second of two equal keys or tables at `at`, with the line of the first if `root` has it.
    fn describe_duplicate(&self, root: &DeTable<'_>, at: Range<usize>) -> String {
        let name = self.text.get(at.clone()).unwrap_or_default();
        let before = self.text.get(..at.start).unwrap_or_default();
        let line = before.rsplit('\n').next().unwrap_or_default();
        let header = |line: &str| line.trim_start().starts_with('[');
        // The head of the enclosing table is parsed as a file of its own, to get its path.
        let is_table = header(line);
        let head = self.text.get(at.start - line.len()..).and_then(|rest| rest.lines().next());
        let enclosing = || before.lines().rev().skip(1).find(|line| header(line));
        let path = if is_table { head } else { enclosing() }.map(head_path).unwrap_or_default();
        let key = (!is_table).then_some(name);
        let first = find_key_position(root, &path, key)
            .filter(|first| *first < at.start)
            .map(|first| self.line_and_column(first).0);
        // Of two equal tables, `root` has the last.
        let earlier = || before.lines().position(|line| header(line) && head_path(line) == path).map(|line| line + 1);
        let first = first.or_else(|| earlier().filter(|_| is_table));
        let first = first.map(|first| format!("; the first is in line {first}")).unwrap_or_default();
        if is_table {
            let head = head.unwrap_or_default();
            let head = head.rfind(']').and_then(|end| head.get(..=end)).unwrap_or(head);
            return format!("duplicate table {}{first}", quote_line(head.trim()));
        }
        format!("duplicate key {}{first}", quote_line(name))
    }
}

/// Returns the path of a table's head, such as `[origins."a.b"]`.
fn head_path(line: &str) -> Vec<String> {
    let mut path = Vec::new();
    let (root, _) = DeTable::parse_recoverable(line);
    let mut table = Some(root.get_ref());
    while let Some((key, value)) = table.and_then(|table| table.iter().next()) {
        path.push(key.get_ref().to_string());
        table = last_table(value);
    }
    path
}

/// Returns a table, or the last table of an array.
fn last_table<'t, 's>(value: &'t Spanned<DeValue<'s>>) -> Option<&'t DeTable<'s>> {
    let last = || value.get_ref().as_array()?.iter().last()?.get_ref().as_table();
    value.get_ref().as_table().or_else(last)
}

/// Returns the position of the key `name` in the table at `path`, or of the table itself.
fn find_key_position(root: &DeTable<'_>, path: &[String], name: Option<&str>) -> Option<usize> {
    let mut table = root;
    let mut at = None;
    for key in path {
        let (written, value) = table.get_key_value(key.as_str())?;
        at = Some(written.span().start);
        table = last_table(value)?;
    }
    match name {
        Some(name) => Some(table.get_key_value(name.trim_matches(['"', '\'']))?.0.span().start),
        None => at,
    }
}

/// Replaces each `${NAME}` by the environment variable; a `$` without a brace stays.
fn expand_variables(text: &str, environment: VariableLookup<'_>) -> Result<String, String> {
    let mut expanded = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${") {
        expanded.push_str(before);
        let (name, after) = after.split_once('}').ok_or("`${` without `}`")?;
        if name.is_empty() || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
            return Err(format!("`${{{}}}` is not the name of an environment variable", quote_line(name)));
        }
        let value = environment(name).ok_or_else(|| {
            let injected = INJECTED_VARIABLES.iter().find(|(variable, _)| *variable == name);
            let by = injected.map_or_else(String::new, |(_, by)| format!("; {by}"));
            format!("environment variable {} is not set{by}", quote_line(name))
        })?;
        expanded.push_str(&value);
        rest = after;
    }
    expanded.push_str(rest);
    Ok(expanded)
}

/// Returns the path of this key in another table.
fn find_in_other_table(name: &str, schema: &Json) -> Option<String> {
    fn search(name: &str, path: &str, schema: &Json) -> Option<String> {
        let inner = schema.get("items").map(|items| (format!("{path}[]"), items));
        let inner = inner.or_else(|| schema.get("additionalProperties").map(|named| (format!("{path}.NAME"), named)));
        if let Some(found) = inner.and_then(|(path, inner)| search(name, &path, inner)) {
            return Some(found);
        }
        let properties = schema.get("properties")?.as_object()?;
        if properties.contains_key(name) {
            return Some(join_path(path, name));
        }
        properties.iter().find_map(|(key, inner)| search(name, &join_path(path, key), inner))
    }
    search(name, "", schema)
}

/// Joins the path of a table and a key, which is quoted where TOML requires it.
pub(crate) fn join_path(section: &str, key: &str) -> String {
    let bare = !key.is_empty() && key.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'));
    let key = if bare { quote_line(key) } else { format!("{:?}", quote_line(key)) };
    if section.is_empty() { key } else { format!("{section}.{key}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_count_lines_and_characters_from_one() {
        let lines = LineIndex::new("é = 1\n\r\n  b = 2");
        for (byte, position) in
            [(0, (1, 1)), (2, (1, 2)), (6, (1, 6)), (7, (2, 1)), (9, (3, 1)), (11, (3, 3)), (16, (3, 8))]
        {
            assert_eq!(lines.line_and_column(byte), position, "{byte}");
        }
        assert_eq!(LineIndex::new("").line_and_column(0), (1, 1));
    }

    #[test]
    fn environment_variables_are_filled_in() {
        let environment = |name: &str| (name == "NAME_1").then(|| "${NAME_1}".to_owned());
        for (text, expanded) in [
            ("", Ok("")),
            ("$NAME_1 $ {} }", Ok("$NAME_1 $ {} }")),
            // The values of variables are not expanded again.
            ("a${NAME_1}b", Ok("a${NAME_1}b")),
            ("${NAME_1", Err("`${` without `}`")),
            ("${OTHER}", Err("environment variable OTHER is not set")),
            ("${}", Err("`${}` is not the name of an environment variable")),
            ("${a b}", Err("`${a b}` is not the name of an environment variable")),
        ] {
            assert_eq!(expand_variables(text, &environment), expanded.map(Into::into).map_err(Into::into), "{text}");
        }
    }
}
