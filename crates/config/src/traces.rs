//! Defines `[traces]`: spans of requests, and the collector that receives them.

use super::access_log::{Fraction, fraction_kind};
use super::rules::HeaderRules;
use crate::reading::name_kinds::path_kind;
use crate::reading::rule_readers::join_or;
use crate::reading::section::ConfigSection;
use crate::reading::table::{FixedValue, KeyTable as _, custom_key, file_key, keys, optional_key};
use crate::reading::value_kinds::{RawValue, ValueKind, one_of, text_kind};
use http::{HeaderName, HeaderValue, Uri, header};
use litequic_base::named_enum;
use serde_json::json;
use std::{fmt, path::PathBuf, str::FromStr, time::Duration};

keys! {
    /// Traces: a span for each request, and one for each attempt at its origin, sent to a collector by OTLP.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Traces {
        /// URL of the collector. Without the key there are no traces. `http` and `https` send protobuf over HTTP/1.1,
        /// by convention to port 4318; without a path to `/v1/traces`. `grpc` and `grpcs` send by gRPC over HTTP/2, by
        /// convention to port 4317. A collector that cannot be reached is reported in the log; litequic runs without
        /// it.
        endpoint: Option<TraceEndpoint> = None, optional_key(endpoint_kind(), "none");

        // A site with 1,000 requests per second then has ten traces per second.
        /// Share of requests that are sampled, of those whose trace begins here. The trace ID decides, so that all
        /// replicas sample the same traces.
        ratio: Fraction = Self::DEFAULT_RATIO, ratio_kind();

        /// Clients whose `traceparent` decides: peers in `trusted_proxies`, `any`, or `none`. A request of another
        /// client begins a trace of its own, which has a link to the client's.
        parent: TraceParent = TraceParent::Trusted, one_of(TraceParent::NAMES);

        // A span has about 700 bytes, so a worker sends at most 700 KB per second.
        /// Spans a second of each worker. Beyond that, requests are not sampled.
        max_per_second: u32 = 1_000, FixedValue, no_key;

        /// Attributes of the resource, such as `deployment.environment.name`. `service.name` is `litequic` unless it is
        /// given, and `service.version` the program's.
        attributes: Vec<(String, String)> = Vec::new(), custom_key(read_attributes, |all| join_or(all.iter().map(|(name, _)| name), "none"));

        /// Fields of requests to the collector, such as `authorization`. `/config` and the log show only their names.
        headers: Vec<(HeaderName, HeaderValue)> = Vec::new(), custom_key(read_collector_fields, |all| join_or(all.iter().map(|(name, _)| name), "none"));

        /// File with the certificate authorities that sign the collector's certificate, in PEM, in place of the
        /// system's roots.
        ca: Option<PathBuf> = None, file_key(path_kind("the path of a PEM file"));

        /// Time within which the collector accepts spans, including the connection. Afterwards the spans are sent
        /// again.
        timeout: Duration = Self::DEFAULT_TIMEOUT, FixedValue, no_key;
    }
}

impl Traces {
    /// Number of attributes of the resource at most.
    pub const MAX_ATTRIBUTES: usize = 32;
    /// Number of fields in requests to the collector at most.
    pub const MAX_HEADERS: usize = 16;
    const DEFAULT_RATIO: Fraction = Fraction(10_000);
    /// Default of the specification (OTEL_EXPORTER_OTLP_TIMEOUT).
    const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);
}

/// Default path of a collector for OTLP/HTTP.
const DEFAULT_HTTP_PATH: &str = "/v1/traces";

/// URL of a collector: `traces.endpoint`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceEndpoint {
    /// Protocol to send spans.
    pub protocol: TraceProtocol,
    /// Whether connections to the collector use TLS.
    pub is_https: bool,
    /// Name, or IP address without brackets.
    pub host: String,
    /// Port; by default that of the scheme.
    pub port: u16,
    /// Authority, as written in the URL.
    pub authority: String,
    /// Path and query, unless `/`.
    pub path: Option<String>,
}

impl TraceEndpoint {
    /// Returns the path for OTLP/HTTP.
    pub fn http_path(&self) -> &str {
        self.path.as_deref().unwrap_or(DEFAULT_HTTP_PATH)
    }
}

impl fmt::Display for TraceEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match self.protocol {
            TraceProtocol::Http => "http",
            TraceProtocol::Grpc => "grpc",
        };
        let scheme_end = if self.is_https { "s" } else { "" };
        write!(f, "{scheme}{scheme_end}://{}{}", self.authority, self.path.as_deref().unwrap_or_default())
    }
}

impl FromStr for TraceEndpoint {
    type Err = &'static str;

