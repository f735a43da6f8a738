//! Tables of keys. A row of [`keys!`] has all that is known of a key: its field and its description, the default, how
//! its value is read from the file and shown, whether it needs a restart, and which metric counts when its limit is
//! reached.
//!
//! ```text
//! keys! {
//!     /// Limits for clients.
//!     #[derive(Debug, Clone, Copy, PartialEq, Eq)]
//!     pub struct Limits counted by "litequic_limit_reached_total{limit=\"*\"}" {
//!         /// Requests on a connection in all; then GOAWAY.           documents field, schema and reference
//!         max_requests: u64 = 1_000_000, number(REQUESTS), counted;  field, default, reader, what else is known
//!     }
//! }
//! ```
//!
//! A reader is a [`Kind`], or what this module makes of one: [`optional`], [`list`], [`file()`], [`table`]. A row of
//! [`fixed`] and `no_key` is a field that is no key.
//! `field("key")` is a key that has another name than its field. What else is known of a key are methods of
//! [`ConfigKey`]. Rules over several keys are functions, which come after [`KeyTable::read`].

use super::{changes::Changes, section::Section, values::Kind};
use serde_json::Value as Json;
use std::{marker::PhantomData, ops::RangeInclusive, path::PathBuf};

/// A table of keys.
pub(crate) trait KeyTable: Sized {
    const KEYS: &'static [ConfigKey];

    /// The table as `section` has it, with defaults for values that are missing or wrong.
    fn read(section: &mut Section<'_>) -> Self;

    /// Notes what `next` changes of the keys of the table at `path`.
    fn compare(&self, next: &Self, path: &str, changes: &mut Changes);

    /// `next`, but for the keys whose change waits for a restart.
    fn follow(self, next: Self) -> Self;
}

/// What is known of a key besides its value.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ConfigKey {
    pub(crate) name: &'static str,
    pub(crate) needs_restart: bool,
    /// Whether the file may have it: else it is a constant, or follows from other keys.
    pub(crate) is_key: bool,
    /// The metric that counts when the key's limit is reached.
    metric: Metric,
}

