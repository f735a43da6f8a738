//! Defines `[access_log]`: the fields and the target of the line for each request.

use crate::reading::{
    section::ConfigSection,
    table::{KeyTable as _, keys, list_key, optional_key},
    value_kinds::{RawValue, ValueKind, one_of, text_kind},
};
use litequic_base::{log_writer::LogTarget, named_enum};
use serde_json::json;

keys! {
    /// The access log: a line for each request.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct AccessLog {
        /// Target of the lines: `stdout` or `-`, `stderr`, or a file, which is appended to and reopened on `SIGUSR1`.
        /// Without the key there is no access log. If the file cannot be opened, litequic does not start, and a reload
        /// is rejected.
        path: Option<LogTarget> = None, optional_key(log_target_kind(), "none");

        /// Fields of a line, in this order.
        fields: Vec<AccessField> = Self::DEFAULT_FIELDS.to_vec(), list_key(one_of(AccessField::NAMES), 1..=AccessField::NAMES.len());

        /// Share of requests that are logged, selected at random when they begin.
        sample: Fraction = Fraction::ALL, fraction_kind();
    }
}

impl AccessLog {
    /// Default fields: client, program, request, route, outcome and duration; no query, which may contain secrets.
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
        AccessField::GrpcStatus,
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
    section.note_repeated_values("fields", &log.fields, "is listed twice");
    if let Some(LogTarget::File(path)) = &mut log.path {
        *path = section.base_directory().join(&path);
    }
    log
}

pub(super) fn log_target_kind() -> ValueKind<LogTarget> {
    let parse = |text: String| match &*text {
        "" => Err("empty".into()),
        "stderr" => Ok(LogTarget::Stderr),
        "stdout" | "-" => Ok(LogTarget::Stdout),
        _ => Ok(LogTarget::File(text.into())),
    };
    text_kind("\"stdout\", \"stderr\" or the path of a file", parse, ToString::to_string).with_pattern(".+")
}

/// A share of a whole, in millionths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fraction(pub u32);

impl Fraction {
    /// All of the whole.
    pub const ALL: Self = Self(1_000_000);

    /// Converts a share of 1; `None` below a millionth, or above 1.
    pub fn from_share(part: f64) -> Option<Self> {
        let millionths = (part * f64::from(Self::ALL.0)).round();
        let is_share = (1.0..=f64::from(Self::ALL.0)).contains(&millionths);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is from 1 to 1,000,000")]
        let millionths = millionths as u32;
        is_share.then_some(Self(millionths))
    }
}

named_enum! {
    /// Field of an access log line: an item of `access_log.fields`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum AccessField {
        /// Time at which the request's stream was accepted.
        Time = "time",
        /// ID of the request, which the origin gets as `X-Request-ID`.
        RequestId = "request_id",
        /// Address of the client; behind trusted proxies the address that the proxies report.
        Client = "client",
        /// Address of the connection's peer: the client, or the last proxy.
        Peer = "peer",
        /// Address and port of the connection's peer.
        ClientPort = "client_port",
        /// Local address of the connection.
        Local = "local",
        /// HTTP version of the request.
        Protocol = "protocol",
        /// TLS version of the connection.
        Tls = "tls",
        /// Server name in the TLS handshake.
        ServerName = "server_name",
        /// Method of the request.
        Method = "method",
        /// Authority of the request.
        Host = "host",
        /// Path of the request, without the query.
        Path = "path",
        /// Query of the request, without `?`.
        Query = "query",
        /// `User-Agent` of the request.
        UserAgent = "user_agent",
        /// `Referer` of the request.
        Referer = "referer",
        /// ID of the request's trace, from `[traces]` or a valid `traceparent`.
        TraceId = "trace_id",
        /// ID of the request's span, with `[traces]`.
        SpanId = "span_id",
        /// Name of the selected route.
        Route = "route",
        /// Name of the origin.
        Origin = "origin",
        /// Server of the origin that was tried last.
        Server = "server",
        /// Status of the response.
        Status = "status",
        /// `grpc-status` of the response to a gRPC call.
        GrpcStatus = "grpc_status",
        /// Bytes of the request's body.
        BytesIn = "bytes_in",
        /// Bytes of the response's body.
        BytesOut = "bytes_out",
        /// Time from the request's beginning to its end, in seconds.
        Duration = "duration",
        /// Time from the request's beginning to the response's header, in seconds.
        FirstByte = "first_byte",
        /// Share of the origin in `first_byte`, in seconds.
        OriginTime = "origin_time",
        /// Share of the server that `routes[].auth` names, in seconds.
        AuthTime = "auth_time",
        /// Urgency of the response, from 0 to 7, if responses are sent by priority (RFC 9218).
        Urgency = "urgency",
        /// 1 if the response was sent interleaved with others of its urgency, 0 if sequentially.
        Incremental = "incremental",
        /// Outcome of the request.
        End = "end",
        /// Reason of a failure.
        Error = "error",
    }
    /// Name of the field in the configuration and in a line.
    fn log_key;
}

/// A share of a whole, above 0.
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
                // NaN is too small as well.
                None => Err("too small".into()),
            }
        }),
        show: Box::new(|share| json!(f64::from(share.0) / f64::from(Fraction::ALL.0))),
    }
}
