//! `[timeouts]`: how long litequic waits, for whom, and why that long. A timeout that ends something is counted
//! (`litequic_timeouts_total`).

use super::{
    table::keys,
    values::{DAY, TIMEOUT, duration, or_none},
};
use std::{ops::RangeInclusive, time::Duration};

/// Zero goes on at once.
const DRAIN: RangeInclusive<Duration> = Duration::ZERO..=DAY;

keys! {
    /// How long litequic waits.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Timeouts counted by "litequic_timeouts_total{timeout=\"*\"}" {
        // A few lost Initials with exponential backoff.
        /// A client's handshake, from its first Initial.
        handshake: Duration = Duration::from_secs(10), duration(TIMEOUT), counted;

        // RFC 9308 §3.2: NAT bindings live some 30 s.
        /// A connection on which nothing moves (`max_idle_timeout`); it is closed.
        idle: Duration = Duration::from_secs(30), duration(TIMEOUT), counted;

        // Slow clients send a header in one flight; what takes longer holds a stream for nothing.
        /// A request's whole header, from its stream's first byte on. 408 beyond.
        request_header: Duration = Duration::from_secs(10), duration(TIMEOUT), counted;

        // nginx' client_body_timeout.
        /// Between two reads of a request's body. 408 beyond.
        request_body: Duration = Duration::from_secs(60), duration(TIMEOUT), counted;

        // nginx' lingering_time.
        /// How long the rest of a request's body is discarded once the request was answered (`limits.max_lingering_bytes`). Then the
        /// client is told to stop, or the connection is closed.
        lingering: Duration = Duration::from_secs(30), duration(TIMEOUT), counted;

        // nginx' send_timeout.
        /// Between two writes to a client that takes no bytes; then the stream is reset.
        send: Duration = Duration::from_secs(60), duration(TIMEOUT), counted;

        // An origin next door answers at once; one lost SYN costs 1 s, two cost 3 s.
        /// A connection to the origin, DNS included. 502 beyond.
        connect: Duration = Duration::from_secs(5), duration(TIMEOUT), counted;

        // nginx' proxy_read_timeout.
        /// From the request's last byte, or the wait for the origin to take bytes, to the response's header. 504 beyond.
        response_header: Duration = Duration::from_secs(60), duration(TIMEOUT), counted;

        // The same, between reads.
        /// Between two reads of the origin's body; then the stream is reset.
        response_body: Duration = Duration::from_secs(60), duration(TIMEOUT), counted;

        // Downloads and event streams last as long as they last.
        /// A whole exchange.
        request: Option<Duration> = None, or_none(duration(TIMEOUT)), counted;

        // As long as connecting may take.
        /// A request's wait for a connection of a full pool. 503 beyond.
        queue: Duration = Duration::from_secs(5), duration(TIMEOUT), counted;

        // What HAProxy's manual proposes: applications that mind ping each other within minutes, and one that does not has gone
        // unnoticed for long enough.
        /// A WebSocket or the like on which nothing moves either way; then both its ends are reset.
        tunnel: Duration = Duration::from_secs(3600), duration(TIMEOUT), counted;

        // Two probe periods of a usual balancer would be 10 s; a sidecar has none. 0 disturbs nobody's Ctrl-C.
        /// From the notice to drain, when readiness fails, to the first GOAWAY.
        drain_grace: Duration = Duration::ZERO, duration(DRAIN);

        // Within Kubernetes' 30 s terminationGracePeriodSeconds, with room to leave.
        /// From the first GOAWAY to the end of what still runs.
        drain: Duration = Duration::from_secs(25), duration(DRAIN);
    }
}