#[derive(Debug, Clone, Copy)]
enum Metric {
    None,
    /// The table's, which has a label with the key's name.
    OfTable(&'static str),
    Own(&'static str),
}

impl ConfigKey {
    pub(crate) const fn new(name: &'static str) -> Self {
        Self { name, needs_restart: false, is_key: true, metric: Metric::None }
    }

    /// Marks a key whose change waits for a restart.
    pub(crate) const fn restart(self) -> Self {
        Self { needs_restart: true, ..self }
    }

    /// Marks a value that the file cannot have; [`fixed`] reads it.
    pub(crate) const fn no_key(self) -> Self {
        Self { is_key: false, ..self }
    }

    /// By the table's metric, whose `*` is the key's name.
    pub(crate) const fn counted(self, metric: &'static str) -> Self {
        Self { metric: Metric::OfTable(metric), ..self }
    }

    /// By another metric.
    pub(crate) const fn counted_by(self, metric: &'static str) -> Self {
        Self { metric: Metric::Own(metric), ..self }
    }

    pub(crate) fn metric(&self) -> Option<String> {
        match self.metric {
            Metric::None => None,
            Metric::OfTable(metric) => Some(metric.replace('*', self.name)),
            Metric::Own(metric) => Some(metric.into()),
        }
    }
}

/// How the value of a key is read and shown.
pub(crate) trait Reader<T> {
    /// The value of `key`, or `default`; also where the value is wrong, and that is noted.
    fn read(self, section: &mut Section<'_>, key: &str, default: T, about: &str) -> T;

    /// The value as the file would have it.
    fn show(&self, value: &T) -> String;

    /// Notes what changes.
    fn compare(&self, changes: &mut Changes, key: &str, old: &T, new: &T)
    where
        T: PartialEq,
    {
        changes.value(key, old, new, |value| self.show(value));
    }
}

impl<T> Reader<T> for Kind<T> {
    fn read(self, section: &mut Section<'_>, key: &str, default: T, about: &str) -> T {
        section.value(key, self, default, about)
    }

    fn show(&self, value: &T) -> String {
        match (self.show)(value) {
            Json::String(text) => text,
            other => other.to_string(),
        }
    }
}

/// A value that may be missing; `none` is how a list of changes shows that.
pub(crate) fn optional<T>(kind: Kind<T>, none: &'static str) -> Optional<T> {
    Optional { kind, none }
}

pub(crate) struct Optional<T> {
    kind: Kind<T>,
    none: &'static str,
}

impl<T> Reader<Option<T>> for Optional<T> {
    fn read(self, section: &mut Section<'_>, key: &str, _: Option<T>, about: &str) -> Option<T> {
        section.optional(key, self.kind, about)
    }

    fn show(&self, value: &Option<T>) -> String {
        value.as_ref().map_or_else(|| self.none.into(), |value| self.kind.show(value))
    }
}

/// Reads an array whose length is in `count`, or one value without an array.
pub(crate) fn list<T>(kind: Kind<T>, count: RangeInclusive<usize>) -> List<T> {
    List { kind, count }
}

pub(crate) struct List<T> {
    kind: Kind<T>,
    count: RangeInclusive<usize>,
}

impl<T> Reader<Vec<T>> for List<T> {
    fn read(self, section: &mut Section<'_>, key: &str, default: Vec<T>, about: &str) -> Vec<T> {
        section.list(key, self.kind, self.count, &default, about).unwrap_or(default)
    }

    fn show(&self, values: &Vec<T>) -> String {
        let shown: Vec<_> = values.iter().map(|value| self.kind.show(value)).collect();
        if shown.is_empty() { "none".into() } else { shown.join(", ") }
    }
}

/// Reads an array whose length is in `count`, or one value without an array, which may be missing; `none` is how a list
/// of changes shows that.
pub(crate) fn optional_list<T>(kind: Kind<T>, count: RangeInclusive<usize>, none: &'static str) -> OptionalList<T> {
    OptionalList { list: list(kind, count), none }
}

pub(crate) struct OptionalList<T> {
    list: List<T>,
    none: &'static str,
}

impl<T> Reader<Option<Vec<T>>> for OptionalList<T> {
    fn read(self, section: &mut Section<'_>, key: &str, _: Option<Vec<T>>, about: &str) -> Option<Vec<T>> {
        section.optional_list(key, self.list.kind, self.list.count, about)
    }

    fn show(&self, values: &Option<Vec<T>>) -> String {
        values.as_ref().map_or_else(|| self.none.into(), |values| self.list.show(values))
    }
}

/// A path that may be missing, relative to the folder of the configuration file.
pub(crate) fn file(kind: Kind<PathBuf>) -> File {
    File(optional(kind, "none"))
}

pub(crate) struct File(Optional<PathBuf>);

impl Reader<Option<PathBuf>> for File {
    fn read(self, section: &mut Section<'_>, key: &str, default: Option<PathBuf>, about: &str) -> Option<PathBuf> {
        let path = self.0.read(section, key, default, about);
        path.map(|path| section.directory().join(path))
    }

    fn show(&self, value: &Option<PathBuf>) -> String {
        self.0.show(value)
    }
}

/// A value that must be there; where it is missing or wrong, and that is noted, the default stands in.
pub(crate) fn required<T>(kind: Kind<T>) -> Required<T> {
    Required(kind)
}

pub(crate) struct Required<T>(Kind<T>);

impl<T> Reader<T> for Required<T> {
    fn read(self, section: &mut Section<'_>, key: &str, default: T, about: &str) -> T {
        section.required(key, self.0, about).unwrap_or(default)
    }

    fn show(&self, value: &T) -> String {
        self.0.show(value)
    }
}

/// Reads a required path, relative to the folder of the configuration file.
pub(crate) fn required_file(kind: Kind<PathBuf>) -> RequiredFile {
    RequiredFile(kind)
}

pub(crate) struct RequiredFile(Kind<PathBuf>);

impl Reader<PathBuf> for RequiredFile {
    fn read(self, section: &mut Section<'_>, key: &str, default: PathBuf, about: &str) -> PathBuf {
        section.required(key, self.0, about).map_or(default, |path| section.directory().join(path))
    }

    fn show(&self, value: &PathBuf) -> String {
        self.0.show(value)
    }
}

/// A value whose default goes by other keys: the schema has none.
pub(crate) fn implied<T>(kind: Kind<T>) -> Implied<T> {
    Implied(kind)
}

pub(crate) struct Implied<T>(Kind<T>);

impl<T> Reader<T> for Implied<T> {
    fn read(self, section: &mut Section<'_>, key: &str, default: T, about: &str) -> T {
        section.optional(key, self.0, about).unwrap_or(default)
    }

    fn show(&self, value: &T) -> String {
        self.0.show(value)
    }
}

/// The result of `read` for a key, as it is more than a value: the section, the key, its description.
pub(crate) fn by<T>(read: fn(&mut Section<'_>, &str, &str) -> T, show: fn(&T) -> String) -> By<T> {
    By { read, show }
}

pub(crate) struct By<T> {
    read: fn(&mut Section<'_>, &str, &str) -> T,
    show: fn(&T) -> String,
}

impl<T> Reader<T> for By<T> {
    fn read(self, section: &mut Section<'_>, key: &str, _: T, about: &str) -> T {
        (self.read)(section, key, about)
    }

    fn show(&self, value: &T) -> String {
        (self.show)(value)
    }
}

/// A value that the file cannot have: a constant, or one that a function after [`KeyTable::read`] derives from other
/// keys. The row has `no_key` as well.
pub(crate) const fn fixed() -> FixedValue {
    FixedValue
}

pub(crate) struct FixedValue;

impl<T> Reader<T> for FixedValue {
    fn read(self, _: &mut Section<'_>, _: &str, default: T, _: &str) -> T {
        default
    }

    fn show(&self, _: &T) -> String {
        String::new()
    }

    fn compare(&self, _: &mut Changes, _: &str, _: &T, _: &T) {}
}

/// A table within the table.
pub(crate) fn table<T: KeyTable>() -> Inner<T> {
    Inner(PhantomData)
}

pub(crate) struct Inner<T>(PhantomData<T>);

impl<T: KeyTable> Reader<T> for Inner<T> {
    fn read(self, section: &mut Section<'_>, key: &str, _: T, about: &str) -> T {
        section.table(key, about, T::read)
    }

    fn show(&self, _: &T) -> String {
        String::new()
    }

    fn compare(&self, changes: &mut Changes, key: &str, old: &T, new: &T) {
        old.compare(new, key, changes);
    }
}

/// The lines of a comment as one.
pub(crate) fn about(lines: &[&str]) -> String {
    lines.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ")
}

/// See the module's documentation.
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

            fn read(section: &mut $crate::reading::section::Section<'_>) -> Self {
                let defaults = Self::default();
                Self {
                    $($field: $crate::reading::table::Reader::<$Type>::read(
                        $reader,
                        section,
                        $crate::reading::table::keys!(@name $field $($name)?),
                        defaults.$field,
                        &$crate::reading::table::about(&[$($about),+]),
                    ),)+
                }
            }

            fn compare(&self, next: &Self, path: &str, changes: &mut $crate::reading::changes::Changes) {
                $($crate::reading::table::Reader::<$Type>::compare(
                    &$reader,
                    changes,
                    &format!("{path}.{}", $crate::reading::table::keys!(@name $field $($name)?)),
                    &self.$field,
                    &next.$field,
                );)+
            }

            fn follow(self, next: Self) -> Self {
                let [$($field),+] = <Self as $crate::reading::table::KeyTable>::KEYS else { return next };
                Self { $($field: if $field.needs_restart { self.$field } else { next.$field },)+ }
            }
        }
    };
    (@name $field:ident) => { stringify!($field) };
    (@name $field:ident $name:literal) => { $name };
    (@key $metric:literal $key:expr;) => { $key };
    (@key $metric:literal $key:expr; counted, $($more:tt)*) => {
        $crate::reading::table::keys!(@key $metric $key.counted($metric); $($more)*)
    };
    (@key $metric:literal $key:expr; counted_by($what:literal), $($more:tt)*) => {
        $crate::reading::table::keys!(@key $metric $key.counted_by($what); $($more)*)
    };
    (@key $metric:literal $key:expr; no_key, $($more:tt)*) => {
        $crate::reading::table::keys!(@key $metric $key.no_key(); $($more)*)
    };
    (@key $metric:literal $key:expr; restart, $($more:tt)*) => {
        $crate::reading::table::keys!(@key $metric $key.restart(); $($more)*)
    };
}

pub(crate) use keys;
