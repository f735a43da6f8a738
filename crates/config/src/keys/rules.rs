//! The keys of a route that do not select an origin.

use crate::{
    Auth, ErrorPages, Errors, FixedBody, HeaderRules, RateLimit, RateLimitBy, Redirect, Respond, Template, Variable,
    body_type,
    fault::nearest,
    media_type,
    names::{TOKEN, authority, parse_host, path},
    request_field_fault, response_field_fault,
    section::Section,
    table::{KeyTable as _, Reader},
    values::{DAY, Kind, RawValue, Wrong, number, text},
};
use http::{HeaderName, StatusCode, header};
use serde_json::json;
use std::{ops::RangeInclusive, path::PathBuf, time::Duration};

/// Below a millisecond a timer has no resolution; a day's share is a quota already.
pub(crate) const PER: RangeInclusive<Duration> = Duration::from_millis(1)..=DAY;
/// Interim ones are not whole answers (RFC 9110 §15.2).
const FINAL: RangeInclusive<u64> = 200..=599;
/// One for each status there is would be 200.
const MAX_PAGES: usize = 64;
/// In a field's value.
const IN_FIELDS: &[Variable] = &[Variable::Client, Variable::Host, Variable::RequestId];
/// In `redirect.to`.
const IN_REDIRECTS: &[Variable] = &[Variable::Host, Variable::Path];

/// Fields of the names that litequic reserves for itself by which servers that decide name the user.
const IDENTITIES: [&str; 5] = [
    "x-forwarded-user",
    "x-forwarded-email",
    "x-forwarded-groups",
    "x-forwarded-preferred-username",
    "x-forwarded-access-token",
];

/// Whether a rule may set a field, and why not.
type FieldFault = fn(&HeaderName) -> Option<&'static str>;

pub(crate) fn request_headers(section: &mut Section<'_>, key: &str, about: &str) -> HeaderRules {
    section.table(key, about, |section| header_rules(section, "the origin", request_field_fault))
}

pub(crate) fn response_headers(section: &mut Section<'_>, key: &str, about: &str) -> HeaderRules {
    section.table(key, about, |section| header_rules(section, "the client", response_field_fault))
}

/// Names alone: a value may be a secret.
pub(crate) fn show_headers(rules: &HeaderRules) -> String {
    let HeaderRules { remove, set, add } = rules;
    let removed = remove.iter().map(|name| format!("remove {name}"));
    let set = set.iter().map(|(name, _)| format!("set {name}"));
    let added = add.iter().map(|(name, _)| format!("add {name}"));
    shown(removed.chain(set).chain(added))
}

fn shown(all: impl Iterator<Item = String>) -> String {
    let all: Vec<_> = all.collect();
    if all.is_empty() { "none".into() } else { all.join(", ") }
}

/// Reads the rules for the header that `who` gets.
fn header_rules(section: &mut Section<'_>, who: &str, fault: FieldFault) -> HeaderRules {
    let named = move |name: &str| field_name(name, fault);
    let most = HeaderRules::MAX_FIELDS;
    let filled = "`{client}`, `{host}` and `{request_id}` are filled in.";
    let about = format!("The only value of this field that {who} gets. {filled}");
    let set = section.map("set", TOKEN, named, field_value(), most, &about);
    let about = format!("Another value of this field, in addition to existing ones. {filled}");
    let add = section.map("add", TOKEN, named, field_value(), most, &about);
    let kind =
        text("a field's name, such as \"server\"", move |name| named(&name), |name| name.to_string()).matching(TOKEN);
    let about = format!("Fields that {who} does not get.");
    let remove = section.list("remove", kind, 0..=most, &[], &about).unwrap_or_default();
    for (n, name) in remove.iter().enumerate() {
        if set.iter().any(|(other, _)| other == name) {
            section.fault_in_list("remove", n, "is set as well");
        }
    }
    HeaderRules { remove, set, add }
}

fn field_name(text: &str, fault: FieldFault) -> Result<HeaderName, Wrong> {
    if text.starts_with(':') {
        return Err("is a pseudo-header field".into());
    }
    // A HeaderName may hold a quotation mark, which is not in a token (RFC 9110 §5.6.2).
    let name = HeaderName::from_bytes(text.as_bytes()).ok().filter(|_| !text.contains('"'));
    let name = name.ok_or("not a field's name")?;
    fault(&name).map_or(Ok(name), |fault| Err(fault.into()))
}

