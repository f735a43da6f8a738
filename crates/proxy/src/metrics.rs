//! Counts a worker's requests to origins.

use crate::answer::Error;
use crate::message::{RemovedFields, grpc};
use http::StatusCode;
use litequic_exchange::{Body, ByteCounter, Fields, Protocol, RequestRecord, Response};
use litequic_telemetry::{
    Counter, CounterKey, CounterTable, DENIED, Family, Gauge, Group, Histogram, IO_SYSCALLS, LIMIT_REACHED, Labels,
    Measure, Sample, SampleValue, TIMEOUTS, WakeTracker, metrics, plain_label,
};
use std::sync::Arc;

metrics! {
    /// Metrics of one worker's requests to origins, which that worker alone writes. Aligned so that two workers never
    /// share a cache line.
    #[repr(align(128))]
    pub struct ProxyMetrics {
        Counter("ambiguous_paths", "Requests answered 400 because their path could be read as another route's.") {
            ambiguous_paths "See [Routing](../proxying.md#routing).",
        }
        Counter("maintenance_responses", "Requests answered 503 because their route is in maintenance.") {
            maintenance_responses "See [maintenance](../operating.md#maintenance).",
        }
        Counter(DENIED) {
            denied [kind: "request"]
                "Requests answered 403 because the operator denies their client: the one that a trusted proxy names, \
                 or one that has migrated to a denied address.",
        }
        Gauge("tunnels_open", "Tunnels (WebSockets and the like) that are open now.") {
            tunnels_open "The limit of each worker is half of `limits.max_connections`.",
        }
        Counter("tunnels", "Tunnels that were opened.") { tunnels }
        Counter(
            "tunnels_refused",
            "Tunnels that were refused because half of `limits.max_connections` was reached, and no source with more tunnels had \
             a silent one."
        ) {
            tunnels_refused,
        }
        Counter(
            "tunnels_evicted",
            "Tunnels that litequic closed after ten seconds without a byte, to make room for another client."
        ) {
            tunnels_evicted "Half of `limits.max_connections` was reached, and their source had the most tunnels.",
        }
        Counter("reserved_fields", "Fields of requests that were removed because only a trusted proxy may send them.") {
            reserved_fields "See `origin.reserved_fields`; fields of trailers count too.",
        }
        Counter("ambiguous_fields", "Fields of requests whose names an origin might confuse with others.") {
            ambiguous_fields_dropped [action: "dropped"] "See `origin.ambiguous_fields`; fields of trailers count too.",
            ambiguous_fields_rejected [action: "rejected"] "Counted once per request, which was answered 400.",
        }
        Counter("auth_requests", "Requests that the auth server (`auth` of a route) decided about, by its decision.") {
            auth_admitted [result: "admitted"],
            auth_denied [result: "denied"] "The auth server answered 4xx.",
            auth_redirected [result: "redirected"] "The auth server redirected the client, usually to sign in.",
            auth_unusable [result: "unusable"]
                "The auth server gave another answer, a field of `copy` twice, or a body that is too long: 502.",
            auth_failed [result: "failed"] "The auth server did not answer: 502, 503 or 504, and a line in the log.",
        }
        Counter("password_checks", "Requests on routes with `users`, by the result of the password check.") {
            passwords_remembered [result: "remembered"] "The password was verified within the last five minutes, and \
                                                         is not hashed again.",
            passwords_right [result: "right"] "The password was hashed, and is correct.",
            passwords_wrong [result: "wrong"] "The user is unknown, or the password is wrong: 401.",
            passwords_missing [result: "missing"] "The request has no name and password: 401. A browser then asks for \
                                                   them.",
            passwords_limited [result: "limited"] "The client, or the user, had too many wrong passwords: 429.",
            passwords_busy [result: "busy"] "Too many passwords were waiting for their check: 503.",
        }
        Counter(LIMIT_REACHED) {
            limit_body_bytes [limit: "max_body_bytes"],
            limit_rate [limit: "rate_limit"],
            limit_rate_addresses [limit: "rate_limit_addresses"],
            limit_origin_connections [limit: "origin_max_connections"],
            limit_origin_queue [limit: "origin_max_queue"]
                "Requests that a full queue dropped: the newest of the source that had the most requests in it.",
            limit_origin_requests [limit: "origin_max_requests"],
            limit_origin_descriptors [limit: "origin_descriptors"]
                "Requests for which no file descriptor was free for a connection to the origin: an idle connection \
                 was closed for them, or they waited.",
            limit_idle_descriptors [limit: "idle_descriptors"]
                "Connections to origins that were closed instead of kept idle, because idle connections had a fifth \
                 of the file descriptors, or a request waited for one.",
            limit_interim [limit: "interim"] "Interim responses dropped because the client had not read earlier ones.",
            limit_origin_cancels [limit: "origin_cancels"]
                "HTTP/2 connections to origins that got no further requests because litequic had cancelled 100 at \
                 once, or 20 a second.",
            limit_response_header [limit: "response_header"] "Responses whose header is larger than litequic accepts.",
        }
        Counter(
            "origin_evictions",
            "Exchanges that litequic aborted to free a connection to the origin for a client that used fewer \
             connections."
        ) {
            evicted_slow_uploads [reason: "slow_upload"] "The client sent slowly: 503, or a reset once the response \
                                                          has begun.",
            evicted_slow_downloads [reason: "slow_download"] "The client read slowly.",
            evicted_silent [reason: "silent"] "No byte was transferred for 1 to 10 seconds; the more connections the \
                                               client used, the shorter.",
            evicted_unanswered [reason: "unanswered"] "The origin had not answered for a second, all connections were \
                                                       in use, and a client waited whose network held none: 503.",
            evicted_by_drain [reason: "drain"] "A streaming call at the end of `timeouts.drain`: UNAVAILABLE for gRPC.",
        }
        Counter(
            "origin_rests_taken",
            "Responses to slow clients whose remainder was read into memory, so that a waiting request got their \
             connection."
        ) {
            origin_rests_taken,
        }
        Counter(TIMEOUTS) {
            timeout_connect [timeout: "connect"],
            timeout_response_header [timeout: "response_header"],
            timeout_response_body [timeout: "response_body"],
            timeout_request [timeout: "request"],
            timeout_queue [timeout: "queue"],
        }
        Counter(IO_SYSCALLS) {
            syscalls_origin_read [call: "origin_read"] "System calls that read bytes from origins.",
            syscalls_origin_write [call: "origin_write"] "System calls that wrote bytes to origins.",
            syscalls_origin_look [call: "origin_look"]
                "System calls that check an idle connection to an origin before a request that cannot be repeated.",
        }
        Counter("origin_connections", "Connections opened to origins.") {
            origin_connections "If the value is close to the number of requests, keep-alive does not work.",
        }
        Gauge("origin_connections_open", "Connections to origins that are open now.") { origin_connections_open }
        Gauge("origin_streams_open", "Requests in flight on HTTP/2 connections to origins.") { origin_streams_open }
        Counter("origin_streams_cancelled", "Requests on HTTP/2 connections to origins that litequic cancelled.") {
            origin_streams_cancelled "The client cancelled them, or a timeout or another client's request ended them.",
        }
        Counter("origin_streams_refused", "Requests that an HTTP/2 server did not process: they were sent again.") {
            origin_streams_refused,
        }
        Counter("origin_goaways", "HTTP/2 connections that their server ended by GOAWAY.") { origin_goaways }
        Counter("origin_connect_errors", "Connections to origins that could not be opened.") { origin_connect_errors }
        Counter("origin_tls_handshakes", "TLS handshakes with origins for requests. Health checks have their own \
                                          counters.") {
            origin_tls_full [kind: "full"],
            origin_tls_resumed [kind: "resumed"] "The server's certificate was verified when its session began.",
        }
        Counter("origin_tls_failures", "TLS connections to origins, for requests, that failed.") {
            origin_tls_certificate [reason: "certificate"] "litequic rejected the server's certificate; the log has \
                                                            the reason.",
            origin_tls_alert [reason: "alert"] "The server sent a TLS alert: it rejected litequic's certificate, for \
                                                example.",
            origin_tls_protocol [reason: "protocol"] "Anything else: no version in common, not TLS, or the connection ended.",
            origin_tls_timeout [reason: "timeout"] "The handshake was not complete within `timeouts.connect`.",
        }
        Histogram(
            "origin_tls_duration_seconds",
            "Duration of successful TLS handshakes with origins, without the TCP handshake."
        ) {
            origin_tls_duration,
        }
        Counter("origin_requests", "Requests sent to origins, retries included.") { origin_requests }
        Counter("origin_retries", "Requests that were tried again, on another connection or at another server.") {
            origin_retries,
        }
        Counter(
            "origin_retries_refused",
            "Requests that were not retried because the retry budget was exhausted."
        ) {
            origin_retries_refused
                "See [Retries](../proxying.md#retries): the servers fail too many requests.",
        }
        Counter(
            "origin_panic_requests",
            "Attempts that were sent although no server of the origin was healthy."
        ) {
            origin_panics "See [Load balancing](../proxying.md#load-balancing).",
        }
        Counter(
            "sticky_cookies_refused",
            "Requests whose cookie named no server of their origin: `balance` selected one, and they got its cookie."
        ) {
            sticky_cookies_refused
                "A few are normal after a restart, or after a server or the key was removed. Many are forged cookies. \
                 See \
                    [Sticky sessions](../proxying.md#sticky-sessions).",
        }
        Counter(
            "sticky_moves",
            "Requests that another server answered than their cookie named: they got a cookie of that server."
        ) {
            sticky_moves "The server that the cookie named is unhealthy or full, or failed the request.",
        }
        Counter(
            "origin_errors",
            "Requests whose origin sent no response, or a truncated or invalid one. Timeouts and connections that \
             could not be opened are counted separately."
        ) {
            origin_errors,
        }
        Histogram(
            "origin_duration_seconds",
            "Time from the wait for a connection to the origin until the response's header, or the failure."
        ) {
            origin_duration,
        }
        + with {
            /// Metrics of origins' servers.
            pub servers: CounterTable<ServerName, ServerMetrics>,
            /// Responses and bytes by route.
            pub routes: CounterTable<RouteName, RouteMetrics>,
            /// Responses to gRPC calls by status.
            pub grpc_responses: GrpcResponses,
        }
        + beside {
            /// Cause of the worker's wakes.
            pub wake: Arc<WakeTracker>,
        }
    }
}

