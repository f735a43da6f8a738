//! Defines kinds of values: numbers, sizes, durations, words. Each kind has a parser, a description for messages, and a
//! JSON schema.

use super::{fault::nearest_word, foreign::foreign_value};
use bytesize::ByteSize;
use serde_json::{Value as Json, json};
use std::{num::NonZeroU16, ops::RangeInclusive, time::Duration};

pub(crate) const KIB: u64 = 1024;
pub(crate) const MIB: u64 = 1024 * KIB;
pub(crate) const GIB: u64 = 1024 * MIB;
/// Range of a count: more than a worker can hold of anything is a typing error.
pub(crate) const COUNT_RANGE: RangeInclusive<u64> = 1..=MAX_COUNT;
/// Range of a count that may be 0.
pub(crate) const COUNT_OR_ZERO_RANGE: RangeInclusive<u64> = 0..=MAX_COUNT;
const MAX_COUNT: u64 = 10_000_000;
/// Range of a body's length: a QUIC stream carries four times as much (RFC 9000 §4.5).
pub(crate) const BODY_BYTES_RANGE: RangeInclusive<u64> = 0..=1 << 60;
/// Range of a timeout: zero would end everything at once, and a day is unlimited for an exchange.
pub(crate) const TIMEOUT_RANGE: RangeInclusive<Duration> = Duration::from_millis(1)..=DAY;
pub(crate) const DAY: Duration = Duration::from_secs(86_400);

/// A value of the file, after the expansion of environment variables.
#[derive(Debug)]
pub(crate) enum RawValue {
    Text(String),
    Integer(i128),
    Boolean(bool),
    Float(f64),
    /// A value of another TOML type, by its name.
    Other(&'static str),
}

/// Reason why a value is rejected.
#[derive(Debug, PartialEq)]
pub(crate) struct ValueError {
    pub(crate) problem: String,
    /// Description of valid values, in place of that of the kind.
    pub(crate) expected: Option<String>,
    pub(crate) nearest: Option<String>,
}

impl<S: Into<String>> From<S> for ValueError {
    fn from(problem: S) -> Self {
        Self { problem: problem.into(), expected: None, nearest: None }
    }
}

impl ValueError {
    /// Adds a description of valid values.
    pub(crate) fn expecting(self, expected: impl Into<String>) -> Self {
        Self { expected: Some(expected.into()), ..self }
    }

    /// Adds the valid text that is nearest, if any.
    pub(crate) fn near(self, nearest: Option<&str>) -> Self {
        Self { nearest: nearest.map(|nearest| format!("{nearest:?}")), ..self }
    }
}

impl RawValue {
    /// Returns the error for a value of an unexpected type.
    pub(crate) fn wrong_type_error(&self) -> ValueError {
        let name = match self {
            Self::Text(_) => "string",
            Self::Integer(_) => "integer",
            Self::Boolean(_) => "boolean",
            Self::Float(_) => "float",
            Self::Other(name) => name,
        };
        let article = if name.starts_with(['a', 'e', 'i', 'o', 'u']) { "an" } else { "a" };
        format!("is {article} {name}").into()
    }
}

/// A kind of value: parser, formatter and schema.
pub(crate) struct ValueKind<T> {
    /// Description of valid values, to follow "expected".
    pub(crate) expected: String,
    /// JSON schema without description and default.
    pub(crate) schema: Json,
    pub(crate) read: Box<dyn Fn(RawValue) -> Result<T, ValueError>>,
    /// Formats the value as in the file, for the schema's `default`.
    pub(crate) show: Box<dyn Fn(&T) -> Json>,
}

impl<T> ValueKind<T> {
    /// Restricts strings in the schema to full matches of `of`, a regular expression without look-around (for ECMA 262
    /// and RE2). The pattern must accept all that `read` accepts, and little more. Editors show `patternErrorMessage`
    /// instead of it.
    pub(crate) fn with_pattern(mut self, of: &str) -> Self {
        let message = format!("expected {}", self.expected);
        set_member(&mut self.schema, "pattern", full_match_pattern(of));
        set_member(&mut self.schema, "patternErrorMessage", message);
        self
    }

