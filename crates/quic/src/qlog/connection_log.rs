//! Writes the log of one connection: events add lines, which the order passes on.

use super::{
    frames,
    json::JsonObject,
    log_order::{LogOrder, RECORD_SEPARATOR, write_event_record, write_omitted_count},
    parameters,
};
use jiff::Timestamp;
use s2n_quic_core::{connection::Error, endpoint::Location, packet::number::PacketNumberSpace};
use std::{
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// Event schemas: that of the published draft, and litequic's own events (docs/operating.md, Packets of a connection).
const EVENT_SCHEMAS: [&str; 2] =
    ["urn:ietf:params:qlog:events:quic-12", "urn:uuid:382490e5-3c37-4c5b-b427-6341257b5201#litequic-1"];
/// Unit of delays in litequic's own ACK frames, as announced by s2n-quic (RFC 9000 §18.2).
const OWN_ACK_DELAY_EXPONENT: u8 = 3;

#[derive(Debug)]
pub(crate) struct ConnectionLog {
    order: Arc<LogOrder>,
    worker: usize,
    /// Number of this log among those of the order.
    number: usize,
    /// Begin of the log, from which its events' times count.
    epoch: Instant,
    state: Mutex<LogState>,
}

#[derive(Debug, Default)]
struct LogState {
    /// Number of events left out since the last written line.
    omitted: u64,
    lines: Vec<u8>,
    metrics: LogMetrics,
    congestion: Option<&'static str>,
    batch: u64,
    /// Bursts of the pacer that had begun before the last packet was sent, and that packet's number.
    bursts: (u64, u64),
    /// Unit of delays in the client's ACK frames.
    ack_delay_exponent: Option<u8>,
}

/// State of loss detection and of the congestion controller, as reported by s2n-quic.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct LogMetrics {
    pub(crate) min_rtt: Duration,
    pub(crate) smoothed_rtt: Duration,
    pub(crate) latest_rtt: Duration,
    pub(crate) rtt_variance: Duration,
    pub(crate) pto_count: u32,
    pub(crate) congestion_window: u32,
    pub(crate) bytes_in_flight: u32,
}

/// Packet number and space of a logged packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LoggedPacket {
    pub(crate) space: PacketNumberSpace,
    pub(crate) number: u64,
}

impl ConnectionLog {
    /// Begins the log of a connection on `worker` with its header; `None` if the order is used up.
    pub(crate) fn open_log(order: &Arc<LogOrder>, worker: usize) -> Option<Arc<Self>> {
        let (number, epoch) = order.begin_log()?;
        let log = Self { number, epoch, order: Arc::clone(order), worker, state: Mutex::default() };
        let wall_clock = Timestamp::now();
        let mut line = vec![RECORD_SEPARATOR];
        JsonObject::new(&mut line)
            .add_word("file_schema", "urn:ietf:params:qlog:file:sequential")
            .add_word("serialization_format", "application/qlog+json-seq")
            .add_object("trace", |trace| {
                trace.add_object("common_fields", |common| {
                    common.add_word("group_id", &log.number.to_string()).add_word("time_format", "relative_to_epoch");
                    common.add_object("reference_time", |time| {
                        time.add_word("clock_type", "monotonic").add_word("epoch", "unknown");
                        time.add_word("wall_clock_time", &format!("{wall_clock:.3}"));
                    });
                });
                trace.add_object("vantage_point", |point| {
                    point.add_word("name", concat!("litequic ", env!("CARGO_PKG_VERSION"))).add_word("type", "server");
                });
                trace.add_array("event_schemas", |schemas| {
                    EVENT_SCHEMAS.into_iter().for_each(|schema| schemas.push_word(schema));
                });
            });
        line.push(b'\n');
        // The order has room for the header, which is among its first lines.
        order.hand_over_lines(worker, &line);
        Some(Arc::new(log))
    }

    /// Whether the order of the log is over.
    pub(crate) fn is_order_over(&self) -> bool {
        self.order.is_over()
    }

    /// Sets the unit of delays in the client's ACK frames, as a power of two of microseconds.
    pub(crate) fn set_ack_delay_exponent(&self, exponent: u8) {
        self.lock_log().ack_delay_exponent = Some(exponent);
    }

    /// Logs the start of a connection from `client` to `local`.
    pub(crate) fn log_started(&self, client: SocketAddr, local: SocketAddr) {
        self.write_event("quic:connection_started", |data, _| {
            data.add_object("local", |end| write_endpoint(end, local));
            data.add_object("remote", |end| self.write_client(end, client));
        });
    }

