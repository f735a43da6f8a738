//! Defines `[limits]`: limits for clients. Every limit has a default with its reason, and a metric that counts when it
//! is reached (`litequic_limit_reached_total`).

use crate::reading::name_kinds::{MAX_NETWORKS, network_kind};
use crate::reading::section::ConfigSection;
use crate::reading::table::{FixedValue, KeyTable as _, keys, list_key};
use crate::reading::value_kinds::{
    BODY_BYTES_RANGE, COUNT_RANGE, GIB, KIB, MIB, ValueKind, number_kind, or_named, or_none, size_kind,
};
use litequic_base::network::Network;
use std::{net::IpAddr, ops::RangeInclusive, time::Duration};

/// Range of `max_streams`: RFC 9114 §6.1 recommends at least 100, but a small device may need less; 2^60 is QUIC's
/// bound (RFC 9000 §4.6).
const STREAMS_RANGE: RangeInclusive<u64> = 1..=1_000_000;
/// Range of `max_header_bytes`: less than 1 KiB is too small for browsers, and a header is held in memory as a whole.
const HEADER_BYTES_RANGE: RangeInclusive<u64> = KIB..=MIB;
const HEADERS_RANGE: RangeInclusive<u64> = 1..=10_000;
/// Range of a stream's or connection's part of a worker's buffer: less than a few packets stalls each stream.
const BUFFER_SHARE_RANGE: RangeInclusive<u64> = Limits::MIN_RECEIVE_WINDOW..=GIB;
const WORKER_BUFFER_RANGE: RangeInclusive<u64> = 16 * KIB..=1024 * GIB;
/// Range of `memory`: a process that has just started takes 10 MiB.
const MEMORY_RANGE: RangeInclusive<u64> = 4 * MIB..=1024 * GIB;
/// Range of a minimum rate, in bytes per second: a client that reads more than 1 MiB per second is not slow.
const RATE_RANGE: RangeInclusive<u64> = 0..=MIB;

