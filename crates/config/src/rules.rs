//! Defines parts of a route besides its target: header rules, templates, timeouts, and error pages.

use crate::reading::table::{keys, optional_key};
use crate::reading::value_kinds::{TIMEOUT_RANGE, duration_kind, or_none};
use http::HeaderName;
use litequic_base::named_enum;
use std::{
    collections::BTreeMap,
    fmt,
    path::{Path, PathBuf},
    time::Duration,
};

/// Changes to a header: first `remove`, then `set`, then `add`, which adds a line.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HeaderRules {
    /// Names of fields to remove.
    pub remove: Vec<HeaderName>,
    /// Names of fields with the only value to set.
    pub set: Vec<(HeaderName, Template)>,
    /// Names of fields with a value to add to existing ones.
    pub add: Vec<(HeaderName, Template)>,
}

impl HeaderRules {
    /// Bytes of a value: twice a long Content-Security-Policy.
    pub const MAX_VALUE_BYTES: usize = 8 * 1024;
    /// Number of fields in each of the three keys.
    pub const MAX_FIELDS: usize = 64;

    /// Merges rules: these ones, and those of `general` for fields that these rules do not name in any spelling.
    pub fn with_general_rules(&self, general: &Self) -> Self {
        if general.is_empty() {
            return self.clone();
        }
        let valued = self.set.iter().chain(&self.add).map(|(name, _)| name);
        let named: Vec<_> = self.remove.iter().chain(valued).map(with_dashes).collect();
        let is_free = |name: &HeaderName| !named.contains(&with_dashes(name));
        let free = |rules: &[(HeaderName, Template)]| {
            rules.iter().filter(|(name, _)| is_free(name)).cloned().collect::<Vec<_>>()
        };
        Self {
            remove: general.remove.iter().filter(|name| is_free(name)).chain(&self.remove).cloned().collect(),
            set: [free(&general.set), self.set.clone()].concat(),
            add: [free(&general.add), self.add.clone()].concat(),
        }
    }

    /// Whether the rules change nothing.
    pub fn is_empty(&self) -> bool {
        self.remove.is_empty() && self.set.is_empty() && self.add.is_empty()
    }
}

/// A text with variables.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Template(pub Vec<TemplatePart>);

/// Part of a [`Template`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TemplatePart {
    /// Literal text.
    Text(String),
    /// A variable to fill in.
    Variable(Variable),
}

named_enum! {
    /// A variable whose value depends on the request.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Variable {
        /// IP address of the client.
        Client = "client",
        /// Authority of the request, with its port: `:authority` or `Host`.
        Host = "host",
        /// ID of the request.
        RequestId = "request_id",
        /// Path and query, after the route's `rewrite_prefix`.
        Path = "path",
    }
    /// Name of the variable in braces.
    fn variable_name;
}

impl Template {
    /// Parses `text`, in which the variables `allowed` may stand in braces. Braces around other characters than
    /// lower-case letters and `_` are text.
    ///
    /// # Errors
    ///
    /// The name of a variable that is not in `allowed`.
    pub fn parse_variables<'t>(text: &'t str, allowed: &[Variable]) -> Result<Self, &'t str> {
        let mut parts = Vec::new();
        let mut literal = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('{') {
            literal.push_str(before);
            let name = after.split_once('}').map(|(name, _)| name).filter(|name| is_variable_name(name));
            let Some(name) = name else {
                literal.push('{');
                rest = after;
                continue;
            };
            let known = Variable::NAMES.iter().find(|(known, _)| *known == name).map(|(_, variable)| *variable);
            let variable = known.filter(|variable| allowed.contains(variable)).ok_or(name)?;
            if !literal.is_empty() {
                parts.push(TemplatePart::Text(std::mem::take(&mut literal)));
            }
            parts.push(TemplatePart::Variable(variable));
            rest = after.get(name.len() + 1..).unwrap_or_default();
        }
        literal.push_str(rest);
        if !literal.is_empty() {
            parts.push(TemplatePart::Text(literal));
        }
        Ok(Self(parts))
    }
}

fn is_variable_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
}

impl fmt::Display for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for part in &self.0 {
            match part {
                TemplatePart::Text(text) => f.write_str(text)?,
                TemplatePart::Variable(variable) => write!(f, "{{{}}}", variable.variable_name())?,
            }
        }
        Ok(())
    }
}

