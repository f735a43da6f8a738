//! Every metric that litequic has, one line each: field, name, labels, help.

use super::{
    control::ControlMetrics,
    counter::{Counter, Gauge, Histogram},
    routes::RouteTable,
};
use std::sync::Arc;

/// The counters of all workers, and those of the control thread.
#[derive(Debug)]
pub struct Metrics {
    control: Arc<ControlMetrics>,
    workers: Vec<Arc<WorkerMetrics>>,
}

impl Metrics {
    /// A set for each of `workers` workers.
    pub fn new(workers: usize) -> Self {
        Self { control: Arc::default(), workers: (0..workers).map(|_| Arc::default()).collect() }
    }

    /// The control thread's own.
    pub fn control(&self) -> &Arc<ControlMetrics> {
        &self.control
    }

    /// One set a worker, by the worker's index.
    pub fn workers(&self) -> &[Arc<WorkerMetrics>] {
        &self.workers
    }

    /// Every metric of the table below with its labels, as `name{label="value"}`, summed over all workers.
    pub fn samples(&self) -> impl Iterator<Item = (String, u64)> {
        DESCRIPTIONS.iter().map(|line| {
            let labels: Vec<String> = line.labels.iter().map(|(name, value)| format!("{name}=\"{value}\"")).collect();
            let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
            (format!("{}{labels}", line.name), self.sum(line.read))
        })
    }

    /// The sum over all workers of what `read` finds in each.
    pub fn sum(&self, read: impl Fn(&WorkerMetrics) -> u64) -> u64 {
        self.workers.iter().map(|worker| read(worker)).sum()
    }
}

/// How a metric is to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Counter,
    Gauge,
}

/// A line of the table below.
pub(super) struct Description {
    pub(super) kind: Kind,
    /// Without the `litequic_` prefix and the `_total` suffix, which the exposition format adds.
    pub(super) name: &'static str,
    pub(super) labels: &'static [(&'static str, &'static str)],
    pub(super) help: &'static str,
    pub(super) read: fn(&WorkerMetrics) -> u64,
}

/// A histogram, which the table below has no room for.
pub(super) struct Times {
    pub(super) name: &'static str,
    pub(super) help: &'static str,
    pub(super) read: fn(&WorkerMetrics) -> &Histogram,
}

/// All of them.
pub(super) const HISTOGRAMS: &[Times] = &[
    Times {
        name: "smoothed_rtt_seconds",
        help: "Smoothed round-trip times of connections on which packets go, taken 20 times a second at most.",
        read: |worker| &worker.smoothed_rtt,
    },
    Times {
        name: "request_duration_seconds",
        help: "Requests over HTTP/3, from their stream's beginning to the last acknowledgement, or whatever ended them.",
        read: |worker| &worker.request_duration,
    },
    Times {
        name: "origin_duration_seconds",
        help: "Waits for an origin: from the wait for a connection to the response's header, or the failure.",
        read: |worker| &worker.origin_duration,
    },
];

