//! The keys of limits and of timeouts.

use super::{BODY_BYTES, COUNT, DAY, MAX_NETWORKS, TIMEOUT};
use crate::config::{
    Limits, Sources, Timeouts,
    names::network,
    section::Section,
    values::{boolean, duration, memory, number, or_none, show_size, size},
};
use std::{ops::RangeInclusive, time::Duration};

const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;
const GIB: u64 = 1024 * MIB;

/// RFC 9114 §6.1 wants at least 100 streams, but a small device may take fewer; 2^60 is QUIC's own bound
/// (RFC 9000 §4.6).
const STREAMS: RangeInclusive<u64> = 1..=1_000_000;
const REQUESTS: RangeInclusive<u64> = 1..=1 << 60;
/// Less than 1 KiB takes no browser's header; a field section is held in memory as a whole.
const HEADER_BYTES: RangeInclusive<u64> = KIB..=MIB;
const HEADERS: RangeInclusive<u64> = 1..=10_000;
/// Less than a few packets' worth stalls each stream; a u32 holds the rest.
const BUFFER: RangeInclusive<u64> = 16 * KIB..=GIB;
const WORKER_BUFFER: RangeInclusive<u64> = 16 * KIB..=1024 * GIB;
/// A process that has just started takes 10 MiB.
const MEMORY: RangeInclusive<u64> = 4 * MIB..=1024 * GIB;
/// Bytes a second: more than 1 MiB is no slow client.
const RATE: RangeInclusive<u64> = 0..=MIB;
/// Zero goes on at once.
const DRAIN: RangeInclusive<Duration> = Duration::ZERO..=DAY;

