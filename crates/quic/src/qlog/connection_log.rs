//! Writes the log of one connection: events add lines, which the order passes on.

use super::{
    frames::{self, milliseconds},
    log_order::{LogOrder, RECORD_SEPARATOR, write_event_record, write_omitted_count},
    parameters,
};
use jiff::Timestamp;
use parking_lot::Mutex;
use s2n_quic::provider::event::events::RecoveryMetrics;
use s2n_quic_core::{
    connection::Error,
    endpoint::Location,
    packet::number::{PacketNumber, PacketNumberSpace},
};
use serde_json::{Map, Value as Json, json};
use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Instant,
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
    /// Members of the last `quic:recovery_metrics_updated`, with those that had not changed.
    metrics: Map<String, Json>,
    congestion: Option<&'static str>,
    batch: u64,
    /// Bursts of the pacer that had begun before the last packet was sent, and that packet's number.
    bursts: (u64, u64),
    /// Unit of delays in the client's ACK frames.
    ack_delay_exponent: Option<u8>,
}

impl ConnectionLog {
    /// Begins the log of a connection on `worker` with its header; `None` if the order is used up.
    pub(crate) fn open_log(order: &Arc<LogOrder>, worker: usize) -> Option<Arc<Self>> {
        let (number, epoch) = order.begin_log()?;
        let log = Self { number, epoch, order: Arc::clone(order), worker, state: Mutex::default() };
        let wall_clock = Timestamp::now();
        let header = json!({
            "file_schema": "urn:ietf:params:qlog:file:sequential",
            "serialization_format": "application/qlog+json-seq",
            "trace": {
                "common_fields": {
                    "group_id": log.number.to_string(), "time_format": "relative_to_epoch",
                    "reference_time": {
                        "clock_type": "monotonic", "epoch": "unknown", "wall_clock_time": format!("{wall_clock:.3}"),
                    },
                },
                "vantage_point": { "name": concat!("litequic ", env!("CARGO_PKG_VERSION")), "type": "server" },
                "event_schemas": EVENT_SCHEMAS,
            },
        });
        let line = [&[RECORD_SEPARATOR][..], header.to_string().as_bytes(), b"\n"].concat();
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
        self.state.lock().ack_delay_exponent = Some(exponent);
    }

    /// Logs the start of a connection from `client` to `local`.
    pub(crate) fn log_started(&self, client: SocketAddr, local: SocketAddr) {
        let data = json!({ "local": endpoint_json(local), "remote": self.client_json(client) });
        self.write_event("quic:connection_started", &data);
    }

    /// Logs that s2n-quic sends on path number `path` from now on, to `client` from `local`.
    pub(crate) fn log_tuple(&self, path: u64, client: SocketAddr, local: SocketAddr) {
        let (remote, local) = (self.client_json(client), endpoint_json(local));
        let data = json!({ "tuple_id": path.to_string(), "tuple_remote": remote, "tuple_local": local });
        self.write_event("quic:tuple_assigned", &data);
    }

    /// Logs the encoded transport parameters of litequic or of the client.
    pub(crate) fn log_parameters(&self, is_local: bool, encoded: &[u8]) {
        let mut data = parameters::parameters_json(encoded);
        if !is_local {
            self.set_ack_delay_exponent(parameters::ack_delay_exponent(&data));
        }
        data.insert("initiator".into(), if is_local { "local" } else { "remote" }.into());
        self.write_event("quic:parameters_set", &data.into());
    }

    /// Logs a received packet with its unchanged `payload`; `batch` is the receive batch, 0 without batches.
    pub(crate) fn log_received(&self, packet: PacketNumber, payload: &[u8], batch: u64) {
        if batch > 0 && std::mem::replace(&mut self.state.lock().batch, batch) != batch {
            self.write_event("litequic:receive_batch", &json!({ "batch": batch }));
        }
        let exponent = match packet.space() {
            PacketNumberSpace::ApplicationData => {
                self.state.lock().ack_delay_exponent.unwrap_or(OWN_ACK_DELAY_EXPONENT)
            }
            // Delays have no meaning in these spaces (RFC 9000 §13.2.5).
            PacketNumberSpace::Initial | PacketNumberSpace::Handshake => 0,
        };
        self.write_packet("quic:packet_received", packet, payload, exponent);
    }

