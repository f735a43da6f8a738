//! `[access_log]`: a line for each request.

use crate::reading::{
    section::ConfigSection,
    table::{KeyTable as _, keys, list_key, optional_key},
    value_kinds::{RawValue, ValueKind, one_of, text_kind},
};
use serde_json::json;
use std::{fmt, path::PathBuf};

keys! {
    /// The access log: a line for each request.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct AccessLog {
        /// Where the lines go: `stdout` or `-`, `stderr`, or a file, which is appended to and reopened on `SIGUSR1`.
        /// Without the key there is no access log. If the file cannot be opened, litequic does not start, and a reload
        /// is rejected.
        path: Option<AccessTarget> = None, optional_key(access_target_kind(), "none");

        // The format that log collectors accept.
        /// Format of a line: a JSON object, or `key=value` pairs separated by blanks.
        format: AccessFormat = AccessFormat::Json, one_of(AccessFormat::NAMES);

        /// Fields of a line, in this order.
        fields: Vec<AccessField> = Self::DEFAULT_FIELDS.to_vec(), list_key(one_of(AccessField::NAMES), 1..=AccessField::NAMES.len());

        /// Share of requests that are logged, selected at random when they begin.
        sample: Fraction = Fraction::ALL, fraction_kind();
    }
}

impl AccessLog {
    /// The client and its program, the request, where it went, its outcome and its duration; no query, as it may have
    /// secrets.
    pub const DEFAULT_FIELDS: &[AccessField] = &[
        AccessField::Time,
        AccessField::RequestId,
        AccessField::Client,
        AccessField::Protocol,
        AccessField::Method,
        AccessField::Host,
        AccessField::Path,
        AccessField::UserAgent,
        AccessField::Route,
        AccessField::Origin,
        AccessField::Server,
        AccessField::Status,
        AccessField::BytesIn,
        AccessField::BytesOut,
        AccessField::Duration,
        AccessField::FirstByte,
        AccessField::OriginTime,
        AccessField::End,
        AccessField::Error,
    ];
}

/// Reads `[access_log]`.
pub(super) fn read_access_log(section: &mut ConfigSection<'_>) -> AccessLog {
    let mut log = AccessLog::read_table(section);
    for (n, field) in log.fields.iter().enumerate() {
        if log.fields.iter().take(n).any(|other| other == field) {
            section.note_list_fault("fields", n, "is listed twice");
        }
    }
    if let Some(AccessTarget::File(path)) = &mut log.path {
        *path = section.base_directory().join(&path);
    }
    log
}

pub(super) fn access_target_kind() -> ValueKind<AccessTarget> {
    let parse = |text: String| match &*text {
        "" => Err("empty".into()),
        "stderr" => Ok(AccessTarget::Stderr),
        "stdout" | "-" => Ok(AccessTarget::Stdout),
        _ => Ok(AccessTarget::File(text.into())),
    };
    text_kind("\"stdout\", \"stderr\" or the path of a file", parse, ToString::to_string).with_pattern(".+")
}

/// `path`
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AccessTarget {
    /// Standard error, where the log is.
    Stderr,
    /// Standard output.
    Stdout,
    /// A file that is appended to.
    File(PathBuf),
}

impl fmt::Display for AccessTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stderr => f.write_str("stderr"),
            Self::Stdout => f.write_str("stdout"),
            Self::File(path) => path.display().fmt(f),
        }
    }
}

/// `format`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccessFormat {
    /// An object a line.
    Json,
    /// `key=value`, a line a request.
    Logfmt,
}

impl AccessFormat {
    /// By the names of the file.
    pub const NAMES: &[(&str, Self)] = &[("json", Self::Json), ("logfmt", Self::Logfmt)];
}

/// A share of a whole, in millionths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fraction(pub u32);

impl Fraction {
    /// The whole.
    pub const ALL: Self = Self(1_000_000);

