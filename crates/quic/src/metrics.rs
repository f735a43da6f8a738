//! Defines a worker's metrics of QUIC.

use litequic_telemetry::{Counter, DENIED, Gauge, Histogram, LIMIT_REACHED, TIMEOUTS, WakeTracker, metrics};
use std::sync::Arc;

metrics! {
    /// Metrics of one worker's QUIC, which only that worker writes. Aligned so that two workers never share a cache
    /// line.
    #[repr(align(128))]
    pub struct QuicMetrics {
        Gauge("connections_held", "Connections that QUIC keeps state for, handshakes and closing ones too.") {
            connections_held "The limit is `limits.max_connections`; TCP has the same limit of its own.",
        }
        Gauge("handshakes_open", "Handshakes over QUIC in progress now.") {
            handshakes_open "The limit is a tenth of `limits.max_connections`; TCP has the same limit of its own.",
        }
        Counter("handshakes_failed", "Handshakes over QUIC that began and were not completed.") {
            handshakes_failed_tls [reason: "tls"] "litequic ended the handshake: no common protocol, or a rejected \
                                                   certificate.",
            handshakes_failed_alert [reason: "alert"]
                "The client ended the handshake by a TLS alert: it does not trust litequic's certificate, for example.",
            handshakes_failed_timeout [reason: "timeout"]
                "The handshake was not complete within `timeouts.request_header`, or no more packets arrived.",
            handshakes_failed_closed [reason: "closed"] "The client ended the handshake otherwise.",
            handshakes_failed_other [reason: "other"] "Anything else: packets that violate QUIC.",
        }
        Counter("connections_closed", "Connections over QUIC that ended after their handshake, by cause.") {
            closed_idle [reason: "idle"] "No packet arrived for `timeouts.idle`; clients that vanish count here too.",
            closed_client [reason: "client"] "The client closed it without an error.",
            closed_client_h3 [reason: "client_h3"]
                "The client reports that litequic, or an origin's response, violated HTTP/3 or QPACK.",
            closed_client_application [reason: "client_application"]
                "The client sent a code that HTTP/3 does not have.",
            closed_client_transport [reason: "client_transport"] "The client reports that litequic violated QUIC.",
            closed_client_reset [reason: "client_reset"] "The client has lost the connection (stateless reset).",
            closed_litequic [reason: "litequic"]
                "litequic closed it without an error: a drain, or after 1,000,000 requests.",
            closed_litequic_h3 [reason: "litequic_h3"]
                "The client violated HTTP/3 or QPACK, or reached a [limit](../operating.md#limits-and-timeouts).",
            closed_litequic_transport [reason: "litequic_transport"] "The client violated QUIC.",
            closed_other [reason: "other"] "Anything else: no path to the client is left.",
        }
        Counter(
            "handshakes_refused",
            "Connection attempts over QUIC that were rejected because a limit was reached, HTTP/3 is off, or the \
                process drains."
        ) {
            handshakes_refused,
        }
        Counter(DENIED) { denied [kind: "quic"] "Connection attempts over QUIC; `handshakes_refused` counts them too." }
        Counter("udp_proxy_headers", "Datagrams from `listen.proxy_protocol_from` with `listen.proxy_protocol_udp`.") {
            udp_proxy_headers_read [result: "read"] "They began with a PROXY protocol header.",
            udp_proxy_headers_refused [result: "refused"] "They had no such header, or a malformed one, and were dropped.",
            udp_proxy_headers_forged [result: "forged"]
                "With `\"first\"`: another header of their flow named another client, and they were dropped.",
        }
        Counter("retries_sent", "Retry packets to validate an address.") {
            retries "Many of them are an attack, or `limits.max_connections` is too low.",
        }
        Counter(
            "retry_tokens_refused",
            "Initials dropped for a token that has expired, was used before, or was not issued by this process for that \
                address and connection ID."
        ) {
            retry_tokens_refused
                "Many of them are an attack, or come from a balancer that spreads a client's packets over several \
                 replicas without one \
                    `listen.secret_file`.",
        }
        Counter("connection_ids_issued", "Connection IDs issued: four per connection, and one per Retry.") {
            connection_ids_issued
                "With [`listen.server_id`](../scaling.md) each is unique within the first 2^40 of a worker and \
                 address, or more.",
        }
        Counter(
            "packets_without_connection",
            "Packets with a short header that belong to no connection, by their server ID."
        ) {
            packets_without_connection_own [server_id: "own"]
                "The ID of this server: a connection has ended, or this process was restarted. Otherwise two servers \
                 have the same [server ID](../scaling.md).",
            packets_without_connection_other [server_id: "other"]
                "The ID of another server: a load balancer routes by a wrong table.",
            packets_without_connection_none [server_id: "none"]
                "No server ID, or one under an unknown configuration: the balancer routed by the address.",
        }
        Counter("packets_received", "1-RTT packets received: all packets except those of handshakes.") {
            packets_received,
        }
        Counter("packets_sent", "1-RTT packets sent.") {
            packets_sent "Divided by `litequic_ack_frames_received_total`: packets per ACK frame of clients.",
        }
        Counter("packets_lost", "1-RTT packets declared lost, except probes of the path's MTU.") { packets_lost }
        Counter(
            "congestion_reductions_undone",
            "Reductions of a congestion window that were reverted: packets declared lost arrived after all."
        ) {
            reductions_undone "CUBIC only. The path reorders packets.",
        }
        Counter(
            "reductions_awaited",
            "Packets declared lost on a path that reorders: the reduction of the congestion window waited for them."
        ) {
            reductions_awaited "CUBIC only. Compare with `litequic_spurious_losses_total`: most of them arrive.",
        }
        Counter("spurious_losses", "Packets declared lost that their client acknowledged later.") {
            spurious_losses "The path reorders packets, or its delay jumps. Each packet cost a retransmission.",
        }
        Counter(
            "mtu_probes_lost",
            "Probes of the path's MTU that were lost: the path has no larger MTU, which is not a fault."
        ) {
            mtu_probes_lost,
        }
        Counter(
            "priority_rest_bytes",
            "Bytes that HTTP/3 streams sent before more urgent streams, because they had waited for a second."
        ) {
            priority_rest_bytes "At most a sixteenth of the connection's bytes.",
        }
        Counter(
            "path_challenges_repeated",
            "PATH_CHALLENGE frames repeated because a client that migrated did not answer."
        ) {
            path_challenges_repeated "An answer was lost, or a client's address is forged.",
        }
        Counter("ack_frames_received", "ACK frames received in 1-RTT packets.") { ack_frames_received }
        Counter("ack_frames_merged", "ACK frames that brought no news and that QUIC did not have to process.") {
            ack_frames_merged "See [`litequic.ack_merge`](../configuration.md#litequic).",
        }
        Counter("ack_batches", "Batches of a connection's datagrams that held ACK frames.") {
            ack_batches "ACK frames per batch show how far a worker is behind its clients.",
        }
        Counter("ecn_validations", "Paths by the result of ECN validation.") {
            ecn_capable [result: "capable"] "Paths on which congestion marks were found to pass both ways.",
            ecn_failed [result: "failed"] "Paths on which congestion marks did not pass, or no longer pass: litequic \
                                           then uses losses only.",
        }
        Counter("ack_frequency_offers", "Connections whose client supports ACK_FREQUENCY.") {
            ack_frequency_offered
                "Firefox does, Chromium does not; see [`litequic.ack_frequency`](../configuration.md#litequic).",
        }
        Counter("ack_frequency_frames", "ACK_FREQUENCY frames, by result.") {
            ack_frequency_sent [event: "sent"]
                "Frames sent: a few per client, and none while the worker is not busy.",
            ack_frequency_acknowledged [event: "acknowledged"] "Frames that arrived.",
            ack_frequency_lost [event: "lost"] "Frames that were lost, and repeated.",
        }
        Counter(
            "ack_frequency_misplaced",
            "ACK_FREQUENCY frames that could not be inserted into a packet."
        ) {
            ack_frequency_misplaced "The value must be 0; please report any other.",
        }
        Gauge(
            "ack_threshold_connections",
            "Open connections whose client supports ACK_FREQUENCY, by the requested number of packets per \
             acknowledgement."
        ) {
            ack_threshold_2 [packets: "2"] "2 or 3 packets, or no request yet.",
            ack_threshold_4 [packets: "4"] "4 to 7.",
            ack_threshold_8 [packets: "8"] "8 to 15.",
            ack_threshold_16 [packets: "16"] "16 to 31.",
            ack_threshold_32 [packets: "32"] "32 packets or more; litequic requests at most 32 by itself.",
        }
        Counter(LIMIT_REACHED) {
            limit_streams [limit: "max_streams"]
                "Clients reported STREAMS_BLOCKED; not all clients do, and none over TCP. The same holds for the next \
                 two.",
            limit_connection_receive_buffer [limit: "connection_receive_buffer"]
                "Clients reported DATA_BLOCKED. An upload that is faster than the origin causes it, which is not a \
                 fault.",
            limit_stream_receive_buffer [limit: "stream_receive_buffer"] "STREAM_DATA_BLOCKED.",
            limit_proxy_flows [limit: "proxy_flows"]
                "Datagrams that were dropped because 1,024 flows of a 64th of the table were in use.",
            limit_receive_buffer [limit: "worker_receive_buffer"]
                "New connections that got a smaller window than `limits.connection_receive_buffer`.",
            limit_memory_connections [limit: "memory_connections"]
                "Connections rejected because memory is short (`limits.memory`).",
            limit_stateless_resets [limit: "stateless_resets"],
            limit_refusals [limit: "refusals"],
            limit_connections [limit: "max_connections"]
                "Connections rejected because no other source had more connections.",
            limit_handshakes [limit: "max_handshakes"]
                "Handshakes rejected because no other source had more handshakes in flight; over TCP after \
                 `timeouts.queue`.",
        }
        Counter(TIMEOUTS) {
            timeout_handshake [timeout: "handshake"]
                "See [Timeouts](../operating.md#limits-and-timeouts) for all of them.",
            timeout_idle [timeout: "idle"]
                "Idle connections, including those of clients that vanished; over TCP, connections without a request.",
        }
        Counter(
            "receive_moderations",
            "Times a worker began to read datagrams at fixed times instead of when each arrives."
        ) {
            receive_moderations "See [`litequic.receive_moderation`](../configuration.md#litequic).",
        }
        Histogram(
            "smoothed_rtt_seconds",
            "Smoothed round-trip times of active connections, sampled 20 times a second at most."
        ) {
            smoothed_rtt,
        }
        + beside {
            /// Counts of the worker's wakes by cause.
            pub wake: Arc<WakeTracker>,
        }
    }
}
