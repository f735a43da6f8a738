//! Declares tables of keys. A row of [`keys!`] has all properties of a key: field, description, default, reader,
//! restart, and the metric that counts when the key's limit is reached.
//!
//! ```text
//! keys! {
//!     /// Limits for clients.
//!     #[derive(Debug, Clone, Copy, PartialEq, Eq)]
//!     pub struct Limits counted by "litequic_limit_reached_total{limit=\"*\"}" {
//!         /// Requests on a connection in all; then GOAWAY.                      for field, schema and reference
//!         max_requests: u64 = 1_000_000, number_kind(REQUESTS_RANGE), counted;  field, default, reader, properties
//!     }
//! }
//! ```
//!
//! A reader is a [`ValueKind`], or made of one by [`optional_key`], [`list_key`] or [`file_key`], or [`TableReader`]. A
//! row with [`FixedValue`] and `no_key` is a field without a key. `field("key")` is a key whose name differs from its
//! field's. Further properties are methods of [`ConfigKey`]. Rules over several keys are functions that run after
//! [`KeyTable::read_table`].

use super::{changes::Changes, rule_readers, section::ConfigSection, value_kinds::ValueKind};
use serde_json::Value as Json;
use std::{ops::RangeInclusive, path::PathBuf};

/// A table of keys of the configuration.
pub(crate) trait KeyTable: Sized {
    const KEYS: &'static [ConfigKey];

    /// Reads the table, with defaults for missing and rejected values.
    fn read_table(section: &mut ConfigSection<'_>) -> Self;

    /// Records the differences to `next`; the table is at `path`.
    fn compare_keys(&self, next: &Self, path: &str, changes: &mut Changes);

    /// Returns `next` with the current values of keys that need a restart.
    fn apply_without_restart(self, next: Self) -> Self;
}

/// Properties of a key: name, restart, metric.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ConfigKey {
    pub(crate) name: &'static str,
    pub(crate) needs_restart: bool,
    /// Whether the file may have the key. If not, its value is constant or follows from other keys.
    pub(crate) is_key: bool,
    /// Metric that counts when the key's limit is reached; `*` stands for the key's name.
    metric: Option<&'static str>,
}

impl ConfigKey {
    pub(crate) const fn new(name: &'static str) -> Self {
        Self { name, needs_restart: false, is_key: true, metric: None }
    }

    /// Marks a key whose change needs a restart.
    pub(crate) const fn with_restart(self) -> Self {
        Self { needs_restart: true, ..self }
    }

    /// Marks a value that the file cannot have; [`FixedValue`] reads it.
    pub(crate) const fn without_key(self) -> Self {
        Self { is_key: false, ..self }
    }

    /// Sets the metric of the key, or of its table.
    pub(crate) const fn with_metric(self, metric: &'static str) -> Self {
        Self { metric: Some(metric), ..self }
    }

    pub(crate) fn metric_name(&self) -> Option<String> {
        Some(self.metric?.replace('*', self.name))
    }
}

/// Reads and formats the value of a key.
pub(crate) trait KeyReader<T> {
    /// Reads `key`, with `default` for a missing or rejected value, which is a fault.
    fn read_key_value(self, section: &mut ConfigSection<'_>, key: &str, default: T, about: &str) -> T;

    /// Formats the value as in the file.
    fn format_value(&self, value: &T) -> String;

    /// Records a difference of the two values.
    fn compare_value(&self, changes: &mut Changes, key: &str, old: &T, new: &T)
    where
        T: PartialEq,
    {
        changes.compare_shown(key, old, new, |value| self.format_value(value));
    }
}

impl<T> KeyReader<T> for ValueKind<T> {
    fn read_key_value(self, section: &mut ConfigSection<'_>, key: &str, default: T, about: &str) -> T {
        section.value_or_default(key, self, default, about)
    }

