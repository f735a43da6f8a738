//! Defines `[origin]` and `[origins.NAME]`: servers, load balancing, and the connections to each server.

use super::access_log::{Fraction, fraction_kind};
use super::reserved_fields::{ReservedFields, reserved_fields_key};
use crate::reading::name_kinds::{
    IPV6_PATTERN, NAME_PATTERN, PORT_PATTERN, TOKEN_PATTERN, authority_kind, cookie_name_kind, field_name_kind,
    parse_host, parse_port, path_kind, split_port,
};
use crate::reading::rule_readers::join_or;
use crate::reading::section::ConfigSection;
use crate::reading::table::{
    FixedValue, KeyTable, OptionalTableReader, custom_key, derived_default, file_key, keys, list_key, optional_key,
};
use crate::reading::value_kinds::{
    COUNT_OR_ZERO_RANGE, COUNT_RANGE, DAY, RawValue, TIMEOUT_RANGE, ValueError, ValueKind, boolean_kind, duration_kind,
    number_kind, one_of, or_none, or_word, text_kind,
};
use http::HeaderName;
use litequic_base::named_enum;
use serde_json::json;
use std::{
    collections::BTreeSet, fmt, net::Ipv6Addr, ops::RangeInclusive, path::PathBuf, str::FromStr, time::Duration,
};

/// Range of the interval of health checks: shorter ones would be a load of their own.
const HEALTH_INTERVAL_RANGE: RangeInclusive<Duration> = Duration::from_millis(100)..=DAY;
/// Range of consecutive results: more would take too long.
const STREAK_RANGE: RangeInclusive<u64> = 1..=1000;
/// Range of a weight: HAProxy's maximum. A server without traffic is left out of the list.
const WEIGHT_RANGE: RangeInclusive<u16> = 1..=256;
/// Range of requests at a time on one HTTP/2 connection.
const STREAMS_RANGE: RangeInclusive<u64> = 1..=10_000;
/// Bytes of a socket's path: `sun_path` has 108, including the final zero (unix(7)).
const MAX_SOCKET_PATH_BYTES: usize = 107;