macro_rules! metrics {
    ($($kind:ident $field:ident = $name:literal $([$($label:ident = $value:literal),+])? $help:literal;)+) => {
        /// What one worker counts. It alone writes; aligned so that two workers never share a cache line.
        #[derive(Debug, Default)]
        #[repr(align(128))]
        pub struct WorkerMetrics {
            $(#[doc = $help] pub $field: $kind,)+
            #[doc = "See the table of histograms."]
            pub smoothed_rtt: Histogram,
            #[doc = "See the table of histograms."]
            pub request_duration: Histogram,
            #[doc = "See the table of histograms."]
            pub origin_duration: Histogram,
            #[doc = "Responses by route."]
            pub routes: RouteTable,
        }

        /// Lines with one name stand together.
        pub(super) const DESCRIPTIONS: &[Description] = &[$(Description {
            kind: Kind::$kind,
            name: $name,
            labels: &[$($((stringify!($label), $value)),+)?],
            help: $help,
            read: |worker| worker.$field.get(),
        },)+];
    };
}

metrics! {
    // QUIC
    Counter connections = "connections" "Connections whose handshake was completed.";
    Gauge connections_open = "connections_open" "Connections that are open now.";
    Gauge connections_held = "connections_held" "Connections that QUIC keeps state for, handshakes and closing ones too.";
    Gauge handshakes_open = "handshakes_open" "Handshakes that are under way now.";
    Gauge receive_granted = "receive_granted_bytes" "Bytes that clients may send ahead on the connections held.";
    Counter handshakes_refused = "handshakes_refused" "Connection attempts refused because a limit was reached.";
    Counter client_certificates_missing = "client_certificates_refused" [reason = "missing"] "Handshakes that ended for the client's certificate.";
    Counter client_certificates_invalid = "client_certificates_refused" [reason = "invalid"] "Handshakes that ended for the client's certificate.";
    Counter retries = "retries_sent" "Retry packets asked for to validate an address.";
    Counter packets_received = "packets_received" "1-RTT packets received.";
    Counter packets_sent = "packets_sent" "1-RTT packets sent.";
    Counter packets_lost = "packets_lost" "1-RTT packets declared lost, probes of the path's MTU apart.";
    Counter spurious_losses = "spurious_losses" "Packets declared lost that their client acknowledged later.";
    Counter mtu_probes_lost = "mtu_probes_lost" "Probes of the path's MTU that were lost: the path is no wider.";
    Counter ack_frames_received = "ack_frames_received" "ACK frames received in 1-RTT packets.";
    Counter ack_frames_merged = "ack_frames_merged" "ACK frames that brought no news and that QUIC did not have to process.";
    Counter ack_batches = "ack_batches" "Batches of a connection's datagrams that held ACK frames.";
    Counter ecn_capable = "ecn_validations" [result = "capable"] "Paths on which ECN was validated.";
    Counter ecn_failed = "ecn_validations" [result = "failed"] "Paths on which ECN was validated.";
    Counter ack_frequency_offered = "ack_frequency_offers" "Connections whose client can be asked to acknowledge less often.";
    Counter ack_frequency_sent = "ack_frequency_frames" [event = "sent"] "ACK_FREQUENCY frames by what became of them.";
    Counter ack_frequency_acknowledged = "ack_frequency_frames" [event = "acknowledged"] "ACK_FREQUENCY frames by what became of them.";
    Counter ack_frequency_lost = "ack_frequency_frames" [event = "lost"] "ACK_FREQUENCY frames by what became of them.";
    Counter ack_frequency_misplaced = "ack_frequency_misplaced" "ACK_FREQUENCY frames that did not find their place in a packet: none should.";
    Gauge ack_threshold_2 = "ack_threshold_connections" [packets = "2"] "Open connections whose client can be asked, by the packets an acknowledgement that it was asked for.";
    Gauge ack_threshold_4 = "ack_threshold_connections" [packets = "4"] "Open connections whose client can be asked, by the packets an acknowledgement that it was asked for.";
    Gauge ack_threshold_8 = "ack_threshold_connections" [packets = "8"] "Open connections whose client can be asked, by the packets an acknowledgement that it was asked for.";
    Gauge ack_threshold_16 = "ack_threshold_connections" [packets = "16"] "Open connections whose client can be asked, by the packets an acknowledgement that it was asked for.";
    Gauge ack_threshold_32 = "ack_threshold_connections" [packets = "32"] "Open connections whose client can be asked, by the packets an acknowledgement that it was asked for.";

    // HTTP/3
    Counter requests = "requests" [protocol = "h3"] "Requests whose header was accepted.";
    Counter requests_h2 = "requests" [protocol = "h2"] "Requests whose header was accepted.";
    Counter requests_h1 = "requests" [protocol = "h1"] "Requests whose header was accepted.";
    Gauge requests_open = "requests_open" "Requests that are being served now.";
    Counter responses_1xx = "responses" [class = "1xx"] "Responses by status class.";
    Counter responses_2xx = "responses" [class = "2xx"] "Responses by status class.";
    Counter responses_3xx = "responses" [class = "3xx"] "Responses by status class.";
    Counter responses_4xx = "responses" [class = "4xx"] "Responses by status class.";
    Counter responses_5xx = "responses" [class = "5xx"] "Responses by status class.";
    Counter request_body_bytes = "request_body_bytes" "Bytes of request bodies received from clients.";
    Counter response_body_bytes = "response_body_bytes" "Bytes of response bodies handed to QUIC or TLS.";
    Counter malformed_requests = "malformed_requests" "Requests reset with H3_MESSAGE_ERROR.";
    Counter connection_errors = "http3_connection_errors" "Connections closed for breaking HTTP/3 or QPACK rules.";
    Counter streams_reset_by_client = "streams_reset" [by = "client"] "Request streams reset before their end.";
    Counter streams_reset_by_proxy = "streams_reset" [by = "litequic"] "Request streams reset before their end.";
    Gauge send_buffered = "send_buffered_bytes" "Unacknowledged response bytes that streams have reserved.";

    // Access log
    Counter access_log_lines = "access_log_lines" [result = "queued"] "Lines of the access log by what became of them.";
    Counter access_log_dropped = "access_log_lines" [result = "dropped"] "Lines of the access log by what became of them.";

    // TCP
    Counter tcp_connections_h2 = "tcp_connections" [protocol = "h2"] "Connections over TCP whose TLS handshake was completed.";
    Counter tcp_connections_h1 = "tcp_connections" [protocol = "h1"] "Connections over TCP whose TLS handshake was completed.";
    Gauge tcp_connections_open = "tcp_connections_open" "Connections over TCP that are open now, handshakes and plain ones too.";
    Counter tcp_handshakes_plain = "tcp_handshakes_failed" [reason = "plain"] "TLS handshakes over TCP that failed.";
    Counter tcp_handshakes_tls = "tcp_handshakes_failed" [reason = "tls"] "TLS handshakes over TCP that failed.";
    Counter tcp_handshakes_closed = "tcp_handshakes_failed" [reason = "closed"] "TLS handshakes over TCP that failed.";
    Counter tcp_refused_h2 = "tcp_refused_requests" [protocol = "h2"] "Requests over TCP that were refused before the proxy saw them.";
    Counter tcp_refused_h1 = "tcp_refused_requests" [protocol = "h1"] "Requests over TCP that were refused before the proxy saw them.";
    Counter tcp_redirects = "tcp_redirects" "Requests in plain HTTP that were sent on to https.";

    // Limits and timeouts
    Counter limit_header_bytes = "limit_reached" [limit = "max_header_bytes"] "Times a limit was reached.";
    Counter limit_headers = "limit_reached" [limit = "max_headers"] "Times a limit was reached.";
    Counter limit_body_bytes = "limit_reached" [limit = "max_body_bytes"] "Times a limit was reached.";
    Counter limit_requests = "limit_reached" [limit = "max_requests"] "Times a limit was reached.";
    Counter limit_resets = "limit_reached" [limit = "max_resets"] "Times a limit was reached.";
    Counter limit_control_frames = "limit_reached" [limit = "max_control_frames"] "Times a limit was reached.";
    Counter limit_small_frames = "limit_reached" [limit = "max_small_frames"] "Times a limit was reached.";
    Counter limit_receive_buffer = "limit_reached" [limit = "worker_receive_buffer"] "Times a limit was reached.";
    Counter limit_stateless_resets = "limit_reached" [limit = "stateless_resets"] "Times a limit was reached.";
    Counter limit_refusals = "limit_reached" [limit = "refusals"] "Times a limit was reached.";
    Counter limit_addresses = "limit_reached" [limit = "addresses"] "Times a limit was reached.";
    Counter limit_connections = "limit_reached" [limit = "max_connections"] "Times a limit was reached.";
    Counter limit_handshakes = "limit_reached" [limit = "max_handshakes"] "Times a limit was reached.";
    Counter limit_send_buffer = "limit_reached" [limit = "send_buffer"] "Times a limit was reached.";
    Counter limit_origin_connections = "limit_reached" [limit = "origin_max_connections"] "Times a limit was reached.";
    Counter limit_origin_queue = "limit_reached" [limit = "origin_max_queue"] "Times a limit was reached.";
    Counter limit_excessive_load = "limit_reached" [limit = "excessive_load"] "Times a limit was reached.";
    Counter limit_response_header = "limit_reached" [limit = "response_header"] "Times a limit was reached.";
    Counter limit_client_header = "limit_reached" [limit = "client_header"] "Times a limit was reached.";
    Counter timeout_handshake = "timeouts" [timeout = "handshake"] "Times a timeout ended something.";
    Counter timeout_idle = "timeouts" [timeout = "idle"] "Times a timeout ended something.";
    Counter timeout_request_header = "timeouts" [timeout = "request_header"] "Times a timeout ended something.";
    Counter timeout_request_body = "timeouts" [timeout = "request_body"] "Times a timeout ended something.";
    Counter timeout_send = "timeouts" [timeout = "send"] "Times a timeout ended something.";
    Counter timeout_connect = "timeouts" [timeout = "connect"] "Times a timeout ended something.";
    Counter timeout_response_header = "timeouts" [timeout = "response_header"] "Times a timeout ended something.";
    Counter timeout_response_body = "timeouts" [timeout = "response_body"] "Times a timeout ended something.";
    Counter timeout_request = "timeouts" [timeout = "request"] "Times a timeout ended something.";
    Counter timeout_queue = "timeouts" [timeout = "queue"] "Times a timeout ended something.";

    // Origin
    Counter origin_connections = "origin_connections" "Connections opened to origins.";
    Gauge origin_connections_open = "origin_connections_open" "Connections to origins that are open now.";
    Counter origin_connect_errors = "origin_connect_errors" "Connections to origins that could not be opened.";
    Counter origin_requests = "origin_requests" "Requests sent to origins, retries included.";
    Counter origin_retries = "origin_retries" "Requests sent again on another connection.";
    Counter origin_errors = "origin_errors" "Responses that an origin broke off or garbled.";

    // Sockets
    Counter datagrams_received = "datagrams_received" "Datagrams received.";
    Counter datagram_bytes_received = "datagram_bytes_received" "Bytes of datagrams received, without IP and UDP headers.";
    Counter receive_messages = "receive_messages" "Messages received; one holds several datagrams with UDP GRO.";
    Counter receive_batches = "receive_batches" "Batches in which messages were received.";
    Counter datagrams_sent = "datagrams_sent" "Datagrams sent.";
    Counter datagram_bytes_sent = "datagram_bytes_sent" "Bytes of datagrams sent, without IP and UDP headers.";
    Counter send_messages = "send_messages" "Messages sent; one holds several datagrams with UDP GSO.";
    Counter gso_messages = "gso_messages" "Messages sent that held several datagrams.";
    Counter gso_segments = "gso_segments" "Datagrams sent in such messages.";
    Counter syscalls_recvmmsg = "io_syscalls" [call = "recvmmsg"] "System calls for datagrams, and waits for anything at all.";
    Counter syscalls_sendmmsg = "io_syscalls" [call = "sendmmsg"] "System calls for datagrams, and waits for anything at all.";
    Counter syscalls_io_uring_enter = "io_syscalls" [call = "io_uring_enter"] "System calls for datagrams, and waits for anything at all.";
    Counter syscalls_epoll_wait = "io_syscalls" [call = "epoll_wait"] "System calls for datagrams, and waits for anything at all.";
    Counter receive_rearmed_buffers = "receive_rearmed" [reason = "buffers"] "Times a receive of many messages ended and was begun anew.";
    Counter receive_rearmed_other = "receive_rearmed" [reason = "other"] "Times a receive of many messages ended and was begun anew.";
    Counter send_blocked_buffer = "send_blocked" [by = "buffer"] "Times datagrams had to wait before the kernel took them.";
    Counter send_blocked_below = "send_blocked" [by = "queue"] "Times datagrams had to wait before the kernel took them.";
    Counter datagrams_dropped_truncated = "datagrams_dropped" [reason = "truncated"] "Datagrams that could not be received or sent.";
    Counter datagrams_dropped_too_large = "datagrams_dropped" [reason = "too_large"] "Datagrams that could not be received or sent.";
    Counter datagrams_dropped_refused = "datagrams_dropped" [reason = "refused"] "Datagrams that could not be received or sent.";
    Counter io_degraded_gso_missing = "io_degraded" [feature = "gso", reason = "missing"] "Sockets that do without a feature that was asked for.";
    Counter io_degraded_gso_eio = "io_degraded" [feature = "gso", reason = "EIO"] "Sockets that do without a feature that was asked for.";
    Counter io_degraded_gso_einval = "io_degraded" [feature = "gso", reason = "EINVAL"] "Sockets that do without a feature that was asked for.";
    Counter io_degraded_io_uring_forbidden = "io_degraded" [feature = "io_uring", reason = "forbidden"] "Sockets that do without a feature that was asked for.";
    Counter io_degraded_io_uring_missing = "io_degraded" [feature = "io_uring", reason = "missing"] "Sockets that do without a feature that was asked for.";
    Counter io_degraded_io_uring_memory = "io_degraded" [feature = "io_uring", reason = "memory"] "Sockets that do without a feature that was asked for.";
    Counter io_degraded_io_uring_broken = "io_degraded" [feature = "io_uring", reason = "broken"] "Sockets that do without a feature that was asked for.";
    Counter io_degraded_gro = "io_degraded" [feature = "gro", reason = "missing"] "Sockets that do without a feature that was asked for.";
    Counter io_degraded_ecn = "io_degraded" [feature = "ecn", reason = "missing"] "Sockets that do without a feature that was asked for.";
    Counter io_degraded_pktinfo = "io_degraded" [feature = "pktinfo", reason = "missing"] "Sockets that do without a feature that was asked for.";
}
