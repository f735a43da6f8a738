//! `[timeouts]`: timeouts, and the reason for each default. A timeout that ends something is counted
//! (`litequic_timeouts_total`).

use super::{
    table::keys,
    values::{DAY, TIMEOUT, duration, or_none},
};
use std::{ops::RangeInclusive, time::Duration};

/// Zero continues at once.
const DRAIN: RangeInclusive<Duration> = Duration::ZERO..=DAY;

keys! {
    /// Timeouts.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Timeouts counted by "litequic_timeouts_total{timeout=\"*\"}" {
        // A few lost Initials with exponential backoff.
        /// A client's handshake, from its first Initial.
        handshake: Duration = Duration::from_secs(10), duration(TIMEOUT), counted;

        // RFC 9308 §3.2: NAT bindings last some 30 s.
        /// Idle timeout of a connection (`max_idle_timeout`); it is closed.
        idle: Duration = Duration::from_secs(30), duration(TIMEOUT), counted;

        // Slow clients send a header in one flight; what takes longer occupies a stream for nothing.
        /// A request's whole header, from its stream's first byte on. 408 beyond.
        request_header: Duration = Duration::from_secs(10), duration(TIMEOUT), counted;

        // nginx' client_body_timeout.
        /// Between two reads of a request's body (read timeout). 408 beyond.
        request_body: Duration = Duration::from_secs(60), duration(TIMEOUT), counted;

        // nginx' lingering_time.
        /// How long the rest of a request's body is discarded once the request was answered
        /// (`limits.max_lingering_bytes`). Then the stream is stopped, or the connection is closed.
        lingering: Duration = Duration::from_secs(30), duration(TIMEOUT), counted;

        // nginx' send_timeout.
        /// Between two writes to a client that reads nothing (write timeout); then the stream is reset.
        send: Duration = Duration::from_secs(60), duration(TIMEOUT), counted;

        // An origin next door answers at once; one lost SYN costs 1 s, two cost 3 s.
        /// Connecting to the origin, DNS included. 502 beyond.
        connect: Duration = Duration::from_secs(5), duration(TIMEOUT), counted;

        // nginx' proxy_read_timeout.
        /// From the request's last byte, or the start of a wait for the origin to read, to the response's header. 504
        /// beyond.
        response_header: Duration = Duration::from_secs(60), duration(TIMEOUT), counted;

        // The same, between reads.
        /// Between two reads of the origin's body; then the stream is reset.
        response_body: Duration = Duration::from_secs(60), duration(TIMEOUT), counted;

        // Downloads and event streams may take any time.
        /// A whole exchange.
        request: Option<Duration> = None, or_none(duration(TIMEOUT)), counted;

        // As long as `response_header`: without a queue the request would wait in the origin, and for as long (nginx'
        // proxy_read_timeout). An origin that takes seconds then serves a burst of many times its connections.
        /// A request's wait in the queue for a connection of a full pool. 503 beyond.
        queue: Duration = Duration::from_secs(60), duration(TIMEOUT), counted;

        // What HAProxy's manual proposes: applications that depend on a tunnel ping each other within minutes, and an
        // idle one has gone unnoticed for long enough.
        /// Idle timeout of a tunnel (WebSocket and other upgrades); then both its ends are reset.
        tunnel: Duration = Duration::from_secs(3600), duration(TIMEOUT), counted;

        // HAProxy's client-fin and server-fin: the end of one side says that the application is done, and the other side answers
        // it at once; one that has vanished would otherwise hold a drain for `tunnel`.
        /// Idle timeout of a tunnel of which one side has ended, while the other may still send; then both its ends are
        /// reset.
        tunnel_half_closed: Duration = Duration::from_secs(30), duration(TIMEOUT), counted;

        // Two probe periods of a usual balancer would be 10 s; a sidecar has none. 0 does not delay Ctrl-C.
        /// From the start of a drain, when readiness fails, to the first GOAWAY.
        drain_grace: Duration = Duration::ZERO, duration(DRAIN);

        // Within Kubernetes' 30 s terminationGracePeriodSeconds, with room to leave.
        /// From the first GOAWAY to the end of what still runs.
        drain: Duration = Duration::from_secs(25), duration(DRAIN);
    }
}
