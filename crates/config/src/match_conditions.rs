//! Defines conditions of a route besides host and path (`[routes.match]`), and the precedence of routes. Pure.
//!
//! The precedence is that of the Kubernetes Gateway API (HTTPRouteRule): host, exact path, longest prefix, methods,
//! number of header fields, number of query parameters. Between equal routes the length of the patterns decides, then
//! the order in the file.

use crate::reading::name_kinds::{TOKEN_PATTERN, method_kind};
use crate::reading::rule_readers::{PRINTABLE_PATTERN, check_printable, join_or};
use crate::reading::section::ConfigSection;
use crate::reading::table::{custom_key, keys, list_key};
use crate::reading::value_kinds::{ValueError, ValueKind, text_kind};
use http::{HeaderName, Method};
use std::fmt;

keys! {
    /// Conditions that a request has to meet: `routes[].match`.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct MatchConditions {
        /// Methods that match. `GET` does not include `HEAD`. A WebSocket is a `GET`, also over HTTP/2 and HTTP/3. By
        /// default every method.
        methods: Vec<Method> = Vec::new(), list_key(method_kind(), 0..=Self::MAX_METHODS);

        /// Header fields that the request has: with this value, with a value that begins with this text (`"text*"`), or
        /// with any value (`"*"`). If a field has several lines, one of them has to match. Values are case-sensitive,
        /// names are not.
        headers: Vec<(HeaderName, ValuePattern)> = Vec::new(), custom_key(read_header_patterns, |all| format_names(all));

        /// Parameters that the request's query has, by the same patterns. Names and values are compared as they are
        /// written, including percent-encoding and case.
        query: Vec<(String, ValuePattern)> = Vec::new(), custom_key(read_query_patterns, |all| format_names(all));
    }
}

impl MatchConditions {
    /// Number of methods: RFC 9110 §9.3 has eight.
    pub const MAX_METHODS: usize = 16;
    /// Number of conditions per key: each is checked in every request to the route's host and path.
    pub const MAX_CONDITIONS: usize = 16;
    /// Bytes of a pattern: twice a long token.
    pub const MAX_PATTERN_BYTES: usize = 1024;

    /// Whether there is no condition, so that every request matches.
    pub fn is_empty(&self) -> bool {
        self.methods.is_empty() && self.headers.is_empty() && self.query.is_empty()
    }

    /// Returns the specificity: of two routes with the same host and path, the more specific one has precedence.
    pub fn specificity(&self) -> Specificity {
        let patterns = self.headers.iter().map(|(_, pattern)| pattern);
        let patterns = patterns.chain(self.query.iter().map(|(_, pattern)| pattern));
        Specificity {
            methods: !self.methods.is_empty(),
            headers: self.headers.len(),
            query: self.query.len(),
            length: patterns.map(ValuePattern::specific_bytes).sum(),
        }
    }

    /// Whether no request can meet both conditions, except with repeated fields or parameters.
    pub(super) fn excludes_conditions(&self, other: &Self) -> bool {
        let methods = !self.methods.is_empty()
            && !other.methods.is_empty()
            && !self.methods.iter().any(|method| other.methods.contains(method));
        methods || patterns_clash(&self.headers, &other.headers) || patterns_clash(&self.query, &other.query)
    }

    /// Returns a text that is equal for conditions that differ only in order or repetition.
    pub(super) fn canonical_text(&self) -> String {
        let mut methods: Vec<&str> = self.methods.iter().map(Method::as_str).collect();
        methods.sort_unstable();
        methods.dedup();
        let mut headers: Vec<_> = self.headers.iter().map(|(name, pattern)| (name.as_str(), pattern)).collect();
        headers.sort_unstable();
        let mut query: Vec<_> = self.query.iter().map(|(name, pattern)| (name.as_str(), pattern)).collect();
        query.sort_unstable();
        if self.is_empty() { String::new() } else { format!("{methods:?}{headers:?}{query:?}") }
    }
}

/// Formats the conditions for a route's name, without values, which may be secrets.
impl fmt::Display for MatchConditions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let methods = self.methods.iter().map(ToString::to_string);
        let headers = self.headers.iter().map(|(name, _)| name.to_string());
        let query = self.query.iter().map(|(name, _)| format!("?{name}"));
        let all: Vec<_> = methods.chain(headers).chain(query).collect();
        if all.is_empty() { Ok(()) } else { write!(f, "[{}]", all.join(",")) }
    }
}

