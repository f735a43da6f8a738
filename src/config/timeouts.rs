//! `[timeouts]`: how long litequic waits, for whom, and why that long. A timeout that ends something is counted
//! (`litequic_timeouts_total`).

use std::time::Duration;

/// How long litequic waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// A client's handshake, from its first Initial.
    pub handshake: Duration,
    /// A connection on which nothing moves (QUIC's `max_idle_timeout`).
    pub idle: Duration,
    /// From a stream's first byte to its last header byte: 408 beyond.
    pub request_header: Duration,
    /// Between two reads of a request's body: 408 beyond.
    pub request_body: Duration,
    /// How long the rest of a request that was answered is discarded.
    pub lingering: Duration,
    /// Between two writes to a client that takes no bytes: the stream is reset.
    pub send: Duration,
    /// A TCP or Unix connection to the origin, DNS included: 502 beyond.
    pub connect: Duration,
    /// From the request's last byte sent to the origin (or the wait for it to take bytes) to its response's
    /// header: 504 beyond.
    pub response_header: Duration,
    /// Between two reads of the origin's body: the stream is reset.
    pub response_body: Duration,
    /// A whole exchange; `None` is no limit.
    pub request: Option<Duration>,
    /// A request waits that long at most for a connection of a full pool: 503 beyond.
    pub queue: Duration,
    /// A tunnel (a WebSocket or the like) on which nothing moves is ended.
    pub tunnel: Duration,
    /// Between the notice to drain (readiness fails) and the first GOAWAY.
    pub drain_grace: Duration,
    /// From the first GOAWAY to the end of what still runs.
    pub drain: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            // A few lost Initials with exponential backoff.
            handshake: Duration::from_secs(10),
            // RFC 9308 §3.2: NAT bindings live some 30 s.
            idle: Duration::from_secs(30),
            // Slow clients send a header in one flight; what takes longer holds a stream for nothing.
            request_header: Duration::from_secs(10),
            // nginx' client_body_timeout.
            request_body: Duration::from_secs(60),
            // nginx' lingering_time.
            lingering: Duration::from_secs(30),
            // nginx' send_timeout.
            send: Duration::from_secs(60),
            // An origin next door answers at once; one lost SYN costs 1 s, two cost 3 s.
            connect: Duration::from_secs(5),
            // nginx' proxy_read_timeout.
            response_header: Duration::from_secs(60),
            // The same, between reads.
            response_body: Duration::from_secs(60),
            // Downloads and event streams last as long as they last.
            request: None,
            // As long as connecting may take.
            queue: Duration::from_secs(5),
            // What HAProxy's manual proposes: applications that mind ping each other within minutes, and one that does not
            // has gone unnoticed for long enough.
            tunnel: Duration::from_secs(3600),
            // Two probe periods of a usual balancer would be 10 s; a sidecar has none. 0 disturbs nobody's Ctrl-C.
            drain_grace: Duration::ZERO,
            // Within Kubernetes' 30 s terminationGracePeriodSeconds, with room to leave.
            drain: Duration::from_secs(25),
        }
    }
}
