//! Every metric that litequic has, one line each: field, name, labels, help, and what else the reference says of it
//! (docs/reference/metrics.md).

use super::{
    control::ControlMetrics,
    counter::{Counter, Gauge, Histogram, Sizes},
    routes::RouteTable,
    servers::{ServerMetrics, ServerTable},
    wakes::Wake,
};
use http::StatusCode;
use std::sync::Arc;

/// The counters of all workers, and those of the control thread.
#[derive(Debug)]
pub struct Metrics {
    control: Arc<ControlMetrics>,
    workers: Vec<Arc<WorkerMetrics>>,
}

impl WorkerMetrics {
    /// Counts a response, by its class.
    pub fn count_response(&self, status: StatusCode) {
        match status.as_u16() / 100 {
            1 => self.responses_1xx.increment(),
            2 => self.responses_2xx.increment(),
            3 => self.responses_3xx.increment(),
            4 => self.responses_4xx.increment(),
            _ => self.responses_5xx.increment(),
        }
    }
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
        DESCRIPTIONS.iter().map(|line| (format!("{}{}", line.name, line.label_text()), self.sum(line.read)))
    }

    /// The sum over all workers of what `read` finds of `server` of `origin`.
    pub fn of_server(&self, origin: &str, server: &str, read: impl Fn(&ServerMetrics) -> u64) -> u64 {
        self.sum(|worker| worker.servers.look(origin, server, &read))
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
    /// What the reference says of this line beside: Markdown.
    pub(super) note: &'static str,
    pub(super) read: fn(&WorkerMetrics) -> u64,
}

impl Description {
    fn label_text(&self) -> String {
        let labels: Vec<String> = self.labels.iter().map(|(name, value)| format!("{name}=\"{value}\"")).collect();
        if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) }
    }

    /// As a scrape names it.
    pub(super) fn sample(&self) -> String {
        let suffix = if self.kind == Kind::Counter { "_total" } else { "" };
        format!("litequic_{}{suffix}{}", self.name, self.label_text())
    }
}

/// A histogram, which the table below has no room for.
pub(super) struct Spread<D: 'static> {
    pub(super) name: &'static str,
    pub(super) help: &'static str,
    pub(super) read: fn(&WorkerMetrics) -> &D,
}

/// One of times.
pub(super) type Times = Spread<Histogram>;

/// All of them.
pub(super) const HISTOGRAMS: &[Times] = &[
    Times {
        name: "smoothed_rtt_seconds",
        help: "Smoothed round-trip times of connections on which packets go, taken 20 times a second at most.",
        read: |worker| &worker.smoothed_rtt,
    },
    Times {
        name: "request_duration_seconds",
        help: "Requests and tunnels, each from its beginning to the last acknowledgement, over TCP until all was handed over, or to what ended it.",
        read: |worker| &worker.request_duration,
    },
    Times {
        name: "origin_duration_seconds",
        help: "Waits for an origin: from the wait for a connection to the response's header, or the failure.",
        read: |worker| &worker.origin_duration,
    },
];

/// Those of sizes.
pub(super) const SIZES: &[Spread<Sizes>] = &[
    Spread {
        name: "request_size_bytes",
        help: "Bodies of requests that have one, tunnels apart, as far as they were taken from the client.",
        read: |worker| &worker.request_size,
    },
    Spread {
        name: "response_size_bytes",
        help: "Bodies of responses, empty ones too, tunnels apart, as far as they were handed to QUIC or TLS.",
        read: |worker| &worker.response_size,
    },
];

macro_rules! metrics {
    ($($kind:ident $field:ident = $name:literal $([$($label:ident = $value:literal),+])? $help:literal $($note:literal)?;)+) => {
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
            #[doc = "See the table of sizes."]
            pub request_size: Sizes,
            #[doc = "See the table of sizes."]
            pub response_size: Sizes,
            #[doc = "Responses by route."]
            pub routes: RouteTable,
            #[doc = "Origins' servers."]
            pub servers: ServerTable<ServerMetrics>,
            #[doc = "Why the worker runs at present."]
            pub wake: Wake,
        }

        /// Lines with one name stand together.
        pub(super) const DESCRIPTIONS: &[Description] = &[$(Description {
            kind: Kind::$kind,
            name: $name,
            labels: &[$($((stringify!($label), $value)),+)?],
            help: $help,
            note: concat!($($note)?),
            read: |worker| worker.$field.get(),
        },)+];
    };
}

