//! `[access_log]`: a line a request.

use std::{fmt, path::PathBuf};

/// `[access_log]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessLog {
    /// Where lines go; without it there are none.
    pub path: Option<AccessTarget>,
    /// How a line is written.
    pub format: AccessFormat,
    /// What is in a line, in this order.
    pub fields: Vec<AccessField>,
    /// How many of the requests get a line.
    pub sample: Share,
}

impl AccessLog {
    /// What says who asked for what, what became of it and how long it took; no more of what a client sent than that.
    pub const FIELDS: &[AccessField] = &[
        AccessField::Time,
        AccessField::RequestId,
        AccessField::Client,
        AccessField::Protocol,
        AccessField::Method,
        AccessField::Host,
        AccessField::Path,
        AccessField::Route,
        AccessField::Origin,
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

impl Default for AccessLog {
    /// No lines; what they would be is what log collectors take.
    fn default() -> Self {
        Self { path: None, format: AccessFormat::Json, fields: Self::FIELDS.to_vec(), sample: Share::ALL }
    }
}

/// `path`
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AccessTarget {
    /// Standard error, where the log is.
    Stderr,
    /// A file that is appended to.
    File(PathBuf),
}

impl fmt::Display for AccessTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stderr => f.write_str("stderr"),
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
pub struct Share(pub u32);

impl Share {
    /// The whole.
    pub const ALL: Self = Self(1_000_000);

    /// `part` of 1; `None` where that is nothing, or more than all.
    pub fn of(part: f64) -> Option<Self> {
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

            /// Its name.
            pub const fn name(self) -> &'static str {
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
    /// The client's address.
    Client = "client",
    /// Its address and port.
    ClientPort = "client_port",
    /// The address that it reached.
    Local = "local",
    /// What it spoke.
    Protocol = "protocol",
    /// The name in its TLS handshake.
    ServerName = "server_name",
    /// The request's method.
    Method = "method",
    /// Its authority.
    Host = "host",
    /// Its path without the query.
    Path = "path",
    /// What stands after the `?`.
    Query = "query",
    /// `User-Agent`
    UserAgent = "user_agent",
    /// `Referer`
    Referer = "referer",
    /// Of a valid `traceparent`.
    TraceId = "trace_id",
    /// The route taken.
    Route = "route",
    /// The origin's name.
    Origin = "origin",
    /// The server of it that was asked last.
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
    /// How it ended.
    End = "end",
    /// Why it did not go well.
    Error = "error",
}