keys! {
    /// Limits for clients.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Limits counted by "litequic_limit_reached_total{limit=\"*\"}" {
        // About what one core serves; each idle connection takes about 10 KiB.
        /// Connections of a worker: this many over QUIC, and as many over TCP. When fifteen sixteenths are open, each
        /// new connection of another source ends an idle connection of the source that has the most; a further
        /// connection of that source itself is rejected (CONNECTION_REFUSED). A tenth of this number, at least 64,
        /// may be in their handshake. From an eighth of these on, and while less than an eighth of `max_connections`
        /// is left, a QUIC client has to validate its address by a Retry. Half of the number may be tunnels
        /// (WebSocket and other upgrades).
        max_connections: u32 = 20_000, number_kind(COUNT_RANGE), counted;

        // A core does a few thousand handshakes a second: 250 in flight are more than a round trip's worth.
        /// Handshakes in flight of a worker from which on a client has to validate its address by a Retry: an eighth of
        /// `max_handshakes`. With 0 always.
        retry_handshakes: u32 = 250, FixedValue, no_key;

        // A flood with forged addresses never passes Retry; one with real addresses is stopped by this limit.
        /// Handshakes in flight of a worker, over QUIC and TCP each: a tenth of `max_connections`, at least 64.
        max_handshakes: u32 = 2_000, FixedValue, no_key;

        // The default of nginx, and above the 100 of RFC 9114 §6.1.
        /// Requests in flight on a connection (`initial_max_streams_bidi`). A client waits for a free stream.
        max_streams: u32 = 128, number_kind(STREAMS_RANGE), counted;

        // A tunnel has 16 KiB of buffers, and as much again in QUIC or TLS.
        /// Open tunnels of a worker: half of `max_connections`, at least one.
        max_tunnels: u32 = 10_000, FixedValue, no_key;

        // Connections do not live for ever, so that load spreads again after a scale-up.
        /// Requests on a connection in total. Then the client gets GOAWAY, and opens another connection.
        max_requests: u64 = 1_000_000, FixedValue, no_key;

        // A browser that leaves a page cancels its open requests, `max_streams` at most, and a seek in a video cancels
        // one or two: a thousand at once are seven pages left within a second, and no user leaves one a second for
        // ever.
        /// Requests per second that a client may cancel on a connection; ten seconds' worth may come at once. Beyond
        /// that, the connection is closed (H3_EXCESSIVE_LOAD).
        max_resets: u32 = 100, FixedValue, no_key;

        // quinn's client sends 5,000 for a gigabyte, and 55,000 with a window of 32 KiB: enough for 7 Gbit/s even then.
        /// QUIC frames per second on a connection that carry no data, or less than 16 bytes; ten seconds' worth may
        /// come at once. Beyond that, the connection is closed (H3_EXCESSIVE_LOAD).
        max_control_frames: u32 = 50_000, FixedValue, no_key;

        // gRPC sends a frame for each message: 300,000 short ones at once are an upload of some seconds. Reading as
        // many as this takes a tenth of a core.
        /// DATA frames per second on a connection with less than 64 bytes, without the first of each stream; ten
        /// seconds' worth may come at once. Over HTTP/1.1, chunks of less than 64 bytes, and consecutive reads of less.
        /// Beyond that, the connection is read at this rate.
        max_small_frames: u32 = 50_000, FixedValue, no_key;

        // A usual limit of origins: nginx permits 4 × 8 KiB.
        /// Bytes of a header, as RFC 9114 §4.2.2 counts them: name and value, and 32 bytes for each field. Each line of
        /// `cookie` and each pseudo-header field counts as a field; over HTTP/1.1, request line and `Host` count as
        /// these. A client that sends more gets 431.
        max_header_bytes: u32 = 32 * 1024, size_kind(HEADER_BYTES_RANGE), counted;

        // Apache's default plus `Host`, and the number of lines that hyper parses over HTTP/1.1 without an allocation.
        /// Fields of a header, without pseudo-header fields and `Host`; over HTTP/2 and HTTP/3, all lines of `cookie`
        /// count as one. A client that sends more gets 431.
        max_headers: u32 = 99, number_kind(HEADERS_RANGE), counted;

        // The proxy does not know the origin's uploads, so the origin's own limit applies.
        /// Maximum bytes of a request's body. A client that sends more gets 413.
        max_body_bytes: Option<u64> = None, or_none(size_kind(BODY_BYTES_RANGE)), counted;

        // A tenth of the rate of GPRS, for ten requests at once.
        /// Minimum rate at which a client sends a request's body and reads a response: bytes per second on average,
        /// while litequic waits for the client. A client that takes 20 s longer than this rate allows gets 408, or a
        /// reset of the response's stream, over HTTP/1.1 the connection's end. 0 disables the check.
        min_rate: u64 = 240, size_kind(RATE_RANGE), counted_by("litequic_limit_reached_total{limit=\"min_download_rate\"}");

        // Apache's default, for a train's tunnel or a change of network.
        /// Total time that litequic waits for a client beyond the time that `min_rate` allows.
        rate_grace: Duration = Duration::from_secs(20), FixedValue, no_key;

        // A short video: browsers show a 413 only after sending everything (Chromium over HTTP/3). nginx limits only
        // time.
        /// Bytes of a request's body that are discarded after the request was answered (`lingering`). 0
        /// discards nothing.
        max_lingering_bytes: u64 = 64 * MIB, FixedValue, no_key;

        // Three 256ths of a worker's buffer: one stream carries 200 Mbit/s at 100 ms, which are 2.5 MB in flight.
        // s2n-quic raises a window once a tenth of it was read, so at least nine tenths are available.
        /// Bytes of a stream that a client may send before litequic has read them (flow control window). Then the
        /// client waits.
        stream_receive_buffer: u32 = buffer_share(256 * MIB, Self::STREAM_RECEIVE), FixedValue, no_key;

        // Eight such streams: seven whose origins do not read leave the other requests of the connection a window.
        /// Bytes of a connection that a client may send before litequic has read them (flow control window). Then the
        /// client waits.
        connection_receive_buffer: u32 = buffer_share(256 * MIB, Self::CONNECTION_RECEIVE), FixedValue, no_key;

        // As much as a container's memory has besides other uses. Data that is read at once needs little; uploads whose
        // origins do not read need a whole stream's window, and 85 such streams fit.
        /// Bytes that a worker has received over QUIC and HTTP/2 and not passed on, because origins are slow or earlier
        /// bytes are missing. A stream may send 3/256 of it before litequic has read them, and a connection 24/256:
        /// their flow control windows. The window of a new connection is at most an eighth of what is left, that of its
        /// streams a quarter of this one. None is smaller than 64 KiB. An upload counts with an eighth of its
        /// connection's window. When the limit is exceeded, the largest connection of the source whose connections hold
        /// the most is closed.
        worker_receive_buffer: u64 = 256 * MIB, size_kind(WORKER_BUFFER_RANGE), counted;

        // A quarter of a worker's buffer: 500 Mbit/s at 100 ms are 6.25 MB in flight, and as much again stays in memory
        // while a lost packet is missing.
        /// Response bytes of a stream in memory, until the client has acknowledged them (QUIC) or the kernel has
        /// accepted them (TCP, 1 MiB at most). This is the most that may be in flight on a path; on a path that needs
        /// less, less is used. Beyond it, the origin waits.
        stream_send_buffer: u32 = buffer_share(64 * MIB, Self::STREAM_SEND), FixedValue, no_key;

        // As much as one stream: the streams of a connection share its congestion window.
        /// Response bytes of a connection in memory, as `stream_send_buffer` counts them (TCP: 4 MiB at most). Beyond
        /// it, the origin waits.
        connection_send_buffer: u32 = buffer_share(64 * MIB, Self::CONNECTION_SEND), FixedValue, no_key;

        // A worker's share of a small container's memory: half of it is for clients that read, and a single stream may
        // use half of that. 1,000 streams that do not read hold 32 MiB. Beyond the limit each stream gets less, and
        // none fails.
        /// Response bytes of a worker in memory, until clients have acknowledged them (QUIC) or the kernel has accepted
        /// them (TCP), over HTTP/1.1, HTTP/2 and HTTP/3 together. Beyond it, each stream gets a smaller buffer, and no
        /// request fails. A connection, and a stream, may have a quarter of it: the most that may be in flight on a
        /// path (TCP: 4 MiB and 1 MiB at most). Clients that acknowledge nothing use at most half of it.
        worker_send_buffer: u64 = 64 * MIB, size_kind(WORKER_BUFFER_RANGE), counted_by("litequic_limit_reached_total{limit=\"send_buffer\"}");

        // A container's limit is its memory cgroup's; elsewhere the process does not know how much it may use.
        /// Memory of the process. From 85 % of it on, a client gets no third connection, and connections without a
        /// request are closed; from 90 % on, buffers for bodies are smaller; from 95 % on, no connection is accepted,
        /// and each worker closes the connections that hold the most, at most 64 in each of five rounds per second.
        /// `worker_send_buffer` and `worker_receive_buffer` of all workers are at most a quarter of it each.
        /// `"cgroup"`: the limit of the memory cgroup; a size: the smaller one of this size and the cgroup's limit;
        /// `"none"`: no limit.
        memory: MemoryLimit = MemoryLimit::Cgroup, memory_kind(MEMORY_RANGE),
            counted_by("litequic_limit_reached_total{limit=\"memory_connections\"}");
    }
}