keys! {
    /// One origin: its servers, and how requests are distributed over them. By default it has no server yet.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct OriginConfig counted by "litequic_limit_reached_total{limit=\"origin_*\"}" {
        /// Addresses of the origin's servers, all different, and all with `https` or none. The port is 80, or 443 with
        /// `https`, unless given. litequic sends HTTP/1.1, or HTTP/2 with `protocol = "h2"`: in plaintext, or over TLS
        /// to `https`, where it always verifies the server's certificate. The path of a socket has at most 107 bytes.
        /// Behind a blank, `weight=3` gives a server three times as many requests as one without (1 to 256), and
        /// `backup` gives it requests only while no other server is healthy; at least one server must be no backup.
        servers("url"): Vec<OriginServer> = Vec::new(), custom_key(read_servers, |all| join_or(all.iter(), ""));

        /// Load balancing: round robin, or the server with the fewest open requests of this worker, divided by its
        /// weight; between equal servers, round robin.
        balance: Balance = Balance::RoundRobin, one_of(Balance::NAMES);

        // The default of nginx and HAProxy as well: most servers are at full speed once they respond.
        /// Time in which a server that has become healthy again gets its full share of requests. The share grows
        /// linearly, from a hundredth of its weight.
        slow_start: Option<Duration> = None, or_none(duration_kind(TIMEOUT_RANGE));

        /// Session persistence: keeps each client on one server. Without the key `balance` selects a server for each
        /// request. `cookie`: a signed cookie that names the server that answered, set by litequic; `origin_server` is
        /// its name, or `NAME` in `cookie:NAME`, another one for each origin, and its attributes are `Path=/; Secure;
        /// HttpOnly; SameSite=Lax`. `address`: a consistent hash of the client's IPv4 address, or of the first 64 bits
        /// of its IPv6 address. `header:NAME`: a consistent hash of the value in the first line of this header field;
        /// `balance` selects a server for requests without the field.
        sticky: Option<Sticky> = None, optional_key(sticky_kind(), "none");

        // One or two failures are an accident, but five in a row are not.
        /// Outlier ejection: number of consecutive failures after which a worker ejects a server.
        eject_after: Option<u32> = Some(5), or_none(number_kind(STREAK_RANGE));

        // A server's response often depends on the URL, which the client chooses.
        /// Statuses that count as failures, such as `["502-504"]`. By default no status counts, so that a client that
        /// requests a URL which answers 503 cannot cause the server's ejection.
        eject_statuses: Vec<StatusRange> = Vec::new(), list_key(status_range_kind(), 0..=HealthCheck::MAX_STATUSES);

        // A process that restarts is ready after this time.
        /// Time for which a server is ejected. If the server fails again afterwards, the time doubles, to at most eight
        /// times this value.
        eject_time: Duration = Duration::from_secs(10), duration_kind(TIMEOUT_RANGE);

        // If most servers fail, the requests or the network are the cause, and fewer servers would not help.
        /// Share of the servers that a worker may eject at the same time. It may always eject one, but never the last
        /// healthy one. While a backup server is healthy, all others may be ejected.
        max_ejected: Fraction = Fraction(500_000), FixedValue, no_key;

        // A fifth covers one failed server of five; much more would double the load on servers that fail because of it.
        /// Retry budget: retries as a share of requests, beside 10 retries per second. With `"none"`, nothing is
        /// retried.
        retry_share: Option<Fraction> = Some(Fraction(200_000)), or_none(fraction_kind()), counted_by("litequic_origin_retries_refused_total");

        // Permits retries at a low rate.
        /// Retries per second that are permitted in addition to `retry_share`; those of ten seconds may be saved up.
        retry_minimum: u32 = 10, FixedValue, no_key;

        /// TLS to the origin's servers with `https`: the name and the authorities of their certificates, and
        /// litequic's own certificate. Without this table the system's trusted roots verify them.
        tls: Option<OriginTls> = None, OptionalTableReader { read: read_origin_tls_table, show: OriginTls::format_origin_tls, by_key: |_, _| true };

        /// Whether a connection to the origin begins with the client's address: the PROXY protocol, version 2. With
        /// `https` its header comes before the TLS handshake.
        proxy_protocol: bool = false, boolean_kind();

        /// Active health checks: a periodic GET to each server, or a call of gRPC. Without this table there are none.
        health: Option<HealthCheck> = None, OptionalTableReader { read: read_health, show: HealthCheck::format_health, by_key: |_, _| true };

        // Every web server speaks HTTP/1.1.
        /// Protocol of requests to the servers, by its ALPN name. `"h2"`, HTTP/2, is for gRPC servers, and saves a
        /// worker with many requests in flight system calls: with `http` and `unix:` the server must expect it
        /// ("prior knowledge", "h2c"), with `https` it must select it by ALPN.
        protocol: OriginProtocol = OriginProtocol::Http1, one_of(OriginProtocol::NAMES);

        // Servers that announce a limit mostly have 100 to 250; RFC 9113 §6.5.2 recommends no fewer than 100.
        /// Requests at a time on one HTTP/2 connection, or fewer where the server's SETTINGS allow fewer. 1 spreads
        /// requests over connections, for a load balancer of TCP connections in front of the servers.
        max_streams: u32 = 100, number_kind(STREAMS_RANGE);

        // The capacity of a server is unknown, but not the number of connections that this process can have.
        /// Connections of a worker to a server. An eighth more are for clients that use none while all are in use.
        /// `"derived"`: 512, or fewer where file descriptors or memory allow no more; `litequic check` prints the
        /// number. Set it for a server of few processes or threads.
        max_connections: Option<u32> = None, or_word("derived", number_kind(COUNT_RANGE)), counted;

        // A waiting request is served late, and a rejected one never, so memory alone bounds the queue.
        /// Requests of a worker that wait for a connection to a server; further ones are answered 503. `"derived"`: as
        /// many as a part of the memory holds, 32,768 at most; `litequic check` prints the number.
        max_queue: Option<u32> = None, or_word("derived", number_kind(COUNT_OR_ZERO_RANGE)), counted;

        // The default of nginx' `client_body_buffer_size` on 64-bit machines.
        /// Bytes of a request's body that are read before the request gets a connection: a body whose Content-Length is
        /// not larger is read whole, and of any other body the first bytes. So a slow client occupies no connection
        /// until it has sent something. 0 disables this. Of a streaming call (gRPC, Connect) only what has come is
        /// read.
        request_buffer: u64 = 16 * 1024, FixedValue, no_key;

        // Less than nginx' keepalive_timeout of 75 s and Go's 90 s, so that litequic closes first.
        /// Idle timeout of a connection to a server. Keep it below the origin's own keep-alive timeout, so that
        /// litequic closes first.
        idle_timeout: Duration = Duration::from_secs(60), duration_kind(TIMEOUT_RANGE);

        // After an hour, traffic moves to new addresses of a name.
        /// Age from which on a connection is not used again, so that new addresses of a name get traffic.
        max_age: Option<Duration> = Some(Duration::from_secs(3600)), FixedValue, no_key;

        // `max_age` already moves traffic to new addresses, and a new connection costs a round trip.
        /// Requests on a connection to a server. The connection is closed after the response to the last one (nginx'
        /// `keepalive_requests`). For a load balancer of TCP connections in front of the servers, or for server
        /// processes that restart after a number of requests.
        max_requests: Option<u64> = None, or_none(number_kind(COUNT_RANGE)), counted;

        // The DNS cache time of Kubernetes.
        /// Interval between two lookups of a server's name. An address that failed is tried last for the same time.
        dns_interval: Duration = Duration::from_secs(30), FixedValue, no_key;

        /// Decoding of paths by the origin. A request whose path the origin could read as another route's gets 400.
        /// `any`: percent-decoded, with slashes merged, without `;` parameters, with `\` as `/`, and case-insensitive;
        /// `case-sensitive`: the same, but case-sensitive; `raw`: byte by byte, so that no request is rejected.
        path_reading: PathReading = PathReading::default(), one_of(PathReading::NAMES);

        /// Spelling of the names of request fields, for an origin that compares bytes. By default they are in lower
        /// case. `"title"` is `Content-Length` and `Soapaction`; any other entry is the name itself, such as
        /// `"SOAPAction"`.
        field_names: Vec<String> = Vec::new(), list_key(field_spelling_kind(), 0..=Self::MAX_FIELD_NAMES);

        /// Treatment of request fields whose names have `_` or another character than letters, digits and `-`. CGI,
        /// FastCGI, WSGI, Rack and PHP do not distinguish `x_user` from `X-User`. `drop` removes such fields, `reject`
        /// answers 400, `pass` is for an origin that distinguishes them, or needs such fields. In gRPC calls they pass.
        ambiguous_fields: AmbiguousFields = AmbiguousFields::default(), one_of(AmbiguousFields::NAMES);

        /// Fields of requests that are removed, in each spelling and in trailers, unless a proxy in `trusted_proxies`
        /// sends them: `client` (addresses and certificates, such as `CF-Connecting-IP`), `url` (such as
        /// `X-Original-URL`), `method` (overrides of the method; where a route has a condition on the method they are
        /// removed in any case), and names of fields. `"!NAME"` excludes a field from these.
        reserved_fields: ReservedFields = ReservedFields::default(), reserved_fields_key();
    }
}