metrics! {
    // QUIC
    Counter connections = "connections" "Connections over QUIC whose handshake was completed.";
    Gauge connections_open = "connections_open" "Connections over QUIC that are open now.";
    Gauge connections_held = "connections_held" "Connections that QUIC keeps state for, handshakes and closing ones too." "What `limits.max_connections` bounds; over TCP as many again.";
    Gauge handshakes_open = "handshakes_open" "Handshakes over QUIC that are under way now." "What `limits.max_handshakes` bounds; over TCP as many again.";
    Gauge receive_granted = "receive_granted_bytes" "Bytes that clients may send ahead on the connections of QUIC and HTTP/2 on which an upload is in progress." "A body counts as an upload from 64 KiB on. What is granted to new connections depends on it: see `limits.worker_receive_buffer`.";
    Gauge receive_held = "receive_held_bytes" "Bytes received over QUIC and HTTP/2 and not read yet, because an origin is slow or bytes before them are missing." "What `limits.worker_receive_buffer` bounds.";
    Counter handshakes_quic_full = "handshakes" [transport = "quic", kind = "full"] "TLS handshakes that were completed.";
    Counter handshakes_quic_resumed = "handshakes" [transport = "quic", kind = "resumed"] "TLS handshakes that were completed." "By a ticket: cheaper for both.";
    Counter handshakes_tcp_full = "handshakes" [transport = "tcp", kind = "full"] "TLS handshakes that were completed.";
    Counter handshakes_tcp_resumed = "handshakes" [transport = "tcp", kind = "resumed"] "TLS handshakes that were completed." "The same; none is, of clients that are asked for a certificate.";
    Counter handshakes_failed_tls = "handshakes_failed" [reason = "tls"] "Handshakes over QUIC that began and were not completed." "litequic ended it: no common protocol, a refused certificate.";
    Counter handshakes_failed_alert = "handshakes_failed" [reason = "alert"] "Handshakes over QUIC that began and were not completed." "The client did, by a TLS alert: it does not take litequic's certificate, for example.";
    Counter handshakes_failed_timeout = "handshakes_failed" [reason = "timeout"] "Handshakes over QUIC that began and were not completed." "It was not done within `timeouts.handshake`, or nothing came any more.";
    Counter handshakes_failed_closed = "handshakes_failed" [reason = "closed"] "Handshakes over QUIC that began and were not completed." "The client ended it otherwise.";
    Counter handshakes_failed_other = "handshakes_failed" [reason = "other"] "Handshakes over QUIC that began and were not completed." "Anything else: packets that break the rules of QUIC.";
    Counter closed_idle = "connections_closed" [reason = "idle"] "Connections over QUIC that ended after their handshake, by what ended them." "Nothing moved for `timeouts.idle`; clients that go without a word.";
    Counter closed_client = "connections_closed" [reason = "client"] "Connections over QUIC that ended after their handshake, by what ended them." "The client was done.";
    Counter closed_client_h3 = "connections_closed" [reason = "client_h3"] "Connections over QUIC that ended after their handshake, by what ended them." "It says that litequic, or an origin's response, broke a rule of HTTP/3 or QPACK.";
    Counter closed_client_application = "connections_closed" [reason = "client_application"] "Connections over QUIC that ended after their handshake, by what ended them." "It gave a code that HTTP/3 does not have.";
    Counter closed_client_transport = "connections_closed" [reason = "client_transport"] "Connections over QUIC that ended after their handshake, by what ended them." "It says that litequic broke a rule of QUIC.";
    Counter closed_client_reset = "connections_closed" [reason = "client_reset"] "Connections over QUIC that ended after their handshake, by what ended them." "It has forgotten the connection (stateless reset).";
    Counter closed_litequic = "connections_closed" [reason = "litequic"] "Connections over QUIC that ended after their handshake, by what ended them." "litequic was done: a drain, or `limits.max_requests`.";
    Counter closed_litequic_h3 = "connections_closed" [reason = "litequic_h3"] "Connections over QUIC that ended after their handshake, by what ended them." "The client broke a rule of HTTP/3 or QPACK, or a [limit](../operating.md#limits-and-timeouts).";
    Counter closed_litequic_transport = "connections_closed" [reason = "litequic_transport"] "Connections over QUIC that ended after their handshake, by what ended them." "The client broke a rule of QUIC.";
    Counter closed_other = "connections_closed" [reason = "other"] "Connections over QUIC that ended after their handshake, by what ended them." "Anything else: no path to the client is left.";
    Counter handshakes_refused = "handshakes_refused" "Connection attempts over QUIC that were refused because a limit was reached.";
    Counter client_certificates_missing = "client_certificates_refused" [reason = "missing"] "Handshakes that ended for the client's certificate." "Handshakes that ended because the client had no certificate where one is required.";
    Counter client_certificates_invalid = "client_certificates_refused" [reason = "invalid"] "Handshakes that ended for the client's certificate." "Handshakes that ended because the client's certificate did not hold, or was longer than 16 KiB with those that came with it; the log has why, at `debug`.";
    Counter retries = "retries_sent" "Retry packets asked for to validate an address." "Many: an attack, or `retry_handshakes` too low.";
    Counter retry_tokens_refused = "retry_tokens_refused" "Initials dropped for a token that has expired, was used before, or is none of this process' for that address." "Many: an attack, or a balancer that leads a client's packets to several replicas without one `listen.secret_file`.";
    Counter packets_received = "packets_received" "1-RTT packets received, which is all but those of handshakes.";
    Counter packets_sent = "packets_sent" "1-RTT packets sent." "Divided by the line below: after how many packets clients acknowledge.";
    Counter packets_lost = "packets_lost" "1-RTT packets declared lost, probes of the path's MTU apart.";
    Counter reductions_undone = "congestion_reductions_undone" "Reductions of a congestion window that were taken back: all packets declared lost arrived after all." "Of CUBIC's. A path that reorders.";
    Counter spurious_losses = "spurious_losses" "Packets declared lost that their client acknowledged later." "A path that reorders, or whose delay jumps. Each cost a sending, and rate.";
    Counter mtu_probes_lost = "mtu_probes_lost" "Probes of the path's MTU that were lost: the path is no wider, which is no fault.";
    Counter path_challenges_repeated = "path_challenges_repeated" "PATH_CHALLENGE frames sent again because a client that has moved did not answer." "An answer was lost, or a client's address is forged.";
    Counter ack_frames_received = "ack_frames_received" "ACK frames received in 1-RTT packets.";
    Counter ack_frames_merged = "ack_frames_merged" "ACK frames that brought no news and that QUIC did not have to process." "See [`litequic.ack_merge`](../configuration.md#litequic).";
    Counter ack_batches = "ack_batches" "Batches of a connection's datagrams that held ACK frames." "ACK frames a batch: how far a worker is behind its clients.";
    Counter ecn_capable = "ecn_validations" [result = "capable"] "Paths by what the validation of ECN came to." "Paths on which congestion marks were found to pass both ways.";
    Counter ecn_failed = "ecn_validations" [result = "failed"] "Paths by what the validation of ECN came to." "Paths on which they were not, or no longer: litequic then goes by losses.";
    Counter ack_frequency_offered = "ack_frequency_offers" "Connections whose client can be asked to acknowledge less often." "Firefox does, Chromium does not; see [`litequic.ack_frequency`](../configuration.md#litequic).";
    Counter ack_frequency_sent = "ack_frequency_frames" [event = "sent"] "ACK_FREQUENCY frames by what became of them." "Questions to such clients: a handful each, if their worker is ever busy.";
    Counter ack_frequency_acknowledged = "ack_frequency_frames" [event = "acknowledged"] "ACK_FREQUENCY frames by what became of them." "Those that arrived.";
    Counter ack_frequency_lost = "ack_frequency_frames" [event = "lost"] "ACK_FREQUENCY frames by what became of them." "Those that were lost, and asked again.";
    Counter ack_frequency_misplaced = "ack_frequency_misplaced" "ACK_FREQUENCY frames that did not find their place in a packet: none should." "Must be 0: report it.";
    Gauge ack_threshold_2 = "ack_threshold_connections" [packets = "2"] "Open connections whose client can be asked, by the packets an acknowledgement that it was asked for." "2 or 3, or nothing yet.";
    Gauge ack_threshold_4 = "ack_threshold_connections" [packets = "4"] "Open connections whose client can be asked, by the packets an acknowledgement that it was asked for." "4 to 7.";
    Gauge ack_threshold_8 = "ack_threshold_connections" [packets = "8"] "Open connections whose client can be asked, by the packets an acknowledgement that it was asked for." "8 to 15.";
    Gauge ack_threshold_16 = "ack_threshold_connections" [packets = "16"] "Open connections whose client can be asked, by the packets an acknowledgement that it was asked for." "16 to 31.";
    Gauge ack_threshold_32 = "ack_threshold_connections" [packets = "32"] "Open connections whose client can be asked, by the packets an acknowledgement that it was asked for." "32 and more: as few acknowledgements as litequic asks for by itself.";

    // HTTP/3
    Counter requests = "requests" [protocol = "h3"] "Requests whose header was accepted.";
    Counter requests_h2 = "requests" [protocol = "h2"] "Requests whose header was accepted.";
    Counter requests_h1 = "requests" [protocol = "h1"] "Requests whose header was accepted." "HTTP/1.0 and plain HTTP count here.";
    Gauge requests_open = "requests_open" "Requests that are being read or served now." "Over HTTP/3 those whose header is awaited too, and tunnels over all.";
    Counter responses_1xx = "responses" [class = "1xx"] "Responses by status class." "Interim responses over HTTP/3, and the 101 of tunnels over HTTP/1.1.";
    Counter responses_2xx = "responses" [class = "2xx"] "Responses by status class." "Responses; litequic's own count too.";
    Counter responses_3xx = "responses" [class = "3xx"] "Responses by status class.";
    Counter responses_4xx = "responses" [class = "4xx"] "Responses by status class.";
    Counter responses_5xx = "responses" [class = "5xx"] "Responses by status class.";
    Counter request_body_bytes = "request_body_bytes" "Bytes of request bodies, and of tunnels, received from clients.";
    Counter lingering_bytes = "lingering_bytes" "Bytes of requests that were discarded because the request was answered already." "Up to `limits.max_lingering_bytes` each.";
    Counter response_body_bytes = "response_body_bytes" "Bytes of response bodies, and of tunnels, handed to QUIC or TLS.";
    Counter malformed_requests = "malformed_requests" "Requests over HTTP/3 that were malformed: reset with H3_MESSAGE_ERROR." "Over TCP: `litequic_tcp_refused_requests_total`.";
    Counter ambiguous_paths = "ambiguous_paths" "Requests answered 400 because their path could be read as another route's." "See [Which origin](../proxying.md#which-origin).";
    Counter connection_errors = "http3_connection_errors" "Connections closed because the client broke a rule of HTTP/3 or QPACK, or a limit with H3_EXCESSIVE_LOAD.";
    Counter streams_reset_by_client = "streams_reset" [by = "client"] "Requests that ended before their response was whole, by who ended them; malformed ones apart." "Those that a client did not want to their end, or whose connection went: seeking in a video does that.";
    Counter streams_reset_by_proxy = "streams_reset" [by = "litequic"] "Requests that ended before their response was whole, by who ended them; malformed ones apart." "Those whose response broke off at the origin or took too long, or whose client took nothing for `timeouts.send`.";
    Gauge tunnels_open = "tunnels_open" "Tunnels (WebSockets and the like) that are open now." "Out of `max_tunnels` a worker.";
    Counter tunnels = "tunnels" "Tunnels that were opened.";
    Counter tunnels_refused = "tunnels_refused" "Tunnels that were asked for and not opened because `limits.max_tunnels` was reached.";
    Gauge send_buffered = "send_buffered_bytes" "Response bytes that streams have leased, over all protocols." "Out of `limits.worker_send_buffer`, looked at twice a second.";

    // Access log
    Counter access_log_lines = "access_log_lines" [result = "queued"] "Lines of the access log by what became of them." "Lines of the [access log](../operating.md#the-access-log) on their way to it.";
    Counter access_log_dropped = "access_log_lines" [result = "dropped"] "Lines of the access log by what became of them." "Lines that found no room: the disk, or whoever reads, is too slow.";

    // TCP
    Counter tcp_connections_h2 = "tcp_connections" [protocol = "h2"] "Connections over TCP that came as far as requests.";
    Counter tcp_connections_h1 = "tcp_connections" [protocol = "h1"] "Connections over TCP that came as far as requests.";
    Counter tcp_connections_plain = "tcp_connections" [protocol = "plain"] "Connections over TCP that came as far as requests." "Those to `listen.redirect`, without TLS.";
    Gauge tcp_connections_open = "tcp_connections_open" "Connections over TCP that are open now, handshakes and plain ones too.";
    Counter tcp_handshakes_plain = "tcp_handshakes_failed" [reason = "plain"] "Connections over TCP that ended before requests: in the TLS handshake, or the PROXY protocol header before it." "Those that began with something else than TLS.";
    Counter tcp_handshakes_tls = "tcp_handshakes_failed" [reason = "tls"] "Connections over TCP that ended before requests: in the TLS handshake, or the PROXY protocol header before it." "TLS ended it: no common protocol, a refused certificate, an alert of the client's.";
    Counter tcp_handshakes_version = "tcp_handshakes_failed" [reason = "version"] "Connections over TCP that ended before requests: in the TLS handshake, or the PROXY protocol header before it." "The client does not speak TLS 1.3, which is all that there is ([0021](../adr/0021-tls-1-3-alone.md)).";
    Counter tcp_handshakes_timeout = "tcp_handshakes_failed" [reason = "timeout"] "Connections over TCP that ended before requests: in the TLS handshake, or the PROXY protocol header before it." "They did not shake hands, or send their header, within `timeouts.handshake`.";
    Counter tcp_handshakes_closed = "tcp_handshakes_failed" [reason = "closed"] "Connections over TCP that ended before requests: in the TLS handshake, or the PROXY protocol header before it." "Those whose client went away.";
    Counter tcp_handshakes_proxy_header = "tcp_handshakes_failed" [reason = "proxy_header"] "Connections over TCP that ended before requests: in the TLS handshake, or the PROXY protocol header before it." "Those from `listen.proxy_protocol_from` without such a header, or with a malformed one; to `listen.redirect` too.";
    Counter tcp_proxy_headers = "tcp_proxy_headers" "Connections over TCP that began with a PROXY protocol header.";
    Counter tcp_closed_idle = "tcp_connections_closed" [reason = "idle"] "Connections of `litequic_tcp_connections_total` that ended, by what ended them." "There was no request for `timeouts.idle`.";
    Counter tcp_closed_client = "tcp_connections_closed" [reason = "client"] "Connections of `litequic_tcp_connections_total` that ended, by what ended them." "The client was done, or litequic after a response that ends its connection.";
    Counter tcp_closed_broken = "tcp_connections_closed" [reason = "broken"] "Connections of `litequic_tcp_connections_total` that ended, by what ended them." "The connection broke off, or the client did what HTTP does not allow.";
    Counter tcp_closed_stalled = "tcp_connections_closed" [reason = "stalled"] "Connections of `litequic_tcp_connections_total` that ended, by what ended them." "The client took nothing for `timeouts.send`.";
    Counter tcp_closed_flood = "tcp_connections_closed" [reason = "flood"] "Connections of `litequic_tcp_connections_total` that ended, by what ended them." "The client cancelled more requests than `limits.max_resets` allows, or sent more frames than `limits.max_control_frames` or `max_small_frames`, or over HTTP/1.1 more pieces with next to nothing in them than the latter.";
    Counter tcp_closed_litequic = "tcp_connections_closed" [reason = "litequic"] "Connections of `litequic_tcp_connections_total` that ended, by what ended them." "litequic was done: a drain, or `limits.max_requests`.";
    Counter tcp_refused_h2 = "tcp_refused_requests" [protocol = "h2"] "Requests over TCP that were refused before the proxy saw them." "Those that h2 resets by itself do not count.";
    Counter tcp_refused_h1 = "tcp_refused_requests" [protocol = "h1"] "Requests over TCP that were refused before the proxy saw them." "Plain HTTP counts here too.";
    Counter tcp_redirects = "tcp_redirects" "Requests in plain HTTP that were redirected to https.";

    // Fields
    Counter ambiguous_fields_dropped = "ambiguous_fields" [action = "dropped"] "Fields of requests whose names an origin might take for others." "See `origin.ambiguous_fields`; of trailers too.";
    Counter ambiguous_fields_rejected = "ambiguous_fields" [action = "rejected"] "Fields of requests whose names an origin might take for others." "Counted once a request, which was answered 400.";

    // Limits and timeouts
    Counter limit_header_bytes = "limit_reached" [limit = "max_header_bytes"] "Times a limit was reached." "See [Limits](../operating.md#limits-and-timeouts) for this and all that have a key's name.";
    Counter limit_headers = "limit_reached" [limit = "max_headers"] "Times a limit was reached.";
    Counter limit_body_bytes = "limit_reached" [limit = "max_body_bytes"] "Times a limit was reached.";
    Counter limit_lingering_bytes = "limit_reached" [limit = "max_lingering_bytes"] "Times a limit was reached.";
    Counter limit_requests = "limit_reached" [limit = "max_requests"] "Times a limit was reached.";
    Counter limit_resets = "limit_reached" [limit = "max_resets"] "Times a limit was reached.";
    Counter limit_control_frames = "limit_reached" [limit = "max_control_frames"] "Times a limit was reached.";
    Counter limit_small_frames = "limit_reached" [limit = "max_small_frames"] "Times a limit was reached.";
    Counter limit_rate = "limit_reached" [limit = "rate_limit"] "Times a limit was reached.";
    Counter limit_rate_addresses = "limit_reached" [limit = "rate_limit_addresses"] "Times a limit was reached.";
    Counter limit_streams = "limit_reached" [limit = "max_streams"] "Times a limit was reached." "By what clients say (STREAMS_BLOCKED); not all do, and none over TCP. The same holds for the next two.";
    Counter limit_connection_receive_buffer = "limit_reached" [limit = "connection_receive_buffer"] "Times a limit was reached." "DATA_BLOCKED. An upload that is faster than the origin comes to it, which is no fault.";
    Counter limit_stream_receive_buffer = "limit_reached" [limit = "stream_receive_buffer"] "Times a limit was reached." "STREAM_DATA_BLOCKED.";
    Counter limit_receive_buffer = "limit_reached" [limit = "worker_receive_buffer"] "Times a limit was reached." "New connections that got a smaller window than `limits.connection_receive_buffer`.";
    Counter limit_memory_connections = "limit_reached" [limit = "memory_connections"] "Times a limit was reached." "Connections refused because memory is short (`limits.memory`).";
    Counter limit_memory_idle = "limit_reached" [limit = "memory_idle"] "Times a limit was reached." "Connections without a request that ended because memory is short.";
    Counter limit_memory_held = "limit_reached" [limit = "memory_held"] "Times a limit was reached." "Connections that ended because memory is short, and they held the most of it.";
    Counter limit_receive_held = "limit_reached" [limit = "receive_held"] "Times a limit was reached." "Connections closed because a worker held more than `limits.worker_receive_buffer`, and they most.";
    Counter limit_stateless_resets = "limit_reached" [limit = "stateless_resets"] "Times a limit was reached.";
    Counter limit_refusals = "limit_reached" [limit = "refusals"] "Times a limit was reached.";
    Counter limit_addresses = "limit_reached" [limit = "addresses"] "Times a limit was reached.";
    Counter limit_connections = "limit_reached" [limit = "max_connections"] "Times a limit was reached.";
    Counter limit_handshakes = "limit_reached" [limit = "max_handshakes"] "Times a limit was reached.";
    Counter limit_source_connections = "limit_reached" [limit = "source_connections"] "Times a limit was reached." "Connections refused as their source had its share of `limits.max_connections`, more than half of which were taken.";
    Counter limit_source_handshakes = "limit_reached" [limit = "source_handshakes"] "Times a limit was reached." "The same of `limits.max_handshakes`.";
    Counter limit_source_tunnels = "limit_reached" [limit = "source_tunnels"] "Times a limit was reached." "The same of `limits.max_tunnels`.";
    Counter limit_source_origin = "limit_reached" [limit = "source_origin_connections"] "Times a limit was reached." "Requests that waited for, or were refused, a connection to their origin for the same reason.";
    Counter limit_send_buffer = "limit_reached" [limit = "send_buffer"] "Times a limit was reached.";
    Counter limit_origin_connections = "limit_reached" [limit = "origin_max_connections"] "Times a limit was reached.";
    Counter limit_origin_queue = "limit_reached" [limit = "origin_max_queue"] "Times a limit was reached.";
    Counter limit_slow_uploads = "limit_reached" [limit = "slow_uploads"] "Times a limit was reached." "Slow uploads ended for a request that waited, as they held more than half of `origin.max_connections`.";
    Counter limit_excessive_load = "limit_reached" [limit = "excessive_load"] "Times a limit was reached." "Connections closed with H3_EXCESSIVE_LOAD.";
    Counter limit_upload_rate = "limit_reached" [limit = "min_upload_rate"] "Times a limit was reached." "Requests whose body came slower.";
    Counter limit_download_rate = "limit_reached" [limit = "min_download_rate"] "Times a limit was reached." "Responses that their client took slower.";
    Counter limit_interim = "limit_reached" [limit = "interim"] "Times a limit was reached." "Interim responses dropped because the client had not taken the 8 before.";
    Counter limit_response_header = "limit_reached" [limit = "response_header"] "Times a limit was reached." "Responses whose header is larger than litequic takes.";
    Counter limit_client_header = "limit_reached" [limit = "client_header"] "Times a limit was reached." "Headers and trailers larger than the client takes.";
    Counter timeout_handshake = "timeouts" [timeout = "handshake"] "Times a timeout ended something." "See [Timeouts](../operating.md#limits-and-timeouts) for this and all others.";
    Counter timeout_idle = "timeouts" [timeout = "idle"] "Times a timeout ended something." "Connections on which nothing moved, clients that go without a word; over TCP those without a request.";
    Counter timeout_request_header = "timeouts" [timeout = "request_header"] "Times a timeout ended something.";
    Counter timeout_request_body = "timeouts" [timeout = "request_body"] "Times a timeout ended something.";
    Counter timeout_lingering = "timeouts" [timeout = "lingering"] "Times a timeout ended something.";
    Counter timeout_send = "timeouts" [timeout = "send"] "Times a timeout ended something.";
    Counter timeout_connect = "timeouts" [timeout = "connect"] "Times a timeout ended something.";
    Counter timeout_response_header = "timeouts" [timeout = "response_header"] "Times a timeout ended something.";
    Counter timeout_response_body = "timeouts" [timeout = "response_body"] "Times a timeout ended something.";
    Counter timeout_request = "timeouts" [timeout = "request"] "Times a timeout ended something.";
    Counter timeout_tunnel = "timeouts" [timeout = "tunnel"] "Times a timeout ended something.";
    Counter timeout_queue = "timeouts" [timeout = "queue"] "Times a timeout ended something.";

    // Origin
    Counter origin_connections = "origin_connections" "Connections opened to origins." "Close to the number of requests: keep-alive does not work.";
    Gauge origin_connections_open = "origin_connections_open" "Connections to origins that are open now.";
    Counter origin_connect_errors = "origin_connect_errors" "Connections to origins that could not be opened.";
    Counter origin_requests = "origin_requests" "Requests sent to origins, retries included.";
    Counter origin_retries = "origin_retries" "Requests that were tried again, on another connection or at another server.";
    Counter origin_retries_refused = "origin_retries_refused" "Requests that could have been sent again, had the budget of retries not been spent." "See [Sent again](../proxying.md#sent-again): servers fail more than a few requests.";
    Counter origin_panics = "origin_panic_requests" "Requests sent although no server of their origin was well, each try of them." "See [Several servers](../proxying.md#several-servers).";
    Counter origin_errors = "origin_errors" "Requests that an origin left without a response, or whose response it broke off or garbled; timeouts and connections that could not be opened apart.";

    // Sockets
    Counter datagrams_received = "datagrams_received" "Datagrams received.";
    Counter datagram_bytes_received = "datagram_bytes_received" "Bytes of datagrams received, without IP and UDP headers.";
    Counter receive_messages = "receive_messages" "Messages received; one holds several datagrams with UDP GRO.";
    Counter receive_batches = "receive_batches" "Batches in which messages were received." "System calls that brought any, but for io_uring. Datagrams a batch: how busy a worker is.";
    Counter datagrams_sent = "datagrams_sent" "Datagrams sent.";
    Counter datagram_bytes_sent = "datagram_bytes_sent" "Bytes of datagrams sent, without IP and UDP headers.";
    Counter send_messages = "send_messages" "Messages sent; one holds several datagrams with UDP GSO.";
    Counter gso_messages = "gso_messages" "Messages sent that held several datagrams.";
    Counter gso_segments = "gso_segments" "Datagrams sent in such messages." "Divided by the line above: segments a send, what large downloads are cheap by.";
    Counter syscalls_recvmmsg = "io_syscalls" [call = "recvmmsg"] "System calls for datagrams, and waits for anything at all." "System calls to receive.";
    Counter syscalls_sendmmsg = "io_syscalls" [call = "sendmmsg"] "System calls for datagrams, and waits for anything at all." "System calls to send.";
    Counter syscalls_io_uring_enter = "io_syscalls" [call = "io_uring_enter"] "System calls for datagrams, and waits for anything at all." "System calls to do both, with `io = \"io-uring\"`.";
    Counter syscalls_epoll_wait = "io_syscalls" [call = "epoll_wait"] "System calls for datagrams, and waits for anything at all." "Times a worker had nothing to do and waited, for anything.";
    Counter wakes_timer = "worker_wakes" [cause = "timer"] "Times a worker's wait ended, by what ended it." "A timer of QUIC: packets may leave, an acknowledgement is due, or a probe. Where several causes coincide, the one counts whose task runs first.";
    Counter wakes_datagrams = "worker_wakes" [cause = "datagrams"] "Times a worker's wait ended, by what ended it." "A UDP socket was readable.";
    Counter wakes_moderation = "worker_wakes" [cause = "moderation"] "Times a worker's wait ended, by what ended it." "The time had come to take datagrams: see [`litequic.receive_moderation`](../configuration.md#litequic).";
    Counter wakes_origin = "worker_wakes" [cause = "origin"] "Times a worker's wait ended, by what ended it." "A socket of an origin, or of a client over TCP.";
    Counter wakes_other = "worker_wakes" [cause = "other"] "Times a worker's wait ended, by what ended it." "Anything else: the worker's own timers, two a second and those of timeouts, one a second of each stream that waits for `send_buffer`; a UDP socket that takes datagrams again; name lookups, reloads.";
    Counter receive_moderations = "receive_moderations" "Times a worker began to take datagrams at fixed times instead of when each arrives." "See [`litequic.receive_moderation`](../configuration.md#litequic).";
    Counter receive_rearmed_buffers = "receive_rearmed" [reason = "buffers"] "Times a receive of many messages ended and was begun anew." "Times io_uring's receive had used up its buffers (twice `receive_batch`) before the worker came to it. What came meanwhile waited in the socket; nothing was lost.";
    Counter receive_rearmed_other = "receive_rearmed" [reason = "other"] "Times a receive of many messages ended and was begun anew." "Times it ended for another reason.";
    Counter send_blocked_buffer = "send_blocked" [by = "buffer"] "Times datagrams had to wait before the kernel took them." "Times the socket's buffer was full: datagrams waited for it.";
    Counter send_blocked_below = "send_blocked" [by = "queue"] "Times datagrams had to wait before the kernel took them." "Times a queue below it was, or memory short: they waited for a millisecond.";
    Counter datagrams_dropped_truncated = "datagrams_dropped" [reason = "truncated"] "Datagrams that could not be received or sent." "Received datagrams that were larger than their buffer, which is 2 KiB without GRO.";
    Counter datagrams_dropped_too_large = "datagrams_dropped" [reason = "too_large"] "Datagrams that could not be received or sent." "Datagrams larger than a packet may be: path MTU discovery, as it should be.";
    Counter datagrams_dropped_refused = "datagrams_dropped" [reason = "refused"] "Datagrams that could not be received or sent." "Datagrams that the system does not send: no route, a firewall, an address that is no longer ours.";
    Counter io_degraded_gso_missing = "io_degraded" [feature = "gso", reason = "missing"] "Sockets that do without a feature that was asked for." "Sockets without GSO, because the kernel does not have it. See [What the kernel has](../operating.md#what-the-kernel-has).";
    Counter io_degraded_gso_eio = "io_degraded" [feature = "gso", reason = "EIO"] "Sockets that do without a feature that was asked for." "Sockets on which it was switched off, because a device cannot compute checksums. Nothing was lost.";
    Counter io_degraded_gso_einval = "io_degraded" [feature = "gso", reason = "EINVAL"] "Sockets that do without a feature that was asked for.";
    Counter io_degraded_io_uring_forbidden = "io_degraded" [feature = "io_uring", reason = "forbidden"] "Sockets that do without a feature that was asked for." "Sockets that epoll serves although `io = \"io-uring\"` was asked for: seccomp, a security module or `kernel.io_uring_disabled` forbids it. See [io_uring](../operating.md#io_uring).";
    Counter io_degraded_io_uring_missing = "io_degraded" [feature = "io_uring", reason = "missing"] "Sockets that do without a feature that was asked for.";
    Counter io_degraded_io_uring_memory = "io_degraded" [feature = "io_uring", reason = "memory"] "Sockets that do without a feature that was asked for.";
    Counter io_degraded_io_uring_broken = "io_degraded" [feature = "io_uring", reason = "broken"] "Sockets that do without a feature that was asked for.";
    Counter io_degraded_gro = "io_degraded" [feature = "gro", reason = "missing"] "Sockets that do without a feature that was asked for." "Sockets without GRO.";
    Counter io_degraded_ecn = "io_degraded" [feature = "ecn", reason = "missing"] "Sockets that do without a feature that was asked for." "Sockets that do not see congestion marks.";
    Counter io_degraded_pktinfo = "io_degraded" [feature = "pktinfo", reason = "missing"] "Sockets that do without a feature that was asked for." "Sockets that do not see which of the machine's addresses a datagram came to.";
}