keys! {
    /// Sources: the clients that count as one where these limits are shared.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Sources {
        // One IPv4 address is one client, or many clients behind one NAT.
        /// Prefix length that makes IPv4 addresses one source. Shares are equal between /24 networks first, then
        /// between the sources of a network.
        ipv4_prefix("source_ipv4_prefix"): u8 = 32, FixedValue, no_key;

        // Every machine has 2^64 addresses (RFC 7934 §6.1).
        /// Prefix length that makes IPv6 addresses one source. Shares are equal between /48 networks first, then
        /// between the /56 networks of each, then between the sources of a network.
        ipv6_prefix("source_ipv6_prefix"): u8 = 64, FixedValue, no_key;

        /// Networks in which each connection is a separate source. Sources (IPv4 addresses and IPv6 /64s, and the
        /// networks around them) get equal shares of a worker's connections, handshakes, tunnels and connections to an
        /// origin's server when there are not enough for all. A source that is alone may use all of them. Behind a
        /// trusted proxy, tunnels and connections to origins count for the client that the proxy names; for connections
        /// and handshakes, each connection of the proxy is a source of its own.
        exempt("source_exempt"): Vec<Network> = Vec::new(), list_key(network_kind(), 0..=MAX_NETWORKS),
            counted_by("litequic_tcp_connections_closed_total{reason=\"evicted\"}");
    }
}