impl OriginConfig {
    /// Number of servers: longer lists should use a name with several addresses.
    pub const MAX_SERVERS: usize = 64;
    /// Number of names in `field_names`: each request's fields are searched for all of them.
    const MAX_FIELD_NAMES: usize = 64;
    /// Entry of `field_names` for names that are not in the list: each part begins with a capital letter.
    pub const TITLE_CASE: &str = "title";

    /// Creates an origin with one server at `address`, and defaults for all other keys.
    pub fn new(address: OriginAddress) -> Self {
        Self { servers: vec![address.into()], ..Self::default() }
    }
}

named_enum! {
    /// Protocol of requests to an origin, by its ALPN name: `origin.protocol`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum OriginProtocol {
        /// HTTP/1.1 (RFC 9112).
        Http1 = "http/1.1",
        /// HTTP/2 (RFC 9113).
        Http2 = "h2",
    }
}

/// Spelling of a field's name, or [`OriginConfig::TITLE_CASE`].
fn field_spelling_kind() -> ValueKind<String> {
    let parse =
        |text: String| HeaderName::from_bytes(text.as_bytes()).map(|_| text).map_err(|_| "not a field's name".into());
    text_kind("\"title\" or a field's name, such as \"SOAPAction\"", parse, Clone::clone)
}

/// Reads `[origin]` or a table of `[origins.NAME]`; `cookies` has the cookie names of earlier origins.
pub(super) fn read_origin(section: &mut ConfigSection<'_>, cookies: &mut BTreeSet<String>) -> OriginConfig {
    let mut origin = OriginConfig::read_table(section);
    if origin.retry_share.is_none() {
        origin.retry_minimum = 0;
    }
    if let Some(Sticky::Cookie(cookie)) = &origin.sticky
        && !cookies.insert(cookie.clone())
    {
        // A browser has one cookie of a name for `/`, so two origins of a host would overwrite each other's.
        let problem = format!("another origin has the cookie {cookie:?}");
        section.note_fault_expecting("sticky", problem, "\"cookie:NAME\" with another name");
    }
    let is_https = |server: &OriginServer| server.address.is_https();
    let (some, all) = (origin.servers.iter().any(is_https), origin.servers.iter().all(is_https));
    if some && !all {
        let problem = "some servers use https and others do not";
        section.note_fault_expecting("url", problem, "https:// in each address, or in none");
    }
    // A server with a fault may be the one with https.
    if origin.protocol == OriginProtocol::Http2 && !origin.field_names.is_empty() {
        section.note_fault("field_names", "has no effect with protocol = \"h2\", whose names are lower case");
    }
    let checks_grpc = origin.health.as_ref().is_some_and(|health| health.grpc.is_some());
    if checks_grpc && origin.protocol != OriginProtocol::Http2 {
        section.note_fault_expecting("health", "grpc needs HTTP/2", "protocol = \"h2\" in the origin");
    }
    if origin.tls.is_some() && !some && section.is_valid_list("url") {
        section.note_fault_expecting("tls", "has no effect without https", "https:// in url");
    }
    origin
}