    /// Logs that s2n-quic sends on path number `path` from now on, to `client` from `local`.
    pub(crate) fn log_tuple(&self, path: u64, client: SocketAddr, local: SocketAddr) {
        self.write_event("quic:tuple_assigned", |data, _| {
            data.add_word("tuple_id", &path.to_string());
            data.add_object("tuple_remote", |end| self.write_client(end, client));
            data.add_object("tuple_local", |end| write_endpoint(end, local));
        });
    }

    /// Logs the encoded transport parameters of litequic or of the client.
    pub(crate) fn log_parameters(&self, is_local: bool, encoded: &[u8]) {
        if !is_local {
            self.set_ack_delay_exponent(parameters::read_ack_delay_exponent(encoded));
        }
        self.write_event("quic:parameters_set", |data, _| {
            data.add_word("initiator", if is_local { "local" } else { "remote" });
            parameters::write_parameters(data, encoded);
        });
    }

    /// Logs a received packet with its unchanged `payload`; `batch` is the receive batch, 0 without batches.
    pub(crate) fn log_received(&self, packet: LoggedPacket, payload: &[u8], batch: u64) {
        if batch > 0 && std::mem::replace(&mut self.lock_log().batch, batch) != batch {
            self.write_event("litequic:receive_batch", |data, _| _ = data.add_number("batch", batch));
        }
        self.write_event("quic:packet_received", |data, state| {
            let exponent = match packet.space {
                PacketNumberSpace::ApplicationData => state.ack_delay_exponent.unwrap_or(OWN_ACK_DELAY_EXPONENT),
                // Delays have no meaning in these spaces (RFC 9000 §13.2.5).
                PacketNumberSpace::Initial | PacketNumberSpace::Handshake => 0,
            };
            packet.write_header(data);
            data.add_array("frames", |array| _ = frames::write_frames(array, payload, exponent));
            data.add_object("raw", |raw| _ = raw.add_number("payload_length", payload.len() as u64));
        });
    }

    /// Logs a packet that leaves with `payload`, before which `bursts` bursts of the pacer have begun. The pacer begins
    /// one with the packet that leaves first, once it has left.
    pub(crate) fn log_packet_sent(&self, packet: LoggedPacket, payload: &[u8], bursts: u64) {
        if packet.space == PacketNumberSpace::ApplicationData {
            let (before, first) = std::mem::replace(&mut self.lock_log().bursts, (bursts, packet.number));
            if bursts != before {
                self.write_event("litequic:pacing_train", |data, _| {
                    data.add_number("train", bursts).add_number("first_packet", first);
                });
            }
        }
        let mut requested = None;
        self.write_event("quic:packet_sent", |data, _| {
            packet.write_header(data);
            data.add_array("frames", |array| requested = frames::write_frames(array, payload, OWN_ACK_DELAY_EXPONENT));
            data.add_object("raw", |raw| _ = raw.add_number("payload_length", payload.len() as u64));
        });
        if let Some(requested) = requested {
            self.write_event("litequic:ack_frequency_requested", |data, _| {
                data.add_number("packet_number", packet.number)
                    .add_number("sequence_number", requested.sequence_number);
                data.add_number("ack_eliciting_threshold", requested.ack_eliciting_threshold);
                data.add_millis("requested_max_ack_delay", requested.requested_max_ack_delay);
                data.add_number("reordering_threshold", requested.reordering_threshold);
            });
        }
    }

    /// Logs that the ACK frame of a received packet had no new numbers and was replaced by PADDING.
    pub(crate) fn log_ack_merged(&self, packet: LoggedPacket) {
        self.write_event("litequic:ack_merged", |data, _| _ = data.add_number("packet_number", packet.number));
    }

    /// Logs that a received packet belongs to a flood and was replaced by PADDING.
    pub(crate) fn log_dropped(&self, packet: LoggedPacket, bytes: usize) {
        self.write_event("quic:packet_dropped", |data, _| {
            packet.write_header(data);
            data.add_object("raw", |raw| _ = raw.add_number("payload_length", bytes as u64))
                .add_word("trigger", "rejected");
            data.add_object("details", |details| _ = details.add_word("limit", "max_control_frames"));
        });
    }