/// Reads `[limits]`.
pub(super) fn read_limits(section: &mut ConfigSection<'_>) -> (Limits, Sources) {
    (Limits::read_table(section).with_derived_values(), Sources::read_table(section))
}

/// Returns `parts` of 256 of a worker's buffer, within [`BUFFER_SHARE_RANGE`].
fn buffer_share(worker: u64, parts: u64) -> u32 {
    let bytes =
        (worker.saturating_mul(parts) / 256).clamp(*BUFFER_SHARE_RANGE.start(), *BUFFER_SHARE_RANGE.end()).min(worker);
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

/// Limit of the process's memory: `limits.memory`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum MemoryLimit {
    /// Limit of the process's memory cgroup and its parents; no limit without one.
    #[default]
    Cgroup,
    /// Limit in bytes of RAM, without the pages of files; smaller limits of cgroups apply as well.
    Bytes(u64),
    /// No limit, even if the cgroup has one.
    None,
}

impl Limits {
    /// Smallest receive window of a connection, even beyond the budget: a header, and about 25 Mbit/s at 20 ms.
    pub const MIN_RECEIVE_WINDOW: u64 = 64 * 1024;
    /// A new connection's receive window is at most the rest of the budget divided by this: a whole window while a
    /// quarter of the default budget is used, half of one in a budget of 64 MiB, and never the whole rest.
    const RECEIVE_DIVISOR: u64 = 8;

    /// Parts of 256 of a worker's buffer for a stream and for a connection.
    const STREAM_RECEIVE: u64 = 3;
    const CONNECTION_RECEIVE: u64 = 8 * Self::STREAM_RECEIVE;
    const STREAM_SEND: u64 = 64;
    const CONNECTION_SEND: u64 = Self::STREAM_SEND;
    /// Divisor of `max_connections` for `max_handshakes`, and its least value: handshakes are short.
    const HANDSHAKES_DIVISOR: u32 = 10;
    const MIN_HANDSHAKES: u32 = 64;
    /// Divisor of `max_handshakes` for the number of handshakes from which on clients validate their addresses.
    const RETRY_DIVISOR: u32 = 8;

    /// Fills in the values that follow from others.
    fn with_derived_values(self) -> Self {
        let Self { max_connections, worker_receive_buffer: received, worker_send_buffer: sent, .. } = self;
        Self {
            max_tunnels: (max_connections / 2).max(1),
            stream_receive_buffer: buffer_share(received, Self::STREAM_RECEIVE),
            connection_receive_buffer: buffer_share(received, Self::CONNECTION_RECEIVE),
            stream_send_buffer: buffer_share(sent, Self::STREAM_SEND),
            connection_send_buffer: buffer_share(sent, Self::CONNECTION_SEND),
            ..self
        }
        .with_max_handshakes((max_connections / Self::HANDSHAKES_DIVISOR).max(Self::MIN_HANDSHAKES))
    }

    /// Returns the limits with this many handshakes in flight, of which an eighth needs no Retry.
    pub(super) fn with_max_handshakes(self, max_handshakes: u32) -> Self {
        Self { max_handshakes, retry_handshakes: max_handshakes / Self::RETRY_DIVISOR, ..self }
    }

    /// Returns the receive window of a new connection, if `used` bytes of the worker's budget are in use or granted to
    /// connections that upload.
    pub fn receive_window(&self, used: u64) -> u64 {
        let left = self.worker_receive_buffer.saturating_sub(used);
        (left / Self::RECEIVE_DIVISOR).max(Self::MIN_RECEIVE_WINDOW).min(self.connection_receive_buffer.into())
    }

    /// Returns the receive window of each stream of a connection whose window has `connection` bytes: at most a
    /// quarter, so that uploads which no origin reads leave other streams a part.
    pub fn stream_receive_window(&self, connection: u64) -> u64 {
        (connection / 4).max(Self::MIN_RECEIVE_WINDOW).min(self.stream_receive_buffer.into()).min(connection)
    }
}

