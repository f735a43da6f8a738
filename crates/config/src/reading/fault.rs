//! Describes a fault of a configuration: position, value, and expected value.

use std::{fmt, path::PathBuf};

/// A fault of the configuration. Its `Display` is one line: `FILE:LINE:COLUMN: KEY = VALUE: PROBLEM; expected …; did
/// you mean …?`
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ConfigFault {
    /// Path of the file, as given on the command line.
    pub file: PathBuf,
    /// Line, from 1; `None` if the file as a whole is at fault.
    pub line: Option<usize>,
    /// Column in characters, from 1.
    pub column: Option<usize>,
    /// Path of the key, such as `routes[1].host`; empty if no key is at fault.
    pub key: String,
    /// Value as written, shortened to [`ConfigFault::MAX_QUOTE`] characters.
    pub value: Option<String>,
    /// Description of the fault.
    pub problem: String,
    /// Description of valid values.
    pub expected: Option<String>,
    /// Known key, name or word that is nearest to the written one.
    pub nearest: Option<String>,
}

impl ConfigFault {
    /// Characters of a quoted key or value at most.
    pub const MAX_QUOTE: usize = 60;

    /// Creates a fault of a command-line argument.
    pub fn from_command_line(argument: &str, problem: &str) -> Self {
        Self { file: argument.into(), problem: problem.into(), ..Self::default() }
    }

    /// Sort key; faults of the file as a whole come last.
    pub(crate) fn sort_position(&self) -> (usize, usize) {
        (self.line.unwrap_or(usize::MAX), self.column.unwrap_or(usize::MAX))
    }

    /// Formats the fault, with `severity` between position and key, as compilers do.
    fn write_with_severity(&self, f: &mut fmt::Formatter<'_>, severity: &str) -> fmt::Result {
        write!(f, "{}", self.file.display())?;
        if let (Some(line), Some(column)) = (self.line, self.column) {
            write!(f, ":{line}:{column}")?;
        }
        f.write_str(severity)?;
        if !self.key.is_empty() {
            write!(f, ": {}", self.key)?;
            if let Some(value) = &self.value {
                write!(f, " = {value}")?;
            }
        }
        write!(f, ": {}", self.problem)?;
        if let Some(expected) = &self.expected {
            write!(f, "; expected {expected}")?;
        }
        match &self.nearest {
            Some(nearest) => write!(f, "; did you mean {nearest}?"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for ConfigFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write_with_severity(f, "")
    }
}

/// A valid value that is probably a mistake. Its `Display` is one line: `FILE:LINE:COLUMN: warning: KEY = VALUE:
/// PROBLEM`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigWarning(pub ConfigFault);

impl fmt::Display for ConfigWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.write_with_severity(f, ": warning")
    }
}

/// Every fault of a configuration, in the order of the file; at least one. Its `Display` has a line for each fault, and
/// a last one with their number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigFaults(pub Vec<ConfigFault>);

impl fmt::Display for ConfigFaults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for fault in &self.0 {
            writeln!(f, "{fault}")?;
        }
        match self.0.len() {
            1 => f.write_str("1 fault"),
            many => write!(f, "{many} faults"),
        }
    }
}

impl std::error::Error for ConfigFaults {}

/// Returns the first line of `text`, shortened to [`ConfigFault::MAX_QUOTE`] characters.
pub(crate) fn quote_line(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    let mut quoted: String =
        line.chars().take(ConfigFault::MAX_QUOTE).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
    if line.chars().nth(ConfigFault::MAX_QUOTE).is_some() || line.len() < text.trim_end().len() {
        quoted.push('…');
    }
    quoted
}

/// Returns the word in `known` that is nearest to `written`, unless all differ too much.
pub(crate) fn nearest_word<'k>(written: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    if written.len() > ConfigFault::MAX_QUOTE {
        return None;
    }
    let written = written.to_lowercase();
    // A third of the letters may differ, or one word may begin with the other: "warning" is near "warn", but "log" is
    // not near "url".
    let tolerance = (written.chars().count() / 3).max(1);
    let begins = |one: &str, other: &str| one.starts_with(other) && other.len() * 2 >= one.len();
    known
        .into_iter()
        .map(|candidate| (strsim::damerau_levenshtein(&written, &candidate.to_lowercase()), candidate))
        .filter(|(distance, known)| *distance <= tolerance || begins(&written, known) || begins(known, &written))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quote_is_one_bounded_line() {
        assert_eq!(quote_line("\"short\""), "\"short\"");
        assert_eq!(quote_line("[\n  1,\n]"), "[…");
        assert_eq!(quote_line("a\u{1b}[31mb"), "a\u{fffd}[31mb");
        assert_eq!(quote_line(&"x".repeat(61)).chars().count(), ConfigFault::MAX_QUOTE + 1);
        assert_eq!(quote_line(&"é".repeat(60)), "é".repeat(60));
    }

    #[test]
    fn the_nearest_word_is_found_and_a_far_one_is_not() {
        let known = ["max_headers", "max_header_bytes", "host", "url"];
        for (written, expected) in [
            ("max_heders", Some("max_headers")),
            ("max-headers", Some("max_headers")),
            ("MAX_HEADER_BYTES", Some("max_header_bytes")),
            ("hsot", Some("host")),
            ("hosts", Some("host")),
            ("hosting", Some("host")),
            ("max", None),
            ("log", None),
            ("", None),
        ] {
            assert_eq!(nearest_word(written, known), expected, "{written}");
        }
    }
}