pub(super) fn limits(section: &mut Section<'_>) -> Limits {
    let defaults = Limits::default();
    let mut limits = Limits {
        max_connections: section.value(
            "max_connections",
            number(COUNT),
            defaults.max_connections,
            "Connections a worker; further ones are refused (CONNECTION_REFUSED).",
        ),
        retry_handshakes: section.value(
            "retry_handshakes",
            number(0..=*COUNT.end()),
            defaults.retry_handshakes,
            "Handshakes in flight a worker from which on a client first proves its address by a Retry. 0 is always; \
            more than `max_handshakes` is never.",
        ),
        max_handshakes: section.value(
            "max_handshakes",
            number(COUNT),
            defaults.max_handshakes,
            "Handshakes in flight a worker; further Initials are dropped.",
        ),
        max_streams: section.value(
            "max_streams",
            number(STREAMS),
            defaults.max_streams,
            "Requests at once on a connection (`initial_max_streams_bidi`). A client waits.",
        ),
        max_tunnels: section.value(
            "max_tunnels",
            number(0..=*COUNT.end()),
            defaults.max_tunnels,
            "WebSockets and the like at once a worker. 503 beyond. 0 offers none. They count as requests too \
             (`max_streams`), and no longer as `max_connections` of their origin.",
        ),
        max_requests: section.value(
            "max_requests",
            number(REQUESTS),
            defaults.max_requests,
            "Requests on a connection in all; then GOAWAY.",
        ),
        max_resets: section.value(
            "max_resets",
            number(COUNT),
            defaults.max_resets,
            "Requests a second that a client may cancel on a connection, ten seconds' worth at once. The connection \
            is closed beyond (H3_EXCESSIVE_LOAD).",
        ),
        max_control_frames: section.value(
            "max_control_frames",
            number(COUNT),
            defaults.max_control_frames,
            "QUIC frames a second on a connection that move no data, or less than 16 bytes; ten seconds' worth at \
            once. The connection is closed beyond (H3_EXCESSIVE_LOAD).",
        ),
        max_small_frames: section.value(
            "max_small_frames",
            number(COUNT),
            defaults.max_small_frames,
            "DATA frames a second on a connection of less than 64 bytes, ten seconds' worth at once; over HTTP/1.1 chunks, \
            and reads of which one follows the other. The connection is closed beyond (H3_EXCESSIVE_LOAD).",
        ),
        max_header_bytes: section.value(
            "max_header_bytes",
            size(HEADER_BYTES),
            defaults.max_header_bytes,
            "Bytes of a header as RFC 9114 §4.2.2 counts them: name, value, and 32 a field. 431 beyond.",
        ),
        max_headers: section.value(
            "max_headers",
            number(HEADERS),
            defaults.max_headers,
            "Fields of a header. 431 beyond.",
        ),
        max_body_bytes: section.value(
            "max_body_bytes",
            or_none(size(BODY_BYTES)),
            defaults.max_body_bytes,
            "Bytes of a request's body. 413 beyond.",
        ),
        min_upload_rate: section.value(
            "min_upload_rate",
            size(RATE),
            defaults.min_upload_rate,
            "Bytes a second of a request's body on average, as long as its client is waited for; 408 beyond. A client that \
            sends nothing may do so for `rate_grace`. 0 is no minimum.",
        ),
        min_download_rate: section.value(
            "min_download_rate",
            size(RATE),
            defaults.min_download_rate,
            "Bytes a second of a response on average that its client takes, as long as it is waited for; beyond, the stream is \
            reset, over HTTP/1.1 the connection closed. 0 is no minimum.",
        ),
        rate_grace: section.value(
            "rate_grace",
            duration(TIMEOUT),
            defaults.rate_grace,
            "How long a client is waited for in all, beyond the time that `min_upload_rate` and `min_download_rate` give it.",
        ),
        max_lingering_bytes: section.value(
            "max_lingering_bytes",
            size(BODY_BYTES),
            defaults.max_lingering_bytes,
            "Bytes of a request's body that are discarded once the request was answered, by a 413 for example: \
            browsers see the answer only when they have sent all. Then the client is told to stop (HTTP/3, HTTP/2), \
            or the connection is closed (HTTP/1.1). 0 does so at once (HTTP/1.1: within 2 s).",
        ),
        stream_receive_buffer: section.value(
            "stream_receive_buffer",
            size(BUFFER),
            defaults.stream_receive_buffer,
            "Bytes a stream that a client may send ahead. It waits.",
        ),
        connection_receive_buffer: section.value(
            "connection_receive_buffer",
            size(BUFFER),
            defaults.connection_receive_buffer,
            "Bytes a connection that a client may send ahead. It waits.",
        ),
        worker_receive_buffer: section.value(
            "worker_receive_buffer",
            size(WORKER_BUFFER),
            defaults.worker_receive_buffer,
            "Bytes a worker that were received over QUIC and HTTP/2 and not read, as their origins are slow or bytes before \
            them are missing. A new connection may send ahead a 32nd of what is left, 64 KiB at least, \
            `connection_receive_buffer` at most; connections with an upload count with all that they may send. Beyond it \
            the connection that holds most is closed.",
        ),
        stream_send_buffer: section.value(
            "stream_send_buffer",
            size(BUFFER),
            defaults.stream_send_buffer,
            "Response bytes in memory a stream, until its client has acknowledged them (QUIC) or the kernel has taken them \
            (TCP, 1 MiB at most). That much a path may have in flight; what one does not need is not used. The origin waits. \
            Not set, it is no more than `connection_send_buffer`.",
        ),
        connection_send_buffer: section.value(
            "connection_send_buffer",
            size(BUFFER),
            defaults.connection_send_buffer,
            "The same a connection (TCP, 4 MiB at most). The origin waits. Not set, it is no more than `worker_send_buffer`.",
        ),
        worker_send_buffer: section.value(
            "worker_send_buffer",
            size(WORKER_BUFFER),
            defaults.worker_send_buffer,
            "The same a worker, HTTP/1.1, HTTP/2 and HTTP/3 together. Each stream gets less at a time, none fails. Clients \
            that acknowledge nothing take half of it at most.",
        ),
        memory: section.value(
            "memory",
            memory(MEMORY),
            defaults.memory,
            "Memory of the process. From 85 % of it on a client gets no third connection, and connections without a request \
            end; from 90 % on what bodies may hold is made smaller; from 95 % on no client gets any connection, and those that \
            hold the most end, ten a second and worker. `worker_send_buffer` and `worker_receive_buffer` of all workers are a \
            quarter of it each at most. `\"cgroup\"`: what the memory cgroup allows; a size: that at most; \
            `\"none\"`: any.",
        ),
    };
    // Nobody who sets one has to set those below it: their defaults are no larger.
    if !section.has("connection_send_buffer") {
        let most = u32::try_from(limits.worker_send_buffer).unwrap_or(u32::MAX);
        limits.connection_send_buffer = limits.connection_send_buffer.min(most);
    }
    if !section.has("stream_send_buffer") {
        limits.stream_send_buffer = limits.stream_send_buffer.min(limits.connection_send_buffer);
    }
    for (inner, inner_bytes, outer, outer_bytes) in [
        (
            "stream_receive_buffer",
            limits.stream_receive_buffer,
            "connection_receive_buffer",
            limits.connection_receive_buffer.into(),
        ),
        (
            "stream_send_buffer",
            limits.stream_send_buffer,
            "connection_send_buffer",
            limits.connection_send_buffer.into(),
        ),
        (
            "connection_receive_buffer",
            limits.connection_receive_buffer,
            "worker_receive_buffer",
            limits.worker_receive_buffer,
        ),
        ("connection_send_buffer", limits.connection_send_buffer, "worker_send_buffer", limits.worker_send_buffer),
    ] {
        if u64::from(inner_bytes) <= outer_bytes || !section.is_right(&[inner, outer]) {
            continue;
        }
        let (inner_size, outer_size) = (show_size(inner_bytes.into()), show_size(outer_bytes));
        if section.has(inner) {
            let problem = format!("is larger than {outer}");
            section.fault(inner, &problem, Some(&format!("at most {outer_size}")), None);
        } else {
            let problem = format!("is smaller than {inner}");
            section.fault(outer, &problem, Some(&format!("at least {inner_size}")), None);
        }
    }
    limits
}