/// Whether both have a name in common whose patterns exclude each other.
fn patterns_clash<N: PartialEq>(one: &[(N, ValuePattern)], other: &[(N, ValuePattern)]) -> bool {
    let clashes = |name: &N, pattern: &ValuePattern| {
        other.iter().any(|(other, against)| other == name && pattern.excludes_pattern(against))
    };
    one.iter().any(|(name, pattern)| clashes(name, pattern))
}

/// Specificity of [`MatchConditions`], compared from the first field on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Specificity {
    /// Whether there is a condition on the method.
    pub methods: bool,
    /// Number of conditions on header fields.
    pub headers: usize,
    /// Number of conditions on query parameters.
    pub query: usize,
    /// Bytes of all patterns; an exact value counts one more.
    pub length: usize,
}

/// Pattern for a value.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum ValuePattern {
    /// Any value.
    Present,
    /// All values with this prefix.
    Prefix(String),
    /// This value exactly.
    Equal(String),
}

impl ValuePattern {
    /// Parses `"*"`, `"text*"` or `"text"`.
    pub fn parse_pattern(text: &str) -> Self {
        match text.strip_suffix('*') {
            Some("") => Self::Present,
            Some(prefix) => Self::Prefix(prefix.into()),
            None => Self::Equal(text.into()),
        }
    }

    /// Whether `value` matches the pattern.
    pub fn matches_value(&self, value: &[u8]) -> bool {
        match self {
            Self::Present => true,
            Self::Prefix(prefix) => value.starts_with(prefix.as_bytes()),
            Self::Equal(text) => value == text.as_bytes(),
        }
    }

    const fn specific_bytes(&self) -> usize {
        match self {
            Self::Present => 0,
            Self::Prefix(prefix) => prefix.len(),
            Self::Equal(text) => text.len() + 1,
        }
    }

    /// Whether no value matches both patterns.
    pub(super) fn excludes_pattern(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Present, _) | (_, Self::Present) => false,
            (Self::Equal(one), Self::Equal(other)) => one != other,
            (Self::Prefix(prefix), Self::Equal(text)) | (Self::Equal(text), Self::Prefix(prefix)) => {
                !text.starts_with(prefix.as_str())
            }
            (Self::Prefix(one), Self::Prefix(other)) => {
                !one.starts_with(other.as_str()) && !other.starts_with(one.as_str())
            }
        }
    }
}

impl fmt::Display for ValuePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Present => f.write_str("*"),
            Self::Prefix(prefix) => write!(f, "{prefix}*"),
            Self::Equal(text) => f.write_str(text),
        }
    }
}

fn read_header_patterns(section: &mut ConfigSection<'_>, key: &str, about: &str) -> Vec<(HeaderName, ValuePattern)> {
    section.read_map(key, TOKEN_PATTERN, parse_matched_field, pattern_kind(), MatchConditions::MAX_CONDITIONS, about)
}

fn parse_matched_field(text: &str) -> Result<HeaderName, ValueError> {
    let name = HeaderName::from_bytes(text.as_bytes()).ok().filter(|_| !text.contains('"'));
    let name = name.ok_or("not a field's name")?;
    let problem = match name.as_str() {
        "host" => "cannot be a condition; use the key host of the route",
        // HTTP/2 and HTTP/3 have no such fields, or determine the length otherwise.
        "connection" | "keep-alive" | "proxy-connection" | "te" | "upgrade" | "content-length"
        | "transfer-encoding" => "is a connection-specific or framing field",
        _ => return Ok(name),
    };
    Err(problem.into())
}

/// Formats names alone: a value may be a secret.
fn format_names<N: ToString>(patterns: &[(N, ValuePattern)]) -> String {
    join_or(patterns.iter().map(|(name, _)| name.to_string()), "any")
}

