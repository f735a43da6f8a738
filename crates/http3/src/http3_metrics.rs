//! Defines the HTTP/3 metrics of a worker.

use litequic_telemetry::{Counter, DENIED, Gauge, LIMIT_REACHED, REQUESTS, RequestMetrics, WakeTracker, metrics};
use std::sync::Arc;

metrics! {
    /// HTTP/3 metrics of one worker, the only writer. Aligned so that two workers never share a cache line.
    #[repr(align(128))]
    pub struct Http3Metrics {
        Counter("connections", "Connections over QUIC whose handshake was completed.") { connections }
        Gauge("connections_open", "Connections over QUIC that are open now.") { connections_open }
        Counter(REQUESTS) { requests [protocol: "h3"] }
        Counter("malformed_requests", "Requests over HTTP/3 that were malformed: reset with H3_MESSAGE_ERROR.") {
            malformed_requests "Over TCP: `litequic_tcp_refused_requests_total`.",
        }
        Counter(
            "http3_connection_errors",
            "Connections closed because the client violated HTTP/3 or QPACK, or reached a limit with H3_EXCESSIVE_LOAD."
        ) {
            connection_errors,
        }
        Counter(
            "connections_evicted",
            "Connections over QUIC that litequic closed to make room for another client."
        ) {
            evicted_idle [state: "idle"]
                "No request was open on them: closed by GOAWAY. Over TCP: `litequic_tcp_connections_closed_total`.",
            evicted_in_use [state: "in_use"] "No connection of their source was idle, or they did not end after GOAWAY.",
        }
        Counter("connections_closed_by_operator", "Connections over QUIC that the operator closed: `ctl close`.") {
            closed_by_operator "Over TCP: `litequic_tcp_connections_closed_total`.",
        }
        Counter(DENIED) { denied [kind: "quic"] "" }
        Counter(LIMIT_REACHED) {
            limit_connections [limit: "max_connections"],
            limit_addresses [limit: "addresses"],
            limit_excessive_load [limit: "excessive_load"] "Connections closed with H3_EXCESSIVE_LOAD.",
            limit_client_header [limit: "client_header"] "Headers and trailers larger than the client accepts.",
        }
        + beside {
            /// Metrics of requests, which all front ends of a worker share.
            pub shared: Arc<RequestMetrics>,
            /// Causes of the worker's wakes.
            pub wake: Arc<WakeTracker>,
        }
    }
}
