//! Defines `redirect` of a route: a redirect to a target that the operator controls, whatever the client requests.

use super::rules::{Template, Variable};
use crate::reading::name_kinds::{authority_kind, parse_host};
use crate::reading::rule_readers::parse_rule_template;
use crate::reading::value_kinds::{RawValue, ValueError, ValueKind, text_kind};
use http::StatusCode;
use std::fmt;

/// Variables that a `Location` may contain.
const REDIRECT_VARIABLES: &[Variable] = &[Variable::Host, Variable::Path];

/// Redirect of a route: `redirect`, such as `"https://www.example.com{path}"` or `"301 /new"`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Redirect {
    /// The `Location`.
    pub to: Template,
    /// The response's status.
    pub status: StatusCode,
}

impl Redirect {
    /// The statuses of a redirect (RFC 9110 §15.4).
    pub const STATUSES: [StatusCode; 5] = [
        StatusCode::MOVED_PERMANENTLY,
        StatusCode::FOUND,
        StatusCode::SEE_OTHER,
        StatusCode::TEMPORARY_REDIRECT,
        StatusCode::PERMANENT_REDIRECT,
    ];
    /// Default status: 307 keeps method and body, and browsers do not cache it for ever.
    pub const DEFAULT_STATUS: StatusCode = StatusCode::TEMPORARY_REDIRECT;
}

impl fmt::Display for Redirect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.status.as_str(), self.to)
    }
}

/// A `Location`, alone or behind a status.
pub(crate) fn redirect_kind() -> ValueKind<Redirect> {
    let expected = "a URL such as \"https://www.example.com{path}\", or a path; before it a status, as in \"301 /new\"";
    let (path, host) = (r"[!#-;=?-\[\]_a-z~{}]", "[0-9A-Za-z_.:-]");
    let location = format!(
        r"https?://({host}+|{host}*\{{host\}}|\[[0-9A-Fa-f:.]+\](:[0-9]+)?)([/?#]{path}*|\{{path\}})?|/([!#-.0-;=?-\[\]_a-z~{{}}]{path}*)?"
    );
    let kind = text_kind(expected, |text| parse_redirect(&text), ToString::to_string);
    kind.with_pattern(&format!("(30[12378] )?({location})"))
}

fn parse_redirect(text: &str) -> Result<Redirect, ValueError> {
    let (status, location) = match text.split_once(' ') {
        Some((status, location)) if status.bytes().all(|byte| byte.is_ascii_digit()) => {
            let known = Redirect::STATUSES.into_iter().find(|known| known.as_str() == status);
            (known.ok_or("not a redirect's status")?, location)
        }
        _ => (Redirect::DEFAULT_STATUS, text),
    };
    Ok(Redirect { to: parse_location(location)?, status })
}

/// Parses a `Location` whose target the operator controls, whatever the client requests. Scheme and authority are
/// literal, or the authority is that of the request; the part that the client controls follows them and begins with a
/// slash.
fn parse_location(text: &str) -> Result<Template, ValueError> {
    // These characters are invalid in a URL (RFC 3986 §2); browsers read a backslash as a slash.
    if !text
        .bytes()
        .all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'\\' | b'"' | b'<' | b'>' | b'^' | b'`' | b'|'))
    {
        return Err("contains characters that a URL cannot contain".into());
    }
    let template = parse_rule_template(text, REDIRECT_VARIABLES)?;
    let absolute = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    let path = match absolute {
        Some(rest) => {
            let end = rest.find("{path}").into_iter().chain(rest.find(['/', '?', '#'])).min().unwrap_or(rest.len());
            let (authority, path) = rest.split_at_checked(end).unwrap_or((rest, ""));
            check_location_authority(authority)?;
            path
        }
        None if text.starts_with("//") => return Err("has no scheme".into()),
        None if text.starts_with('/') => text,
        None => return Err("begins with neither \"https://\", \"http://\" nor \"/\"".into()),
    };
    let (literal, rest) = path.split_once("{path}").map_or((path, None), |(literal, rest)| (literal, Some(rest)));
    if literal.contains("{host}") {
        return Err("{host} must be the whole host, or its end".into());
    }
    match rest {
        Some(rest) if !rest.is_empty() => Err("{path} must be at the end".into()),
        Some(_) if literal.contains(['?', '#']) => Err("{path} cannot be in a query".into()),
        Some(_) if literal.ends_with('/') => Err("{path} begins with a slash itself".into()),
        _ => Ok(template),
    }
}

