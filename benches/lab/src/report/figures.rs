//! The names of figures, and how pages show them.

use crate::bench::stats::Interval;
use serde::{Deserialize, Serialize};

/// What costs are counted by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Per {
    /// A gigabyte (10⁹ bytes) of bodies: costs in seconds, rates in MB/s.
    Gigabyte,
    /// A request: costs in microseconds.
    Request,
    /// A handshake: costs in microseconds.
    Handshake,
    /// An open connection: costs in microseconds.
    Connection,
}

impl Per {
    /// From a figure of the whole load to that of one, in the unit that is shown.
    pub(crate) fn scale(self, done: f64, bytes: f64) -> f64 {
        match self {
            Self::Gigabyte => 1e9 / bytes,
            Self::Request | Self::Handshake | Self::Connection => 1e6 / done,
        }
    }

    /// The unit of a cost.
    pub(crate) fn unit(self) -> &'static str {
        match self {
            Self::Gigabyte => "s/GB",
            Self::Request => "µs/request",
            Self::Handshake => "µs/handshake",
            Self::Connection => "µs/connection",
        }
    }

    fn rate(self) -> &'static str {
        match self {
            Self::Gigabyte => "MB/s",
            Self::Request => "requests/s",
            Self::Handshake => "handshakes/s",
            Self::Connection => "connections/s",
        }
    }
}

/// Figures that pages show after the one that contenders are compared by, in this order. Those whose name has a slash
/// come from a profile or from counted system calls, and have their own tables.
pub(super) const SHOWN: [&str; 106] = [
    "served",
    "served_h3",
    "served_h2",
    "served_h1",
    "served_status",
    "answered",
    "status_5xx",
    "unanswered",
    "share",
    "throughput",
    "delay",
    "carried",
    "bitrate",
    "rebuffering",
    "stalls",
    "start_up_ms",
    "switches",
    "bitrate_fairness",
    "failures",
    "throttled",
    "least_bitrate",
    "goodput",
    "steady",
    "cpu",
    "user",
    "system",
    "rate",
    "busy",
    "receiver_cpu",
    "receiver_interrupts",
    "receiver_core",
    "server_core",
    "receiver_wakes",
    "receiver_sent",
    "receiver_packets",
    "receiver_calls",
    "wakes",
    "sends",
    "packets_per_send",
    "queue_drops",
    "queue_p50_us",
    "queue_p99_us",
    "burst_mean",
    "burst_p99",
    "burst_1ms_mean",
    "burst_1ms_p99",
    "link_packets_per_ack",
    "link_ack_delay_p50_us",
    "link_ack_delay_p99_us",
    "link_in_flight",
    "flows",
    "fairness",
    "memory_each",
    "memory_most",
    "memory",
    "syscalls",
    "p50_us",
    "p99_us",
    "p99_h3_us",
    "p99_h2_us",
    "p99_h1_us",
    "p99_status_us",
    "first_us",
    "later_us",
    "first_byte_us",
    "packets_per_ack",
    "own_packets_per_ack",
    "acks_per_call",
    "acks_per_batch",
    "acks_merged",
    "datagrams_per_batch",
    "datagrams_per_send",
    "io_calls",
    "wakes_by_timer",
    "wakes_by_datagrams",
    "wakes_by_origin",
    "wakes_otherwise",
    "receive_batches",
    "ack_frequency",
    "missing",
    "lost_on_the_way",
    "overtaken",
    "declared_lost",
    "spurious",
    "lost_at_first",
    "lost_in_all",
    "client_drops",
    "rtt_mean_us",
    "rtt_p50_us",
    "rtt_p99_us",
    "client_rtt_us",
    "resumed",
    "handshake_bytes_up",
    "handshake_bytes_down",
    "handshake_datagrams_up",
    "handshake_datagrams_down",
    "drops",
    "late_us",
    "origin_cpu",
    "memory_peak",
    "oom_kills",
    "step_most",
    "ended",
    "attack_connections",
    "attack_closed",
    "attack_requests",
];

/// Whether pages show a figure.
pub(crate) fn is_shown(figure: &str) -> bool {
    SHOWN.contains(&figure)
}

/// Which way a figure is good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Better {
    Less,
    More,
}