    /// Restricts strings in the schema to lengths in `range`, in characters.
    pub(crate) fn with_length(mut self, range: RangeInclusive<usize>) -> Self {
        set_member(&mut self.schema, "minLength", *range.start());
        set_member(&mut self.schema, "maxLength", *range.end());
        self
    }

    /// Converts values by `to`, and back by `from`.
    pub(crate) fn map<U: 'static>(self, to: fn(T) -> Result<U, ValueError>, from: fn(&U) -> T) -> ValueKind<U>
    where
        T: 'static,
    {
        let Self { expected, schema, read, show } = self;
        ValueKind {
            expected,
            schema,
            read: Box::new(move |given| to(read(given)?)),
            show: Box::new(move |value| show(&from(value))),
        }
    }
}

/// Sets the member `name` of `schema`, which is an object.
pub(crate) fn set_member(schema: &mut Json, name: &str, value: impl Into<Json>) {
    if let Some(members) = schema.as_object_mut() {
        members.insert(name.into(), value.into());
    }
}

/// Returns a pattern for full matches of `of`. Strings with environment variables match, as their value is unknown.
pub(crate) fn full_match_pattern(of: &str) -> String {
    format!(r"\$\{{|^({of})$")
}

/// Pattern of the sizes that `bytesize` parses, without single letters as units.
const SIZE_PATTERN: &str =
    r"\s*(\+?0*[0-9]{1,19}|([0-9]+\.?[0-9]*|\.[0-9]+)\s*([Bb]|[KMGTPEkmgtpe]([Ii][Bb]?|[Bb])))\s*";
/// Pattern of the durations that `humantime` parses.
const DURATION_PATTERN: &str = r"\s*0\s*|\s*([0-9][0-9\s]*(\.\s*[0-9][0-9\s]*)?(nanos|nsec|ns|usec|us|µs|millis|msec|ms|seconds?|secs?|s|minutes?|mins?|m|hours?|hrs?|h|days?|d|weeks?|wks?|w|months?|M|years?|yrs?|y)\s*)+";
/// Pattern of strings without a digit but 0, which are zero as a size or a duration.
const ZERO_PATTERN: &str = "^[^1-9$]*$";

/// An integer within `range`.
pub(crate) fn number_kind<T: TryFrom<u64> + Into<u64> + Copy + 'static>(range: RangeInclusive<u64>) -> ValueKind<T> {
    let (least, most) = (*range.start(), *range.end());
    ValueKind {
        expected: format!("a number from {least} to {most}"),
        schema: json!({ "type": "integer", "minimum": least, "maximum": most }),
        read: Box::new(move |given| match given {
            RawValue::Integer(number) => check_range(number, &range),
            other => Err(other.wrong_type_error()),
        }),
        show: Box::new(|number| json!((*number).into())),
    }
}

/// A number of bytes within `range`: an integer, or a string with a unit.
pub(crate) fn size_kind<T: TryFrom<u64> + Into<u64> + Copy + 'static>(range: RangeInclusive<u64>) -> ValueKind<T> {
    let (least, most) = (*range.start(), *range.end());
    let mut schema = json!({ "type": ["integer", "string"], "minimum": least, "maximum": most });
    if least > 0 {
        set_member(&mut schema, "not", json!({ "type": "string", "pattern": ZERO_PATTERN }));
    }
    let kind = ValueKind::<T> {
        expected: format!("a size from {} to {}, such as \"64 KiB\"", format_size(least), format_size(most)),
        schema,
        read: Box::new(move |given| match given {
            RawValue::Integer(bytes) => check_range(bytes, &range),
            RawValue::Text(text) => match text.trim().parse::<ByteSize>() {
                Ok(_) if let Some(wrong) = ambiguous_size(text.trim()) => Err(wrong),
                Ok(bytes) => check_range(bytes.0.into(), &range),
                Err(_) => Err("not a size".into()),
            },
            other => Err(other.wrong_type_error()),
        }),
        show: Box::new(|bytes| json!(format_size((*bytes).into()))),
    };
    kind.with_pattern(SIZE_PATTERN)
}

