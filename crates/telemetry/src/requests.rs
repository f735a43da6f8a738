//! Metrics of a worker's requests over all protocols.

use super::{Counter, Gauge, Histogram, LIMIT_REACHED, SizeHistogram, TIMEOUTS, metrics};
use http::StatusCode;

metrics! {
    /// Metrics of one worker's requests, which that worker alone writes. Aligned so that two workers never share a
    /// cache line.
    #[repr(align(128))]
    pub struct RequestMetrics {
        Gauge("requests_open", "Requests that are being read or served now.") {
            requests_open "Over HTTP/3 those whose header is awaited too, and tunnels over all.",
        }
        Counter("responses", "Responses by status class.") {
            responses_1xx [class: "1xx"]
                "Interim responses over HTTP/2 and HTTP/3, and the 101 of tunnels over HTTP/1.1.",
            responses_2xx [class: "2xx"]
                "Responses; litequic's own count too. Over TCP a response counts once the kernel has its first byte, \
                    over HTTP/3 once QUIC has.",
            responses_3xx [class: "3xx"],
            responses_4xx [class: "4xx"],
            responses_5xx [class: "5xx"],
        }
        Counter("request_body_bytes", "Bytes of request bodies, and of tunnels, received from clients.") {
            request_body_bytes,
        }
        Counter("lingering_bytes", "Bytes of requests that were discarded because the request was answered already.") {
            lingering_bytes "Up to 64 MiB each.",
        }
        Counter("response_body_bytes", "Bytes of response bodies, and of tunnels, sent to QUIC or TLS.") {
            response_body_bytes,
        }
        Counter(
            "streams_reset",
            "Requests that ended before their response was complete, by cause; without malformed ones."
        ) {
            streams_reset_by_client [by: "client"]
                "The client cancelled the request, or its connection closed; seeking in a video does that.",
            streams_reset_by_proxy [by: "litequic"]
                "The origin truncated the response, the request took too long, or the client read nothing for \
                 `timeouts.send`.",
        }
        Counter("priority_requests", "Requests with a `Priority` field (RFC 9218) that was obeyed.") {
            priority_requests "Unless `litequic.priorities` is off, or the client is a trusted proxy.",
        }
        Counter("priority_updates", "PRIORITY_UPDATE frames, by result.") {
            priority_updates_applied [outcome: "applied"] "The request was being served.",
            priority_updates_early [outcome: "early"] "The frame was kept for a request that had not begun.",
            priority_updates_late [outcome: "late"] "The request was over.",
            priority_updates_dropped [outcome: "dropped"] "Too many frames were kept for later requests.",
            priority_updates_invalid [outcome: "invalid"] "The value does not parse.",
            priority_updates_skipped [outcome: "skipped"]
                "Frames longer than 512 bytes over HTTP/3, or 64 over HTTP/2, which are not read.",
        }
        Counter(LIMIT_REACHED) {
            limit_header_bytes [limit: "max_header_bytes"]
                "See [Limits](../operating.md#limits-and-timeouts) for all that are named like a key.",
            limit_headers [limit: "max_headers"],
            limit_lingering_bytes [limit: "max_lingering_bytes"],
            limit_requests [limit: "max_requests"],
            limit_resets [limit: "max_resets"],
            limit_control_frames [limit: "max_control_frames"],
            limit_small_frames [limit: "max_small_frames"],
            limit_receive_held [limit: "receive_held"]
                "Connections closed because a worker held more than `limits.worker_receive_buffer`, and these \
                 connections the most.",
            limit_send_buffer [limit: "send_buffer"],
            limit_upload_rate [limit: "min_upload_rate"] "Requests whose body was received at a lower rate.",
            limit_download_rate [limit: "min_download_rate"] "Responses that their client read at a lower rate.",
        }
        Counter(TIMEOUTS) {
            timeout_request_header [timeout: "request_header"],
            timeout_request_body [timeout: "request_body"],
            timeout_lingering [timeout: "lingering"],
            timeout_send [timeout: "send"],
            timeout_tunnel [timeout: "tunnel"],
            timeout_tunnel_half_closed [timeout: "tunnel_half_closed"],
        }
        Histogram(
            "request_duration_seconds",
            "Duration of requests and tunnels, from the beginning to the last acknowledgement (over TCP, until the \
             kernel has the last byte) or to the abort."
        ) {
            request_duration,
        }
        SizeHistogram(
            "request_size_bytes",
            "Sizes of request bodies, as far as they were read from clients. Tunnels and requests without a body do \
             not count."
        ) {
            request_size,
        }
        SizeHistogram(
            "response_size_bytes",
            "Sizes of response bodies, as far as they were sent to QUIC or TLS. Empty bodies count; tunnels do not."
        ) {
            response_size,
        }
    }
}

impl RequestMetrics {
    /// Counts a response by the class of `status`.
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