pub(super) fn field_value() -> Kind<Template> {
    let parse = |text: String| {
        if text.len() > HeaderRules::MAX_VALUE {
            return Err(format!("has {} bytes, at most {} are allowed", text.len(), HeaderRules::MAX_VALUE).into());
        }
        if text.trim() != text {
            return Err("begins or ends with a blank".into());
        }
        if !text.bytes().all(|byte| byte == b'\t' || matches!(byte, b' '..=b'~')) {
            return Err("has other characters than printable ASCII".into());
        }
        template(&text, IN_FIELDS)
    };
    let expected = format!("up to {} KiB of printable ASCII", HeaderRules::MAX_VALUE / 1024);
    // One character, or more with none at either end that is blank; or nothing.
    text(&expected, parse, ToString::to_string)
        .matching("([!-~]([\t -~]*[!-~])?)?")
        .of_length(0..=HeaderRules::MAX_VALUE)
}

fn template(text: &str, allowed: &[Variable]) -> Result<Template, Wrong> {
    Template::parse(text, allowed).map_err(|name| {
        let known = Variable::NAMES.iter().filter(|(_, variable)| allowed.contains(variable)).map(|(name, _)| *name);
        Wrong {
            problem: format!("there is no {{{}}} here", crate::fault::quote(name)),
            expected: Some(format!("one of {}", list(allowed))),
            nearest: nearest(name, known).map(|name| format!("{{{name}}}")),
        }
    })
}

/// The names of `variables`, for people.
fn list(variables: &[Variable]) -> String {
    let known = Variable::NAMES.iter().filter(|(_, variable)| variables.contains(variable));
    let names: Vec<_> = known.map(|(name, _)| format!("{{{name}}}")).collect();
    names.join(", ")
}

/// The table `key` as `read` makes it, if it is set.
fn table<T>(section: &mut Section<'_>, key: &str, about: &str, read: fn(&mut Section<'_>) -> T) -> Option<T> {
    let has = section.has(key);
    Some(section.table(key, about, read)).filter(|_| has)
}

/// `redirect`, if set.
pub(crate) fn redirect(section: &mut Section<'_>) -> Option<Redirect> {
    table(section, "redirect", "A redirect of the client, in place of an origin.", Redirect::read)
}

/// `respond`, if set.
pub(crate) fn respond(section: &mut Section<'_>) -> Option<Respond> {
    let about = "A fixed answer, in place of an origin's: for `robots.txt`, health checks, maintenance.";
    table(section, "respond", about, fixed_answer)
}

fn fixed_answer(section: &mut Section<'_>) -> Respond {
    let respond = Respond::read(section);
    if section.has("body") {
        section.fault("body_file", "has no effect beside body", None, None);
    }
    if !Respond::may_have_body(respond.status) {
        for key in ["body", "body_file"] {
            let problem = format!("an answer with status {} has no body", respond.status.as_u16());
            section.fault(key, &problem, None, None);
        }
    }
    let has_type = respond.headers.iter().any(|(name, _)| name == header::CONTENT_TYPE);
    if respond.file().is_some_and(|file| body_type(file).is_none()) && !has_type {
        let expected = Some("headers.content-type");
        section.fault("body_file", "unknown file name extension", expected, None);
    }
    respond
}

/// The keys `body` and `body_file`, of which one may be set.
pub(crate) struct OneBody;

impl Reader<FixedBody> for OneBody {
    fn read(self, section: &mut Section<'_>, key: &str, _: FixedBody, about: &str) -> FixedBody {
        let text = section.optional(key, body_text(), about);
        let about = "File with the body, in place of `body`. Read at the start and on a reload, 256 KiB at most; the \
            extension of its name decides its `Content-Type`, unless `headers` do.";
        let file = section.optional("body_file", body_file(), about).map(|file| section.directory().join(file));
        match (text, file) {
            (Some(text), _) => FixedBody::Text(text),
            (None, Some(file)) => FixedBody::File(file),
            (None, None) => FixedBody::None,
        }
    }