/// Returns an error for a size with a letter as its unit: `10g` is 10 × 1024³ bytes in nginx, elsewhere 10 × 1000³.
fn ambiguous_size(text: &str) -> Option<ValueError> {
    let (number, letter) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let letter = letter.chars().next().filter(|letter| "kmgtpe".contains(letter.to_ascii_lowercase()))?;
    let (number, upper) = (number.trim_end(), letter.to_ascii_uppercase());
    let decimal = if upper == 'K' { 'k' } else { upper };
    let nginx = format!("{number}{}", letter.to_ascii_lowercase());
    let expected = format!("\"{number} {upper}iB\" (nginx's {nginx}) or \"{number} {decimal}B\"");
    Some(ValueError::from("ambiguous").expecting(expected))
}

fn check_range<T: TryFrom<u64>>(number: i128, range: &RangeInclusive<u64>) -> Result<T, ValueError> {
    if number < i128::from(*range.start()) {
        return Err("too small".into());
    }
    let number = u64::try_from(number).ok().filter(|number| range.contains(number));
    number.and_then(|number| T::try_from(number).ok()).ok_or_else(|| "too large".into())
}

/// Formats a size in the unit that gives the shortest whole number, preferring binary units.
pub(crate) fn format_size(bytes: u64) -> String {
    const BINARY: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    const DECIMAL: [&str; 7] = ["B", "kB", "MB", "GB", "TB", "PB", "EB"];
    let largest = |units: [&'static str; 7], step: u64| {
        let mut rest = bytes;
        let mut units = units.into_iter();
        let mut unit = units.next().unwrap_or_default();
        while rest > 0 && rest.is_multiple_of(step) {
            let Some(larger) = units.next() else { break };
            (rest, unit) = (rest / step, larger);
        }
        (rest, unit)
    };
    let (binary, decimal) = (largest(BINARY, 1024), largest(DECIMAL, 1000));
    let (rest, unit) = if decimal.0.to_string().len() < binary.0.to_string().len() { decimal } else { binary };
    format!("{rest} {unit}")
}

/// A duration within `range`: numbers with units.
pub(crate) fn duration_kind(range: RangeInclusive<Duration>) -> ValueKind<Duration> {
    let show = |duration: Duration| humantime::format_duration(duration).to_string();
    let (least, most) = (show(*range.start()), show(*range.end()));
    let mut schema = json!({ "type": "string", "examples": ["30s", "1m 30s", "500ms"] });
    if !range.start().is_zero() {
        set_member(&mut schema, "not", json!({ "pattern": ZERO_PATTERN }));
    }
    let kind = ValueKind {
        expected: format!("a duration from {least} to {most}, such as \"30s\""),
        schema,
        read: Box::new(move |given| match given {
            RawValue::Integer(_) => Err("has no unit".into()),
            RawValue::Text(text) => match humantime::parse_duration(text.trim()) {
                Ok(duration) if duration < *range.start() => Err("too small".into()),
                Ok(duration) if duration > *range.end() => Err("too large".into()),
                Ok(duration) => Ok(duration),
                Err(humantime::DurationError::NumberOverflow) => Err("too large".into()),
                Err(humantime::DurationError::UnknownUnit { unit, .. }) if unit.is_empty() => Err("has no unit".into()),
                Err(humantime::DurationError::UnknownUnit { unit, .. }) => {
                    Err(format!("unknown unit {:?}", super::fault::quote_line(&unit)).into())
                }
                Err(_) => Err("not a duration".into()),
            },
            other => Err(other.wrong_type_error()),
        }),
        show: Box::new(move |duration| json!(show(*duration))),
    };
    kind.with_pattern(DURATION_PATTERN)
}