impl Better {
    /// `None`: it describes, without good or bad. Drops and bursts are means, goodput is the end.
    pub(super) fn of(figure: &str) -> Option<Self> {
        match figure {
            "cpu" | "receiver_cpu" | "user" | "system" | "wakes" | "sends" | "memory_each" | "memory_most"
            | "syscalls" | "io_calls" | "p50_us" | "p99_us" | "first_byte_us" | "first_us" | "later_us"
            | "rtt_mean_us" | "declared_lost" | "spurious" | "rebuffering" | "start_up_ms" => Some(Self::Less),
            "goodput" | "steady" | "rate" | "fairness" | "served" | "answered" | "carried" | "bitrate" => {
                Some(Self::More)
            }
            _ => None,
        }
    }
}

/// A figure's name for people, with its unit.
pub(super) fn title(figure: &str, per: Per) -> String {
    match figure {
        "cpu" => format!("CPU {}", per.unit()),
        "rate" => per.rate().to_owned(),
        "goodput" => "Mbit/s".to_owned(),
        "steady" => "Mbit/s after its beginning".to_owned(),
        "wakes" => "wakes a MB".to_owned(),
        "sends" => "sends a MB".to_owned(),
        "packets_per_send" => "packets a send".to_owned(),
        "queue_drops" => "dropped of a million".to_owned(),
        "queue_p50_us" => "queue, median µs".to_owned(),
        "queue_p99_us" => "p99 µs".to_owned(),
        "burst_mean" => "packets a burst".to_owned(),
        "burst_p99" => "p99".to_owned(),
        "burst_1ms_mean" => "within 1 ms".to_owned(),
        "burst_1ms_p99" => "p99".to_owned(),
        "link_packets_per_ack" => "packets an ACK at the link".to_owned(),
        "link_ack_delay_p50_us" => "ACK delay at the link, median µs".to_owned(),
        "link_ack_delay_p99_us" => "p99 µs".to_owned(),
        "link_in_flight" => "KB in flight, median".to_owned(),
        "fairness" => "Jain's index".to_owned(),
        "share" => "share %".to_owned(),
        "throughput" => "throughput, Mbit/s of packets".to_owned(),
        "delay" => "delay, ms".to_owned(),
        "carried" => "viewers satisfied".to_owned(),
        "bitrate" => "average bitrate, Mbit/s".to_owned(),
        "rebuffering" => "rebuffering, % of the time".to_owned(),
        "stalls" => "stalls a viewer".to_owned(),
        "start_up_ms" => "start-up, ms".to_owned(),
        "switches" => "switches a viewer".to_owned(),
        "bitrate_fairness" => "Jain's index of bitrates".to_owned(),
        "failures" => "failed requests".to_owned(),
        "throttled" => "seconds throttled".to_owned(),
        "least_bitrate" => "the worst viewer's bitrate, Mbit/s".to_owned(),
        "late_us" => "link late by µs, p99.9".to_owned(),
        "busy" => "busy %".to_owned(),
        "memory_each" => "KB a connection".to_owned(),
        "memory_most" => "at the most".to_owned(),
        "memory" => "memory before, MB".to_owned(),
        "syscalls" => "system calls a MB".to_owned(),
        "served" => "served within 2 s, %".to_owned(),
        "answered" => "answered with success, %".to_owned(),
        "status_5xx" => "status 5xx".to_owned(),
        "unanswered" => "no answer".to_owned(),
        "served_h3" => "HTTP/3".to_owned(),
        "served_h2" => "HTTP/2".to_owned(),
        "served_h1" => "HTTP/1.1".to_owned(),
        "served_status" => "status port".to_owned(),
        "p99_h3_us" => "p99 µs, HTTP/3".to_owned(),
        "p99_h2_us" => "HTTP/2".to_owned(),
        "p99_h1_us" => "HTTP/1.1".to_owned(),
        "p99_status_us" => "status port".to_owned(),
        "memory_peak" => "memory at most, MB".to_owned(),
        "oom_kills" => "OOM kills".to_owned(),
        "step_most" => "highest memory step".to_owned(),
        "ended" => "process ended".to_owned(),
        "attack_connections" => "attackers' connections".to_owned(),
        "attack_closed" => "of them closed".to_owned(),
        "attack_requests" => "attackers' requests".to_owned(),
        "p50_us" => "median µs".to_owned(),
        "p99_us" => "p99 µs".to_owned(),
        "first_us" => "first of a connection, median µs".to_owned(),
        "later_us" => "later ones, median µs".to_owned(),
        "first_byte_us" => "first byte µs".to_owned(),
        "packets_per_ack" => "packets an ACK".to_owned(),
        "own_packets_per_ack" => "the same, by the server's count".to_owned(),
        "acks_per_call" => "ACKs a receive call".to_owned(),
        "acks_per_batch" => "ACKs a batch".to_owned(),
        "acks_merged" => "ACKs merged, of 1".to_owned(),
        "datagrams_per_batch" => "datagrams a batch".to_owned(),
        "datagrams_per_send" => "datagrams a send".to_owned(),
        "io_calls" => "I/O calls a MB".to_owned(),
        "receiver_cpu" => format!("client's CPU {}", per.unit()),
        "receiver_interrupts" => format!("interrupts of its core, {}", per.unit()),
        "receiver_core" => "client's core busy %".to_owned(),
        "server_core" => "server's core busy %".to_owned(),
        "receiver_wakes" => "client's wakes a MB".to_owned(),
        "receiver_sent" => "packets it sent a MB".to_owned(),
        "receiver_calls" => "its receive calls a MB".to_owned(),
        "receiver_packets" => "packets to its kernel a MB".to_owned(),
        "wakes_by_timer" => "wakes of its workers a MB by a timer".to_owned(),
        "wakes_by_datagrams" => "by datagrams".to_owned(),
        "wakes_by_origin" => "by the origin".to_owned(),
        "wakes_otherwise" => "otherwise".to_owned(),
        "receive_batches" => "batches received a MB".to_owned(),
        "ack_frequency" => "ACK_FREQUENCY frames".to_owned(),
        "missing" => "packets missing".to_owned(),
        "lost_on_the_way" => "lost of a million".to_owned(),
        "overtaken" => "overtaken of a million".to_owned(),
        "declared_lost" => "declared lost of a million".to_owned(),
        "spurious" => "of them wrongly".to_owned(),
        "lost_at_first" => "lost at the beginning, of a million".to_owned(),
        "lost_in_all" => "lost with the beginning, of a million".to_owned(),
        "client_drops" => "messages that clients' sockets dropped".to_owned(),
        "rtt_mean_us" => "server's smoothed RTT, mean µs".to_owned(),
        "rtt_p50_us" => "median".to_owned(),
        "rtt_p99_us" => "p99".to_owned(),
        "handshake_bytes_up" => "bytes to the server, each".to_owned(),
        "handshake_bytes_down" => "bytes to the client, each".to_owned(),
        "handshake_datagrams_up" => "datagrams to the server, each".to_owned(),
        "handshake_datagrams_down" => "datagrams to the client, each".to_owned(),
        "client_rtt_us" => "client's RTT µs".to_owned(),
        "origin_cpu" => "origin's CPU".to_owned(),
        other => match other.strip_prefix("share/") {
            Some(part) => format!("{part}, % of samples"),
            None => other.to_owned(),
        },
    }
}

/// A number with as many digits as mean something.
pub(super) fn number(value: f64) -> String {
    let digits = match value.abs() {
        magnitude if magnitude >= 100.0 || magnitude == 0.0 => 0,
        magnitude if magnitude >= 10.0 => 1,
        magnitude if magnitude >= 0.1 => 2,
        _ => 3,
    };
    format!("{value:.digits$}")
}

/// A median and its interval.
pub(super) fn interval(interval: &Interval) -> String {
    let Interval { low, median, high } = interval;
    format!("{} ({}–{})", number(*median), number(*low), number(*high))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_are_scaled_to_one_and_shown_with_their_unit() {
        assert_eq!(Per::Gigabyte.scale(4.0, 2e9) * 3.0, 1.5);
        assert_eq!(Per::Request.scale(1000.0, 1e6) * 0.02, 20.0);
        assert_eq!(title("cpu", Per::Gigabyte), "CPU s/GB");
    }

    #[test]
    fn numbers_have_three_digits_or_so() {
        let shown: Vec<String> = [0.0, 0.0123, 0.5678, 12.345, 1234.5].into_iter().map(number).collect();
        assert_eq!(shown, ["0", "0.012", "0.57", "12.3", "1234"]);
    }
}
