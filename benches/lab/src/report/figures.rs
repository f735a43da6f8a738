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

/// Figures that pages show after the one that contenders are compared by, in this order, each with its name for people:
/// `{unit}` is that of a cost, `{rate}` that of a rate. Those whose name has a slash come from a profile or from counted
/// system calls, and have their own tables.
pub(super) const SHOWN: [(&str, &str); 107] = [
    ("served", "served within 2 s, %"),
    ("served_h3", "HTTP/3"),
    ("served_h2", "HTTP/2"),
    ("served_h1", "HTTP/1.1"),
    ("served_status", "status port"),
    ("answered", "answered with success, %"),
    ("status_5xx", "status 5xx"),
    ("unanswered", "no answer"),
    ("share", "share %"),
    ("throughput", "throughput, Mbit/s of packets"),
    ("delay", "delay, ms"),
    ("carried", "viewers satisfied"),
    ("bitrate", "average bitrate, Mbit/s"),
    ("rebuffering", "rebuffering, % of the time"),
    ("stalls", "stalls a viewer"),
    ("start_up_ms", "start-up, ms"),
    ("switches", "switches a viewer"),
    ("bitrate_fairness", "Jain's index of bitrates"),
    ("failures", "failed requests"),
    ("throttled", "seconds throttled"),
    ("least_bitrate", "the worst viewer's bitrate, Mbit/s"),
    ("goodput", "Mbit/s"),
    ("steady", "Mbit/s after its beginning"),
    ("cpu", "CPU {unit}"),
    ("user", "user"),
    ("system", "system"),
    ("rate", "{rate}"),
    ("busy", "busy %"),
    ("receiver_cpu", "client's CPU {unit}"),
    ("receiver_interrupts", "interrupts of its core, {unit}"),
    ("receiver_core", "client's core busy %"),
    ("server_core", "server's core busy %"),
    ("receiver_wakes", "client's wakes a MB"),
    ("receiver_sent", "packets it sent a MB"),
    ("receiver_packets", "packets to its kernel a MB"),
    ("receiver_calls", "its receive calls a MB"),
    ("wakes", "wakes a MB"),
    ("sends", "sends a MB"),
    ("packets_per_send", "packets a send"),
    ("queue_drops", "dropped of a million"),
    ("queue_p50_us", "queue, median µs"),
    ("queue_p99_us", "p99 µs"),
    ("burst_mean", "packets a burst"),
    ("burst_p99", "p99"),
    ("burst_1ms_mean", "within 1 ms"),
    ("burst_1ms_p99", "p99"),
    ("link_packets_per_ack", "packets an ACK at the link"),
    ("link_ack_delay_p50_us", "ACK delay at the link, median µs"),
    ("link_ack_delay_p99_us", "p99 µs"),
    ("link_in_flight", "KB in flight, median"),
    ("flows", "flows"),
    ("fairness", "Jain's index"),
    ("memory_each", "KB a connection"),
    ("memory_most", "at the most"),
    ("memory", "memory before, MB"),
    ("syscalls", "system calls a MB"),
    ("p50_us", "median µs"),
    ("p99_us", "p99 µs"),
    ("p99_h3_us", "p99 µs, HTTP/3"),
    ("p99_h2_us", "HTTP/2"),
    ("p99_h1_us", "HTTP/1.1"),
    ("p99_status_us", "status port"),
    ("first_us", "first of a connection, median µs"),
    ("later_us", "later ones, median µs"),
    ("first_byte_us", "first byte µs"),
    ("packets_per_ack", "packets an ACK"),
    ("own_packets_per_ack", "the same, by the server's count"),
    ("acks_per_call", "ACKs a receive call"),
    ("acks_per_batch", "ACKs a batch"),
    ("acks_merged", "ACKs merged, of 1"),
    ("datagrams_per_batch", "datagrams a batch"),
    ("datagrams_per_send", "datagrams a send"),
    ("io_calls", "I/O calls a MB"),
    ("wakes_by_timer", "wakes of its workers a MB by a timer"),
    ("wakes_by_datagrams", "by datagrams"),
    ("wakes_by_origin", "by the origin"),
    ("wakes_otherwise", "otherwise"),
    ("receive_batches", "batches received a MB"),
    ("ack_frequency", "ACK_FREQUENCY frames"),
    ("missing", "packets missing"),
    ("lost_on_the_way", "lost of a million"),
    ("overtaken", "overtaken of a million"),
    ("declared_lost", "declared lost of a million"),
    ("spurious", "of them wrongly"),
    ("awaited", "of them on a path that reorders"),
    ("lost_at_first", "lost at the beginning, of a million"),
    ("lost_in_all", "lost with the beginning, of a million"),
    ("client_drops", "messages that clients' sockets dropped"),
    ("rtt_mean_us", "server's smoothed RTT, mean µs"),
    ("rtt_p50_us", "median"),
    ("rtt_p99_us", "p99"),
    ("client_rtt_us", "client's RTT µs"),
    ("resumed", "resumed"),
    ("handshake_bytes_up", "bytes to the server, each"),
    ("handshake_bytes_down", "bytes to the client, each"),
    ("handshake_datagrams_up", "datagrams to the server, each"),
    ("handshake_datagrams_down", "datagrams to the client, each"),
    ("drops", "drops"),
    ("late_us", "link late by µs, p99.9"),
    ("origin_cpu", "origin's CPU"),
    ("memory_peak", "memory at most, MB"),
    ("oom_kills", "OOM kills"),
    ("step_most", "highest memory step"),
    ("ended", "process ended"),
    ("attack_connections", "attackers' connections"),
    ("attack_closed", "of them closed"),
    ("attack_requests", "attackers' requests"),
];

/// Whether pages show a figure.
pub(crate) fn is_shown(figure: &str) -> bool {
    SHOWN.iter().any(|(name, _)| *name == figure)
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
    match (SHOWN.iter().find(|(name, _)| *name == figure), figure.strip_prefix("share/")) {
        (Some((_, title)), _) => title.replace("{unit}", per.unit()).replace("{rate}", per.rate()),
        (None, Some(part)) => format!("{part}, % of samples"),
        (None, None) => figure.to_owned(),
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