/// A value of `kind`, or `"none"`.
pub(crate) fn or_none<T: 'static>(kind: ValueKind<T>) -> ValueKind<Option<T>> {
    or_word("none", kind)
}

/// A value of `kind`, or `word` for `None`: `"auto"` follows from the machine, and `"derived"` from the resources of
/// the process.
pub(crate) fn or_word<T: 'static>(word: &'static str, kind: ValueKind<T>) -> ValueKind<Option<T>> {
    let (read, show) = (kind.read, kind.show);
    ValueKind {
        expected: format!("{}, or \"{word}\"", kind.expected),
        schema: json!({ "anyOf": [{ "const": word }, kind.schema] }),
        read: Box::new(move |given| match given {
            RawValue::Text(text) if text == word => Ok(None),
            given => read(given).map(Some),
        }),
        show: Box::new(move |value| value.as_ref().map_or_else(|| json!(word), &show)),
    }
}

/// A value of `kind`, or one of the names in `words`.
pub(crate) fn or_named<T: Copy + PartialEq + 'static>(words: NamedValues<T>, kind: ValueKind<T>) -> ValueKind<T> {
    let names: Vec<_> = words.iter().map(|(name, _)| *name).collect();
    let (read, show) = (kind.read, kind.show);
    ValueKind {
        expected: format!("{}, or \"{}\"", kind.expected, names.join("\" or \"")),
        schema: json!({ "anyOf": [{ "type": "string", "enum": names }, kind.schema] }),
        read: Box::new(move |given| match &given {
            RawValue::Text(text) if let Some((_, value)) = words.iter().find(|(name, _)| name == text) => Ok(*value),
            _ => read(given),
        }),
        show: Box::new(move |value| {
            let word = words.iter().find(|(_, named)| named == value);
            word.map_or_else(|| show(value), |(name, _)| json!(name))
        }),
    }
}

/// An integer within `range`, which is above 0.
pub(crate) fn nonzero_kind(range: RangeInclusive<u64>) -> ValueKind<NonZeroU16> {
    number_kind(range).map(|number| NonZeroU16::new(number).ok_or_else(|| "too small".into()), |number| number.get())
}

/// `true` or `false`.
pub(crate) fn boolean_kind() -> ValueKind<bool> {
    ValueKind {
        expected: "true or false".into(),
        schema: json!({ "type": "boolean" }),
        read: Box::new(|given| match given {
            RawValue::Boolean(boolean) => Ok(boolean),
            other => Err(other.wrong_type_error()),
        }),
        show: Box::new(|boolean| json!(boolean)),
    }
}

/// One of the names in `words`.
pub(crate) fn one_of<T: Copy + PartialEq + 'static>(words: NamedValues<T>) -> ValueKind<T> {
    one_of_with_hidden(words, &[])
}

type NamedValues<T> = &'static [(&'static str, T)];

/// One of the names in `words`, or in `more`, which neither schema nor messages mention.
pub(crate) fn one_of_with_hidden<T: Copy + PartialEq + 'static>(
    words: NamedValues<T>,
    more: NamedValues<T>,
) -> ValueKind<T> {
    let shown = move || words.iter().map(|(name, _)| *name);
    let names: Vec<_> = shown().collect();
    let all = move || words.iter().chain(more);
    ValueKind {
        expected: format!("one of \"{}\"", names.join("\", \"")),
        schema: json!({ "type": "string", "enum": names }),
        read: Box::new(move |given| match given {
            RawValue::Text(text) => all().find(|(name, _)| *name == text).map(|(_, value)| *value).ok_or_else(|| {
                let nearest = nearest_word(&text, shown()).or_else(|| foreign_value(&text, shown()));
                ValueError::from("unknown value").near(nearest)
            }),
            other => Err(other.wrong_type_error()),
        }),
        show: Box::new(move |value| json!(all().find(|(_, other)| other == value).map(|(name, _)| name))),
    }
}