fn read_query_patterns(section: &mut ConfigSection<'_>, key: &str, about: &str) -> Vec<(String, ValuePattern)> {
    let parameter = |text: &str| {
        let fits = text.bytes().all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'&' | b'=' | b'#'));
        let fits = fits && (1..=MatchConditions::MAX_PATTERN_BYTES).contains(&text.len());
        if fits { Ok(text.to_owned()) } else { Err("not the name of a query parameter as in a URL".into()) }
    };
    section.read_map(key, "[!-\"$%'-<>-~]+", parameter, pattern_kind(), MatchConditions::MAX_CONDITIONS, about)
}

pub(super) fn pattern_kind() -> ValueKind<ValuePattern> {
    let parse = |text: String| {
        check_printable(&text, MatchConditions::MAX_PATTERN_BYTES)?;
        Ok(ValuePattern::parse_pattern(&text))
    };
    let expected = "a value such as \"yes\", its beginning such as \"v2*\", or \"*\" for any";
    let kind = text_kind(expected, parse, ToString::to_string);
    kind.with_pattern(PRINTABLE_PATTERN).with_length(0..=MatchConditions::MAX_PATTERN_BYTES)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_a_value_its_beginning_or_anything() {
        for (text, value, fits) in [
            ("*", "", true),
            ("*", "a", true),
            ("a*", "a", true),
            ("a*", "ab", true),
            ("a*", "", false),
            ("a*", "A", false),
            ("a", "a", true),
            ("a", "ab", false),
            ("", "", true),
            ("", "a", false),
            ("a*b", "a*b", true),
            ("a*b", "axb", false),
            ("**", "*/*", true),
        ] {
            let pattern = ValuePattern::parse_pattern(text);
            assert_eq!(pattern.matches_value(value.as_bytes()), fits, "{text} {value}");
            assert_eq!(pattern.to_string(), text);
        }
    }

    pub(crate) fn conditions(
        methods: &[&str],
        headers: &[(&'static str, &str)],
        query: &[(&str, &str)],
    ) -> MatchConditions {
        MatchConditions {
            methods: methods.iter().map(|method| Method::from_bytes(method.as_bytes()).unwrap()).collect(),
            headers: headers
                .iter()
                .map(|(name, pattern)| (HeaderName::from_static(name), ValuePattern::parse_pattern(pattern)))
                .collect(),
            query: query
                .iter()
                .map(|(name, pattern)| ((*name).to_owned(), ValuePattern::parse_pattern(pattern)))
                .collect(),
        }
    }

    #[test]
    fn methods_weigh_more_than_fields_and_fields_more_than_parameters() {
        // Ordered from the most to the least specific.
        let order = [
            conditions(&["GET"], &[("a", "1"), ("b", "*")], &[]),
            conditions(&["GET"], &[("a", "1")], &[("a", "1"), ("b", "1")]),
            conditions(&["GET", "HEAD"], &[], &[]),
            conditions(&[], &[("a", "*"), ("b", "*")], &[]),
            conditions(&[], &[("a", "*")], &[("a", "*")]),
            conditions(&[], &[("a", "abc")], &[]),
            conditions(&[], &[("a", "abc*")], &[]),
            conditions(&[], &[("a", "ab*")], &[]),
            conditions(&[], &[("a", "*")], &[]),
            conditions(&[], &[], &[("a", "1")]),
            conditions(&[], &[], &[("a", "*")]),
            MatchConditions::default(),
        ];
        for pair in order.windows(2) {
            assert!(pair[0].specificity() > pair[1].specificity(), "{} {}", pair[0], pair[1]);
        }
    }

    #[test]
    fn equal_conditions_are_equal_in_any_order() {
        let one = conditions(&["GET", "HEAD"], &[("a", "1"), ("b", "*")], &[]);
        let other = conditions(&["HEAD", "GET", "GET"], &[("b", "*"), ("a", "1")], &[]);
        assert_eq!(one.canonical_text(), other.canonical_text());
        assert_ne!(one.canonical_text(), conditions(&["GET"], &[("a", "1"), ("b", "*")], &[]).canonical_text());
        assert_eq!(MatchConditions::default().canonical_text(), "");
        assert_eq!(other.to_string(), "[HEAD,GET,GET,b,a]");
        assert_eq!(conditions(&[], &[], &[("v", "secret")]).to_string(), "[?v]");
    }
}