keys! {
    /// TLS to servers with `https`: `[origin.tls]`. Certificates are always verified.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct OriginTls {
        /// Name that a server's certificate must have, and that litequic sends as SNI. By default the host of each
        /// URL. An address must be in the certificate as an address, and is not sent.
        name: Option<String> = None, optional_key(server_name_kind(), "the URL's host");

        /// File with the certificate authorities that sign the servers' certificates, in PEM, in place of the system's
        /// roots. The file may also contain a server's self-signed certificate, which is then trusted while it is
        /// valid.
        ca: Option<PathBuf> = None, file_key(path_kind("the path of a PEM file"));

        /// File with revocation lists: X.509 CRLs in PEM, one for each CA in a server's chain. A certificate is
        /// rejected if its CA has no list here, or if that list is past its next update.
        crl: Option<PathBuf> = None, file_key(path_kind("the path of a PEM file"));

        /// File with litequic's own certificate chain, leaf first, in PEM, for servers that request one. Certificates
        /// of public ACME CAs are unsuitable: their extended key usage is for servers only.
        cert: Option<PathBuf> = None, file_key(path_kind("the path of a PEM file"));

        /// File with the private key of `cert`, in PEM.
        key: Option<PathBuf> = None, file_key(path_kind("the path of a PEM file"));

        // The known attacks on TLS 1.2 need other key exchanges or ciphers, or a missing extended master secret.
        /// Lowest version of TLS. `"1.2"` is for a server that has no newer one: only with ECDHE, an AEAD cipher and
        /// the extended master secret (RFC 7627).
        min: TlsVersion = TlsVersion::Tls13, one_of(TlsVersion::NAMES);
    }
}

impl OriginTls {
    /// Returns the configured files by key.
    pub fn named_files(&self) -> impl Iterator<Item = (&'static str, &PathBuf)> {
        let files = [("ca", &self.ca), ("crl", &self.crl), ("cert", &self.cert), ("key", &self.key)];
        files.into_iter().filter_map(|(key, file)| Some((key, file.as_ref()?)))
    }

    fn format_origin_tls(&self) -> String {
        self.name.as_ref().map_or_else(|| "name of the URL".into(), |name| format!("name {name}"))
    }
}

named_enum! {
    /// Lowest TLS version: `listen.tls_min`, `origin.tls.min`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum TlsVersion {
        /// TLS 1.3 (RFC 8446).
        Tls13 = "1.3",
        /// TLS 1.2 (RFC 5246).
        Tls12 = "1.2",
    }
}

fn read_origin_tls_table(section: &mut ConfigSection<'_>) -> OriginTls {
    let tls = OriginTls::read_table(section);
    for (key, other) in [("cert", "key"), ("key", "cert")] {
        if section.has_key(key) && !section.has_key(other) {
            section.note_fault_expecting(
                key,
                format!("has no effect without `{other}`"),
                "both, the paths of PEM files",
            );
        }
    }
    tls
}

/// Name of a certificate; an IPv6 address has no brackets.
fn server_name_kind() -> ValueKind<String> {
    let parse = |text: String| {
        let host = if text.parse::<Ipv6Addr>().is_ok() { text } else { parse_host(&text)? };
        Ok(host.trim_start_matches('[').trim_end_matches(']').to_owned())
    };
    text_kind("a name such as \"app.internal\", or an address", parse, Clone::clone)
}

/// A server of an origin: an entry of `origin.url`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OriginServer {
    /// Address of the server.
    pub address: OriginAddress,
    /// Weight of the server, 1 by default: with 3 it gets three times as many requests as a server with 1.
    pub weight: u16,
    /// Whether the server gets requests only while no other server is healthy.
    pub backup: bool,
}

impl From<OriginAddress> for OriginServer {
    fn from(address: OriginAddress) -> Self {
        Self { address, weight: 1, backup: false }
    }
}

impl fmt::Display for OriginServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.address.fmt(f)?;
        if self.weight != 1 {
            write!(f, " weight={}", self.weight)?;
        }
        if self.backup { f.write_str(" backup") } else { Ok(()) }
    }
}

fn read_servers(section: &mut ConfigSection<'_>, key: &str, about: &str) -> Vec<OriginServer> {
    let mut servers = section.required_list(key, origin_server_kind(), 1..=OriginConfig::MAX_SERVERS, about);
    for server in &mut servers {
        if let OriginAddress::Unix(path) = &mut server.address {
            *path = section.base_directory().join(&path);
        }
    }
    for (n, server) in servers.iter().enumerate() {
        if matches!(&server.address, OriginAddress::Unix(path) if path.as_os_str().len() > MAX_SOCKET_PATH_BYTES) {
            section.note_list_fault(key, n, format!("a socket's path has at most {MAX_SOCKET_PATH_BYTES} bytes"));
        }
        if servers.iter().take(n).any(|other| other.address == server.address) {
            section.note_list_fault(key, n, "is listed twice");
        }
    }
    let are_all_backups = !servers.is_empty() && servers.iter().all(|server| server.backup);
    // A server with a fault may be the one that is not a backup.
    if are_all_backups && section.is_valid_list(key) {
        section.note_fault_expecting(key, "has only backup servers", "a server that is not a backup");
    }
    servers
}

