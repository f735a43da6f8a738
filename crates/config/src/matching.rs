//! Conditions of a route besides host and path (`[routes.match]`), and the precedence of routes. Pure.
//!
//! The precedence is that of the Kubernetes Gateway API (HTTPRouteRule): host, exact path, longest prefix, methods,
//! number of header fields, number of query parameters. A tie goes by the length of the patterns, then by the file.

use crate::reading::names::{TOKEN, method};
use crate::reading::section::Section;
use crate::reading::table::{by, keys, list};
use crate::reading::values::{Kind, Wrong, text};
use http::{HeaderName, Method};
use std::fmt;

keys! {
    /// `match`: conditions that a request has to meet, all of them.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Match {
        /// Methods, of which the request has one. `GET` does not include `HEAD`. A WebSocket is a `GET`, also over
        /// HTTP/2 and HTTP/3. By default every method.
        methods: Vec<Method> = Vec::new(), list(method(), 0..=Self::MAX_METHODS);

        /// Header fields that the request has: with this value, with a value that begins with this text (`"text*"`), or
        /// with any value (`"*"`). If a field has several lines, one of them has to match. Values are case-sensitive,
        /// names are not.
        headers: Vec<(HeaderName, Pattern)> = Vec::new(), by(headers, show_headers);

        /// Parameters that the request's query has, by the same patterns. Names and values are compared as they are
        /// written, including percent-encoding and case.
        query: Vec<(String, Pattern)> = Vec::new(), by(query, show_query);
    }
}

impl Match {
    /// RFC 9110 §9.3 has eight.
    pub const MAX_METHODS: usize = 16;
    /// Each is looked up in every request that host and path select the route for.
    pub const MAX_CONDITIONS: usize = 16;
    /// Bytes of a pattern: twice a long token.
    pub const MAX_PATTERN: usize = 1024;

    /// Whether every request meets it.
    pub fn is_empty(&self) -> bool {
        self.methods.is_empty() && self.headers.is_empty() && self.query.is_empty()
    }

    /// How specific it is: of two routes with the same host and path the more specific one comes first.
    pub fn weight(&self) -> Weight {
        let patterns = self.headers.iter().map(|(_, pattern)| pattern);
        let patterns = patterns.chain(self.query.iter().map(|(_, pattern)| pattern));
        Weight {
            methods: !self.methods.is_empty(),
            headers: self.headers.len(),
            query: self.query.len(),
            length: patterns.map(Pattern::length).sum(),
        }
    }

    /// Whether no request meets both, but for one with several lines of a field, or one parameter twice.
    pub(super) fn excludes(&self, other: &Self) -> bool {
        let methods = !self.methods.is_empty()
            && !other.methods.is_empty()
            && !self.methods.iter().any(|method| other.methods.contains(method));
        methods || clash(&self.headers, &other.headers) || clash(&self.query, &other.query)
    }

    /// A text of the conditions, equal for conditions that differ in order or repetition alone.
    pub(super) fn canonical(&self) -> String {
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

/// The conditions, in words that fit a name: values are left out, as they may be secrets.
impl fmt::Display for Match {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let methods = self.methods.iter().map(ToString::to_string);
        let headers = self.headers.iter().map(|(name, _)| name.to_string());
        let query = self.query.iter().map(|(name, _)| format!("?{name}"));
        let all: Vec<_> = methods.chain(headers).chain(query).collect();
        if all.is_empty() { Ok(()) } else { write!(f, "[{}]", all.join(",")) }
    }
}

/// Whether both name something of which no value fits both.
fn clash<N: PartialEq>(one: &[(N, Pattern)], other: &[(N, Pattern)]) -> bool {
    let clashes =
        |name: &N, pattern: &Pattern| other.iter().any(|(other, against)| other == name && pattern.excludes(against));
    one.iter().any(|(name, pattern)| clashes(name, pattern))
}

/// How specific a [`Match`] is: compared from its first field on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Weight {
    /// There are methods.
    pub methods: bool,
    /// Header fields.
    pub headers: usize,
    /// Query parameters.
    pub query: usize,
    /// Bytes of patterns; a whole value has one more.
    pub length: usize,
}

/// The pattern of a value.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pattern {
    /// Anything.
    Present,
    /// A prefix.
    Prefix(String),
    /// The whole value.
    Equal(String),
}

impl Pattern {
    /// Reads `"*"`, `"text*"` or `"text"`.
    pub fn parse(text: &str) -> Self {
        match text.strip_suffix('*') {
            Some("") => Self::Present,
            Some(prefix) => Self::Prefix(prefix.into()),
            None => Self::Equal(text.into()),
        }
    }

    /// Whether `value` matches.
    pub fn fits(&self, value: &[u8]) -> bool {
        match self {
            Self::Present => true,
            Self::Prefix(prefix) => value.starts_with(prefix.as_bytes()),
            Self::Equal(text) => value == text.as_bytes(),
        }
    }

