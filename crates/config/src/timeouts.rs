//! Defines `[timeouts]`, with the reason for each default. A timeout that ends something is counted
//! (`litequic_timeouts_total`).

use crate::reading::{
    section::ConfigSection,
    table::{FixedValue, KeyTable as _, keys},
    value_kinds::{DAY, TIMEOUT_RANGE, duration_kind, or_none},
};
use std::{ops::RangeInclusive, time::Duration};

/// Range of a drain's timeouts; zero continues at once.
const DRAIN_RANGE: RangeInclusive<Duration> = Duration::ZERO..=DAY;

keys! {
    /// Timeouts.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Timeouts counted by "litequic_timeouts_total{timeout=\"*\"}" {
        // Enough for a few lost Initials with exponential backoff.
        /// A client completes its handshake within this time of its first Initial, or the handshake is aborted:
        /// `request_header`, as in nginx.
        handshake: Duration = Duration::from_secs(10), FixedValue, no_key;

        // NAT bindings last about 30 s (RFC 9308 §3.2).
        /// An idle connection is closed after this time (QUIC's `max_idle_timeout`; over TCP, the time without a
        /// request).
        idle: Duration = Duration::from_secs(30), duration_kind(TIMEOUT_RANGE), counted;

        // Slow clients send a header in one flight; a slower one occupies a stream for nothing.
        /// A client sends a request's whole header within this time of its first byte, or gets 408; it completes its
        /// handshake within the same time of its first Initial, or the handshake is aborted.
        request_header: Duration = Duration::from_secs(10), duration_kind(TIMEOUT_RANGE), counted;

        // The default of nginx' client_body_timeout.
        /// A client that sends no byte of a request's body for this time gets 408 (read timeout).
        request_body: Duration = Duration::from_secs(60), duration_kind(TIMEOUT_RANGE), counted;

        // The default of nginx' lingering_time.
        /// litequic discards the rest of a request's body for this time after the request was answered, for example by
        /// a 413, and at most 64 MiB of it: browsers read the answer only after they have sent the whole body. Then the
        /// stream is stopped (HTTP/3, HTTP/2), or the connection is closed (HTTP/1.1). 0 does so at once (HTTP/1.1:
        /// within 2 s).
        lingering: Duration = Duration::from_secs(30), FixedValue, no_key;

        // The default of nginx' send_timeout.
        /// A response's stream is reset if the client reads no byte of it for this time (write timeout).
        send: Duration = Duration::from_secs(60), duration_kind(TIMEOUT_RANGE), counted;

        // A nearby origin accepts at once; one lost SYN costs 1 s, two cost 3 s.
        /// litequic connects to the origin within this time, DNS included, or the client gets 502.
        connect: Duration = Duration::from_secs(5), duration_kind(TIMEOUT_RANGE), counted;

        // The default of nginx' proxy_read_timeout.
        /// The origin sends the response's header within this time, or the client gets 504. The time begins with the
        /// request's last byte, and whenever the origin stops reading the request.
        response_header: Duration = Duration::from_secs(60), duration_kind(TIMEOUT_RANGE), counted;

        // As for `response_header`, between reads.
        /// The client's stream is reset if the origin sends no byte of the response's body for this time.
        response_body: Duration = Duration::from_secs(60), duration_kind(TIMEOUT_RANGE), counted;

        // Downloads and event streams may take any time.
        /// A request and its response end within this time, or the client gets 504, or a reset once the response has
        /// begun. A gRPC call whose `grpc-timeout` has passed ends, and counts, in the same way.
        request: Option<Duration> = None, or_none(duration_kind(TIMEOUT_RANGE)), counted;

        // As long as `response_header`: without a queue, the request would wait as long in the origin (nginx'
        // proxy_read_timeout). An origin that takes seconds thus serves a burst of many times its connections.
        /// A request waits at most this long for a connection of a full pool. Then the client gets 503.
        queue: Duration = Duration::from_secs(60), duration_kind(TIMEOUT_RANGE), counted;

        // The proposal of HAProxy's manual: applications that depend on a tunnel send pings within minutes, and an idle
        // one has gone unnoticed for long enough.
        /// A tunnel (WebSocket and other upgrades) is reset at both ends after this time without a byte. A streaming
        /// call (gRPC, Connect) ends after the same time, which applies in place of `request_body`, `response_header`
        /// and `response_body`.
        tunnel: Duration = Duration::from_secs(3600), duration_kind(TIMEOUT_RANGE), counted;

        // HAProxy's client-fin and server-fin: the end of one side means that the application is done, and the other
        // side ends at once; a vanished one would otherwise delay a drain for `tunnel`.
        /// A tunnel is reset at both ends after this time without a byte, if one side has ended and the other may
        /// still send.
        tunnel_half_closed: Duration = Duration::from_secs(30), FixedValue, no_key;

        // Two probe periods of a usual balancer would be 10 s; a sidecar needs no delay. With 0, Ctrl-C is not delayed.
        /// A drain sends its first GOAWAY after this time. `/readyz` fails from the start of the drain.
        drain_grace: Duration = Duration::ZERO, duration_kind(DRAIN_RANGE);

        // Within Kubernetes' terminationGracePeriodSeconds of 30 s, with time to exit.
        /// A drain closes the remaining connections this long after its first GOAWAY, with the requests that still run
        /// on them.
        drain: Duration = Duration::from_secs(25), duration_kind(DRAIN_RANGE);
    }
}

impl Timeouts {
    /// Returns the timeouts of streaming calls (gRPC, Connect), both of whose sides may be silent: as a tunnel's.
    #[must_use]
    pub fn for_streaming_calls(&self) -> Self {
        Self { response_header: self.tunnel, response_body: self.tunnel, ..*self }
    }
}

/// Reads `[timeouts]`.
pub(super) fn read_timeouts(section: &mut ConfigSection<'_>) -> Timeouts {
    let timeouts = Timeouts::read_table(section);
    Timeouts { handshake: timeouts.request_header, ..timeouts }
}
