//! Reads header rules and error pages, for the top level of the file and for routes.

use crate::reading::fault::nearest_word;
use crate::reading::name_kinds::TOKEN_PATTERN;
use crate::reading::section::ConfigSection;
use crate::reading::value_kinds::{ValueError, ValueKind, text_kind};
use crate::rules::{
    ErrorPages, ErrorStatuses, HeaderRules, Template, Variable, page_media_type, request_field_fault,
    response_field_fault,
};
use http::HeaderName;
use std::path::PathBuf;

/// Number of error pages: one for each status would be 200.
const MAX_PAGES: usize = 64;
/// Variables that a field value may contain.
const FIELD_VARIABLES: &[Variable] = &[Variable::Client, Variable::Host, Variable::RequestId];

/// Returns the reason why a rule may not set a field, if there is one.
type FieldFault = fn(&HeaderName) -> Option<&'static str>;

pub(crate) fn read_request_headers(section: &mut ConfigSection<'_>, key: &str, about: &str) -> HeaderRules {
    section.read_subtable(key, about, |section| read_header_rules(section, request_field_fault))
}

pub(crate) fn read_response_headers(section: &mut ConfigSection<'_>, key: &str, about: &str) -> HeaderRules {
    section.read_subtable(key, about, |section| read_header_rules(section, response_field_fault))
}

/// Formats the names of fields alone: values may be secrets.
pub(crate) fn format_header_rules(rules: &HeaderRules) -> String {
    let HeaderRules { remove, set, add } = rules;
    let removed = remove.iter().map(|name| format!("remove {name}"));
    let set = set.iter().map(|(name, _)| format!("set {name}"));
    let added = add.iter().map(|(name, _)| format!("add {name}"));
    join_or(removed.chain(set).chain(added), "none")
}

/// Joins `all` for lists of changes; `none` stands for an empty list.
pub(crate) fn join_or(all: impl Iterator<Item = impl ToString>, none: &str) -> String {
    let all: Vec<_> = all.map(|one| one.to_string()).collect();
    if all.is_empty() { none.into() } else { all.join(", ") }
}

/// Reads the rules for a header; `fault` tells which fields they may not change.
fn read_header_rules(section: &mut ConfigSection<'_>, fault: FieldFault) -> HeaderRules {
    let named = move |name: &str| parse_rule_field(name, fault);
    let most = HeaderRules::MAX_FIELDS;
    let filled = "`{client}`, `{host}` and `{request_id}` are filled in.";
    let about = format!("The only value of this field. {filled}");
    let set = section.read_map("set", TOKEN_PATTERN, named, field_value_kind(), most, &about);
    let about = format!("Another value of this field, in addition to existing ones. {filled}");
    let add = section.read_map("add", TOKEN_PATTERN, named, field_value_kind(), most, &about);
    let kind = text_kind("a field's name, such as \"server\"", move |name| named(&name), |name| name.to_string())
        .with_pattern(TOKEN_PATTERN);
    let remove =
        section.list_values("remove", kind, 0..=most, Some(&[]), "Fields that are removed.").unwrap_or_default();
    for (n, name) in remove.iter().enumerate() {
        if set.iter().any(|(other, _)| other == name) {
            section.note_list_fault("remove", n, "is set as well");
        }
    }
    HeaderRules { remove, set, add }
}

pub(crate) fn parse_rule_field(text: &str, fault: FieldFault) -> Result<HeaderName, ValueError> {
    if text.starts_with(':') {
        return Err("is a pseudo-header field".into());
    }
    // `HeaderName` permits a quotation mark, which a token does not (RFC 9110 §5.6.2).
    let name = HeaderName::from_bytes(text.as_bytes()).ok().filter(|_| !text.contains('"'));
    let name = name.ok_or("not a field's name")?;
    fault(&name).map_or(Ok(name), |fault| Err(fault.into()))
}