    fn from_str(written: &str) -> Result<Self, &'static str> {
        let uri = Uri::from_str(written).map_err(|_| "not a URL")?;
        let (protocol, is_https) = match uri.scheme_str().map(str::to_ascii_lowercase).as_deref() {
            Some("http") => (TraceProtocol::Http, false),
            Some("https") => (TraceProtocol::Http, true),
            Some("grpc") => (TraceProtocol::Grpc, false),
            Some("grpcs") => (TraceProtocol::Grpc, true),
            _ => return Err("is neither an http, https, grpc nor grpcs URL"),
        };
        let authority = uri.authority().ok_or("has no host")?;
        let host = authority.host().trim_start_matches('[').trim_end_matches(']');
        let has_port = authority.as_str().len() > authority.host().len();
        if host.is_empty() || authority.as_str().contains('@') {
            return Err("has no host, or a user name");
        }
        let port = match authority.port_u16() {
            Some(0) => return Err("has port 0"),
            Some(port) => port,
            None if has_port => return Err("has no valid port"),
            None if is_https => 443,
            None => 80,
        };
        let path = uri.path_and_query().map(|path| path.as_str()).filter(|path| *path != "/" && !path.is_empty());
        if protocol == TraceProtocol::Grpc && path.is_some() {
            return Err("has a path, but gRPC defines its own path");
        }
        Ok(Self {
            protocol,
            is_https,
            host: host.into(),
            port,
            authority: authority.to_string(),
            path: path.map(Into::into),
        })
    }
}

/// Protocol to send spans, by the scheme of `traces.endpoint`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TraceProtocol {
    /// Protobuf over HTTP/1.1.
    Http,
    /// gRPC over HTTP/2.
    Grpc,
}

named_enum! {
    /// Clients whose `traceparent` is respected: `traces.parent`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum TraceParent {
        /// Peers in `trusted_proxies`.
        Trusted = "trusted",
        /// All clients.
        Any = "any",
        /// No client.
        None = "none",
    }
}

/// Reads `[traces]`.
pub(super) fn read_traces(section: &mut ConfigSection<'_>) -> Traces {
    let traces = Traces::read_table(section);
    if traces.endpoint.as_ref().is_some_and(|endpoint| !endpoint.is_https) {
        section.note_fault_expecting("ca", "has no effect without TLS", "https:// or grpcs:// in endpoint");
    }
    traces
}

pub(super) fn endpoint_kind() -> ValueKind<TraceEndpoint> {
    let parse = |written: String| written.parse::<TraceEndpoint>().map_err(Into::into);
    text_kind("a URL such as \"http://127.0.0.1:4318\" or \"grpc://127.0.0.1:4317\"", parse, ToString::to_string)
        .with_pattern("([Hh][Tt][Tt][Pp]|[Gg][Rr][Pp][Cc])[Ss]?://[!-~]+")
        .with_length(8..=1024)
}

/// Characters of an attribute's value at most.
const MAX_ATTRIBUTE_CHARACTERS: usize = 1024;

/// A share of a whole, from 0 to 1.
fn ratio_kind() -> ValueKind<Fraction> {
    let ValueKind { read, show, .. } = fraction_kind();
    ValueKind {
        expected: "a number from 0 to 1".into(),
        schema: json!({ "type": ["integer", "number"], "minimum": 0, "maximum": 1 }),
        read: Box::new(move |given| match given {
            RawValue::Integer(0) | RawValue::Float(0.0) => Ok(Fraction(0)),
            given => read(given),
        }),
        show,
    }
}

fn read_attributes(section: &mut ConfigSection<'_>, key: &str, about: &str) -> Vec<(String, String)> {
    let name = |written: &str| if written.is_empty() { Err("empty".into()) } else { Ok(written.to_owned()) };
    let value =
        text_kind("a text", |written: String| Ok(written), Clone::clone).with_length(0..=MAX_ATTRIBUTE_CHARACTERS);
    section.read_map(key, ".+", name, value, Traces::MAX_ATTRIBUTES, about)
}

/// Fields that frame a message, or that litequic sets by itself.
const OWN_FIELDS: [HeaderName; 12] = [
    header::CONNECTION,
    header::CONTENT_ENCODING,
    header::CONTENT_LENGTH,
    header::CONTENT_TYPE,
    header::EXPECT,
    header::HOST,
    header::PROXY_AUTHENTICATE,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    header::USER_AGENT,
];

