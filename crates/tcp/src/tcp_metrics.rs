//! Defines the TCP metrics of a worker.

use litequic_telemetry::{
    CLIENT_CERTIFICATES_REFUSED, Counter, DENIED, Gauge, HANDSHAKE_GROUPS, HANDSHAKES, LIMIT_REACHED, REQUESTS,
    RequestMetrics, TIMEOUTS, WakeTracker, metrics,
};
use rustls::NamedGroup;
use std::sync::Arc;

metrics! {
    /// TCP metrics of one worker, the only writer. Aligned so that two workers never share a cache line.
    #[repr(align(128))]
    pub struct TcpMetrics {
        Counter(HANDSHAKES) {
            handshakes_tcp_full [transport: "tcp", kind: "full"],
            handshakes_tcp_resumed [transport: "tcp", kind: "resumed"]
                "Clients that may present a certificate do not resume sessions.",
        }
        Counter(HANDSHAKE_GROUPS) {
            groups_tcp_x25519mlkem768 [transport: "tcp", group: "x25519mlkem768"]
                "The hybrid of X25519 and ML-KEM-768: traffic that is recorded today stays secret from quantum computers.",
            groups_tcp_x25519 [transport: "tcp", group: "x25519"],
            groups_tcp_secp256r1 [transport: "tcp", group: "secp256r1"],
            groups_tcp_secp384r1 [transport: "tcp", group: "secp384r1"],
        }
        Counter("tcp_handshakes_tls12", "TLS 1.2 handshakes that were completed.") {
            tcp_handshakes_tls12 "Only with `listen.tls_min = \"1.2\"` \
                                  ([0046](../adr/0046-tls-1-2-for-old-clients.md)).",
        }
        Counter(CLIENT_CERTIFICATES_REFUSED) {
            client_certificates_missing [reason: "missing"]
                "The client had no certificate where one is required.",
            client_certificates_invalid [reason: "invalid"]
                "The client's certificate was invalid, or its chain was longer than 16 KiB; the log has the reason at \
                 level `debug`.",
        }
        Counter(REQUESTS) {
            requests_h2 [protocol: "h2"],
            requests_h1 [protocol: "h1"] "HTTP/1.0 and plain HTTP count here.",
        }
        Counter("tcp_connections", "Connections over TCP that were ready for requests.") {
            tcp_connections_h2 [protocol: "h2"],
            tcp_connections_h1 [protocol: "h1"],
            tcp_connections_plain [protocol: "plain"] "Connections to `listen.redirect`, without TLS.",
        }
        Gauge("tcp_connections_open", "Connections over TCP that are open now, handshakes and plain ones too.") {
            tcp_connections_open,
        }
        Counter(
            "tcp_handshakes_failed",
            "Connections over TCP that ended before requests: in the TLS handshake, or the PROXY protocol header \
                before it."
        ) {
            tcp_handshakes_plain [reason: "plain"] "The first bytes were not TLS.",
            tcp_handshakes_tls [reason: "tls"]
                "The TLS handshake failed: no common protocol, a rejected certificate, or an alert of the client.",
            tcp_handshakes_version [reason: "version"]
                "The client does not support TLS 1.3, and `listen.tls_min` allows no older version.",
            tcp_handshakes_tls12_suites [reason: "tls12_suites"]
                "A client of TLS 1.2 supports neither ECDHE with an AEAD cipher nor a group that litequic has.",
            tcp_handshakes_tls12_master_secret [reason: "tls12_master_secret"]
                "A client of TLS 1.2 does not support the extended master secret (RFC 7627).",
            tcp_handshakes_tls12_host [reason: "tls12_host"]
                "A client of TLS 1.2 asked for a host whose clients may present a certificate.",
            tcp_handshakes_timeout [reason: "timeout"]
                "The handshake, or the header, was not complete within `timeouts.request_header`.",
            tcp_handshakes_closed [reason: "closed"] "The client closed the connection.",
            tcp_handshakes_proxy_header [reason: "proxy_header"]
                "A connection from `listen.proxy_protocol_from` had no such header, or a malformed one; connections \
                 to `listen.redirect` count too.",
            tcp_handshakes_evicted [reason: "evicted"]
                "litequic closed an incomplete handshake to make room for another client: the limit of handshakes or \
                    `max_connections` was reached, or memory is short.",
            tcp_handshakes_operator [reason: "operator"] "The operator closed connections of its client: `ctl close`.",
        }
        Counter(DENIED) { tcp_denied [kind: "tcp"] "Connections over TCP, closed before TLS." }
        Counter("tcp_proxy_headers", "Connections over TCP that began with a PROXY protocol header.") {
            tcp_proxy_headers,
        }
        Counter(
            "tcp_connections_closed",
            "Connections of `litequic_tcp_connections_total` that ended, by cause."
        ) {
            tcp_closed_idle [reason: "idle"] "There was no request for `timeouts.idle`.",
            tcp_closed_client [reason: "client"]
                "The client closed it, or litequic after a response that ends its connection.",
            tcp_closed_broken [reason: "broken"]
                "The connection failed, or the client violated HTTP.",
            tcp_closed_stalled [reason: "stalled"] "The client read nothing for `timeouts.send`.",
            tcp_closed_flood [reason: "flood"]
                "The client cancelled more than 100 requests per second, or sent more than 50,000 frames that carry no \
                    data, or reached a limit of h2. Or the connection held more than its worker may receive, or the most when memory was short.",
            tcp_closed_evicted [reason: "evicted"]
                "litequic closed it to make room for another client: `limits.max_connections` was reached, and its \
                 source had the most connections.",
            tcp_closed_operator [reason: "operator"] "The operator closed it: `ctl close`.",
            tcp_closed_litequic [reason: "litequic"] "litequic closed it without an error: a drain, or after 1,000,000 requests.",
        }
        Counter("tcp_refused_requests", "Requests over TCP that were rejected before they reached the proxy.") {
            tcp_refused_h2 [protocol: "h2"] "Those that h2 resets by itself do not count.",
            tcp_refused_h1 [protocol: "h1"] "Plain HTTP counts here too.",
        }
        Counter("tcp_redirects", "Requests in plain HTTP that were redirected to https.") { tcp_redirects }
        Counter(LIMIT_REACHED) {
            limit_receive_buffer [limit: "worker_receive_buffer"]
                "New connections that got a smaller window than `limits.connection_receive_buffer`.",
            limit_memory_connections [limit: "memory_connections"]
                "Connections rejected because memory is short (`limits.memory`).",
            limit_connections [limit: "max_connections"]
                "Connections rejected because no other source had more connections.",
            limit_handshakes [limit: "max_handshakes"]
                "Handshakes rejected because no other source had more handshakes in flight; over TCP after \
                 `timeouts.queue`.",
            limit_interim [limit: "interim"]
                "Interim responses dropped because the client had not read earlier ones.",
            limit_unread_frames [limit: "unread_frames"]
                "HTTP/2 connections that were not read for a while, as small DATA frames that were received and not \
                 passed on needed more memory than their receive window has.",
            limit_h2 [limit: "h2"]
                "HTTP/2 connections that ended by a limit of h2 itself, such as 100 empty DATA frames; the log says \
                 which.",
            limit_client_descriptors [limit: "client_descriptors"]
                "Connections over TCP that were closed at once, because clients had used their share of the file \
                 descriptors.",
            limit_descriptors [limit: "descriptors"]
                "Connections over TCP that were closed at once, because the process or the system had no file \
                 descriptor left (EMFILE, ENFILE).",
        }
        Counter(TIMEOUTS) {
            timeout_handshake [timeout: "handshake"]
                "See [Timeouts](../operating.md#limits-and-timeouts) for all of them.",
            timeout_idle [timeout: "idle"]
                "Idle connections, including those of clients that vanished; over TCP, connections without a request.",
        }
        + beside {
            /// Metrics of requests, which all front ends of a worker share.
            pub shared: Arc<RequestMetrics>,
            /// Causes of the worker's wakes.
            pub wake: Arc<WakeTracker>,
        }
    }
}

impl TcpMetrics {
    /// Counts a completed handshake by its key exchange group, one of those that `tls` offers.
    pub fn count_tcp_group(&self, group: Option<NamedGroup>) {
        match group {
            Some(NamedGroup::X25519MLKEM768) => self.groups_tcp_x25519mlkem768.increment(),
            Some(NamedGroup::X25519) => self.groups_tcp_x25519.increment(),
            Some(NamedGroup::secp256r1) => self.groups_tcp_secp256r1.increment(),
            Some(NamedGroup::secp384r1) => self.groups_tcp_secp384r1.increment(),
            _ => {}
        }
    }
}