    /// `Respond` shows the whole answer.
    fn show(&self, _: &FixedBody) -> String {
        String::new()
    }
}

/// The fields of a fixed answer.
pub(crate) fn answer_fields(section: &mut Section<'_>, key: &str, about: &str) -> Vec<(HeaderName, Template)> {
    let named = |name: &str| field_name(name, response_field_fault);
    section.map(key, TOKEN, named, field_value(), HeaderRules::MAX_FIELDS, about)
}

fn body_text() -> Kind<String> {
    let parse = |text: String| {
        let (length, most) = (text.len(), Respond::MAX_BODY);
        if length > most { Err(format!("has {length} bytes, at most {most} are allowed").into()) } else { Ok(text) }
    };
    let expected = format!("a text of up to {} KiB", Respond::MAX_BODY / 1024);
    text(&expected, parse, Clone::clone).of_length(0..=Respond::MAX_BODY)
}

fn body_file() -> Kind<PathBuf> {
    path("the path of a file, such as \"robots.txt\"")
}

/// The status of a fixed answer.
pub(crate) fn final_status() -> Kind<StatusCode> {
    let Kind { expected, schema, read, .. } = number::<u16>(FINAL);
    let read = move |given| StatusCode::from_u16(read(given)?).map_err(|_| "not a status".into());
    Kind { expected, schema, read: Box::new(read), show: Box::new(|status| json!(status.as_u16())) }
}

/// The status of a redirect.
pub(crate) fn redirect_status() -> Kind<StatusCode> {
    let known = Redirect::STATUSES.map(|status| status.as_u16());
    Kind {
        expected: format!("one of {}", known.map(|status| status.to_string()).join(", ")),
        schema: json!({ "type": "integer", "enum": known }),
        read: Box::new(move |given| match given {
            RawValue::Integer(number) => Redirect::STATUSES
                .into_iter()
                .find(|status| i128::from(status.as_u16()) == number)
                .ok_or_else(|| "not a redirect's status".into()),
            other => Err(other.wrong_type()),
        }),
        show: Box::new(|status| json!(status.as_u16())),
    }
}

pub(crate) fn location() -> Kind<Template> {
    let expected = "a URL such as \"https://www.example.com{path}\", or a path";
    let (path, host) = (r"[!#-;=?-\[\]_a-z~{}]", "[0-9A-Za-z_.:-]");
    let kind = text(expected, |text| parse_location(&text), ToString::to_string);
    kind.matching(&format!(r"https?://({host}+|{host}*\{{host\}}|\[[0-9A-Fa-f:.]+\](:[0-9]+)?)([/?#]{path}*|\{{path\}})?|/([!#-.0-;=?-\[\]_a-z~{{}}]{path}*)?"))
}

