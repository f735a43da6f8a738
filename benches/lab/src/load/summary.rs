//! From what was counted to the report.

use super::{
    arguments::{AckThreshold, Arguments, Kind, Protocol, Switch},
    check::Expected,
    report::{LoadReport, Quic, Steady, TOLERANCE},
    tally::Tally,
    wire::Counts,
};
use nix::time::{ClockId, clock_gettime};
use std::time::{Duration, Instant};

/// The bounds of the measured part.
pub(super) struct Measured {
    pub(super) start: Instant,
    pub(super) end: Instant,
    pub(super) cpu: Duration,
    pub(super) counts: Counts,
    pub(super) warmup: u64,
    /// After the beginning.
    pub(super) steady: Option<Steady>,
}

/// Why a run ended before its end.
pub(super) struct Void {
    pub(super) reason: String,
    /// What had been measured until then.
    pub(super) measured: Option<Box<Measured>>,
}

impl From<String> for Void {
    fn from(reason: String) -> Self {
        Self { reason, measured: None }
    }
}

/// The report of a load of which `unanswered` requests and handshakes were still in flight when it ended.
pub(super) fn report(
    arguments: &Arguments,
    outcome: Result<Measured, Void>,
    tally: Tally,
    expected: &Expected,
    unanswered: u64,
    reconnects: u64,
) -> LoadReport {
    let (measured, mut void) = match outcome {
        Ok(measured) => (Some(measured), None),
        Err(void) => (void.measured.map(|measured| *measured), Some(void.reason)),
    };
    let failed = tally.failed + unanswered;
    if void.is_none() && failed > 0 {
        let first = tally.errors.first().map_or("no answer", String::as_str);
        void = Some(format!("{failed} failed: {first}"));
    }
    let abandoned = arguments.cut && measured.as_ref().is_some_and(|measured| measured.counts.body_bytes() > 0);
    if void.is_none() && tally.ok == 0 && !abandoned {
        void = Some("nothing was measured".into());
    }
    let measured = measured.unwrap_or_else(|| {
        let now = Instant::now();
        Measured { start: now, end: now, cpu: Duration::ZERO, counts: Counts::default(), warmup: 0, steady: None }
    });
    let wall = measured.end.saturating_duration_since(measured.start).as_secs_f64();
    let per_second = |count: f64| if wall > 0.0 { count / wall } else { 0.0 };
    let Counts { body_received, body_sent, handshakes, resumed, quic } = measured.counts;
    let quic = quic.map(|quic| Quic { threshold_held: held(arguments.ack_threshold, quic.packets_per_ack), ..quic });
    let is_h3 = arguments.protocol == Protocol::H3;
    let downloads = matches!(arguments.kind, Kind::Download | Kind::Small | Kind::Idle);
    LoadReport {
        void,
        kind: arguments.kind,
        protocol: arguments.protocol,
        connections: arguments.connections,
        streams: arguments.streams,
        ack_threshold: is_h3.then(|| arguments.ack_threshold.to_string()),
        gro: is_h3.then_some(arguments.gro == Switch::On),
        requests_ok: tally.ok,
        requests_failed: failed,
        warmup_requests: measured.warmup,
        reconnects,
        body_bytes_received: body_received,
        body_bytes_sent: body_sent,
        body_bytes_verified: tally.bytes_verified,
        verified_against: match arguments.expect_hash {
            Some(_) => "given",
            None if downloads => "first",
            None => "none",
        }
        .into(),
        body_crc32: expected.hash().map(|hash| format!("{hash:08x}")),
        wall_seconds: wall,
        client_cpu_seconds: measured.cpu.as_secs_f64(),
        requests_per_second: per_second(tally.ok as f64),
        body_mbit_per_second: per_second((body_received + body_sent) as f64 * 8e-6),
        steady: measured.steady,
        latency: tally.latency(arguments.rate.is_some()),
        first: arguments.in_turn.then(|| tally.first(arguments.rate.is_some())),
        later: arguments.in_turn.then(|| tally.later(arguments.rate.is_some())),
        first_byte: tally.first_byte(arguments.rate.is_some()),
        ttlb_seconds: wall,
        handshakes,
        resumed,
        handshakes_per_second: (arguments.kind == Kind::Handshakes).then(|| per_second(tally.ok as f64)),
        errors: tally.errors,
        quic,
    }
}

/// Whether an exact threshold was what it should be.
fn held(threshold: AckThreshold, packets_per_ack: f64) -> Option<bool> {
    match threshold {
        AckThreshold::Exact(packets) => Some((packets_per_ack / f64::from(packets) - 1.0).abs() <= TOLERANCE),
        AckThreshold::Auto => None,
    }
}

impl Counts {
    /// What came since `before`.
    pub(super) fn since(self, before: &Self) -> Self {
        Self {
            body_received: self.body_received - before.body_received,
            body_sent: self.body_sent - before.body_sent,
            handshakes: self.handshakes - before.handshakes,
            resumed: self.resumed.saturating_sub(before.resumed),
            quic: self.quic.map(|quic| quic.since(&before.quic.clone().unwrap_or_default())),
        }
    }
}

impl Quic {
    /// What came since `before`; what is no counter stays.
    fn since(self, before: &Self) -> Self {
        let packets_received = self.packets_received - before.packets_received;
        let ack_packets_sent = self.ack_packets_sent - before.ack_packets_sent;
        Self {
            packets_received,
            ack_packets_sent,
            ack_frames: self.ack_frames - before.ack_frames,
            packets_per_ack: packets_received as f64 / ack_packets_sent.max(1) as f64,
            threshold_held: None,
            ack_frequency_frames: self.ack_frequency_frames - before.ack_frequency_frames,
            packets_missing: self.packets_missing.saturating_sub(before.packets_missing),
            lost_on_purpose: self.lost_on_purpose - before.lost_on_purpose,
            reordered_on_purpose: self.reordered_on_purpose - before.reordered_on_purpose,
            rtt_us: self.rtt_us,
            packets_sent: self.packets_sent - before.packets_sent,
            packets_lost: self.packets_lost - before.packets_lost,
            datagrams_received: self.datagrams_received - before.datagrams_received,
            datagrams_sent: self.datagrams_sent - before.datagrams_sent,
            bytes_received: self.bytes_received - before.bytes_received,
            bytes_sent: self.bytes_sent - before.bytes_sent,
            gro_batches: self.gro_batches - before.gro_batches,
            receive_calls: self.receive_calls - before.receive_calls,
            send_calls: self.send_calls - before.send_calls,
            sends_dropped: self.sends_dropped - before.sends_dropped,
            receive_buffer: self.receive_buffer,
            mtu: self.mtu,
            connections_lost: self.connections_lost - before.connections_lost,
        }
    }
}

/// CPU time of this process so far.
pub(super) fn cpu_time() -> Duration {
    clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).map(Duration::from).unwrap_or_default()
}
