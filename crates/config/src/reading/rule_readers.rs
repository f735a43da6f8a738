//! Readers of header rules and error pages, for the top level of the file and for routes.

use crate::reading::fault::nearest;
use crate::reading::names::TOKEN;
use crate::reading::section::Section;
use crate::reading::values::{Kind, Wrong, text};
use crate::rules::{
    ErrorPages, Errors, HeaderRules, Template, Variable, media_type, request_field_fault, response_field_fault,
};
use http::HeaderName;
use std::path::PathBuf;

/// One for each status there is would be 200.
const MAX_PAGES: usize = 64;
/// In a field's value.
const IN_FIELDS: &[Variable] = &[Variable::Client, Variable::Host, Variable::RequestId];

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

pub(crate) fn field_name(text: &str, fault: FieldFault) -> Result<HeaderName, Wrong> {
    if text.starts_with(':') {
        return Err("is a pseudo-header field".into());
    }
    // A HeaderName may hold a quotation mark, which is not in a token (RFC 9110 §5.6.2).
    let name = HeaderName::from_bytes(text.as_bytes()).ok().filter(|_| !text.contains('"'));
    let name = name.ok_or("not a field's name")?;
    fault(&name).map_or(Ok(name), |fault| Err(fault.into()))
}

pub(crate) fn field_value() -> Kind<Template> {
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

pub(crate) fn template(text: &str, allowed: &[Variable]) -> Result<Template, Wrong> {
    Template::parse(text, allowed).map_err(|name| {
        let known = Variable::NAMES.iter().filter(|(_, variable)| allowed.contains(variable)).map(|(name, _)| *name);
        Wrong {
            problem: format!("there is no {{{}}} here", crate::reading::fault::quote(name)),
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
pub(crate) fn table<T>(
    section: &mut Section<'_>,
    key: &str,
    about: &str,
    read: fn(&mut Section<'_>) -> T,
) -> Option<T> {
    let has = section.has(key);
    Some(section.table(key, about, read)).filter(|_| has)
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

pub(crate) fn page() -> Kind<PathBuf> {
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
