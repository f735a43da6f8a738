//! Defines `respond` of a route: a fixed response in place of the origin's.

use crate::reading::name_kinds::path_kind;
use crate::reading::rule_readers::read_optional_table;
use crate::reading::section::ConfigSection;
use crate::reading::table::{KeyTable as _, custom_key, keys};
use crate::reading::value_kinds::{ValueKind, number_kind, text_kind};
use http::StatusCode;
use std::{fmt, ops::RangeInclusive, path::PathBuf};

/// Range of statuses: interim responses are incomplete (RFC 9110 §15.2).
const FINAL_STATUS_RANGE: RangeInclusive<u64> = 200..=599;

keys! {
    /// A fixed response: `respond` of a route.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct FixedResponse {
        /// The answer's status.
        status: StatusCode = Self::DEFAULT_STATUS, final_status_kind();

        /// The body, as plain text unless `response_headers` set another `content-type`.
        body: FixedBody = FixedBody::None, custom_key(read_fixed_body, |_| String::new());
    }
}

/// Body of a fixed response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FixedBody {
    /// No body.
    None,
    /// The text in `body`.
    Text(String),
    /// The file `body_file`, absolute or relative to the working directory.
    File(PathBuf),
}

impl FixedResponse {
    /// Default status, as of health checks.
    pub const DEFAULT_STATUS: StatusCode = StatusCode::OK;
    /// Bytes of `body`: a file is easier to read beyond that.
    pub const MAX_BODY_BYTES: usize = 16 * 1024;

    /// Whether responses with `status` may have a body (RFC 9110 §6.4.1, §15.3.6).
    pub fn may_have_body(status: StatusCode) -> bool {
        !matches!(status, StatusCode::NO_CONTENT | StatusCode::RESET_CONTENT | StatusCode::NOT_MODIFIED)
    }

    /// Returns the path in `body_file`, if set.
    pub fn body_file_path(&self) -> Option<&PathBuf> {
        if let FixedBody::File(path) = &self.body { Some(path) } else { None }
    }
}

/// Formats status and body.
impl fmt::Display for FixedResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.status.as_u16())?;
        match &self.body {
            FixedBody::None => {}
            FixedBody::Text(text) => write!(f, " with {} bytes", text.len())?,
            FixedBody::File(path) => write!(f, " {}", path.display())?,
        }
        Ok(())
    }
}

/// Reads `respond` of a route, if set.
pub(crate) fn read_respond(section: &mut ConfigSection<'_>) -> Option<FixedResponse> {
    let about = "A fixed response, instead of an origin's: for `robots.txt`, health checks, maintenance.";
    read_optional_table(section, "respond", about, read_fixed_response)
}

fn read_fixed_response(section: &mut ConfigSection<'_>) -> FixedResponse {
    let respond = FixedResponse::read_table(section);
    if section.has_key("body") {
        section.note_fault("body_file", "has no effect beside body");
    }
    if !FixedResponse::may_have_body(respond.status) {
        for key in ["body", "body_file"] {
            let problem = format!("an answer with status {} has no body", respond.status.as_u16());
            section.note_fault(key, problem);
        }
    }
    respond
}

/// Reads the keys `body` and `body_file`, of which one may be set. Changes show neither: [`FixedResponse`] formats the
/// whole response.
fn read_fixed_body(section: &mut ConfigSection<'_>, key: &str, about: &str) -> FixedBody {
    let text = section.optional_value(key, body_text_kind(), about);
    let about = "File with the body, in place of `body`. Read at the start and on a reload, 256 KiB at most; the \
        extension of its name decides its `Content-Type`, unless `response_headers` do.";
    let file = section
        .optional_value("body_file", path_kind("the path of a file, such as \"robots.txt\""), about)
        .map(|file| section.base_directory().join(file));
    match (text, file) {
        (Some(text), _) => FixedBody::Text(text),
        (None, Some(file)) => FixedBody::File(file),
        (None, None) => FixedBody::None,
    }
}

fn body_text_kind() -> ValueKind<String> {
    let parse = |text: String| {
        let (length, most) = (text.len(), FixedResponse::MAX_BODY_BYTES);
        if length > most { Err(format!("has {length} bytes, at most {most} are allowed").into()) } else { Ok(text) }
    };
    let expected = format!("a text of up to {} KiB", FixedResponse::MAX_BODY_BYTES / 1024);
    text_kind(&expected, parse, Clone::clone).with_length(0..=FixedResponse::MAX_BODY_BYTES)
}

/// Status of a fixed response.
pub(crate) fn final_status_kind() -> ValueKind<StatusCode> {
    let parse = |status| StatusCode::from_u16(status).map_err(|_| "not a status".into());
    number_kind(FINAL_STATUS_RANGE).map(parse, |status| status.as_u16())
}
