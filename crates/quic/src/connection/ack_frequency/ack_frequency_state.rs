//! Keeps the ACK frequency of one connection whose client supports ACK_FREQUENCY frames: the requested values, and
//! whether the client has them. Events of s2n-quic's providers are joined here.

use super::{
    delivery::RequestDelivery,
    epoch::{AckTotals, EpochCounter},
    request::AckFrequencyRequest,
    support::AckFrequencySupport,
    threshold_rule::{self, PathState, ThresholdRule},
};
use crate::{
    congestion::BottleneckBuffer,
    io::{AckCounts, Moderation},
    metrics::QuicMetrics,
    wire::{frame::AckRanges, placeholder},
};
use litequic_config::AckFrequency;
use litequic_telemetry::Gauge;
use std::{sync::Arc, time::Duration};

/// Longest requested delay: RFC 9000's default (§18.2), which s2n-quic's probe timeout expects of most clients. Not
/// less, because a busy worker needs few acknowledgements, however slow its packets; the threshold has a full window
/// acknowledged in time.
const REQUESTED_ACK_DELAY: Duration = Duration::from_millis(25);
/// Bytes of a full packet, by which a window is converted to packets.
const FULL_PACKET_LEN: u32 = 1452;

/// ACK frequency of one connection.
#[derive(Debug)]
pub(crate) struct AckFrequencyState {
    support: AckFrequencySupport,
    pub(crate) slow_start: bool,
    mode: AckFrequency,
    delivery: RequestDelivery,
    rule: ThresholdRule,
    /// The largest packet number that the client has acknowledged.
    largest: u64,
    epochs: EpochCounter,
    round_trip: Duration,
    congestion_window: u32,
    /// s2n-quic's number of the active path.
    path: u64,
    /// Buffer of the active path.
    buffer: BottleneckBuffer,
    /// Data was lost since the last reduction of the congestion window.
    lost_data: bool,
    /// Last requested threshold; the default before the first request.
    requested_threshold: u32,
    /// Reports whether the worker gets too little CPU time.
    moderation: Moderation,
    metrics: Arc<QuicMetrics>,
}

impl AckFrequencyState {
    /// The state of a connection whose client has `support`. Nothing is requested yet.
    pub(crate) fn new(
        support: AckFrequencySupport,
        mode: AckFrequency,
        metrics: Arc<QuicMetrics>,
        moderation: Moderation,
    ) -> Self {
        metrics.ack_frequency_offered.increment();
        threshold_gauge(&metrics, threshold_rule::MIN_THRESHOLD).increment();
        Self {
            support,
            slow_start: false,
            mode,
            delivery: RequestDelivery::default(),
            rule: ThresholdRule::default(),
            largest: 0,
            epochs: EpochCounter::default(),
            round_trip: Duration::ZERO,
            congestion_window: 0,
            path: 0,
            buffer: BottleneckBuffer::default(),
            lost_data: false,
            requested_threshold: threshold_rule::MIN_THRESHOLD,
            moderation,
            metrics,
        }
    }

    /// The handshake is complete, so the client's transport parameters are authentic (RFC 9000 §7.4): requests a fixed
    /// threshold if one is configured.
    pub(crate) fn begin_requests(&mut self) {
        if let AckFrequency::Fixed(threshold) = self.mode {
            self.request_threshold(threshold.into());
        }
    }

    /// Writes the frame into packet number `packet`, in place of the placeholder in the unencrypted `payload`. No
    /// placeholder is left, even on failure: then nothing is requested any more, and false is returned.
    pub(crate) fn write_frame(&mut self, packet: u64, payload: &mut [u8]) -> bool {
        let frame = self
            .delivery
            .take_pending_frame(packet)
            .and_then(|(sequence, request)| request.encode_frame(self.support.draft, sequence));
        let is_placed = placeholder::replace_placeholder(payload, frame);
        if is_placed {
            self.metrics.ack_frequency_sent.increment();
        } else {
            // Another attempt would fail in the same way.
            self.delivery.on_frame_acknowledged();
            self.mode = AckFrequency::Off;
            self.metrics.ack_frequency_misplaced.increment();
        }
        is_placed
    }

    /// Whether a frame is to be sent.
    pub(crate) fn wants_frame(&self) -> bool {
        self.delivery.is_pending()
    }

    /// Packet number `packet`, which carried `data` or was an MTU probe, was declared lost.
    pub(crate) fn on_lost_packet(&mut self, packet: u64, data: bool) {
        self.lost_data |= data;
        if self.delivery.on_frame_lost(packet) {
            self.metrics.ack_frequency_lost.increment();
        }
    }