/// Labels of a server in metrics: its origin's name, and its address.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ServerName {
    /// Name of the origin in the configuration.
    pub origin: Arc<str>,
    /// URL of the server.
    pub server: Arc<str>,
}

impl ServerName {
    /// Labels of `server` of `origin`.
    pub fn new(origin: &str, server: &str) -> Self {
        Self { origin: origin.into(), server: server.into() }
    }
}

impl CounterKey for ServerName {
    fn plain_key(&self) -> Self {
        Self { origin: plain_label(&self.origin), server: plain_label(&self.server) }
    }

    fn key_labels(&self) -> Labels {
        vec![("origin", self.origin.to_string().into()), ("server", self.server.to_string().into())]
    }
}

metrics! {
    /// Metrics of one server by one worker, which alone counts here.
    pub struct ServerMetrics {
        Counter(
            "origin_server_requests",
            "Requests for which each server of an origin was chosen, retries included."
        ) {
            requests,
        }
        Counter(
            "origin_server_failures",
            "Requests that failed at each server of an origin: no connection, no response in time, or an invalid \
             response."
        ) {
            failures,
        }
        Counter("origin_server_ejections", "Ejections of a server of an origin by a worker, for failures.") {
            ejections,
        }
        Counter(
            "origin_address_failures",
            "Attempts to connect to one of several addresses of a server that failed, or that another address overtook."
        ) {
            address_failures,
        }
        Counter(
            "origin_address_ejections",
            "Ejections of one of several addresses of a server by a worker, for broken connections."
        ) {
            address_ejections,
        }
        Gauge("origin_server_ejected", "Workers that have a server of an origin ejected at present.") { ejected }
        Gauge(
            "origin_server_connections",
            "Connections to each server of an origin that are open or being opened."
        ) {
            connections,
        }
        Gauge("origin_server_queue", "Requests that wait for a connection to each server of an origin.") { waiting }
    }
}