named_enum! {
    /// Decoding of paths by an origin: `path_reading`.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub enum PathReading {
        /// Any known decoding. The default, because without knowledge of the origin it can only be too strict.
        #[default]
        Any = "any",
        /// Any known decoding that is case-sensitive.
        CaseSensitive = "case-sensitive",
        /// No decoding: byte by byte.
        Raw = "raw",
    }
    /// Name of the value in the configuration.
    fn path_reading_name;
}

named_enum! {
    /// Treatment of request fields whose names have characters other than letters, digits and `-`: `ambiguous_fields`.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub enum AmbiguousFields {
        /// Ambiguous fields are removed, as in nginx: the origin is not misled, and no request fails.
        #[default]
        Drop = "drop",
        /// Requests with ambiguous fields get 400.
        Reject = "reject",
        /// Ambiguous fields are forwarded.
        Pass = "pass",
    }
    /// Name of the value in the configuration.
    fn treatment_name;
}

named_enum! {
    /// Load balancing method: `balance`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Balance {
        /// Servers in turn.
        RoundRobin = "round-robin",
        /// The server with the fewest open requests of this worker; among equal ones in turn.
        LeastRequests = "least-requests",
    }
    /// Name of the value in the configuration.
    fn balance_name;
}

/// Session persistence: identification of a client, `origin.sticky`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sticky {
    /// A cookie of this name, which litequic sets.
    Cookie(String),
    /// A consistent hash of the client's address.
    Address,
    /// A consistent hash of this header field.
    Header(HeaderName),
}

impl Sticky {
    /// Default name of the cookie.
    pub const DEFAULT_COOKIE: &str = "origin_server";
}

impl Default for Sticky {
    fn default() -> Self {
        Self::Cookie(Self::DEFAULT_COOKIE.into())
    }
}

impl fmt::Display for Sticky {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cookie(name) => write!(f, "cookie:{name}"),
            Self::Address => f.write_str("address"),
            Self::Header(name) => write!(f, "header:{name}"),
        }
    }
}

/// Identification of a client: `"cookie"`, `"cookie:NAME"`, `"address"` or `"header:NAME"`.
pub(crate) fn sticky_kind() -> ValueKind<Sticky> {
    let parse = |text: String| match text.split_once(':') {
        None if text == "cookie" => Ok(Sticky::default()),
        None if text == "address" => Ok(Sticky::Address),
        Some(("cookie", name)) => (cookie_name_kind().read)(RawValue::Text(name.into())).map(Sticky::Cookie),
        Some(("header", name)) => (field_name_kind().read)(RawValue::Text(name.into())).map(Sticky::Header),
        _ => Err("unknown value".into()),
    };
    text_kind("\"cookie\", \"cookie:NAME\", \"address\" or \"header:NAME\"", parse, ToString::to_string)
        .with_pattern(&format!("cookie(:{TOKEN_PATTERN})?|address|header:{TOKEN_PATTERN}"))
}

keys! {
    /// Active health checks, a periodic request to each server by the origin's `protocol`: `[origin.health]`.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct HealthCheck {
        /// Path of the check's GET, with a query if necessary. This key or `grpc` is required.
        path: String = String::new(), derived_default(request_target_kind());

        /// Service whose health is requested by gRPC, in place of a GET: `grpc.health.v1.Health/Check`. `""` is the
        /// whole server. The check succeeds with the answer `SERVING`. Requires `protocol = "h2"`.
        grpc: Option<String> = None, optional_key(grpc_service_kind(), "none");

        /// `Host` of the check. By default the server's own address; `localhost` for a Unix socket.
        host: Option<String> = None, optional_key(authority_kind(), "the server's");

        // A failed server is detected within a quarter of a minute, by few requests.
        /// Interval from the end of a check to the next one, with a random deviation of up to a tenth.
        interval: Duration = Duration::from_secs(5), duration_kind(HEALTH_INTERVAL_RANGE);

        // Longer than a response without work takes.
        /// Timeout of a check.
        timeout: Duration = Duration::from_secs(2), duration_kind(TIMEOUT_RANGE);

        // A single success might be an accident.
        /// Consecutive successful checks until an unhealthy server is healthy.
        healthy: u32 = 2, number_kind(STREAK_RANGE);

        // A single failure might be an accident, and ejecting a server by mistake costs more.
        /// Consecutive failed checks until a healthy server is unhealthy.
        unhealthy: u32 = 3, number_kind(STREAK_RANGE);

        // A redirect does not prove that the application works: a proxy before it sends one as well.
        /// Statuses of a successful check.
        statuses: Vec<StatusRange> = vec![StatusRange { first: 200, last: 299 }], list_key(status_range_kind(), 1..=Self::MAX_STATUSES);
    }
}

