//! Decides how many packets a client should acknowledge at once (docs/adr/0013-adaptive-ack-frequency.md). Pure: takes
//! the counts of a round trip, and returns the next request.
//!
//! A busy worker finds several acknowledgements of one connection in one batch, of which only the newest has news: it
//! requests fewer. That rule is LiteQUIC's (Bi et al., ACM MM 2024, §4.2): with two ACK frames a batch or more, the
//! threshold is multiplied by their number, and halved otherwise. Taken literally it oscillates: once the threshold is
//! high enough there is one ACK frame a batch, as on an idle worker. The effect of half the threshold is known only
//! after a trial. So a step down is a trial: it follows a calm period, is reverted if acknowledgements accumulate
//! again, and is then not repeated for twice as long.

/// Packets an acknowledgement without a request (RFC 9000 §13.2.2).
pub(super) const MIN_THRESHOLD: u32 = 2;
/// Largest requested threshold: 32 packets an acknowledgement were measured to cost as little as 128 or 512, and a
/// client reports a loss late with more.
pub(super) const MAX_THRESHOLD: u32 = 32;
/// Least number of ACK frames a window: a window that is acknowledged as a whole is sent in bursts, with pauses of a
/// round trip, or of the client's longest delay.
const MIN_ACKS_PER_WINDOW: u32 = 4;
/// Least number of ACK frames a window in slow start: hybrid slow start, which ends it before packets are lost, needs
/// eight round-trip times a round (s2n-quic's `N_SAMPLING`), and a round's window is half as large as the next one's.
const MIN_ACKS_PER_SLOW_START_WINDOW: u32 = 16;
/// Largest threshold that is left to a client once fewer acknowledgements are not needed: some clients acknowledge less
/// often than every other packet by themselves, Chromium every tenth; more may be due to their own load.
const MAX_OWN_THRESHOLD: u32 = 10;
/// Consecutive calm round trips before the threshold is lowered, and after which a lowered one counts as sufficient.
const CALM_EPOCHS: u32 = 4;
/// Least number of calm round trips before a threshold that was too low is tried again. Doubles with each failed trial.
const MIN_RETRIAL_EPOCHS: u32 = 8;
/// Largest number of calm round trips before a retrial, some seconds on most paths: then an idle worker asks its
/// clients to acknowledge more often.
const MAX_RETRIAL_EPOCHS: u32 = 256;

/// Counts of an epoch of one or more round trips.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct AckEpoch {
    /// ACK frames received.
    pub(super) acks: u64,
    /// Receive batches that carried ACK frames.
    pub(super) batches: u64,
    /// Packets that the ACK frames acknowledged.
    pub(super) packets: u64,
    /// Packets acknowledged in a round trip, on average, as many as are in flight at once.
    pub(super) flight: u32,
}

/// The state of the path, in packets, and of the worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PathState {
    /// The congestion window.
    pub(super) window: u32,
    /// The congestion window may be in slow start.
    pub(super) slow_start: bool,
    /// Packets of a burst that the path's buffer holds: an acknowledgement releases as many packets as it covers.
    pub(super) burst_limit: u32,
    /// The worker gets too little CPU time (`quic::io::moderation`). In each of the scheduler's turns a connection of
    /// many then has one or two acknowledgements, which are not conclusive. Nor are their round-trip times, which
    /// hybrid slow start needs.
    pub(super) starved: bool,
}

impl PathState {
    /// Largest allowed threshold, at least `least`.
    fn max_threshold(self, least: u32) -> u32 {
        let acks = if self.slow_start && !self.starved { MIN_ACKS_PER_SLOW_START_WINDOW } else { MIN_ACKS_PER_WINDOW };
        (self.window / acks).min(self.burst_limit).clamp(least, MAX_THRESHOLD)
    }
}

/// Rule of one connection's requested threshold.
#[derive(Debug)]
pub(super) struct ThresholdRule {
    /// Packets an acknowledgement that were requested last.
    threshold: u32,
    /// Packets an acknowledgement that the client chose by itself; a request is never below. `None` before the first
    /// raise.
    own_threshold: Option<u32>,
    /// Consecutive calm epochs.
    calm: u32,
    /// The largest threshold that is known to be too low; 0 if none is.
    too_low: u32,
    /// Calm epochs before a threshold of `too_low` or less is tried again.
    retrial_epochs: u32,
    /// The threshold was lowered, and does not count as sufficient yet.
    on_trial: bool,
}