    /// `part` of 1; `None` if that is nothing, or more than all.
    pub fn from_share(part: f64) -> Option<Self> {
        let millionths = (part * f64::from(Self::ALL.0)).round();
        let is_share = (1.0..=f64::from(Self::ALL.0)).contains(&millionths);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is from 1 to 1,000,000")]
        let millionths = millionths as u32;
        is_share.then_some(Self(millionths))
    }
}

macro_rules! fields {
    ($($(#[$doc:meta])+ $field:ident = $name:literal,)+) => {
        /// One of `fields`.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum AccessField {
            $($(#[$doc])+ $field,)+
        }

        impl AccessField {
            /// By the names of the file, which are those in a line.
            pub const NAMES: &[(&str, Self)] = &[$(($name, Self::$field)),+];

            /// Name of the field in the configuration and in a line.
            pub const fn log_key(self) -> &'static str {
                match self {
                    $(Self::$field => $name,)+
                }
            }
        }
    };
}

fields! {
    /// When the request's stream was accepted.
    Time = "time",
    /// The ID that the origin gets as `X-Request-ID`.
    RequestId = "request_id",
    /// The client's address: behind trusted proxies the one that they name.
    Client = "client",
    /// The address of the connection's peer: of the client, or of the proxy that it came through.
    Peer = "peer",
    /// The address and port of the connection's peer.
    ClientPort = "client_port",
    /// The local address of the connection.
    Local = "local",
    /// The HTTP version.
    Protocol = "protocol",
    /// The version of its TLS.
    Tls = "tls",
    /// The name in its TLS handshake.
    ServerName = "server_name",
    /// The request's method.
    Method = "method",
    /// Authority of the request.
    Host = "host",
    /// Path of the request, without the query.
    Path = "path",
    /// The query, without the `?`.
    Query = "query",
    /// `User-Agent`
    UserAgent = "user_agent",
    /// `Referer`
    Referer = "referer",
    /// ID of the request's trace: as `[traces]` has decided, or of a valid `traceparent`.
    TraceId = "trace_id",
    /// ID of the request's own span, with `[traces]`.
    SpanId = "span_id",
    /// The route taken.
    Route = "route",
    /// The origin's name.
    Origin = "origin",
    /// The server of it that was tried last.
    Server = "server",
    /// The response's status.
    Status = "status",
    /// The request's body.
    BytesIn = "bytes_in",
    /// The response's body.
    BytesOut = "bytes_out",
    /// From the beginning to the end, in seconds.
    Duration = "duration",
    /// From the beginning to the response's header, in seconds.
    FirstByte = "first_byte",
    /// The origin's part of that, in seconds.
    OriginTime = "origin_time",
    /// The part of the server that `routes[].auth` names, in seconds.
    AuthTime = "auth_time",
    /// The urgency with which the response was sent, from 0 to 7, if responses are sent by their priorities.
    Urgency = "urgency",
    /// 1 if the response was sent in turn with others of its urgency, 0 if one after the other.
    Incremental = "incremental",
    /// How it ended.
    End = "end",
    /// The reason of a failure.
    Error = "error",
}

/// A share of a whole: more than nothing.
pub(super) fn fraction_kind() -> ValueKind<Fraction> {
    ValueKind {
        expected: "a number from 0.000001 to 1".into(),
        schema: json!({ "type": ["integer", "number"], "exclusiveMinimum": 0, "maximum": 1 }),
        read: Box::new(|given| {
            let share = match given {
                RawValue::Integer(1) => 1.0,
                RawValue::Integer(number) if number > 1 => return Err("too large".into()),
                RawValue::Integer(_) => return Err("too small".into()),
                RawValue::Float(share) => share,
                other => return Err(other.wrong_type_error()),
            };
            match Fraction::from_share(share) {
                Some(share) => Ok(share),
                None if share > 1.0 => Err("too large".into()),
                // What is not a number is no share either.
                None => Err("too small".into()),
            }
        }),
        show: Box::new(|share| json!(f64::from(share.0) / f64::from(Fraction::ALL.0))),
    }
}