    /// Updates the state of path number `path`.
    pub(crate) fn on_recovery_metrics(
        &mut self,
        path: u64,
        round_trip: Duration,
        min_rtt: Duration,
        congestion_window: u32,
    ) {
        if self.path != path {
            self.path = path;
            self.buffer = BottleneckBuffer::default();
        } else if congestion_window < self.congestion_window && std::mem::take(&mut self.lost_data) {
            self.buffer.on_congestion();
        }
        self.round_trip = round_trip;
        self.congestion_window = congestion_window;
        self.buffer.on_rtt_measured(round_trip, min_rtt);
        if self.mode == AckFrequency::Adaptive && self.requested_threshold > threshold_rule::MIN_THRESHOLD {
            let path = self.path_state();
            if let Some(threshold) = self.rule.on_window_collapsed(path) {
                self.request_threshold(threshold);
            }
        }
    }

    fn path_state(&self) -> PathState {
        let window = self.congestion_window / FULL_PACKET_LEN;
        let burst_limit = self
            .buffer
            .burst_limit()
            .map_or(window, |burst_limit| packets_within(window, burst_limit, self.round_trip));
        PathState { window, burst_limit, slow_start: self.slow_start, starved: self.moderation.is_starved() }
    }

    /// A packet with ACK frames arrived at `now`. `counts` includes the frames, which are the `first` of their batch or
    /// not; `ranges` are the numbers that a single frame acknowledges. Several frames are not examined: they repeat
    /// each other.
    pub(crate) fn on_acks_received(
        &mut self,
        now: Duration,
        counts: AckCounts,
        first: bool,
        ranges: Option<&AckRanges<'_>>,
    ) {
        if let (Some(awaited), Some(ranges)) = (self.delivery.awaited_packet(), ranges) {
            // s2n-quic closes the connection for an invalid frame.
            if ranges.clone().any(|range| range.is_ok_and(|range| range.contains(awaited))) {
                self.delivery.on_frame_acknowledged();
                // Earlier acknowledgements do not count: they came at the old threshold.
                self.epochs = EpochCounter::default();
                self.metrics.ack_frequency_acknowledged.increment();
            }
        }
        // Acknowledgements do not count until the client has the request.
        self.largest = self.largest.max(ranges.map_or(0, AckRanges::largest));
        if self.mode != AckFrequency::Adaptive || !first || !self.delivery.is_request_settled() {
            return;
        }
        let totals = AckTotals { acks: counts.acks, batches: counts.ack_batches, largest: self.largest };
        let Some(epoch) = self.epochs.end_epoch(now, self.round_trip, totals) else { return };
        let path = self.path_state();
        if let Some(threshold) = self.rule.on_epoch_ended(&epoch, path) {
            self.request_threshold(threshold);
        }
    }

    fn request_threshold(&mut self, threshold: u32) {
        let AckFrequencySupport { min_ack_delay, max_ack_delay, .. } = self.support;
        // The client's minimum is not above its maximum.
        let max_ack_delay = REQUESTED_ACK_DELAY.min(max_ack_delay).max(min_ack_delay);
        self.delivery.replace_request(AckFrequencyRequest { threshold, max_ack_delay });
        threshold_gauge(&self.metrics, std::mem::replace(&mut self.requested_threshold, threshold)).decrement();
        threshold_gauge(&self.metrics, threshold).increment();
    }
}

impl Drop for AckFrequencyState {
    fn drop(&mut self) {
        threshold_gauge(&self.metrics, self.requested_threshold).decrement();
    }
}

/// Number of packets that leave within `burst_limit`, if `window` packets leave within a round trip.
fn packets_within(window: u32, burst_limit: Duration, rtt: Duration) -> u32 {
    let packets = u128::from(window) * burst_limit.as_micros() / rtt.as_micros().max(1);
    u32::try_from(packets).unwrap_or(u32::MAX)
}

