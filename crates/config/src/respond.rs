//! `respond` of a route: a fixed answer, in place of an origin's.

use super::rules::{HeaderRules, Template, body_type, response_field_fault};
use crate::reading::names::{TOKEN, path};
use crate::reading::rule_readers::{field_name, field_value, table};
use crate::reading::section::Section;
use crate::reading::table::{KeyTable as _, Reader, by, keys};
use crate::reading::values::{Kind, number, text};
use http::{HeaderName, StatusCode, header};
use serde_json::json;
use std::{fmt, ops::RangeInclusive, path::PathBuf};

/// Interim ones are not whole answers (RFC 9110 §15.2).
const FINAL: RangeInclusive<u64> = 200..=599;

keys! {
    /// `respond`: a fixed answer.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Respond {
        /// The answer's status.
        status: StatusCode = Self::STATUS, final_status();

        /// The body, as plain text unless `headers` have another `content-type`.
        body: FixedBody = FixedBody::None, OneBody;

        /// Fields of the answer's header. `{client}`, `{host}` and `{request_id}` are filled in.
        headers: Vec<(HeaderName, Template)> = Vec::new(), by(answer_fields, |_| String::new());
    }
}

/// The source of a fixed answer's body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FixedBody {
    /// There is none.
    None,
    /// `body`
    Text(String),
    /// `body_file`, absolute or relative to the working directory.
    File(PathBuf),
}

impl Respond {
    /// The usual status of a health check.
    pub const STATUS: StatusCode = StatusCode::OK;
    /// Bytes of `body`: beyond that a file is easier to read.
    pub const MAX_BODY: usize = 16 * 1024;

    /// Whether answers with `status` have a body (RFC 9110 §6.4.1, §15.3.6).
    pub fn may_have_body(status: StatusCode) -> bool {
        !matches!(status, StatusCode::NO_CONTENT | StatusCode::RESET_CONTENT | StatusCode::NOT_MODIFIED)
    }

    /// `body_file`, if it is there.
    pub fn file(&self) -> Option<&PathBuf> {
        match &self.body {
            FixedBody::File(path) => Some(path),
            FixedBody::None | FixedBody::Text(_) => None,
        }
    }
}

/// The values of fields may be secrets.
impl fmt::Display for Respond {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.status.as_u16())?;
        match &self.body {
            FixedBody::None => {}
            FixedBody::Text(text) => write!(f, " with {} bytes", text.len())?,
            FixedBody::File(path) => write!(f, " {}", path.display())?,
        }
        self.headers.iter().try_for_each(|(name, _)| write!(f, ", set {name}"))
    }
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