/// What counts as one client, in the same table.
pub(super) fn sources(section: &mut Section<'_>) -> Sources {
    let defaults = Sources::default();
    Sources {
        limited: section.value(
            "by_source",
            boolean(),
            defaults.limited,
            "Whether a source, an address or a network of them, may have an eighth and no more of a worker's connections, \
            handshakes, tunnels and connections to an origin's server, once more than half of these are taken. Behind a trusted \
            proxy the address that it names counts for the latter two, and all are free in the former.",
        ),
        ipv4_prefix: section.value(
            "source_ipv4_prefix",
            number(1..=32),
            defaults.ipv4_prefix,
            "Bits that the IPv4 addresses of one source share.",
        ),
        ipv6_prefix: section.value(
            "source_ipv6_prefix",
            number(1..=128),
            defaults.ipv6_prefix,
            "Bits that the IPv6 addresses of one source share.",
        ),
        exempt: section
            .list("source_exempt", network(), 0..=MAX_NETWORKS, &[], "Networks that are not limited by source.")
            .unwrap_or_default()
            .into_iter()
            .map(|(_, network)| network)
            .collect(),
    }
}

pub(super) fn timeouts(section: &mut Section<'_>) -> Timeouts {
    let defaults = Timeouts::default();
    let mut wait = |key, default, about| section.value(key, duration(TIMEOUT), default, about);
    let handshake = wait("handshake", defaults.handshake, "A client's handshake, from its first Initial.");
    let idle = wait("idle", defaults.idle, "A connection on which nothing moves (`max_idle_timeout`); it is closed.");
    let request_header = wait(
        "request_header",
        defaults.request_header,
        "A request's whole header, from its stream's first byte on. 408 beyond.",
    );
    let request_body =
        wait("request_body", defaults.request_body, "Between two reads of a request's body. 408 beyond.");
    let lingering = wait(
        "lingering",
        defaults.lingering,
        "How long the rest of a request's body is discarded once the request was answered \
        (`limits.max_lingering_bytes`). Then the client is told to stop, or the connection is closed.",
    );
    let send =
        wait("send", defaults.send, "Between two writes to a client that takes no bytes; then the stream is reset.");
    let connect = wait("connect", defaults.connect, "A connection to the origin, DNS included. 502 beyond.");
    let response_header = wait(
        "response_header",
        defaults.response_header,
        "From the request's last byte, or the wait for the origin to take bytes, to the response's header. 504 \
        beyond.",
    );
    let response_body = wait(
        "response_body",
        defaults.response_body,
        "Between two reads of the origin's body; then the stream is reset.",
    );
    let queue = wait("queue", defaults.queue, "A request's wait for a connection of a full pool. 503 beyond.");
    let request = section.value("request", or_none(duration(TIMEOUT)), defaults.request, "A whole exchange.");
    let tunnel = section.value(
        "tunnel",
        duration(TIMEOUT),
        defaults.tunnel,
        "A WebSocket or the like on which nothing moves either way; then both its ends are reset.",
    );
    let mut drain = |key, default, about| section.value(key, duration(DRAIN), default, about);
    let drain_grace = drain(
        "drain_grace",
        defaults.drain_grace,
        "From the notice to drain, when readiness fails, to the first GOAWAY.",
    );
    let drain = drain("drain", defaults.drain, "From the first GOAWAY to the end of what still runs.");
    Timeouts {
        handshake,
        idle,
        request_header,
        request_body,
        lingering,
        send,
        connect,
        response_header,
        response_body,
        request,
        queue,
        tunnel,
        drain_grace,
        drain,
    }
}