/// Gauge of connections with about the same threshold.
fn threshold_gauge(metrics: &QuicMetrics, threshold: u32) -> &Gauge {
    match threshold {
        0..4 => &metrics.ack_threshold_2,
        4..8 => &metrics.ack_threshold_4,
        8..16 => &metrics.ack_threshold_8,
        16..32 => &metrics.ack_threshold_16,
        _ => &metrics.ack_threshold_32,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{connection::ack_frequency::support::DraftVersion, wire::placeholder::PLACEHOLDER_BYTES};
    use s2n_codec::EncoderValue;
    use s2n_quic_core::varint::VarInt;
    use std::ops::{Deref, DerefMut};

    /// An ACK frequency with the counts of its connection.
    struct Counted(AckFrequencyState, AckCounts);

    impl Deref for Counted {
        type Target = AckFrequencyState;

        fn deref(&self) -> &AckFrequencyState {
            &self.0
        }
    }

    impl DerefMut for Counted {
        fn deref_mut(&mut self) -> &mut AckFrequencyState {
            &mut self.0
        }
    }

    fn ack_frequency(mode: AckFrequency) -> Counted {
        let ms = Duration::from_millis;
        let support =
            AckFrequencySupport { draft: DraftVersion::AckFrequency12, min_ack_delay: ms(1), max_ack_delay: ms(25) };
        let ack_frequency =
            AckFrequencyState::new(support, mode, Arc::default(), Moderation::new(false, Arc::default()));
        Counted(ack_frequency, AckCounts::default())
    }

    fn in_flight(ack_frequency: &AckFrequencyState) -> Option<u64> {
        ack_frequency.delivery.awaited_packet()
    }

    /// Processes a batch of `acks` ACK frames, of which the last acknowledges `lowest` to `largest`.
    fn batch(ack_frequency: &mut Counted, now: Duration, batch: u64, acks: u32, (lowest, largest): (u64, u64)) {
        let body =
            [largest, 0, 0, largest - lowest].map(|number| VarInt::new(number).unwrap().encode_to_vec()).concat();
        let mut counts = ack_frequency.1;
        for left in (0..acks).rev() {
            let first = counts.count_frames(1, batch);
            ack_frequency.on_acks_received(now, counts, first, AckRanges::new(&body).filter(|_| left == 0).as_ref());
        }
        ack_frequency.1 = counts;
    }

    /// The threshold in a payload's ACK_FREQUENCY frame, one less than requested.
    fn sent(ack_frequency: &mut AckFrequencyState, packet: u64) -> u8 {
        let mut payload = PLACEHOLDER_BYTES;
        ack_frequency.write_frame(packet, &mut payload);
        assert!(payload.starts_with(&[0x40, 0xaf]), "{payload:x?}");
        payload[3]
    }

    fn in_force(ack_frequency: &AckFrequencyState) -> [u64; 5] {
        let QuicMetrics { ack_threshold_2, ack_threshold_4, ack_threshold_8, .. } = &*ack_frequency.metrics;
        let QuicMetrics { ack_threshold_16, ack_threshold_32, .. } = &*ack_frequency.metrics;
        [ack_threshold_2, ack_threshold_4, ack_threshold_8, ack_threshold_16, ack_threshold_32].map(Gauge::get)
    }

    #[test]
    fn a_fixed_threshold_is_requested_once_and_again_if_lost() {
        let mut ack_frequency = ack_frequency(AckFrequency::Fixed(10));
        assert!(!ack_frequency.wants_frame());
        ack_frequency.begin_requests();
        assert!(ack_frequency.wants_frame());
        assert_eq!(
            (sent(&mut ack_frequency, 7), ack_frequency.wants_frame(), in_flight(&ack_frequency)),
            (9, false, Some(7))
        );
        ack_frequency.on_lost_packet(6, true);
        assert!(!ack_frequency.wants_frame());
        ack_frequency.on_lost_packet(7, true);
        assert!(ack_frequency.wants_frame());
        assert_eq!(sent(&mut ack_frequency, 9), 9);
        batch(&mut ack_frequency, Duration::ZERO, 1, 1, (9, 9));
        ack_frequency.on_lost_packet(9, true);
        // A busy worker changes nothing.
        (1..100).for_each(|n| batch(&mut ack_frequency, Duration::from_secs(n), n, 20, (40 * n, 40 * n)));
        assert_eq!((ack_frequency.wants_frame(), in_flight(&ack_frequency)), (false, None));
        assert_eq!(in_force(&ack_frequency), [0, 0, 1, 0, 0]);
        let QuicMetrics { ack_frequency_sent, ack_frequency_acknowledged, ack_frequency_lost, .. } =
            &*ack_frequency.metrics;
        assert_eq!([ack_frequency_sent, ack_frequency_acknowledged, ack_frequency_lost].map(|n| n.get()), [2, 1, 1]);
    }

    #[test]
    fn a_busy_worker_requests_fewer_acks_and_waits_for_acknowledgement() {
        let mut ack_frequency = ack_frequency(AckFrequency::Adaptive);
        ack_frequency.begin_requests();
        assert!(!ack_frequency.wants_frame());
        ack_frequency.on_recovery_metrics(
            0,
            Duration::from_millis(100),
            Duration::from_millis(100),
            1000 * FULL_PACKET_LEN,
        );
        let busy = |of: &mut Counted, n: u64| batch(of, Duration::from_millis(5 * n), n, 6, (12 * n, 12 * n));
        (1..=21).for_each(|n| busy(&mut ack_frequency, n));
        assert_eq!(sent(&mut ack_frequency, 1), 11);
        (22..50).for_each(|n| busy(&mut ack_frequency, n));
        assert!(!ack_frequency.wants_frame(), "the client may not have it yet");
        // This batch has the last acknowledgement at the old threshold.
        batch(&mut ack_frequency, Duration::from_millis(248), 50, 6, (1, 600));
        (51..71).for_each(|n| busy(&mut ack_frequency, n));
        assert!(!ack_frequency.wants_frame(), "an epoch is a round trip");
        busy(&mut ack_frequency, 71);
        assert_eq!((ack_frequency.wants_frame(), sent(&mut ack_frequency, 200)), (true, 31));
        assert_eq!(in_force(&ack_frequency), [0, 0, 0, 0, 1]);
    }

    #[test]
    fn lost_data_and_a_reduced_window_prove_a_path_shallow() {
        let mut ack_frequency = ack_frequency(AckFrequency::Adaptive);
        let ms = Duration::from_millis;
        let burst_limit = |of: &Counted| of.buffer.burst_limit();
        let measured = |of: &mut Counted, path, window| of.on_recovery_metrics(path, ms(22), ms(20), window);
        measured(&mut ack_frequency, 1, 100_000);
        // An MTU probe is lost; BBR's window changes by itself; packets are lost.
        ack_frequency.on_lost_packet(3, false);
        measured(&mut ack_frequency, 1, 70_000);
        assert_eq!(burst_limit(&ack_frequency), None);
        ack_frequency.on_lost_packet(4, true);
        measured(&mut ack_frequency, 1, 90_000);
        assert_eq!(burst_limit(&ack_frequency), None);
        measured(&mut ack_frequency, 1, 60_000);
        assert_eq!(burst_limit(&ack_frequency), Some(Duration::from_micros(250)));
        measured(&mut ack_frequency, 2, 60_000);
        assert_eq!(burst_limit(&ack_frequency), None);
    }

    #[test]
    fn the_acknowledgement_of_a_frame_is_found_in_any_range() {
        let table: &[(&str, &[u8], bool)] = &[
            ("the largest", &[20, 0, 0, 0], true),
            ("one of the first range", &[30, 0, 0, 10], true),
            ("below it", &[30, 0, 0, 9], false),
            ("in the gap", &[30, 0, 1, 8, 1, 2], false),
            ("in the second range", &[30, 0, 1, 5, 1, 3], true),
            ("larger", &[19, 0, 0, 19], false),
            ("below zero", &[30, 0, 0, 40], false),
        ];
        for (what, body, arrived) in table {
            let mut ack_frequency = ack_frequency(AckFrequency::Fixed(10));
            ack_frequency.begin_requests();
            sent(&mut ack_frequency, 20);
            ack_frequency.on_acks_received(Duration::ZERO, AckCounts::default(), true, AckRanges::new(body).as_ref());
            assert_eq!(in_flight(&ack_frequency).is_none(), *arrived, "{what}");
        }
    }

    #[test]
    fn the_requested_delay_is_within_the_bounds_of_the_client() {
        for (min, max, expected) in [(1, 25, 25), (1, 20, 20), (1, 400, 25), (100, 400, 100), (20, 20, 20)] {
            let ms = Duration::from_millis;
            let support = AckFrequencySupport {
                draft: DraftVersion::AckFrequency00,
                min_ack_delay: ms(min),
                max_ack_delay: ms(max),
            };
            let mut ack_frequency = AckFrequencyState::new(
                support,
                AckFrequency::Fixed(10),
                Arc::default(),
                Moderation::new(false, Arc::default()),
            );
            ack_frequency.begin_requests();
            let asked = ack_frequency.delivery.take_pending_frame(0).unwrap().1;
            assert_eq!(asked.max_ack_delay, ms(expected), "{min} to {max} ms");
        }
    }

    #[test]
    fn a_missing_placeholder_is_counted_and_ends_requests() {
        let mut ack_frequency = ack_frequency(AckFrequency::Fixed(10));
        ack_frequency.begin_requests();
        let mut payload = [0x1e, 0x31, 0, 0x31, 0];
        assert!(!ack_frequency.write_frame(1, &mut payload));
        assert_eq!(payload, [0x1e, 0, 0, 0, 0]);
        ack_frequency.on_lost_packet(1, true);
        assert_eq!((ack_frequency.wants_frame(), ack_frequency.metrics.ack_frequency_misplaced.get()), (false, 1));
        assert_eq!(ack_frequency.metrics.ack_frequency_sent.get(), 0);
    }

    #[test]
    fn a_connection_that_ends_is_not_counted_any_more() {
        let mut ack_frequency = ack_frequency(AckFrequency::Fixed(10));
        let metrics = Arc::clone(&ack_frequency.metrics);
        ack_frequency.begin_requests();
        drop(ack_frequency);
        assert_eq!(metrics.ack_threshold_8.get() + metrics.ack_threshold_2.get(), 0);
        assert_eq!(metrics.ack_frequency_offered.get(), 1);
    }
}