    /// Logs a packet that leaves with `payload`, before which `bursts` bursts of the pacer have begun. The pacer begins
    /// one with the packet that leaves first, once it has left.
    pub(crate) fn log_packet_sent(&self, packet: PacketNumber, payload: &[u8], bursts: u64) {
        if packet.space() == PacketNumberSpace::ApplicationData {
            let (before, first) = std::mem::replace(&mut self.state.lock().bursts, (bursts, packet.as_u64()));
            if bursts != before {
                self.write_event("litequic:pacing_train", &json!({ "train": bursts, "first_packet": first }));
            }
        }
        if let Some(mut requested) = self.write_packet("quic:packet_sent", packet, payload, OWN_ACK_DELAY_EXPONENT) {
            frames::set_member(&mut requested, "packet_number", packet.as_u64());
            self.write_event("litequic:ack_frequency_requested", &requested);
        }
    }

    /// Writes a packet with its frames, and returns the values of its ACK_FREQUENCY frame, if any.
    fn write_packet(&self, event: &str, packet: PacketNumber, payload: &[u8], exponent: u8) -> Option<Json> {
        let (frames, ack_frequency) = frames::frames_json(payload, exponent);
        let raw = json!({ "payload_length": payload.len() });
        self.write_event(event, &json!({ "header": header_json(packet), "frames": frames, "raw": raw }));
        ack_frequency
    }

    /// Logs that the ACK frame of a received packet had no new numbers and was replaced by PADDING.
    pub(crate) fn log_ack_merged(&self, packet: PacketNumber) {
        self.write_event("litequic:ack_merged", &json!({ "packet_number": packet.as_u64() }));
    }

    /// Logs that a received packet belongs to a flood and was replaced by PADDING.
    pub(crate) fn log_dropped(&self, packet: PacketNumber, bytes: usize) {
        let data = json!({
            "header": header_json(packet), "raw": { "payload_length": bytes }, "trigger": "rejected",
            "details": { "limit": "max_control_frames" },
        });
        self.write_event("quic:packet_dropped", &data);
    }

    pub(crate) fn log_lost(&self, packet: PacketNumber, is_mtu_probe: bool) {
        let mut data = json!({ "header": header_json(packet) });
        if is_mtu_probe {
            frames::set_member(&mut data, "is_mtu_probe_packet", true);
        }
        self.write_event("quic:packet_lost", &data);
    }

    /// Logs changes of the path's state to `metrics`, and of slow start.
    pub(crate) fn log_recovery(&self, metrics: Map<String, Json>, is_slow_start: bool) {
        let now = if is_slow_start { "slow_start" } else { "congestion_avoidance" };
        let (before, old) = {
            let mut state = self.state.lock();
            (std::mem::replace(&mut state.metrics, metrics.clone()), state.congestion.replace(now))
        };
        let mut changed = metrics;
        changed.retain(|name, value| before.get(name) != Some(value));
        if !changed.is_empty() {
            self.write_event("quic:recovery_metrics_updated", &changed.into());
        }
        match old {
            Some(old) if old == now => {}
            Some(old) => self.write_event("quic:congestion_state_updated", &json!({ "old": old, "new": now })),
            None => self.write_event("quic:congestion_state_updated", &json!({ "new": now })),
        }
    }

    /// Logs that the connection was closed by `error`.
    pub(crate) fn log_closed(&self, error: &Error) {
        let by = |initiator: Location| if initiator == Location::Local { "local" } else { "remote" };
        let data = match *error {
            Error::Closed { initiator, .. } => {
                json!({ "initiator": by(initiator), "connection_error": "no_error", "trigger": "application" })
            }
            Error::Transport { code, initiator, .. } => {
                let mut data = json!({ "initiator": by(initiator), "trigger": "error" });
                frames::set_error_code(&mut data, "connection_error", code.as_u64(), true);
                data
            }
            Error::Application { error, initiator, .. } => {
                let mut data = json!({ "initiator": by(initiator), "trigger": "application" });
                frames::set_error_code(&mut data, "application_error", *error, false);
                data
            }
            Error::StatelessReset { .. } => json!({ "initiator": "remote", "trigger": "stateless_reset" }),
            Error::IdleTimerExpired { .. } | Error::MaxHandshakeDurationExceeded { .. } => {
                json!({ "initiator": "local", "trigger": "idle_timeout" })
            }
            _ => json!({ "trigger": "unspecified" }),
        };
        self.write_event("quic:connection_closed", &data);
    }