metrics! {
    /// Metrics of one server's health checks; the control thread counts here.
    pub struct CheckMetrics {
        Gauge("origin_server_up", "1 while a server of an origin is healthy by its health checks, else 0.") { up }
        Counter("origin_health_checks", "Health checks of each server of an origin.") {
            passed [result: "ok"],
            failed [result: "failed"] "Failures of TLS count too: the log and `litequic ctl status` have the reason.",
        }
    }
}

/// Metrics of health checks, by server.
pub type CheckMetricsTable = CounterTable<ServerName, CheckMetrics>;

/// Label of a route in metrics: what it matches.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct RouteName(pub Arc<str>);

impl CounterKey for RouteName {
    fn plain_key(&self) -> Self {
        Self(plain_label(&self.0))
    }

    fn key_labels(&self) -> Labels {
        vec![("route", self.0.to_string().into())]
    }
}

const ROUTE_RESPONSES: Family = Family {
    name: "route_responses",
    help: "Responses by route, status class and protocol, including litequic's own responses and those that could not \
           be sent. Tunnels count as 2xx.",
};
const ROUTE_REQUEST_BYTES: Family = Family {
    name: "route_request_body_bytes",
    help: "Bytes of request bodies, and of tunnels, received from clients, by route.",
};
const ROUTE_RESPONSE_BYTES: Family = Family {
    name: "route_response_body_bytes",
    help: "Bytes of response bodies, and of tunnels, read for clients, by route.",
};
const ROUTE_LIMITED: Family = Family { name: "route_limited", help: "Requests that a route's rate limit rejected." };
const ROUTE_DENIED: Family = Family { name: "route_denied", help: "Requests that a route denied, by the rule." };
/// Status classes, as in the label.
const CLASSES: [&str; 4] = ["2xx", "3xx", "4xx", "5xx"];
/// HTTP versions, in the order of the counters.
const PROTOCOLS: [&str; 3] = ["h3", "h2", "h1"];