keys! {
    /// Timeouts of a route; `None` for the value in `[timeouts]`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct RouteTimeouts {
        // `Some(None)` means no limit.
        /// Time within which a request of this route and its response end, in place of `timeouts.request`.
        request: Option<Option<Duration>> = None, optional_key(or_none(duration_kind(TIMEOUT_RANGE)), "timeouts.request");

        /// Time within which the origin sends the response's header on this route, in place of
        /// `timeouts.response_header`.
        response_header: Option<Duration> = None, optional_key(duration_kind(TIMEOUT_RANGE), "timeouts.response_header");

        /// Time without a byte of the response's body on this route, in place of `timeouts.response_body`.
        response_body: Option<Duration> = None, optional_key(duration_kind(TIMEOUT_RANGE), "timeouts.response_body");
    }
}

/// Error pages: paths of the bodies' files, absolute or relative to the working directory, by status.
pub type ErrorPages = BTreeMap<ErrorStatuses, PathBuf>;

/// Statuses of an error page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ErrorStatuses {
    /// A status from 400 to 599: `"404"`.
    Status(u16),
    /// All statuses of a class without a page of their own: `"4xx"`, `"5xx"`.
    Class(u16),
}

impl ErrorStatuses {
    /// Parses `"404"` or `"4xx"`.
    pub fn parse_error_statuses(text: &str) -> Option<Self> {
        match text {
            "4xx" => Some(Self::Class(4)),
            "5xx" => Some(Self::Class(5)),
            digits if digits.len() == 3 && digits.bytes().all(|byte| byte.is_ascii_digit()) => {
                digits.parse().ok().filter(|status| (400..600).contains(status)).map(Self::Status)
            }
            _ => None,
        }
    }
}

impl fmt::Display for ErrorStatuses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status(status) => write!(f, "{status}"),
            Self::Class(class) => write!(f, "{class}xx"),
        }
    }
}

/// Returns the `Content-Type` of an error page by its file name extension; `None` if pages cannot have it.
pub fn page_media_type(page: &Path) -> Option<&'static str> {
    match page.extension()?.to_str()? {
        "html" | "htm" => Some("text/html; charset=utf-8"),
        "txt" => Some("text/plain; charset=utf-8"),
        "json" => Some("application/json"),
        "xml" => Some("application/xml"),
        "svg" => Some("image/svg+xml"),
        _ => None,
    }
}

/// Returns the `Content-Type` of a fixed response by its file name extension; more are known than for error pages.
pub fn body_media_type(file: &Path) -> Option<&'static str> {
    page_media_type(file).or_else(|| match file.extension()?.to_str()? {
        "css" => Some("text/css; charset=utf-8"),
        "js" | "mjs" => Some("text/javascript; charset=utf-8"),
        "webmanifest" => Some("application/manifest+json"),
        "png" => Some("image/png"),
        "jpg" | "jpeg" => Some("image/jpeg"),
        "webp" => Some("image/webp"),
        "ico" => Some("image/vnd.microsoft.icon"),
        _ => None,
    })
}

/// Returns the reason why no rule may set the request field `name`; `None` if a rule may. Characters other than letters
/// and digits count as `-`, because CGI-like origins do not distinguish them.
pub fn request_field_fault(name: &HeaderName) -> Option<&'static str> {
    match &*with_dashes(name) {
        "host" => Some("cannot be set by a rule; use rewrite_host of the route"),
        "forwarded" | "client-cert" | "client-cert-chain" | "x-request-id" => Some(SET_BY_LITEQUIC),
        "proxy" | "expect" | "max-forwards" | "early-data" => Some("cannot be set by a rule"),
        name if name.starts_with("x-forwarded-") => Some(SET_BY_LITEQUIC),
        name => connection_field_fault(name),
    }
}

const SET_BY_LITEQUIC: &str = "is set by litequic";

/// Returns the reason why no rule may change the response field `name`; `None` if a rule may.
pub fn response_field_fault(name: &HeaderName) -> Option<&'static str> {
    match &*with_dashes(name) {
        "alt-svc" => Some("is set by litequic"),
        name => connection_field_fault(name),
    }
}

fn with_dashes(name: &HeaderName) -> String {
    name.as_str().replace(|char: char| !char.is_ascii_alphanumeric(), "-")
}