impl Default for ThresholdRule {
    fn default() -> Self {
        Self {
            threshold: MIN_THRESHOLD,
            own_threshold: None,
            calm: 0,
            too_low: 0,
            retrial_epochs: MIN_RETRIAL_EPOCHS,
            on_trial: false,
        }
    }
}

impl ThresholdRule {
    /// The new threshold to request after `epoch`, if it changes. Epochs that began before the last request was in
    /// force must be left out.
    pub(super) fn on_epoch_ended(&mut self, epoch: &AckEpoch, path: PathState) -> Option<u32> {
        let before = self.threshold;
        let least = self.own_threshold.unwrap_or(MIN_THRESHOLD);
        // Other limits than congestion may bound the packets: a stream's buffer, the client's window, the origin. A
        // starved worker is such a limit itself: it waits for no acknowledgement.
        let window = if path.starved { path.window } else { path.window.min(epoch.flight) };
        let most = PathState { window, ..path }.max_threshold(least);
        if !self.shrink_threshold(most) {
            if path.starved || epoch.acks >= 2 * epoch.batches.max(1) {
                self.raise_threshold(epoch, most);
            } else {
                self.lower_threshold(least);
            }
        }
        (self.threshold != before).then_some(self.threshold)
    }

    /// The threshold to request between two epochs, if the window has shrunk to less than the threshold is meant for,
    /// as after persistent congestion: a client that waits for more packets than arrive acknowledges them after its
    /// longest delay, an epoch of such batches takes long, and slow start doubles the window once in each of their
    /// round trips.
    pub(super) fn on_window_collapsed(&mut self, path: PathState) -> Option<u32> {
        (self.threshold > MIN_THRESHOLD && self.shrink_threshold(path.max_threshold(MIN_THRESHOLD)))
            .then_some(self.threshold)
    }

    /// Lowers the threshold to `most` if it is more than twice as large: the window shrank, and by more than a loss
    /// reduces it.
    fn shrink_threshold(&mut self, most: u32) -> bool {
        let shrinks = self.threshold > 2 * most;
        if shrinks {
            self.threshold = most;
            (self.calm, self.on_trial) = (0, false);
        }
        shrinks
    }

    fn raise_threshold(&mut self, epoch: &AckEpoch, most: u32) {
        self.calm = 0;
        // An epoch has at least one ACK frame.
        let seen = u32::try_from(epoch.packets / epoch.acks.max(1)).unwrap_or(MAX_THRESHOLD);
        // A client that cannot keep up acknowledges less often than intended: a lower request would gain nothing.
        let base = self.threshold.max(seen);
        if base >= most {
            return;
        }
        self.own_threshold.get_or_insert(seen.clamp(MIN_THRESHOLD, MAX_OWN_THRESHOLD));
        if std::mem::take(&mut self.on_trial) {
            self.retrial_epochs = (2 * self.retrial_epochs).min(MAX_RETRIAL_EPOCHS);
        }
        self.too_low = self.threshold;
        // At least twice the threshold, which a starved worker requests.
        let wanted = (u64::from(base).saturating_mul(epoch.acks) / epoch.batches.max(1)).max(2 * u64::from(base));
        let wanted = u32::try_from(wanted).unwrap_or(MAX_THRESHOLD).min(most);
        // A change of less than a quarter is not worth a frame: a growing window would have one sent each round trip.
        if wanted >= self.threshold + (self.threshold / 4).max(1) {
            self.threshold = wanted;
        }
    }