impl Sources {
    /// Returns the source of `address`; `None` if it is not limited. `is_exempt`: whether it is in [`Self::exempt`] or
    /// one of a trusted proxy.
    pub fn source_of_address(&self, address: IpAddr, is_exempt: impl FnOnce() -> bool) -> Option<Network> {
        if is_exempt() {
            return None;
        }
        let address = address.to_canonical();
        Some(Network::from_address(address, if address.is_ipv4() { self.ipv4_prefix } else { self.ipv6_prefix }))
    }
}

/// A memory limit: a size, `"cgroup"` or `"none"`.
fn memory_kind(range: RangeInclusive<u64>) -> ValueKind<MemoryLimit> {
    let bytes = |limit: &MemoryLimit| match limit {
        MemoryLimit::Bytes(bytes) => *bytes,
        MemoryLimit::Cgroup | MemoryLimit::None => 0,
    };
    let size = size_kind(range).map(|bytes| Ok(MemoryLimit::Bytes(bytes)), bytes);
    or_named(&[("cgroup", MemoryLimit::Cgroup), ("none", MemoryLimit::None)], size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn derived_limits_are_proportional_and_within_bounds() {
        assert_eq!(Limits::default().with_derived_values(), Limits::default());
        for (received, sent, expected) in [
            (256 * MIB, 64 * MIB, [3 * MIB, 24 * MIB, 16 * MIB]),
            (GIB, 256 * MIB, [12 * MIB, 96 * MIB, 64 * MIB]),
            (1024 * GIB, 1024 * GIB, [GIB, GIB, GIB]),
            (MIB, MIB, [64 * KIB, 96 * KIB, 256 * KIB]),
            (16 * KIB, 16 * KIB, [16 * KIB, 16 * KIB, 16 * KIB]),
        ] {
            let limits = Limits { worker_receive_buffer: received, worker_send_buffer: sent, ..Limits::default() };
            let limits = limits.with_derived_values();
            let found = [limits.stream_receive_buffer, limits.connection_receive_buffer, limits.stream_send_buffer];
            assert_eq!(found.map(u64::from), expected, "{received} {sent}");
            assert_eq!(limits.connection_send_buffer, limits.stream_send_buffer);
        }
        for (connections, expected) in [(20_000, (2_000, 250, 10_000)), (100, (64, 8, 50)), (1, (64, 8, 1))] {
            let limits = Limits { max_connections: connections, ..Limits::default() }.with_derived_values();
            let found = (limits.max_handshakes, limits.retry_handshakes, limits.max_tunnels);
            assert_eq!(found, expected, "{connections}");
        }
        assert_eq!(Limits::default().with_max_handshakes(7).retry_handshakes, 0);
    }

    #[test]
    fn a_receive_window_is_a_bounded_share_of_the_remaining_budget() {
        const FLOOR: u64 = Limits::MIN_RECEIVE_WINDOW;
        let table = [
            ("all is left", 24 * MIB, 256 * MIB, 0, 24 * MIB, 3 * MIB),
            ("three quarters are left", 24 * MIB, 256 * MIB, 64 * MIB, 24 * MIB, 3 * MIB),
            ("a quarter is left", 24 * MIB, 256 * MIB, 192 * MIB, 8 * MIB, 2 * MIB),
            ("hardly anything is left", 24 * MIB, 256 * MIB, 255 * MIB, 2 * FLOOR, FLOOR),
            ("nothing is left", 24 * MIB, 256 * MIB, 256 * MIB, FLOOR, FLOOR),
            ("less than nothing is left", 24 * MIB, 256 * MIB, 300 * MIB, FLOOR, FLOOR),
            ("a connection may have less than the floor", 16 * 1024, 256 * MIB, 300 * MIB, 16 * 1024, 16 * 1024),
        ];
        for (what, connection, worker_receive_buffer, used, expected, stream) in table {
            let connection_receive_buffer = connection.try_into().unwrap();
            let limits = Limits { connection_receive_buffer, worker_receive_buffer, ..Limits::default() };
            assert_eq!(limits.receive_window(used), expected, "{what}");
            assert_eq!(limits.stream_receive_window(expected), stream, "{what}");
        }
    }
}