    pub(crate) fn log_lost(&self, packet: LoggedPacket, is_mtu_probe: bool) {
        self.write_event("quic:packet_lost", |data, _| {
            packet.write_header(data);
            if is_mtu_probe {
                data.add_flag("is_mtu_probe_packet", true);
            }
        });
    }

    /// Logs changes of the path's state to `metrics`, and of slow start.
    pub(crate) fn log_recovery(&self, metrics: LogMetrics, is_slow_start: bool) {
        let (before, congestion) = {
            let mut state = self.lock_log();
            let now = if is_slow_start { "slow_start" } else { "congestion_avoidance" };
            (std::mem::replace(&mut state.metrics, metrics), (state.congestion.replace(now), now))
        };
        if before != metrics {
            self.write_event("quic:recovery_metrics_updated", |data, _| {
                for (name, now, before) in [
                    ("min_rtt", metrics.min_rtt, before.min_rtt),
                    ("smoothed_rtt", metrics.smoothed_rtt, before.smoothed_rtt),
                    ("latest_rtt", metrics.latest_rtt, before.latest_rtt),
                    ("rtt_variance", metrics.rtt_variance, before.rtt_variance),
                ] {
                    if now != before {
                        data.add_millis(name, now);
                    }
                }
                for (name, now, before) in [
                    ("pto_count", metrics.pto_count, before.pto_count),
                    ("congestion_window", metrics.congestion_window, before.congestion_window),
                    ("bytes_in_flight", metrics.bytes_in_flight, before.bytes_in_flight),
                ] {
                    if now != before {
                        data.add_number(name, now);
                    }
                }
            });
        }
        if congestion.0 != Some(congestion.1) {
            self.write_event("quic:congestion_state_updated", |data, _| {
                if let Some(old) = congestion.0 {
                    data.add_word("old", old);
                }
                data.add_word("new", congestion.1);
            });
        }
    }

    /// Logs that the connection was closed by `error`.
    pub(crate) fn log_closed(&self, error: &Error) {
        self.write_event("quic:connection_closed", |data, _| {
            let initiator = |data: &mut JsonObject<'_>, initiator: Location| {
                data.add_word("initiator", if initiator == Location::Local { "local" } else { "remote" });
            };
            match *error {
                Error::Closed { initiator: by, .. } => {
                    initiator(data, by);
                    data.add_word("connection_error", "no_error").add_word("trigger", "application");
                }
                Error::Transport { code, initiator: by, .. } => {
                    initiator(data, by);
                    frames::write_error_code(data, "connection_error", code.as_u64(), true);
                    data.add_word("trigger", "error");
                }
                Error::Application { error, initiator: by, .. } => {
                    initiator(data, by);
                    frames::write_error_code(data, "application_error", *error, false);
                    data.add_word("trigger", "application");
                }
                Error::StatelessReset { .. } => {
                    data.add_word("initiator", "remote").add_word("trigger", "stateless_reset");
                }
                Error::IdleTimerExpired { .. } | Error::MaxHandshakeDurationExceeded { .. } => {
                    data.add_word("initiator", "local").add_word("trigger", "idle_timeout");
                }
                _ => _ = data.add_word("trigger", "unspecified"),
            }
        });
    }

    /// Writes a client's address, unless addresses are left out.
    fn write_client(&self, end: &mut JsonObject<'_>, client: SocketAddr) {
        if !self.order.anonymous {
            write_endpoint(end, client);
        }
    }

    fn write_event(&self, name: &str, data: impl FnOnce(&mut JsonObject<'_>, &LogState)) {
        let time = self.epoch.elapsed();
        let mut state = self.lock_log();
        let mut lines = std::mem::take(&mut state.lines);
        lines.clear();
        if state.omitted > 0 {
            write_omitted_count(&mut lines, self.number, time, state.omitted);
        }
        write_event_record(&mut lines, self.number, time, name, |object| data(object, &state));
        let has_room = self.order.hand_over_lines(self.worker, &lines);
        state.omitted = if has_room { 0 } else { state.omitted + 1 };
        state.lines = lines;
    }

    fn lock_log(&self) -> MutexGuard<'_, LogState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ConnectionLog {
    fn drop(&mut self) {
        let omitted = self.lock_log().omitted;
        self.order.end_one_log(self.number, omitted);
    }
}