    fn lower_threshold(&mut self, least: u32) {
        self.calm = self.calm.saturating_add(1);
        if self.on_trial && self.calm >= CALM_EPOCHS {
            self.on_trial = false;
            self.retrial_epochs = (self.retrial_epochs / 2).max(MIN_RETRIAL_EPOCHS);
            if self.threshold <= self.too_low {
                self.too_low = 0;
            }
        }
        let next = (self.threshold / 2).max(least);
        let retrial_epochs = if next <= self.too_low { self.retrial_epochs } else { CALM_EPOCHS };
        if next < self.threshold && self.calm >= retrial_epochs {
            self.threshold = next;
            (self.calm, self.on_trial) = (0, true);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const WINDOW: u32 = 1000;

    /// An epoch of four batches with `acks` ACK frames, from a client that acknowledges every other packet.
    fn epoch(acks: u64) -> AckEpoch {
        AckEpoch { acks, batches: 4, packets: 2 * acks, flight: u32::MAX }
    }

    /// A path outside slow start, with a buffer of any size.
    fn path(window: u32) -> PathState {
        PathState { window, slow_start: false, burst_limit: u32::MAX, starved: false }
    }

    #[test]
    fn accumulated_acknowledgements_multiply_the_threshold_within_bounds() {
        for (acks, window, expected) in [
            (7, WINDOW, None),
            (8, WINDOW, Some(4)),
            (14, WINDOW, Some(7)),
            (4 * 15, WINDOW, Some(30)),
            (4 * 500, WINDOW, Some(MAX_THRESHOLD)),
            (4 * 500, 40, Some(10)),
            (4 * 500, 10, None),
            (u64::MAX / 2, u32::MAX, Some(MAX_THRESHOLD)),
        ] {
            assert_eq!(
                ThresholdRule::default().on_epoch_ended(&epoch(acks), path(window)),
                expected,
                "{acks} ACKs, a window of {window}"
            );
        }
    }

    #[test]
    fn epochs_without_batches_or_with_impossible_counts_change_nothing() {
        for epoch in [
            AckEpoch { acks: 0, batches: 0, packets: 0, flight: u32::MAX },
            AckEpoch { acks: 1, batches: 0, packets: u64::MAX, flight: u32::MAX },
        ] {
            assert_eq!(ThresholdRule::default().on_epoch_ended(&epoch, path(0)), None);
        }
    }

    #[test]
    fn calm_epochs_halve_the_threshold_down_to_the_default() {
        let mut rule = ThresholdRule::default();
        assert_eq!(rule.on_epoch_ended(&epoch(4 * 16), path(WINDOW)), Some(32));
        let said: Vec<u32> = (0..40).filter_map(|_| rule.on_epoch_ended(&epoch(4), path(WINDOW))).collect();
        assert_eq!(said, [16, 8, 4, 2]);
    }

    #[test]
    fn a_client_that_acknowledges_rarely_keeps_its_own_rate() {
        let mut rule = ThresholdRule::default();
        // Chromium's every tenth packet.
        let tenth = |acks| AckEpoch { acks, batches: 4, packets: 10 * acks, flight: u32::MAX };
        assert_eq!(rule.on_epoch_ended(&tenth(8), path(WINDOW)), Some(20));
        let said: Vec<u32> = (0..40).filter_map(|_| rule.on_epoch_ended(&tenth(4), path(WINDOW))).collect();
        assert_eq!(said, [10]);
    }

    #[test]
    fn a_busy_client_is_not_asked_for_its_present_rate() {
        let fortieth = AckEpoch { acks: 12, batches: 4, packets: 480, flight: u32::MAX };
        assert_eq!(ThresholdRule::default().on_epoch_ended(&fortieth, path(WINDOW)), None);
        let fifth = AckEpoch { acks: 12, batches: 4, packets: 60, flight: u32::MAX };
        assert_eq!(ThresholdRule::default().on_epoch_ended(&fifth, path(WINDOW)), Some(15));
    }

    #[test]
    fn only_a_collapsed_window_lowers_the_threshold_at_once() {
        let mut rule = ThresholdRule::default();
        assert_eq!(rule.on_epoch_ended(&epoch(4 * 16), path(128)), Some(32));
        assert_eq!(rule.on_epoch_ended(&epoch(4 * 2), path(90)), None);
        assert_eq!(rule.on_epoch_ended(&epoch(4 * 2), path(128)), None);
        assert_eq!(rule.on_epoch_ended(&epoch(4 * 2), path(20)), Some(5));
        assert_eq!(
            rule.on_epoch_ended(&AckEpoch { flight: 8, ..epoch(4 * 2) }, path(WINDOW)),
            Some(2),
            "little is sent"
        );
        let mut rule = ThresholdRule::default();
        let growing = PathState { slow_start: true, ..path(128) };
        assert_eq!(rule.on_epoch_ended(&epoch(4 * 16), growing), Some(8), "slow start wants eight samples a round");
        let shallow = |burst_limit| PathState { burst_limit, ..path(128) };
        assert_eq!(rule.on_epoch_ended(&epoch(4 * 2), shallow(3)), Some(3), "its buffer proved shallow");
        assert_eq!(rule.on_epoch_ended(&epoch(4 * 2), shallow(0)), None, "what needs no asking");
    }

    #[test]
    fn a_starved_worker_requests_fewer_acks_in_any_case() {
        let starved = PathState { starved: true, slow_start: true, ..path(100) };
        let mut rule = ThresholdRule::default();
        let few = AckEpoch { flight: 8, ..epoch(4) };
        let said: Vec<u32> = (0..10).filter_map(|_| rule.on_epoch_ended(&few, starved)).collect();
        assert_eq!(said, [4, 8, 16, 25], "up to a quarter of the window, in slow start as well");
        let said: Vec<u32> = (0..40).filter_map(|_| rule.on_epoch_ended(&epoch(4), path(100))).collect();
        assert_eq!(said, [12, 6, 3, 2], "and for more once it does not");
    }

    #[test]
    fn a_collapsed_window_is_handled_within_an_epoch() {
        let mut rule = ThresholdRule::default();
        assert_eq!(rule.on_window_collapsed(path(0)), None, "what needs no asking");
        assert_eq!(rule.on_epoch_ended(&epoch(4 * 16), path(128)), Some(32));
        assert_eq!(rule.on_window_collapsed(path(90)), None, "a loss");
        assert_eq!(rule.on_window_collapsed(path(2)), Some(2));
        assert_eq!(rule.on_window_collapsed(path(2)), None, "said once");
        assert_eq!(rule.on_epoch_ended(&epoch(4 * 16), path(128)), Some(32), "it has recovered");
    }

    #[test]
    fn a_failed_trial_is_reverted_and_repeated_ever_more_rarely() {
        let mut rule = ThresholdRule::default();
        // At a threshold of 32 packets a batch has one ACK frame, at 16 two.
        let batch = |threshold: u32| epoch(u64::from(4 * 34 / threshold));
        let (mut threshold, mut trials) = (MIN_THRESHOLD, Vec::new());
        for n in 0..5000 {
            if let Some(next) = rule.on_epoch_ended(&batch(threshold), path(WINDOW)) {
                if next < threshold {
                    trials.push(n);
                }
                threshold = next;
            }
        }
        let pauses: Vec<i32> = trials.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!(pauses.is_sorted(), "{pauses:?}");
        assert_eq!(pauses.last(), Some(&(i32::try_from(MAX_RETRIAL_EPOCHS).unwrap() + 1)));
    }

    /// A transfer to a client that acknowledges as requested, from a server that needs `slowness` times as long for a
    /// packet as the client. Time is counted in the client's packets.
    struct Transfer {
        slowness: f64,
        window: u32,
        clock: f64,
        /// Time at which the client has processed its packets.
        client: f64,
        /// Acknowledgements in flight: time of arrival, and number of packets.
        acks: std::collections::VecDeque<(f64, u32)>,
        /// Packets that the client has not acknowledged yet.
        pending: u32,
        threshold: u32,
    }

    impl Transfer {
        fn new(slowness: f64, window: u32) -> Self {
            let acks = (0..window / 2).map(|pair| (f64::from(2 * pair), 2)).collect();
            Self { slowness, window, clock: 0.0, client: f64::from(window), acks, pending: 0, threshold: MIN_THRESHOLD }
        }

        /// One turn of the server: processes all arrived acknowledgements, and sends as many packets as they cover.
        /// Returns the number of ACK frames, and of their packets.
        fn turn(&mut self) -> (u64, u64) {
            let first = self.acks.front().expect("something is always in flight").0;
            self.clock = self.clock.max(first);
            let (mut acks, mut packets) = (0, 0);
            while let Some((_, count)) = self.acks.pop_front_if(|(at, _)| *at <= self.clock) {
                acks += 1;
                packets += count;
            }
            for _ in 0..packets {
                self.clock += self.slowness;
                self.client = self.client.max(self.clock) + 1.0;
                self.pending += 1;
                if self.pending >= self.threshold {
                    self.acknowledge(0.0);
                }
            }
            // The client's max_ack_delay, if nothing else is in flight.
            if self.acks.is_empty() {
                self.acknowledge(50.0);
            }
            (acks, u64::from(packets))
        }

        fn acknowledge(&mut self, delay: f64) {
            let count = std::mem::take(&mut self.pending);
            self.acks.push_back((self.client + delay, count));
        }

        /// Runs `epochs` epochs under `rule`, and returns the threshold in force in each.
        fn run(&mut self, rule: &mut ThresholdRule, epochs: usize) -> Vec<u32> {
            let mut thresholds = Vec::new();
            while thresholds.len() < epochs {
                let mut epoch = AckEpoch { acks: 0, batches: 0, packets: 0, flight: u32::MAX };
                // A round trip is a window's worth.
                while epoch.batches < 4 || epoch.packets < u64::from(self.window) {
                    let (acks, packets) = self.turn();
                    epoch = AckEpoch {
                        acks: epoch.acks + acks,
                        batches: epoch.batches + 1,
                        packets: epoch.packets + packets,
                        flight: u32::MAX,
                    };
                }
                if let Some(threshold) = rule.on_epoch_ended(&epoch, path(self.window)) {
                    assert_ne!(threshold, self.threshold, "asked for what is in force");
                    self.threshold = threshold;
                    // Packets that were in flight at the old threshold are left out.
                    (0..4).for_each(|_| {
                        self.turn();
                    });
                }
                thresholds.push(self.threshold);
            }
            thresholds
        }
    }

    fn changes(thresholds: &[u32]) -> usize {
        thresholds.windows(2).filter(|pair| pair[0] != pair[1]).count()
    }

    proptest! {
        // Each runs thousands of epochs.
        #![proptest_config(ProptestConfig::with_cases(32))]

        #[test]
        fn the_threshold_settles_at_any_load_and_falls_without_load(
            slowness in 0.05..20.0f64,
            window in 8..800u32,
        ) {
            let mut rule = ThresholdRule::default();
            let mut transfer = Transfer::new(slowness, window);
            let thresholds = transfer.run(&mut rule, 2000);
            let most = (window / MIN_ACKS_PER_WINDOW).clamp(MIN_THRESHOLD, MAX_THRESHOLD);
            prop_assert!(thresholds.iter().all(|threshold| (MIN_THRESHOLD..=most).contains(threshold)));
            // A trial changes the threshold twice, and at most one trial runs in 100 epochs.
            let settled = &thresholds[1200..];
            prop_assert!(changes(settled) <= 2 * settled.len() / 100, "{} changes", changes(settled));
            if slowness > 2.0 && window > 200 {
                let high = settled.iter().filter(|&&threshold| threshold > most / 2).count();
                prop_assert!(high * 10 > settled.len() * 9, "high in {high} of {} epochs", settled.len());
            }
            if slowness < 0.5 {
                prop_assert_eq!(changes(settled), 0);
                prop_assert_eq!(settled[0], MIN_THRESHOLD);
            }
            // The load goes.
            transfer.slowness = 0.01;
            let thresholds = transfer.run(&mut rule, MAX_RETRIAL_EPOCHS as usize + 10 * CALM_EPOCHS as usize);
            prop_assert_eq!(thresholds.last(), Some(&MIN_THRESHOLD));
            prop_assert!(changes(&thresholds) <= 6, "{} changes", changes(&thresholds));
        }

    }

    proptest! {
        #[test]
        fn any_counts_lead_to_a_threshold_within_bounds(
            epochs in prop::collection::vec((0..10_000u64, 0..100u64, any::<u64>(), any::<u32>()), 0..300),
        ) {
            let mut rule = ThresholdRule::default();
            for (acks, batches, packets, window) in epochs {
                let epoch = AckEpoch { acks, batches, packets, flight: u32::MAX };
                if let Some(threshold) = rule.on_epoch_ended(&epoch, path(window)) {
                    prop_assert!((MIN_THRESHOLD..=MAX_THRESHOLD).contains(&threshold));
                    let bound = (window / MIN_ACKS_PER_WINDOW).max(MAX_OWN_THRESHOLD);
                    prop_assert!(threshold <= bound || acks < 2 * batches);
                }
            }
        }
    }
}