fn read_collector_fields(section: &mut ConfigSection<'_>, key: &str, about: &str) -> Vec<(HeaderName, HeaderValue)> {
    let name = |written: &str| {
        let name = HeaderName::from_bytes(written.as_bytes()).map_err(|_| "not a field's name")?;
        match OWN_FIELDS.contains(&name) || ["keep-alive", "proxy-connection"].contains(&name.as_str()) {
            true => Err("is set by litequic".into()),
            false if name.as_str().starts_with("grpc-") => Err("belongs to gRPC".into()),
            false => Ok(name),
        }
    };
    let parse = |written: String| {
        let mut value =
            HeaderValue::from_str(&written).map_err(|_| "contains characters that are not allowed in a field value")?;
        value.set_sensitive(true);
        Ok(value)
    };
    let value = text_kind("a field's value", parse, |_| String::new()).with_length(0..=HeaderRules::MAX_VALUE_BYTES);
    section.read_map(key, "[!#$%&'*+.^_`|~0-9A-Za-z-]+", name, value, Traces::MAX_HEADERS, about)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Config, parse_config};
    use std::path::Path;

    const BASE: &str = "[[certificates]]\ncert = \"a\"\nkey = \"b\"\n[origin]\nurl = \"http://127.0.0.1:1\"\n";

    fn read(more: &str) -> Result<Config, Vec<(String, String)>> {
        let environment = |name: &str| (name == "OTLP_TOKEN").then(|| "hunter2".to_owned());
        parse_config(&format!("{BASE}{more}"), Path::new("a.toml"), environment)
            .map_err(|faults| faults.0.iter().map(|fault| (fault.key.clone(), fault.problem.clone())).collect())
    }

    #[test]
    fn an_endpoint_is_a_url_with_the_schemes_port_by_default() {
        for (written, is_https, host, port, path) in [
            ("http://127.0.0.1:4318", false, "127.0.0.1", 4318, "/v1/traces"),
            ("http://127.0.0.1:4318/", false, "127.0.0.1", 4318, "/v1/traces"),
            ("https://otlp.test", true, "otlp.test", 443, "/v1/traces"),
            ("http://[::1]:1/v2/otlp?a=b", false, "::1", 1, "/v2/otlp?a=b"),
            ("http://collector", false, "collector", 80, "/v1/traces"),
            ("grpc://collector:4317", false, "collector", 4317, "/v1/traces"),
            ("grpcs://collector", true, "collector", 443, "/v1/traces"),
        ] {
            let endpoint: TraceEndpoint = written.parse().unwrap();
            assert_eq!((endpoint.is_https, &*endpoint.host, endpoint.port), (is_https, host, port), "{written}");
            assert_eq!(endpoint.http_path(), path);
            assert_eq!(endpoint.to_string(), written.trim_end_matches('/'));
        }
        for written in ["", "127.0.0.1:4318", "ftp://a", "http://", "http://u@a", "http://a:0", "http://a:99999", "/a"]
        {
            assert!(written.parse::<TraceEndpoint>().is_err(), "{written}");
        }
    }

    #[test]
    fn every_key_is_read_and_secrets_are_not_shown() {
        let config = read(
            "[traces]\nendpoint = \"grpcs://otlp.test:4317\"\nratio = 0\nparent = \"any\"\n\
             attributes = { \"deployment.environment.name\" = \"p\" }\nheaders = { authorization = \"Bearer ${OTLP_TOKEN}\" }\nca = \"ca.pem\"\n",
        )
        .unwrap();
        let traces = &config.traces;
        assert_eq!((traces.ratio, traces.parent), (Fraction(0), TraceParent::Any));
        assert_eq!(traces.headers[0].1, "Bearer hunter2");
        assert_eq!(traces.attributes, [("deployment.environment.name".to_owned(), "p".to_owned())]);
        let listed = format!("{:?} {traces:?}", config.keys_and_values());
        assert!(listed.contains("authorization") && !listed.contains("hunter2"), "{listed}");
    }

    #[test]
    fn faults_name_the_key() {
        for (more, key, problem) in [
            ("[traces]\nendpoint = \"localhost:4318\"\n", "traces.endpoint", "neither"),
            ("[traces]\nendpoint = \"grpc://a/x\"\n", "traces.endpoint", "gRPC defines its own path"),
            ("[traces]\nendpoint = \"http://a\"\nratio = 1.5\n", "traces.ratio", "too large"),
            ("[traces]\nendpoint = \"http://a\"\nratio = -1\n", "traces.ratio", "too small"),
            ("[traces]\nendpoint = \"http://a\"\nca = \"a.pem\"\n", "traces.ca", "without TLS"),
            (
                "[traces]\nendpoint = \"http://a\"\nheaders = { host = \"a\" }\n",
                "traces.headers.host",
                "set by litequic",
            ),
            ("[traces]\nendpoint = \"http://a\"\nheaders = { x = \"a\\nb\" }\n", "traces.headers.x", "characters"),
            (
                "[traces]\nendpoint = \"http://a\"\n[request_headers]\nset = { traceparent = \"x\" }\n",
                "request_headers.set.traceparent",
                "set by litequic",
            ),
            (
                "[traces]\nendpoint = \"http://a\"\n[[routes]]\norigin = \"origin\"\npath_prefix = \"/\"\n\
                 request_headers = { add = { tracestate = \"x\" } }\n",
                "routes[0].request_headers.add.tracestate",
                "set by litequic",
            ),
        ] {
            let faults = read(more).unwrap_err();
            let is_it = |(at, what): &(String, String)| at == key && what.contains(problem);
            assert!(faults.iter().any(is_it), "{more}: {faults:?}");
        }
        let rule = "[request_headers]\nset = { traceparent = \"x\" }\n";
        assert!(read(rule).is_ok(), "without traces a rule may set it");
    }
}