/// Metrics of one route on one worker, which alone counts here.
#[derive(Debug, Default)]
pub struct RouteMetrics {
    /// Responses by protocol and class.
    responses: [[Counter; CLASSES.len()]; PROTOCOLS.len()],
    /// Bytes from clients.
    received: ByteCounter,
    /// Bytes to clients.
    sent: ByteCounter,
    /// Requests that the route's `rate_limit` rejected.
    pub limited: Counter,
    /// Requests that the route's `deny` or `allow` denied.
    pub denied_addresses: Counter,
    /// Requests without a right password.
    pub denied_passwords: Counter,
    /// Requests that the server of the route's `auth` denied.
    pub denied_auth: Counter,
}

impl RouteMetrics {
    /// Counts a final response with `status` to a client of `protocol`.
    pub fn count_status(&self, protocol: Protocol, status: StatusCode) {
        let class = usize::from(status.as_u16() / 100).saturating_sub(2);
        let [h3, h2, h1] = &self.responses;
        let classes = match protocol {
            Protocol::Http3 => h3,
            Protocol::Http2 => h2,
            Protocol::Http1 => h1,
        };
        // No client or server uses a class beyond 5xx.
        if let Some(counter) = classes.get(class.min(CLASSES.len() - 1)) {
            counter.increment();
        }
    }

    /// Counts the bytes of a request's `body` as they are read.
    pub fn count_request_bytes(&self, body: Body) -> Body {
        body.with_byte_counter(&self.received)
    }

    /// Counts the bytes of `response` as they are sent; those of a tunnel both ways.
    pub fn count_response_bytes(&self, response: Response) -> Response {
        let body = match response.body.into_tunnel() {
            Ok(tunnel) => Body::from_tunnel(tunnel.with_byte_counters(&self.received, &self.sent)),
            Err(body) => body.with_byte_counter(&self.sent),
        };
        Response { body, ..response }
    }
}

const GRPC_RESPONSES: Family = Family {
    name: "grpc_responses",
    help: "Responses to gRPC calls by `grpc-status`, of origins and of litequic; those without are not counted.",
};

/// Responses to gRPC calls by status; the last counts those beyond the known ones.
#[derive(Debug, Default)]
pub struct GrpcResponses([Counter; 18]);

impl GrpcResponses {
    /// Number of responses with `status`.
    #[cfg(test)]
    pub(crate) fn responses_with_status(&self, status: usize) -> u64 {
        self.0[status].get()
    }
}

impl Group for GrpcResponses {
    fn visit(&self, see: &mut dyn FnMut(Sample)) {
        // A status that has not occurred takes no line.
        let seen = self.0.iter().enumerate().filter(|(status, counter)| *status == 0 || counter.get() > 0);
        for (status, counter) in seen {
            let label = if status + 1 < self.0.len() { status.to_string() } else { "other".into() };
            let note = "0 is OK; other statuses have a line once they occur.";
            see(Sample { family: GRPC_RESPONSES, labels: vec![("code", label.into())], note, value: counter.value() });
        }
    }
}