    /// A client's address, unless addresses are left out.
    fn client_json(&self, client: SocketAddr) -> Json {
        if self.order.anonymous { json!({}) } else { endpoint_json(client) }
    }

    fn write_event(&self, name: &str, data: &Json) {
        let time = self.epoch.elapsed();
        let mut state = self.state.lock();
        let mut lines = std::mem::take(&mut state.lines);
        lines.clear();
        if state.omitted > 0 {
            write_omitted_count(&mut lines, self.number, time, state.omitted);
        }
        write_event_record(&mut lines, self.number, time, name, data);
        let has_room = self.order.hand_over_lines(self.worker, &lines);
        state.omitted = if has_room { 0 } else { state.omitted + 1 };
        state.lines = lines;
    }
}

impl Drop for ConnectionLog {
    fn drop(&mut self) {
        let omitted = self.state.lock().omitted;
        self.order.end_one_log(self.number, omitted);
    }
}

/// State of loss detection and of the congestion controller, as members of `quic:recovery_metrics_updated`.
pub(crate) fn recovery_metrics(event: &RecoveryMetrics<'_>) -> Map<String, Json> {
    let members = [
        ("min_rtt", milliseconds(event.min_rtt)),
        ("smoothed_rtt", milliseconds(event.smoothed_rtt)),
        ("latest_rtt", milliseconds(event.latest_rtt)),
        ("rtt_variance", milliseconds(event.rtt_variance)),
        ("pto_count", event.pto_count.into()),
        ("congestion_window", event.congestion_window.into()),
        ("bytes_in_flight", event.bytes_in_flight.into()),
    ];
    members.map(|(name, value)| (name.to_owned(), value)).into_iter().collect()
}

fn header_json(packet: PacketNumber) -> Json {
    let kind = match packet.space() {
        PacketNumberSpace::Initial => "initial",
        PacketNumberSpace::Handshake => "handshake",
        PacketNumberSpace::ApplicationData => "1RTT",
    };
    json!({ "packet_type": kind, "packet_number": packet.as_u64() })
}

fn endpoint_json(address: SocketAddr) -> Json {
    match address.ip().to_canonical() {
        IpAddr::V4(ip) => json!({ "ip_v4": ip, "port_v4": address.port() }),
        IpAddr::V6(ip) => json!({ "ip_v6": ip, "port_v6": address.port() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::qlog::log_order::LogEnd;
    use s2n_quic_core::varint::VarInt;

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
        let packet = |number| PacketNumberSpace::ApplicationData.new_packet_number(VarInt::from_u32(number));
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
        let metrics = |pto_count: Option<u32>| {
            let pto_count = pto_count.map(|count| ("pto_count".to_owned(), count.into()));
            [("congestion_window".to_owned(), 12_000.into())].into_iter().chain(pto_count).collect()
        };
        log.log_recovery(metrics(None), true);
        log.log_recovery(metrics(None), true);
        log.log_recovery(metrics(Some(1)), false);
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
            let mut order = LogOrder::for_network("192.0.2.1".parse().unwrap(), 1, 1);
            order.anonymous = anonymous;
            let order = Arc::new(order);
            let log = ConnectionLog::open_log(&order, 0).unwrap();
            log.log_started("[::ffff:192.0.2.1]:7".parse().unwrap(), "[2001:db8::1]:443".parse().unwrap());
            let event = &events(&order)[1];
            assert_eq!(event["data"]["remote"], remote);
            assert_eq!(event["data"]["local"], serde_json::json!({ "ip_v6": "2001:db8::1", "port_v6": 443 }));
        }
    }
}