/// Checks the authority of a location: `HOST`, `HOST:PORT`, `{host}`, or labels before `{host}`.
fn check_location_authority(text: &str) -> Result<(), ValueError> {
    match text.strip_suffix("{host}") {
        Some("") => Ok(()),
        Some(labels) => match labels.strip_suffix('.') {
            Some(labels) => parse_host(labels).map(|_| ()),
            None => Err("{host} needs a dot before it".into()),
        },
        None if text.contains('{') => Err("{host} must be the whole host, or its end".into()),
        None if text.is_empty() => Err("has no host".into()),
        None => (authority_kind().read)(RawValue::Text(text.into())).map(|_| ()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values that would be an open redirect are rejected.
    #[test]
    fn a_redirect_leads_where_the_operator_says() {
        for (text, problem) in [
            ("https://example.com", None),
            ("https://example.com/", None),
            ("https://example.com{path}", None),
            ("https://example.com:8443{path}", None),
            ("https://[::1]:8443/a{path}", None),
            ("http://example.com/new{path}", None),
            ("https://{host}{path}", None),
            ("https://www.{host}{path}", None),
            ("https://{host}/login?from=a#b", None),
            ("/", None),
            ("/login", None),
            ("/login?from=here", None),
            ("/new{path}", None),
            ("https://example.com?a", None),
            ("{path}", Some("begins with neither \"https://\", \"http://\" nor \"/\"")),
            ("{host}{path}", Some("begins with neither \"https://\", \"http://\" nor \"/\"")),
            ("example.com", Some("begins with neither \"https://\", \"http://\" nor \"/\"")),
            ("javascript:alert(1)", Some("begins with neither \"https://\", \"http://\" nor \"/\"")),
            ("HTTPS://example.com", Some("begins with neither \"https://\", \"http://\" nor \"/\"")),
            ("//example.com", Some("has no scheme")),
            ("//{host}{path}", Some("has no scheme")),
            ("/\\example.com", Some("contains characters that a URL cannot contain")),
            ("/a b", Some("contains characters that a URL cannot contain")),
            ("/{path}", Some("{path} begins with a slash itself")),
            ("https://example.com/{path}", Some("{path} begins with a slash itself")),
            ("https://{path}", Some("has no host")),
            ("https://", Some("has no host")),
            ("https:///a", Some("has no host")),
            ("https://example{path}.com", Some("{path} must be at the end")),
            // The host would end with the root's dot.
            ("https://a.{path}", None),
            ("https://user@example.com{path}", Some("not a host")),
            ("https://example.com:0{path}", Some("not a port")),
            ("https://{host}.evil.com{path}", Some("{host} must be the whole host, or its end")),
            ("https://evil{host}", Some("{host} needs a dot before it")),
            ("https://{host}:8443", Some("{host} must be the whole host, or its end")),
            ("https://a@.{host}", Some("not a host")),
            ("https://example.com/{host}", Some("{host} must be the whole host, or its end")),
            ("https://example.com/?next={path}", Some("{path} cannot be in a query")),
            ("https://example.com#{path}", Some("{path} cannot be in a query")),
            ("https://example.com{path}{path}", Some("{path} must be at the end")),
            ("https://example.com{client}", Some("{client} is not a variable of this key")),
        ] {
            let found = parse_location(text).err().map(|wrong| wrong.problem);
            assert_eq!(found.as_deref(), problem, "{text}");
        }
    }
}