/// A string that `parse` converts; `show` is its inverse.
pub(crate) fn text_kind<T: 'static>(
    expected: &str,
    parse: impl Fn(String) -> Result<T, ValueError> + 'static,
    show: impl Fn(&T) -> String + 'static,
) -> ValueKind<T> {
    ValueKind {
        expected: expected.into(),
        schema: json!({ "type": "string" }),
        read: Box::new(move |given| match given {
            RawValue::Text(text) => parse(text),
            other => Err(other.wrong_type_error()),
        }),
        show: Box::new(move |value| json!(show(value))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read<T>(kind: &ValueKind<T>, text: &str) -> Result<T, String> {
        (kind.read)(RawValue::Text(text.into())).map_err(|wrong| wrong.problem)
    }

    #[test]
    fn sizes_are_read_as_humans_write_them() {
        let kind = size_kind::<u64>(1..=1 << 40);
        for (text, bytes) in
            [("64 KiB", 65_536), ("64KiB", 65_536), ("64 kB", 64_000), ("1.5 MiB", 1_572_864), ("7", 7)]
        {
            assert_eq!(read(&kind, text), Ok(bytes), "{text}");
        }
        for (text, problem) in [
            ("64 XB", "not a size"),
            ("", "not a size"),
            ("-1 KiB", "not a size"),
            ("0 B", "too small"),
            ("2 TiB", "too large"),
        ] {
            assert_eq!(read(&kind, text), Err(problem.into()), "{text}");
        }
        assert_eq!((kind.read)(RawValue::Integer(-1)), Err("too small".into()));
        assert_eq!((kind.read)(RawValue::Integer(i128::MAX)), Err("too large".into()));
    }

    #[test]
    fn sizes_are_shown_in_the_unit_that_leaves_the_shortest_whole_number() {
        let kind = size_kind::<u64>(0..=u64::MAX);
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1 KiB"),
            (1536, "1536 B"),
            (1 << 30, "1 GiB"),
            (1000, "1 kB"),
            (64_000, "64 kB"),
            (10_000_000_000, "10 GB"),
            (1_024_000, "1000 KiB"),
            (1 << 60, "1 EiB"),
            (u64::MAX, "18446744073709551615 B"),
        ] {
            assert_eq!(format_size(bytes), text);
            assert_eq!(read(&kind, text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn a_letter_alone_is_no_unit() {
        let kind = size_kind::<u64>(0..=u64::MAX);
        for (text, expected) in [
            ("10g", "\"10 GiB\" (nginx's 10g) or \"10 GB\""),
            ("20 M", "\"20 MiB\" (nginx's 20m) or \"20 MB\""),
            (" 1.5k ", "\"1.5 KiB\" (nginx's 1.5k) or \"1.5 kB\""),
        ] {
            let wrong = (kind.read)(RawValue::Text(text.into())).unwrap_err();
            assert_eq!((wrong.problem.as_str(), wrong.expected.as_deref()), ("ambiguous", Some(expected)), "{text}");
        }
        for text in ["10b", "10", "8 Ki", "1 GB"] {
            assert!((kind.read)(RawValue::Text(text.into())).is_ok(), "{text}");
        }
    }

    #[test]
    fn durations_are_read_as_humans_write_them() {
        let kind = duration_kind(Duration::from_millis(1)..=Duration::from_secs(86_400));
        for (text, millis) in
            [("30s", 30_000), ("500ms", 500), ("1m 30s", 90_000), ("1h", 3_600_000), ("1day", 86_400_000)]
        {
            assert_eq!(read(&kind, text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for (text, problem) in [
            ("30", "has no unit"),
            ("30 parsecs", "unknown unit \"parsecs\""),
            ("soon", "not a duration"),
            ("", "not a duration"),
            ("0s", "too small"),
            ("25h", "too large"),
            ("99999999999999999999999s", "too large"),
        ] {
            assert_eq!(read(&kind, text), Err(problem.into()), "{text}");
        }
    }
}