impl HealthCheck {
    /// Number of ranges in a list of statuses.
    pub const MAX_STATUSES: usize = 16;
    /// Bytes of a service's name: its length is one byte of the request (protobuf).
    pub const MAX_SERVICE_BYTES: usize = 127;

    fn format_health(&self) -> String {
        self.grpc.as_ref().map_or_else(|| self.path.clone(), |service| format!("grpc {service:?}"))
    }

    /// Whether a response with `status` is a success.
    pub fn accepts_status(&self, status: u16) -> bool {
        self.statuses.iter().any(|statuses| statuses.contains_status(status))
    }
}

/// Reads `[origin.health]`.
fn read_health(section: &mut ConfigSection<'_>) -> HealthCheck {
    let health = HealthCheck::read_table(section);
    if section.has_key("grpc") {
        for key in ["path", "statuses"] {
            section.note_fault(key, "has no effect beside grpc");
        }
    }
    section.require_one_of(["path", "grpc"], "a path such as \"/health\", or grpc with the name of a service");
    health
}

/// Name of a gRPC service, such as `shop.v1.Orders`, or nothing.
pub(super) fn grpc_service_kind() -> ValueKind<String> {
    let parse = |text: String| match text.bytes().all(|byte| byte.is_ascii_graphic()) {
        true if text.len() <= HealthCheck::MAX_SERVICE_BYTES => Ok(text),
        true => Err(format!("has more than {} bytes", HealthCheck::MAX_SERVICE_BYTES).into()),
        false => Err("has a character that no service's name has".into()),
    };
    text_kind("a service's name such as \"shop.v1.Orders\", or \"\"", parse, Clone::clone)
        .with_pattern(&format!("[!-~]{{0,{}}}", HealthCheck::MAX_SERVICE_BYTES))
}

/// An inclusive range of statuses: `200` or `"200-299"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StatusRange {
    /// First status, from 200 on.
    pub first: u16,
    /// Last status, at most 599.
    pub last: u16,
}

impl StatusRange {
    /// Statuses of final responses.
    pub const ALL: RangeInclusive<u16> = 200..=599;

    /// Whether `status` is in the range.
    pub const fn contains_status(self, status: u16) -> bool {
        self.first <= status && status <= self.last
    }
}

impl fmt::Display for StatusRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self { first, last } if first == last => write!(f, "{first}"),
            Self { first, last } => write!(f, "{first}-{last}"),
        }
    }
}

/// Reason why a text is not a [`StatusRange`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum StatusRangeError {
    /// Not a number of three digits, or more than one range.
    #[error("neither a status nor a range such as 200-299")]
    Form,
    /// The status is below 200 or above 599.
    #[error("is not the status of a final response, from 200 to 599")]
    Final,
    /// The range ends before it begins, as in `299-200`.
    #[error("ends before it begins")]
    Order,
}

impl FromStr for StatusRange {
    type Err = StatusRangeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let status = |text: &str| {
            let digits = text.len() == 3 && text.bytes().all(|byte| byte.is_ascii_digit());
            let status = text.parse::<u16>().ok().filter(|_| digits).ok_or(StatusRangeError::Form)?;
            Some(status).filter(|status| Self::ALL.contains(status)).ok_or(StatusRangeError::Final)
        };
        let (first, last) = (status(first)?, status(last)?);
        if first <= last { Ok(Self { first, last }) } else { Err(StatusRangeError::Order) }
    }
}

/// Address of an origin's server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OriginAddress {
    /// Plaintext HTTP: `http://HOST[:PORT]`.
    Tcp {
        /// Name, or IP address without brackets.
        host: String,
        /// Port, 80 by default.
        port: u16,
    },
    /// HTTP over TLS: `https://HOST[:PORT]`.
    Https {
        /// Name, or IP address without brackets.
        host: String,
        /// Port, 443 by default.
        port: u16,
    },
    /// Unix socket: `unix:/PATH`.
    Unix(PathBuf),
}

impl OriginAddress {
    /// Whether connections to the server use TLS.
    pub const fn is_https(&self) -> bool {
        matches!(self, Self::Https { .. })
    }

    /// Returns host and port; `None` for a socket.
    pub fn host_and_port(&self) -> Option<(&str, u16)> {
        match self {
            Self::Tcp { host, port } | Self::Https { host, port } => Some((host, *port)),
            Self::Unix(_) => None,
        }
    }
}