    const fn length(&self) -> usize {
        match self {
            Self::Present => 0,
            Self::Prefix(prefix) => prefix.len(),
            Self::Equal(text) => text.len() + 1,
        }
    }

    /// Whether no value matches both.
    pub(super) fn excludes(&self, other: &Self) -> bool {
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

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Present => f.write_str("*"),
            Self::Prefix(prefix) => write!(f, "{prefix}*"),
            Self::Equal(text) => f.write_str(text),
        }
    }
}

type Headers = Vec<(HeaderName, Pattern)>;
type Query = Vec<(String, Pattern)>;

fn headers(section: &mut Section<'_>, key: &str, about: &str) -> Headers {
    section.map(key, TOKEN, field_name, pattern(), Match::MAX_CONDITIONS, about)
}

fn field_name(text: &str) -> Result<HeaderName, Wrong> {
    let name = HeaderName::from_bytes(text.as_bytes()).ok().filter(|_| !text.contains('"'));
    let name = name.ok_or("not a field's name")?;
    let problem = match name.as_str() {
        "host" => "is what host matches",
        // HTTP/2 and HTTP/3 do not have them, or know the length otherwise.
        "connection" | "keep-alive" | "proxy-connection" | "te" | "upgrade" | "content-length"
        | "transfer-encoding" => "is a connection-specific or framing field",
        _ => return Ok(name),
    };
    Err(problem.into())
}

/// Names alone: a value may be a secret.
fn show_headers(headers: &Headers) -> String {
    names(headers.iter().map(|(name, _)| name.as_str()))
}

fn query(section: &mut Section<'_>, key: &str, about: &str) -> Query {
    let parameter = |text: &str| {
        let fits = text.bytes().all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'&' | b'=' | b'#'));
        let fits = fits && (1..=Match::MAX_PATTERN).contains(&text.len());
        if fits { Ok(text.to_owned()) } else { Err("not the name of a query parameter as in a URL".into()) }
    };
    section.map(key, "[!-\"$%'-<>-~]+", parameter, pattern(), Match::MAX_CONDITIONS, about)
}

fn show_query(query: &Query) -> String {
    names(query.iter().map(|(name, _)| name.as_str()))
}

fn names<'a>(all: impl Iterator<Item = &'a str>) -> String {
    let all: Vec<_> = all.collect();
    if all.is_empty() { "any".into() } else { all.join(", ") }
}

pub(super) fn pattern() -> Kind<Pattern> {
    let parse = |text: String| {
        if text.len() > Match::MAX_PATTERN {
            return Err(format!("has {} bytes, at most {} are allowed", text.len(), Match::MAX_PATTERN).into());
        }
        if text.trim() != text {
            return Err("begins or ends with a blank".into());
        }
        if !text.bytes().all(|byte| byte == b'\t' || matches!(byte, b' '..=b'~')) {
            return Err("has other characters than printable ASCII".into());
        }
        Ok(Pattern::parse(&text))
    };
    let kind =
        text("a value such as \"yes\", its beginning such as \"v2*\", or \"*\" for any", parse, ToString::to_string);
    kind.matching("([!-~]([\t -~]*[!-~])?)?").of_length(0..=Match::MAX_PATTERN)
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
            let pattern = Pattern::parse(text);
            assert_eq!(pattern.fits(value.as_bytes()), fits, "{text} {value}");
            assert_eq!(pattern.to_string(), text);
        }
    }

    pub(crate) fn conditions(methods: &[&str], headers: &[(&'static str, &str)], query: &[(&str, &str)]) -> Match {
        Match {
            methods: methods.iter().map(|method| Method::from_bytes(method.as_bytes()).unwrap()).collect(),
            headers: headers
                .iter()
                .map(|(name, pattern)| (HeaderName::from_static(name), Pattern::parse(pattern)))
                .collect(),
            query: query.iter().map(|(name, pattern)| ((*name).to_owned(), Pattern::parse(pattern))).collect(),
        }
    }

    #[test]
    fn methods_weigh_more_than_fields_and_fields_more_than_parameters() {
        // From the first to the last.
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
            Match::default(),
        ];
        for pair in order.windows(2) {
            assert!(pair[0].weight() > pair[1].weight(), "{} {}", pair[0], pair[1]);
        }
    }

    #[test]
    fn what_asks_for_the_same_is_the_same_in_whatever_order() {
        let one = conditions(&["GET", "HEAD"], &[("a", "1"), ("b", "*")], &[]);
        let other = conditions(&["HEAD", "GET", "GET"], &[("b", "*"), ("a", "1")], &[]);
        assert_eq!(one.canonical(), other.canonical());
        assert_ne!(one.canonical(), conditions(&["GET"], &[("a", "1"), ("b", "*")], &[]).canonical());
        assert_eq!(Match::default().canonical(), "");
        assert_eq!(other.to_string(), "[HEAD,GET,GET,b,a]");
        assert_eq!(conditions(&[], &[], &[("v", "secret")]).to_string(), "[?v]");
    }
}