impl LoggedPacket {
    fn write_header(self, data: &mut JsonObject<'_>) {
        data.add_object("header", |header| {
            let kind = match self.space {
                PacketNumberSpace::Initial => "initial",
                PacketNumberSpace::Handshake => "handshake",
                PacketNumberSpace::ApplicationData => "1RTT",
            };
            header.add_word("packet_type", kind).add_number("packet_number", self.number);
        });
    }
}

fn write_endpoint(end: &mut JsonObject<'_>, address: SocketAddr) {
    match address.ip().to_canonical() {
        IpAddr::V4(ip) => end.add_word("ip_v4", &ip.to_string()).add_number("port_v4", address.port()),
        IpAddr::V6(ip) => end.add_word("ip_v6", &ip.to_string()).add_number("port_v6", address.port()),
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::qlog::log_order::LogEnd;
    use serde_json::Value as Json;

    fn events(order: &LogOrder) -> Vec<Json> {
        read(order.take_lines())
    }

    fn read(lines: Vec<u8>) -> Vec<Json> {
        let lines = String::from_utf8(lines).unwrap();
        lines.lines().map(|line| serde_json::from_str(line.trim_start_matches('\u{1e}')).unwrap()).collect()
    }

    /// A slow reader loses events, which are counted where they are missing.
    #[test]
    fn events_that_were_left_out_are_counted_once_there_is_room() {
        let order = Arc::new(LogOrder::for_network("192.0.2.1".parse().unwrap(), 1, 1));
        let log = ConnectionLog::open_log(&order, 0).unwrap();
        let packet = |number| LoggedPacket { space: PacketNumberSpace::ApplicationData, number };
        let payload = [0x08, 0, 1, 2, 3];
        for number in 0..10_000 {
            log.log_received(packet(number), &payload, 0);
        }
        let first = events(&order);
        let kept = first.iter().filter(|event| event["name"] == "quic:packet_received").count() as u64;
        assert!((500..5_000).contains(&kept), "{kept}");
        log.log_received(packet(10_000), &payload, 0);
        (0..10_000).for_each(|number| log.log_received(packet(10_001 + number), &payload, 0));
        drop(log);
        let rest = events(&order);
        assert_eq!(rest[0]["name"], "litequic:events_omitted");
        assert_eq!(rest[0]["data"]["count"], 10_000 - kept);
        assert_eq!(rest[1]["data"]["header"]["packet_number"], 10_000);
        // Events left out at the end are counted too.
        let last = read(order.last_lines(LogEnd::Connection));
        assert_eq!(last[0]["data"]["count"], 10_000 - (rest.len() as u64 - 2));
        assert_eq!((&last[1]["name"], last.len()), (&"litequic:log_ended".into(), 2));
        assert!(order.has_all_ended());
    }

    #[test]
    fn only_changed_recovery_metrics_are_written() {
        let order = Arc::new(LogOrder::for_network("192.0.2.1".parse().unwrap(), 1, 1));
        let log = ConnectionLog::open_log(&order, 0).unwrap();
        let metrics = LogMetrics { congestion_window: 12_000, ..LogMetrics::default() };
        log.log_recovery(metrics, true);
        log.log_recovery(metrics, true);
        log.log_recovery(LogMetrics { pto_count: 1, ..metrics }, false);
        let changes: Vec<Json> = events(&order).into_iter().skip(1).map(|event| event["data"].clone()).collect();
        let expected = [
            serde_json::json!({ "congestion_window": 12_000 }),
            serde_json::json!({ "new": "slow_start" }),
            serde_json::json!({ "pto_count": 1 }),
            serde_json::json!({ "old": "slow_start", "new": "congestion_avoidance" }),
        ];
        assert_eq!(changes, expected);
    }

    #[test]
    fn an_anonymous_log_omits_the_address_of_the_client() {
        for (anonymous, remote) in
            [(false, serde_json::json!({ "ip_v4": "192.0.2.1", "port_v4": 7 })), (true, serde_json::json!({}))]
        {
            let order = LogOrder::for_network("192.0.2.1".parse().unwrap(), 1, 1);
            let order = Arc::new(if anonymous { order.without_addresses() } else { order });
            let log = ConnectionLog::open_log(&order, 0).unwrap();
            log.log_started("[::ffff:192.0.2.1]:7".parse().unwrap(), "[2001:db8::1]:443".parse().unwrap());
            let event = &events(&order)[1];
            assert_eq!(event["data"]["remote"], remote);
            assert_eq!(event["data"]["local"], serde_json::json!({ "ip_v6": "2001:db8::1", "port_v6": 443 }));
        }
    }
}