impl fmt::Display for OriginAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Https { host, port } if host.contains(':') => write!(f, "https://[{host}]:{port}"),
            Self::Https { host, port } => write!(f, "https://{host}:{port}"),
            Self::Tcp { host, port } if host.contains(':') => write!(f, "http://[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "http://{host}:{port}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// Reason why a text is not an [`OriginAddress`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OriginAddressError {
    /// The scheme is neither `http:`, `https:` nor `unix:`.
    #[error("begins with none of \"http://\", \"https://\" and \"unix:\"")]
    Scheme,
    /// The scheme is that of a protocol that litequic does not send to origins.
    #[error("litequic sends HTTP/1.1 or HTTP/2 to origins{0}")]
    Protocol(&'static str),
    /// A path follows the host: `http://HOST/PATH`.
    #[error("has a path, query or fragment; litequic sends those of the request")]
    Path,
    /// A user name precedes the host: `http://USER@HOST`.
    #[error("has a user name, which litequic does not send")]
    User,
    /// The host is missing, or cannot be resolved.
    #[error("{0}")]
    Host(String),
    /// The port is not a number: `http://HOST:x`.
    #[error("not a port")]
    Port,
    /// The socket's path is missing, or follows a host: `unix://HOST/PATH`.
    #[error("has no socket path after \"unix:\"")]
    Socket,
}

/// The fault of a `scheme` that litequic does not know, in lower case.
fn foreign_scheme(scheme: &str) -> OriginAddressError {
    OriginAddressError::Protocol(match scheme {
        "h2c" | "grpc" => ": write http://, and protocol = \"h2\"",
        "h2" | "h2+h2c" | "http2" | "grpcs" => ": write https://, and protocol = \"h2\"",
        "fastcgi" | "fcgi" | "uwsgi" | "scgi" | "ajp" => ": put a web server such as nginx before this one",
        "ws" | "wss" => ", and WebSocket by its upgrade",
        "tcp" | "udp" => ", and nothing else",
        _ => return OriginAddressError::Scheme,
    })
}

/// Addresses of servers, in the words of error messages.
const ORIGIN_ADDRESSES: &str = "\"http://HOST:PORT\", \"https://HOST\" or \"unix:/PATH\"";

/// URL of an origin's server, with the parameters `weight=NUMBER` and `backup` behind it.
pub(super) fn origin_server_kind() -> ValueKind<OriginServer> {
    let expected = format!("{ORIGIN_ADDRESSES}, alone or as in \"URL weight=3\" or \"URL backup\"");
    text_kind(&expected, |text| parse_server(&text), ToString::to_string).with_pattern(&format!(
        "([Hh][Tt][Tt][Pp][Ss]?://({NAME_PATTERN}|{IPV6_PATTERN})(:{PORT_PATTERN})?/?|unix:(///[^\\x00]*|/|/?[^/\\x00][^\\x00]*))( +(weight=[0-9]+|backup))* *"
    ))
}

/// Parses an address with parameters. They are read from the end, as the path of a socket may contain blanks.
fn parse_server(text: &str) -> Result<OriginServer, ValueError> {
    let (mut url, mut weight, mut backup) = (text, 1, false);
    while let Some((before, parameter)) = url.rsplit_once(' ') {
        match parameter.split_once('=') {
            Some(("weight", number)) => {
                let number = number.parse().ok().filter(|number| WEIGHT_RANGE.contains(number));
                weight = number.ok_or("the weight is not a number from 1 to 256")?;
            }
            None if parameter == "backup" => backup = true,
            _ if url.starts_with("unix:") => break,
            None if parameter.is_empty() => {}
            _ => return Err("has an unknown parameter".into()),
        }
        url = before;
    }
    let address = url
        .parse()
        .map_err(|error: OriginAddressError| ValueError::from(error.to_string()).expecting(ORIGIN_ADDRESSES))?;
    Ok(OriginServer { address, weight, backup })
}

impl FromStr for OriginAddress {
    type Err = OriginAddressError;

    /// Parses `http://HOST[:PORT]` or `https://HOST[:PORT]` with or without a final `/`, `unix:PATH` or `unix:///PATH`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Some(path) = text.strip_prefix("unix:") {
            let path = path.strip_prefix("//").map_or(Some(path), |rest| rest.starts_with('/').then_some(rest));
            return path
                .filter(|path| !path.is_empty() && !path.contains('\0'))
                .map(|path| Self::Unix(path.into()))
                .ok_or(OriginAddressError::Socket);
        }
        let scheme = text.split_once("://").map(|(scheme, rest)| (scheme.to_ascii_lowercase(), rest));
        let (is_https, authority) = match &scheme {
            Some((scheme, rest)) if scheme == "http" => (false, rest.strip_suffix('/').unwrap_or(rest)),
            Some((scheme, rest)) if scheme == "https" => (true, rest.strip_suffix('/').unwrap_or(rest)),
            Some((scheme, _)) => return Err(foreign_scheme(scheme)),
            None => return Err(OriginAddressError::Scheme),
        };
        if authority.contains(['/', '?', '#']) {
            return Err(OriginAddressError::Path);
        }
        if authority.contains('@') {
            return Err(OriginAddressError::User);
        }
        let (host, port) = split_port(authority);
        let host = parse_host(host).map_err(|wrong| OriginAddressError::Host(wrong.problem))?;
        let port = match port.map(parse_port) {
            None if is_https => 443,
            None => 80,
            Some(Some(port)) => port,
            Some(None) => return Err(OriginAddressError::Port),
        };
        let host = host.strip_prefix('[').and_then(|inner| inner.strip_suffix(']')).unwrap_or(&host).to_owned();
        Ok(if is_https { Self::Https { host, port } } else { Self::Tcp { host, port } })
    }
}