/// Returns a fault for connection-specific (RFC 9110 §7.6.1) and framing fields.
fn connection_field_fault(name: &str) -> Option<&'static str> {
    match name {
        "connection" | "keep-alive" | "proxy-connection" | "te" | "upgrade" | "content-length"
        | "transfer-encoding" | "trailer" => Some("is a connection-specific or framing field"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_stand_in_braces_and_other_braces_are_text() {
        let all = Variable::NAMES.iter().map(|(_, variable)| *variable).collect::<Vec<_>>();
        let text = |text: &str| TemplatePart::Text(text.into());
        let client = TemplatePart::Variable(Variable::Client);
        let table: [(&str, Result<Vec<TemplatePart>, &str>); 10] = [
            ("", Ok(vec![])),
            ("plain", Ok(vec![text("plain")])),
            ("{client}", Ok(vec![client.clone()])),
            ("a{client}b", Ok(vec![text("a"), client.clone(), text("b")])),
            ("{client}{host}", Ok(vec![client.clone(), TemplatePart::Variable(Variable::Host)])),
            ("{\"group\":\"x\"}", Ok(vec![text("{\"group\":\"x\"}")])),
            ("{{client}}", Ok(vec![text("{"), client.clone(), text("}")])),
            ("{}{", Ok(vec![text("{}{")])),
            ("{clinet}", Err("clinet")),
            ("{path", Ok(vec![text("{path")])),
        ];
        for (given, expected) in table {
            assert_eq!(Template::parse_variables(given, &all), expected.map(Template), "{given}");
            if let Ok(template) = Template::parse_variables(given, &all) {
                assert_eq!(template.to_string(), given);
            }
        }
        assert_eq!(Template::parse_variables("{path}", &[Variable::Client]), Err("path"));
    }

    #[test]
    fn a_routes_rules_replace_general_ones_field_by_field() {
        let name = HeaderName::from_static;
        let value = |text: &str| Template(vec![TemplatePart::Text(text.into())]);
        let general = HeaderRules {
            remove: vec![name("server"), name("x-powered-by")],
            set: vec![(name("x-frame-options"), value("DENY")), (name("x-set"), value("general"))],
            add: vec![(name("vary"), value("accept")), (name("link"), value("general"))],
        };
        let own = HeaderRules {
            remove: vec![name("x_frame_options")],
            set: vec![(name("server"), value("own")), (name("link"), value("own"))],
            add: vec![(name("x-set"), value("own"))],
        };
        let sum = HeaderRules {
            remove: vec![name("x-powered-by"), name("x_frame_options")],
            set: vec![(name("server"), value("own")), (name("link"), value("own"))],
            add: vec![(name("vary"), value("accept")), (name("x-set"), value("own"))],
        };
        assert_eq!(own.with_general_rules(&general), sum);
        assert_eq!(HeaderRules::default().with_general_rules(&general), general);
        assert_eq!(general.with_general_rules(&HeaderRules::default()), general);
    }

    #[test]
    fn pages_are_for_errors() {
        for (text, errors) in [
            ("404", Some(ErrorStatuses::Status(404))),
            ("599", Some(ErrorStatuses::Status(599))),
            ("4xx", Some(ErrorStatuses::Class(4))),
            ("5xx", Some(ErrorStatuses::Class(5))),
            ("200", None),
            ("600", None),
            ("+44", None),
            ("3xx", None),
            ("0404", None),
            ("", None),
        ] {
            assert_eq!(ErrorStatuses::parse_error_statuses(text), errors, "{text}");
            if let Some(errors) = errors {
                assert_eq!(errors.to_string(), text);
            }
        }
    }

    #[test]
    fn a_rule_touches_no_field_that_litequic_answers_for() {
        for (name, request, response) in [
            ("host", false, true),
            ("content-length", false, false),
            ("content_length", false, false),
            ("transfer-encoding", false, false),
            ("connection", false, false),
            ("te", false, false),
            ("forwarded", false, true),
            ("x-forwarded-for", false, true),
            ("x_forwarded_anything", false, true),
            ("content.length", false, false),
            ("client~cert", false, true),
            ("x-request-id", false, true),
            ("client-cert", false, true),
            ("early-data", false, true),
            ("alt-svc", true, false),
            ("x-real-ip", true, true),
            ("authorization", true, true),
            ("strict-transport-security", true, true),
        ] {
            let name = HeaderName::from_static(name);
            assert_eq!(request_field_fault(&name).is_none(), request, "{name}");
            assert_eq!(response_field_fault(&name).is_none(), response, "{name}");
        }
    }
}