    fn format_value(&self, value: &T) -> String {
        match (self.show)(value) {
            Json::String(text) => text,
            other => other.to_string(),
        }
    }
}

/// Reads and formats the value of a key by two functions of `context`, such as the kind of the value.
pub(crate) fn reader_of<C, T>(
    context: C,
    read: impl FnOnce(&mut ConfigSection<'_>, &str, C, T, &str) -> T,
    show: impl Fn(&C, &T) -> String,
) -> impl KeyReader<T> {
    FunctionReader { context, read, show }
}

struct FunctionReader<C, R, S> {
    context: C,
    read: R,
    show: S,
}

impl<C, T, R, S> KeyReader<T> for FunctionReader<C, R, S>
where
    R: FnOnce(&mut ConfigSection<'_>, &str, C, T, &str) -> T,
    S: Fn(&C, &T) -> String,
{
    fn read_key_value(self, section: &mut ConfigSection<'_>, key: &str, default: T, about: &str) -> T {
        (self.read)(section, key, self.context, default, about)
    }

    fn format_value(&self, value: &T) -> String {
        (self.show)(&self.context, value)
    }
}

/// Reads an optional value; a list of changes shows `none` for a missing one.
pub(crate) fn optional_key<T>(kind: ValueKind<T>, none: &'static str) -> impl KeyReader<Option<T>> {
    reader_of(
        kind,
        |section, key, kind, _, about| section.optional_value(key, kind, about),
        |kind, value| value.as_ref().map_or_else(|| none.into(), |value| kind.format_value(value)),
    )
}

/// Reads an array whose length is in `count`, or a single value.
pub(crate) fn list_key<T>(kind: ValueKind<T>, count: RangeInclusive<usize>) -> impl KeyReader<Vec<T>> {
    reader_of(
        kind,
        |section, key, kind, default: Vec<T>, about| {
            section.list_values(key, kind, count, Some(&default), about).unwrap_or(default)
        },
        |kind, values| format_list(kind, values),
    )
}

fn format_list<T>(kind: &ValueKind<T>, values: &[T]) -> String {
    rule_readers::join_or(values.iter().map(|value| kind.format_value(value)), "none")
}

/// Reads an optional array, or a single value, as [`list_key`] does; changes show `none` for a missing one.
pub(crate) fn optional_list_key<T>(
    kind: ValueKind<T>,
    count: RangeInclusive<usize>,
    none: &'static str,
) -> impl KeyReader<Option<Vec<T>>> {
    reader_of(
        kind,
        |section, key, kind, _, about| section.list_values(key, kind, count, None, about),
        |kind, values: &Option<Vec<T>>| values.as_ref().map_or_else(|| none.into(), |values| format_list(kind, values)),
    )
}

/// Reads an optional path, relative to the folder of the configuration file.
pub(crate) fn file_key(kind: ValueKind<PathBuf>) -> impl KeyReader<Option<PathBuf>> {
    reader_of(
        optional_key(kind, "none"),
        |section, key, path, default, about| {
            path.read_key_value(section, key, default, about).map(|path| section.base_directory().join(path))
        },
        |path, value| path.format_value(value),
    )
}

/// Reads a required value; the default replaces a missing or rejected one, which is a fault.
pub(crate) fn required_key<T>(kind: ValueKind<T>) -> impl KeyReader<T> {
    reader_of(
        kind,
        |section, key, kind, default, about| section.required_value(key, kind, about).unwrap_or(default),
        ValueKind::format_value,
    )
}

/// Reads a required path, relative to the folder of the configuration file.
pub(crate) fn required_file_key(kind: ValueKind<PathBuf>) -> impl KeyReader<PathBuf> {
    reader_of(
        kind,
        |section, key, kind, default, about| {
            section.required_value(key, kind, about).map_or(default, |path| section.base_directory().join(path))
        },
        ValueKind::format_value,
    )
}

/// Reads a value whose default depends on other keys, so that the schema has none.
pub(crate) fn derived_default<T>(kind: ValueKind<T>) -> impl KeyReader<T> {
    reader_of(
        kind,
        |section, key, kind, default, about| section.optional_value(key, kind, about).unwrap_or(default),
        ValueKind::format_value,
    )
}

/// Reads a key by the function `read`, with the section, the key and its description.
pub(crate) fn custom_key<T>(
    read: impl FnOnce(&mut ConfigSection<'_>, &str, &str) -> T,
    show: impl Fn(&T) -> String,
) -> impl KeyReader<T> {
    reader_of((), |section, key, (), _, about| read(section, key, about), move |(), value| show(value))
}

/// Returns a constant, or a value that a function derives from other keys after [`KeyTable::read_table`]. The row has
/// `no_key` as well.
pub(crate) struct FixedValue;

impl<T> KeyReader<T> for FixedValue {
    fn read_key_value(self, _: &mut ConfigSection<'_>, _: &str, default: T, _: &str) -> T {
        default
    }

    fn format_value(&self, _: &T) -> String {
        String::new()
    }

    fn compare_value(&self, _: &mut Changes, _: &str, _: &T, _: &T) {}
}

/// Reads a table within the table.
pub(crate) struct TableReader;

impl<T: KeyTable> KeyReader<T> for TableReader {
    fn read_key_value(self, section: &mut ConfigSection<'_>, key: &str, _: T, about: &str) -> T {
        section.read_subtable(key, about, T::read_table)
    }

    fn format_value(&self, _: &T) -> String {
        String::new()
    }

    fn compare_value(&self, changes: &mut Changes, key: &str, old: &T, new: &T) {
        old.compare_keys(new, key, changes);
    }
}

/// Reads an optional table by `read`; `show` formats it. A change is listed by key if `by_key` returns true for the two
/// tables, and as a whole if not.
pub(crate) struct OptionalTableReader<T> {
    pub(crate) read: fn(&mut ConfigSection<'_>) -> T,
    pub(crate) show: fn(&T) -> String,
    pub(crate) by_key: fn(&T, &T) -> bool,
}

impl<T: KeyTable> KeyReader<Option<T>> for OptionalTableReader<T> {
    fn read_key_value(self, section: &mut ConfigSection<'_>, key: &str, _: Option<T>, about: &str) -> Option<T> {
        rule_readers::read_optional_table(section, key, about, self.read)
    }

    fn format_value(&self, table: &Option<T>) -> String {
        table.as_ref().map_or_else(|| "none".into(), self.show)
    }

    fn compare_value(&self, changes: &mut Changes, key: &str, old: &Option<T>, new: &Option<T>)
    where
        Option<T>: PartialEq,
    {
        match (old, new) {
            (Some(old), Some(new)) if (self.by_key)(old, new) => old.compare_keys(new, key, changes),
            (old, new) => changes.compare_shown(key, old, new, |table| self.format_value(table)),
        }
    }
}

/// Joins the lines of a comment.
pub(crate) fn join_doc_lines(lines: &[&str]) -> String {
    lines.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ")
}

/// Declares a table of keys; the module's documentation describes the rows.
macro_rules! keys {
    ($(#[$meta:meta])* pub struct $Table:ident counted by $metric:literal { $($rows:tt)+ }) => {
        $crate::reading::table::keys!(@table $metric [$(#[$meta])*] $Table { $($rows)+ });
    };
    ($(#[$meta:meta])* pub struct $Table:ident { $($rows:tt)+ }) => {
        $crate::reading::table::keys!(@table "" [$(#[$meta])*] $Table { $($rows)+ });
    };
    (
        @table $metric:literal [$(#[$meta:meta])*] $Table:ident {
            $(
                $(#[doc = $about:literal])+
                $field:ident $(($name:literal))?: $Type:ty = $default:expr, $reader:expr $(, $fact:ident $(($what:literal))?)*;
            )+
        }
    ) => {
        $(#[$meta])*
        pub struct $Table {
            $($(#[doc = $about])+ pub $field: $Type,)+
        }

        impl Default for $Table {
            fn default() -> Self {
                Self { $($field: $default,)+ }
            }
        }

        impl $crate::reading::table::KeyTable for $Table {
            const KEYS: &'static [$crate::reading::table::ConfigKey] = &[
                $($crate::reading::table::keys!(
                    @key $metric
                    $crate::reading::table::ConfigKey::new($crate::reading::table::keys!(@name $field $($name)?));
                    $($fact $(($what))?,)*
                ),)+
            ];

            fn read_table(section: &mut $crate::reading::section::ConfigSection<'_>) -> Self {
                let defaults = Self::default();
                Self {
                    $($field: $crate::reading::table::KeyReader::<$Type>::read_key_value(
                        $reader,
                        section,
                        $crate::reading::table::keys!(@name $field $($name)?),
                        defaults.$field,
                        &$crate::reading::table::join_doc_lines(&[$($about),+]),
                    ),)+
                }
            }

            fn compare_keys(&self, next: &Self, path: &str, changes: &mut $crate::reading::changes::Changes) {
                $($crate::reading::table::KeyReader::<$Type>::compare_value(
                    &$reader,
                    changes,
                    &format!("{path}.{}", $crate::reading::table::keys!(@name $field $($name)?)),
                    &self.$field,
                    &next.$field,
                );)+
            }

            fn apply_without_restart(self, next: Self) -> Self {
                let [$($field),+] = <Self as $crate::reading::table::KeyTable>::KEYS else { return next };
                Self { $($field: if $field.needs_restart { self.$field } else { next.$field },)+ }
            }
        }
    };
    (@name $field:ident) => { stringify!($field) };
    (@name $field:ident $name:literal) => { $name };
    (@key $metric:literal $key:expr;) => { $key };
    (@key $metric:literal $key:expr; counted, $($more:tt)*) => {
        $crate::reading::table::keys!(@key $metric $key.with_metric($metric); $($more)*)
    };
    (@key $metric:literal $key:expr; counted_by($what:literal), $($more:tt)*) => {
        $crate::reading::table::keys!(@key $metric $key.with_metric($what); $($more)*)
    };
    (@key $metric:literal $key:expr; no_key, $($more:tt)*) => {
        $crate::reading::table::keys!(@key $metric $key.without_key(); $($more)*)
    };
    (@key $metric:literal $key:expr; restart, $($more:tt)*) => {
        $crate::reading::table::keys!(@key $metric $key.with_restart(); $($more)*)
    };
}

pub(crate) use keys;