/// Path and query of a request line.
pub(super) fn request_target_kind() -> ValueKind<String> {
    let parse = |text: String| {
        let problem = if !text.starts_with('/') {
            "does not start with `/`"
        } else if !text.bytes().all(|byte| byte.is_ascii_graphic()) || text.contains('#') {
            "characters other than printable ASCII, and `#`, must be percent-encoded"
        } else if text.parse::<http::Uri>().is_err() {
            "is not the path of a URL"
        } else {
            return Ok(text);
        };
        Err(problem.into())
    };
    text_kind("a path such as \"/health\"", parse, Clone::clone).with_pattern("/[!-\"$-~]*")
}

/// A range of statuses: a number, or a text with one or two.
pub(super) fn status_range_kind() -> ValueKind<StatusRange> {
    let kind = ValueKind {
        expected: "a status such as 200, or two as in \"200-299\"".into(),
        schema: json!({ "type": ["integer", "string"], "minimum": StatusRange::ALL.start(), "maximum": StatusRange::ALL.end() }),
        read: Box::new(|given| {
            match given {
                RawValue::Integer(number) => number.to_string().parse(),
                RawValue::Text(text) => text.parse(),
                other => return Err(other.wrong_type_error()),
            }
            .map_err(|wrong: StatusRangeError| wrong.to_string().into())
        }),
        show: Box::new(|statuses| match statuses {
            StatusRange { first, last } if first == last => json!(first),
            range => json!(range.to_string()),
        }),
    };
    kind.with_pattern("[2-5][0-9]{2}(-[2-5][0-9]{2})?")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_are_one_or_from_one_to_another() {
        use StatusRangeError::{Final, Form, Order};
        for (text, expected) in [
            ("200", Ok((200, 200))),
            ("200-299", Ok((200, 299))),
            ("404-404", Ok((404, 404))),
            ("100", Err(Final)),
            ("200-600", Err(Final)),
            ("299-200", Err(Order)),
            ("2xx", Err(Form)),
            ("200-", Err(Form)),
            ("+20", Err(Form)),
            ("200-250-299", Err(Form)),
            ("", Err(Form)),
        ] {
            let expected = expected.map(|(first, last)| StatusRange { first, last });
            assert_eq!(text.parse(), expected, "{text}");
            if let Ok(statuses) = expected {
                assert_eq!(statuses.to_string().parse(), expected, "{text}");
            }
        }
    }

    #[test]
    fn an_origin_address_is_read_and_shown() {
        for (text, shown) in [
            ("http://127.0.0.1:8080", "http://127.0.0.1:8080"),
            ("http://Origin.example", "http://origin.example:80"),
            ("HTTP://origin:8080/", "http://origin:8080"),
            ("http://[::1]:8080", "http://[::1]:8080"),
            ("http://[::1]", "http://[::1]:80"),
            ("https://Origin.example/", "https://origin.example:443"),
            ("HTTPS://origin:8443", "https://origin:8443"),
            ("https://[::1]", "https://[::1]:443"),
            ("unix:/run/app.sock", "unix:/run/app.sock"),
            ("unix:///run/app.sock", "unix:/run/app.sock"),
            ("unix:app.sock", "unix:app.sock"),
        ] {
            let address: OriginAddress = text.parse().unwrap();
            assert_eq!(address.to_string(), shown, "{text}");
            assert_eq!(shown.parse(), Ok(address), "{shown}");
        }
    }

    #[test]
    fn an_invalid_origin_address_is_rejected_with_a_reason() {
        use OriginAddressError::{Host, Path, Port, Scheme, Socket, User};
        for (text, error) in [
            ("https://origin/app", Path),
            ("https+unix:/run/app.sock", Scheme),
            ("127.0.0.1:8080", Scheme),
            ("localhost", Scheme),
            ("ftp://origin", Scheme),
            ("", Scheme),
            ("http://origin/app", Path),
            ("http://origin?", Path),
            ("http://user:password@origin", User),
            ("http://", Host("empty".into())),
            ("http://:80", Host("empty".into())),
            ("http://::1", Host("a host has no port".into())),
            ("http://a b", Host("not a host".into())),
            ("http://origin:", Port),
            ("http://origin:0", Port),
            ("http://origin:+80", Port),
            ("http://origin:65536", Port),
            ("unix:", Socket),
            ("unix://run/app.sock", Socket),
        ] {
            assert_eq!(text.parse::<OriginAddress>(), Err(error), "{text}");
        }
    }
}
