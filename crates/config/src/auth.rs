//! Defines `routes[].auth`: sign-in by another server.

use super::origin::request_target_kind;
use super::rules::request_field_fault;
use crate::reading::name_kinds::origin_name_kind;
use crate::reading::rule_readers::{parse_rule_field, read_optional_table};
use crate::reading::section::ConfigSection;
use crate::reading::table::{KeyTable as _, keys, list_key, required_key};
use crate::reading::value_kinds::{ValueKind, text_kind};
use http::HeaderName;

/// Fields for a user's identity that authentication servers send, although litequic reserves the names `x-forwarded-*`.
const IDENTITY_FIELDS: [&str; 5] = [
    "x-forwarded-user",
    "x-forwarded-email",
    "x-forwarded-groups",
    "x-forwarded-preferred-username",
    "x-forwarded-access-token",
];

keys! {
    /// Sign-in by another server: `routes[].auth`.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Auth {
        /// Origin that decides about each request: a name of `[origins.NAME]`, or `origin`.
        origin: String = String::new(), required_key(origin_name_kind());

        /// Path of the request to the auth server, with a query if necessary.
        path: String = String::new(), required_key(request_target_kind());

        /// Fields of the auth server's response that the route's origin gets. Fields of these names, in any spelling,
        /// are removed from the client's request.
        copy: Vec<HeaderName> = Vec::new(), list_key(copied_field_kind(), 0..=Self::MAX_FIELDS);
    }
}

impl Auth {
    /// Number of fields in `copy`: each request is searched for all of them.
    pub const MAX_FIELDS: usize = 16;
}

/// Reads `routes[].auth`, if set.
pub(crate) fn read_auth(section: &mut ConfigSection<'_>, key: &str, about: &str) -> Option<Auth> {
    read_optional_table(section, key, about, |section| {
        let auth = Auth::read_table(section);
        section.note_repeated_values("copy", &auth.copy, "is listed twice");
        auth
    })
}

pub(crate) fn format_auth(auth: &Option<Auth>) -> String {
    let Some(Auth { origin, path, copy }) = auth else { return "none".into() };
    format!("{origin} {path}{}", copy.iter().map(|name| format!(", copy {name}")).collect::<String>())
}

/// Name of a field that is copied from the authentication server to the origin.
pub(crate) fn copied_field_kind() -> ValueKind<HeaderName> {
    let parse = |text: String| {
        // litequic does not report users itself, so a copied identity does not conflict.
        let fault = |name: &HeaderName| request_field_fault(name).filter(|_| !IDENTITY_FIELDS.contains(&name.as_str()));
        let is_right = HeaderName::from_bytes(text.as_bytes()).is_ok_and(|name| fault(&name).is_none());
        let name = parse_rule_field(&text, if is_right { |_| None } else { request_field_fault })?;
        // All spellings of a copied field are removed from requests, which works for plain names alone.
        let is_plain = name.as_str().bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        if is_plain { Ok(name) } else { Err("contains a character other than letters, digits and -".into()) }
    };
    text_kind("a field's name, such as \"Remote-User\"", parse, ToString::to_string).with_pattern("[0-9A-Za-z-]+")
}