pub(crate) fn field_value_kind() -> ValueKind<Template> {
    let parse = |text: String| {
        check_printable(&text, HeaderRules::MAX_VALUE_BYTES)?;
        parse_rule_template(&text, FIELD_VARIABLES)
    };
    let expected = format!("up to {} KiB of printable ASCII", HeaderRules::MAX_VALUE_BYTES / 1024);
    text_kind(&expected, parse, ToString::to_string)
        .with_pattern(PRINTABLE_PATTERN)
        .with_length(0..=HeaderRules::MAX_VALUE_BYTES)
}

/// Matches what [`check_printable`] accepts: blanks only between other characters.
pub(crate) const PRINTABLE_PATTERN: &str = "([!-~]([\t -~]*[!-~])?)?";

/// Fails unless `text` is printable ASCII of at most `most` bytes without a blank at either end.
pub(crate) fn check_printable(text: &str, most: usize) -> Result<(), ValueError> {
    if text.len() > most {
        Err(format!("has {} bytes, at most {most} are allowed", text.len()).into())
    } else if text.trim() != text {
        Err("begins or ends with a space".into())
    } else if !text.bytes().all(|byte| byte == b'\t' || matches!(byte, b' '..=b'~')) {
        Err("contains a character other than printable ASCII".into())
    } else {
        Ok(())
    }
}

pub(crate) fn parse_rule_template(text: &str, allowed: &[Variable]) -> Result<Template, ValueError> {
    Template::parse_variables(text, allowed).map_err(|name| {
        let known = Variable::NAMES.iter().filter(|(_, variable)| allowed.contains(variable)).map(|(name, _)| *name);
        ValueError {
            problem: format!("{{{}}} is not a variable of this key", crate::reading::fault::quote_line(name)),
            expected: Some(format!("one of {}", list_variables(allowed))),
            nearest: nearest_word(name, known).map(|name| format!("{{{name}}}")),
        }
    })
}

/// Formats the names of `variables` for messages.
fn list_variables(variables: &[Variable]) -> String {
    let known = Variable::NAMES.iter().filter(|(_, variable)| variables.contains(variable));
    let names: Vec<_> = known.map(|(name, _)| format!("{{{name}}}")).collect();
    names.join(", ")
}

/// Reads the table `key` by `read`, if it is set.
pub(crate) fn read_optional_table<T>(
    section: &mut ConfigSection<'_>,
    key: &str,
    about: &str,
    read: impl FnOnce(&mut ConfigSection<'_>) -> T,
) -> Option<T> {
    let has = section.has_key(key);
    Some(section.read_subtable(key, about, read)).filter(|_| has)
}

pub(crate) fn read_error_pages(section: &mut ConfigSection<'_>, key: &str, about: &str) -> ErrorPages {
    let errors = |text: &str| {
        ErrorStatuses::parse_error_statuses(text)
            .ok_or_else(|| ValueError::from("not an error's status, such as \"404\" or \"5xx\""))
    };
    let pages = section.read_map(key, "[45]([0-9]{2}|xx)", errors, error_page_kind(), MAX_PAGES, about);
    pages.into_iter().map(|(errors, page)| (errors, section.base_directory().join(page))).collect()
}

pub(crate) fn format_error_pages(pages: &ErrorPages) -> String {
    join_or(pages.iter().map(|(errors, path)| format!("{errors} {}", path.display())), "none")
}

pub(crate) fn error_page_kind() -> ValueKind<PathBuf> {
    let parse = |text: String| {
        let page = PathBuf::from(text);
        let fits = page_media_type(&page).is_some();
        fits.then_some(page).ok_or_else(|| "unknown file name extension".into())
    };
    let kind = text_kind("the path of a .html, .htm, .txt, .json, .xml or .svg file", parse, |page: &PathBuf| {
        page.display().to_string()
    });
    kind.with_pattern(r".*[^/]\.(html|htm|txt|json|xml|svg)/*")
}