/// A `Location` whose target is the operator's choice, whatever the client requests: scheme and authority are written
/// out, or the authority is that of the request; and the part that the client may choose begins with a slash and comes
/// after them.
fn parse_location(text: &str) -> Result<Template, Wrong> {
    // RFC 3986 §2; a backslash is a slash to browsers.
    if !text
        .bytes()
        .all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'\\' | b'"' | b'<' | b'>' | b'^' | b'`' | b'|'))
    {
        return Err("has characters that a URL cannot have".into());
    }
    let template = template(text, IN_REDIRECTS)?;
    let absolute = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    let path = match absolute {
        Some(rest) => {
            let end = rest.find("{path}").into_iter().chain(rest.find(['/', '?', '#'])).min().unwrap_or(rest.len());
            let (authority, path) = rest.split_at_checked(end).unwrap_or((rest, ""));
            location_authority(authority)?;
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

/// `HOST`, `HOST:PORT`, `{host}`, or labels before `{host}`.
fn location_authority(text: &str) -> Result<(), Wrong> {
    match text.strip_suffix("{host}") {
        Some("") => Ok(()),
        Some(labels) => match labels.strip_suffix('.') {
            Some(labels) => parse_host(labels).map(|_| ()),
            None => Err("{host} needs a dot before it".into()),
        },
        None if text.contains('{') => Err("{host} must be the whole host, or its end".into()),
        None if text.is_empty() => Err("has no host".into()),
        None => (authority().read)(RawValue::Text(text.into())).map(|_| ()),
    }
}

/// `rate_limit`, if set.
pub(crate) fn rate_limit(section: &mut Section<'_>, key: &str, about: &str) -> Option<RateLimit> {
    table(section, key, about, |section| {
        let limit = RateLimit::read(section);
        if section.has("burst") { limit } else { RateLimit { burst: limit.requests, ..limit } }
    })
}

pub(crate) fn show_rate_limit(limit: &Option<RateLimit>) -> String {
    let Some(RateLimit { requests, per, burst, by }) = limit else { return "none".into() };
    let by = RateLimitBy::NAMES.iter().find(|(_, known)| known == by).map(|(name, _)| *name);
    let per = humantime::format_duration(*per);
    format!("{requests} in {per}; {burst} at once; by {}", by.unwrap_or_default())
}

/// `auth`, if set.
pub(crate) fn auth(section: &mut Section<'_>, key: &str, about: &str) -> Option<Auth> {
    table(section, key, about, |section| {
        let auth = Auth::read(section);
        for (n, name) in auth.copy.iter().enumerate() {
            if auth.copy.iter().take(n).any(|other| other == name) {
                section.fault_in_list("copy", n, "is listed twice");
            }
        }
        auth
    })
}

pub(crate) fn show_auth(auth: &Option<Auth>) -> String {
    let Some(Auth { origin, path, copy }) = auth else { return "none".into() };
    let copied = copy.iter().map(|name| format!(", copy {name}"));
    format!("{origin} {path}{}", copied.collect::<String>())
}

/// The name of a field that an origin gets from a server that decides.
pub(crate) fn copied_field() -> Kind<HeaderName> {
    let parse = |text: String| {
        // Which user a request is of, litequic does not say.
        let fault = |name: &HeaderName| request_field_fault(name).filter(|_| !IDENTITIES.contains(&name.as_str()));
        let is_right = HeaderName::from_bytes(text.as_bytes()).is_ok_and(|name| fault(&name).is_none());
        let name = field_name(&text, if is_right { |_| None } else { request_field_fault })?;
        // Each spelling of a field is removed with it.
        let is_plain = name.as_str().bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        if is_plain { Ok(name) } else { Err("has another character than letters, digits and -".into()) }
    };
    text("a field's name, such as \"Remote-User\"", parse, ToString::to_string).matching("[0-9A-Za-z-]+")
}

pub(crate) fn error_pages(section: &mut Section<'_>, key: &str, about: &str) -> ErrorPages {
    let errors = |text: &str| {
        Errors::parse(text).ok_or_else(|| Wrong::from("not an error's status, such as \"404\" or \"5xx\""))
    };
    let pages = section.map(key, "[45]([0-9]{2}|xx)", errors, page(), MAX_PAGES, about);
    pages.into_iter().map(|(errors, page)| (errors, section.directory().join(page))).collect()
}

pub(crate) fn show_pages(pages: &ErrorPages) -> String {
    shown(pages.iter().map(|(errors, path)| format!("{errors} {}", path.display())))
}

pub(super) fn page() -> Kind<PathBuf> {
    let parse = |text: String| {
        let page = PathBuf::from(text);
        let fits = media_type(&page).is_some();
        fits.then_some(page).ok_or_else(|| "unknown file name extension".into())
    };
    let kind = text("the path of a .html, .htm, .txt, .json, .xml or .svg file", parse, |page: &PathBuf| {
        page.display().to_string()
    });
    kind.matching(r".*[^/]\.(html|htm|txt|json|xml|svg)/*")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An open redirect is not a valid value.
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
            ("/\\example.com", Some("has characters that a URL cannot have")),
            ("/a b", Some("has characters that a URL cannot have")),
            ("/{path}", Some("{path} begins with a slash itself")),
            ("https://example.com/{path}", Some("{path} begins with a slash itself")),
            ("https://{path}", Some("has no host")),
            ("https://", Some("has no host")),
            ("https:///a", Some("has no host")),
            ("https://example{path}.com", Some("{path} must be at the end")),
            // The root's dot.
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
            ("https://example.com{client}", Some("there is no {client} here")),
        ] {
            let found = parse_location(text).err().map(|wrong| wrong.problem);
            assert_eq!(found.as_deref(), problem, "{text}");
        }
    }
}