impl ProxyMetrics {
    /// Returns the error to answer for `error`: once a drain has ended calls, which it preempts, litequic stops.
    pub(super) fn explain_eviction(&self, error: Error) -> Error {
        if error == Error::Evicted && self.evicted_by_drain.get() > 0 { Error::Stopping } else { error }
    }

    /// Counts and records the gRPC status in a response's header or trailers, if there is one.
    pub(super) fn record_grpc_status(&self, fields: &Fields, record: &RequestRecord) {
        let Some(status) = grpc::read_grpc_status(fields) else { return };
        record.update_facts(|facts| facts.grpc_status = Some(status));
        let GrpcResponses(counters) = &self.grpc_responses;
        if let Some(counter) = counters.get(usize::try_from(status).unwrap_or(usize::MAX).min(counters.len() - 1)) {
            counter.increment();
        }
    }

    /// Counts the fields that were removed from a request.
    pub(super) fn count_removed(&self, removed: RemovedFields) {
        self.ambiguous_fields_dropped.increment_by(removed.ambiguous);
        self.reserved_fields.increment_by(removed.reserved);
    }
}

impl Group for RouteMetrics {
    fn visit(&self, see: &mut dyn FnMut(Sample)) {
        for (protocol, classes) in PROTOCOLS.into_iter().zip(&self.responses) {
            for (class, counter) in CLASSES.into_iter().zip(classes) {
                let labels = vec![("protocol", protocol.into()), ("class", class.into())];
                see(Sample { family: ROUTE_RESPONSES, labels, note: "", value: counter.value() });
            }
        }
        for (family, bytes) in [(ROUTE_REQUEST_BYTES, &self.received), (ROUTE_RESPONSE_BYTES, &self.sent)] {
            see(Sample { family, labels: Vec::new(), note: "", value: SampleValue::Counter(bytes.0.get()) });
        }
        see(Sample { family: ROUTE_LIMITED, labels: Vec::new(), note: "", value: self.limited.value() });
        let denied = [
            ("address", "`deny` and `allow`.", &self.denied_addresses),
            ("password", "`users`: 401, 429.", &self.denied_passwords),
            ("auth", "The server of `auth`: 401, 403 or a redirect.", &self.denied_auth),
        ];
        for (rule, note, counter) in denied {
            see(Sample { family: ROUTE_DENIED, labels: vec![("by", rule.into())], note, value: counter.value() });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;

    fn counted(route: &RouteMetrics) -> Vec<(String, SampleValue)> {
        let mut counted = Vec::new();
        route.visit(&mut |sample| {
            if !matches!(sample.value, SampleValue::Counter(0)) {
                counted.push((sample.labeled_name(""), sample.value));
            }
        });
        counted
    }

    #[test]
    fn a_routes_responses_are_counted_by_protocol_and_class() {
        let route = RouteMetrics::default();
        for (protocol, status) in [
            (Protocol::Http3, 200),
            (Protocol::Http3, 204),
            (Protocol::Http2, 503),
            (Protocol::Http2, 999),
            (Protocol::Http1, 200),
        ] {
            route.count_status(protocol, StatusCode::from_u16(status).unwrap());
        }
        let of = |protocol: &str, class: &str, count| {
            (format!("route_responses{{protocol=\"{protocol}\",class=\"{class}\"}}"), SampleValue::Counter(count))
        };
        assert_eq!(counted(&route), [of("h3", "2xx", 2), of("h2", "5xx", 2), of("h1", "2xx", 1)]);
    }

    #[tokio::test]
    async fn a_routes_bytes_are_counted_once_they_pass() {
        let route = RouteMetrics::default();
        let request = route.count_request_bytes("12345".into());
        let response = route.count_response_bytes(Response::new(StatusCode::OK, "123"));
        assert!(counted(&route).is_empty());
        for body in [request, response.body] {
            body.collect().await.unwrap();
        }
        let of = |name: &str, bytes| (name.to_owned(), SampleValue::Counter(bytes));
        assert_eq!(counted(&route), [of("route_request_body_bytes", 5), of("route_response_body_bytes", 3)]);
    }
}
