//! Moderates receiving (docs/adr/0024-receive-moderation.md): a worker with many downloads in flight reads datagrams at
//! fixed times instead of when each arrives, so that acknowledgements form batches, and the released packets form
//! bursts. Network cards do the same with interrupts (`rx-usecs` of ethtool(8)); here urgent packets are known.
//!
//! `litequic.receive_moderation` switches it; a change needs a restart. [`ModerationRule`] decides and is pure.
//! [`Moderation`] is the state that an endpoint's parts share; `quic::io` waits.

use crate::metrics::QuicMetrics;
use litequic_base::relaxed_cell::RelaxedCell;
use litequic_telemetry::WakeCause;
use std::{sync::Arc, time::Duration};
use tokio::time::Instant;

/// Longest time between two turns: an eighth of a round trip of 16 ms. A request beside large downloads waits no
/// longer.
pub(crate) const MAX_TURN_PERIOD: Duration = Duration::from_millis(2);
/// Shortest time between two turns: a step of tokio's timers.
const MIN_TURN_PERIOD: Duration = Duration::from_millis(1);
/// Least number of turns in a round trip: acknowledgements that wait for an eighth of it slow no download down.
const TURNS_PER_RTT: u32 = 8;
/// Packets that any path holds at once, without a buffer.
const UNBUFFERED_PACKETS: u64 = 4;
/// Length of an epoch, after which the rule decides: 25 turns of the longest period.
const RULE_EPOCH: Duration = Duration::from_millis(50);
/// Consecutive epochs with enough arrivals before moderation begins. Shorter downloads are not slowed down in their
/// slow start.
const MIN_BUSY_EPOCHS: u32 = 4;
/// Consecutive turns without a datagram or an expired timer after which moderation ends.
const MAX_IDLE_TURNS: u32 = 8;
/// Negligible part, one in sixteen, of paths with too short a round trip, and of urgent packets.
const NEGLIGIBLE_PART: u32 = 16;
/// Consecutive turns with an urgent packet after which moderation is interrupted: a rare one may wait for its turn.
const INTERRUPT_URGENT_TURNS: u32 = 3;
/// Length of an interruption: five turns of the longest period. Further urgent packets extend it.
const INTERRUPTION: Duration = Duration::from_millis(10);
/// Datagrams of a turn from which on moderation is interrupted: a socket's buffer holds some 270 small ones with the
/// default of net.core.rmem_default, and a worker as busy as that has batches anyway.
const INTERRUPT_DATAGRAMS: u32 = 128;

/// Lateness up to which a timer counts as on time: tokio's timers and s2n-quic's have steps of a millisecond each.
const MAX_TIMELY_LATENESS: Duration = Duration::from_millis(3);
/// Largest recorded lateness: a later timer also means only that the worker got too little CPU time.
const MAX_LATENESS: Duration = Duration::from_millis(50);
/// Length of a window, milliseconds. The lateness of timers is the maximum of the last two windows.
const LATENESS_WINDOW_MILLIS: u64 = 100;

/// Moderation of one endpoint, as atomics for the reason that `quic::endpoint::endpoint_state` names.
#[derive(Debug, Clone)]
pub(crate) struct Moderation(Arc<SharedModeration>);

#[derive(Debug)]
struct SharedModeration {
    switch: bool,
    /// Number of the current batch, counted from 1; 0 before the first, and always with I/O without batches.
    batch: RelaxedCell,
    /// Time from which turns are at multiples of the period.
    epoch: Instant,
    /// Milliseconds between two turns; 0 while arrivals are events.
    period: RelaxedCell,
    /// Urgent packets since the last turn.
    urgent: RelaxedCell,
    /// Packets that opened a request or belonged to a handshake.
    openings: RelaxedCell,
    /// Timers that have expired since the last turn.
    expired: RelaxedCell,
    paths: [RelaxedCell; 3],
    late: TimerLateness,
    metrics: Arc<QuicMetrics>,
}

/// Lateness of timers: the maximum of the current window and of the one before. A worker with little CPU time, because
/// of a cgroup's quota or other processes, is late by whole periods of the scheduler.
#[derive(Debug, Default)]
struct TimerLateness {
    /// Begin of the current window, milliseconds from the epoch.
    began: RelaxedCell,
    /// Largest lateness in the current window, microseconds.
    max_now: RelaxedCell,
    /// Largest lateness in the window before, microseconds.
    max_previous: RelaxedCell,
    /// Timers that expired in the current window.
    timers: RelaxedCell,
    /// Timers that expired late in the current window.
    late: RelaxedCell,
    /// 1 if most timers of the window before expired late.
    is_starved: RelaxedCell,
}

/// Number of measured paths by the time that they allow between two turns: `near` less than the shortest period,
/// `middle` less than the longest, `far` the longest.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct PathClasses {
    near: u64,
    middle: u64,
    far: u64,
}

impl PathClasses {
    /// Longest period that nearly all paths allow.
    fn common_period(self) -> Option<Duration> {
        let Self { near, middle, far } = self;
        let few = near.saturating_add(middle).saturating_add(far) / u64::from(NEGLIGIBLE_PART);
        if far == 0 && middle == 0 {
            None
        } else if near.saturating_add(middle) <= few {
            Some(MAX_TURN_PERIOD)
        } else if near <= few {
            Some(MIN_TURN_PERIOD)
        } else {
            None
        }
    }
}

impl Moderation {
    /// A moderation that can begin only if `switch` is set.
    pub(crate) fn new(switch: bool, metrics: Arc<QuicMetrics>) -> Self {
        Self(Arc::new(SharedModeration {
            switch,
            batch: RelaxedCell::default(),
            epoch: Instant::now(),
            period: RelaxedCell::default(),
            urgent: RelaxedCell::default(),
            openings: RelaxedCell::default(),
            expired: RelaxedCell::default(),
            paths: <[RelaxedCell; 3]>::default(),
            late: TimerLateness::default(),
            metrics,
        }))
    }

    pub(crate) fn begin_batch(&self) {
        self.0.batch.add_saturating(1);
    }

    /// Number of the current receive batch; 0 without batches.
    pub(crate) fn current_batch(&self) -> u64 {
        self.0.batch.get()
    }

    /// Counts an urgent packet, whose sender waits for the response.
    pub(crate) fn count_urgent(&self) {
        self.0.urgent.add_saturating(1);
    }

    /// Counts a packet that opens a request or belongs to a handshake.
    pub(crate) fn count_opening(&self) {
        self.0.openings.add_saturating(1);
    }

    /// Number of packets so far that opened a request or belonged to a handshake.
    pub(crate) fn openings(&self) -> u64 {
        self.0.openings.get()
    }

    /// Counts an expired timer of the endpoint: usually packets were sent.
    pub(crate) fn count_expired_timer(&self) {
        self.0.expired.add_saturating(1);
    }

    /// Counts a measured path that allows `longest` between two turns.
    pub(crate) fn count_path(&self, longest: Duration) {
        let [near, middle, far] = &self.0.paths;
        let class = if longest < MIN_TURN_PERIOD {
            near
        } else if longest < MAX_TURN_PERIOD {
            middle
        } else {
            far
        };
        class.add_saturating(1);
    }

    pub(crate) fn count_turn(&self) {
        self.0.metrics.wake.note_cause(WakeCause::Moderation);
    }

    /// Time between two turns; zero while arrivals are events.
    pub(crate) fn period(&self) -> Duration {
        Duration::from_millis(self.0.period.get())
    }

    /// Records the lateness of a timer for `target`, which has expired now.
    pub(crate) fn record_lateness(&self, target: Instant) {
        let SharedModeration { late: TimerLateness { began, max_now, max_previous, timers, late, is_starved }, .. } =
            &*self.0;
        let now = Instant::now();
        let millis = self.0.epoch_millis(now);
        if millis.saturating_sub(began.get()) >= LATENESS_WINDOW_MILLIS {
            began.set(millis);
            max_previous.set(max_now.take_value());
            is_starved.set(u64::from(2 * late.take_value() > timers.take_value()));
        }
        timers.add_saturating(1);
        let by = now.saturating_duration_since(target).min(MAX_LATENESS);
        if by > MAX_TIMELY_LATENESS {
            late.add_saturating(1);
            max_now.set(max_now.get().max(u64::try_from(by.as_micros()).unwrap_or(u64::MAX)));
        }
    }

    /// Whether most timers expire late: the worker gets too little CPU time.
    pub(crate) fn is_starved(&self) -> bool {
        self.0.late.is_starved.get() > 0
    }

    /// Largest lateness of timers; zero if they are on time.
    pub(crate) fn lateness(&self) -> Duration {
        let TimerLateness { max_now, max_previous, .. } = &self.0.late;
        Duration::from_micros(max_now.get().max(max_previous.get()))
    }

    /// Time at which a timer for `time` should expire: with the turn at its millisecond, or with the first turn after.
    pub(crate) fn align_timer(&self, time: Instant) -> Instant {
        let period = self.0.period.get().max(1);
        self.0.epoch_instant(self.0.epoch_millis(time).checked_next_multiple_of(period).unwrap_or(u64::MAX))
    }

    /// Time of the next receive, after `datagrams` datagrams were received and processed; `None` means on arrival.
    pub(crate) fn next_receive_turn(&self, rule: &mut ModerationRule, datagrams: usize) -> Option<Instant> {
        let SharedModeration { switch: true, epoch, urgent, expired, paths, .. } = &*self.0 else { return None };
        let now = Instant::now();
        let taken = TurnResult {
            at: now.saturating_duration_since(*epoch),
            datagrams: u32::try_from(datagrams).unwrap_or(u32::MAX),
            urgent: urgent.take_value() > 0,
            expired: u32::try_from(expired.take_value()).unwrap_or(u32::MAX),
        };
        let period = rule.decide_period(taken, || {
            let [near, middle, far] = paths.each_ref().map(RelaxedCell::take_value);
            PathClasses { near, middle, far }
        });
        let before = self.0.period.get();
        let millis = period.map_or(0, |period| u64::try_from(period.as_millis()).unwrap_or(u64::MAX));
        if millis != before {
            self.0.period.set(millis);
            if before == 0 {
                self.0.metrics.receive_moderations.increment();
            }
        }
        period.map(|_| self.0.epoch_instant((self.0.epoch_millis(now) / millis.max(1) + 1) * millis))
    }
}

impl SharedModeration {
    /// Converts `time` to whole milliseconds from the epoch.
    fn epoch_millis(&self, time: Instant) -> u64 {
        u64::try_from(time.saturating_duration_since(self.epoch).as_millis()).unwrap_or(u64::MAX)
    }

    fn epoch_instant(&self, millis: u64) -> Instant {
        self.epoch.checked_add(Duration::from_millis(millis)).unwrap_or(self.epoch)
    }
}

/// Time that a path allows between two turns: a small part of its round trip, and of the time that its buffer holds,
/// which is `share` if known. A turn sends `window` bytes a round trip, in packets of `max_datagram`.
pub(crate) fn longest_turn(
    smoothed_rtt: Duration,
    share: Option<Duration>,
    window: u32,
    max_datagram: u16,
) -> Duration {
    let turn = smoothed_rtt / TURNS_PER_RTT;
    let Some(share) = share.filter(|share| *share < turn) else { return turn };
    let rtt = u64::try_from(smoothed_rtt.as_micros()).unwrap_or(u64::MAX);
    let few = rtt.saturating_mul(UNBUFFERED_PACKETS * u64::from(max_datagram)) / u64::from(window.max(1));
    turn.min(share.max(Duration::from_micros(few)))
}

/// Result of a turn, or of an arrival.
#[derive(Debug, Clone, Copy)]
struct TurnResult {
    at: Duration,
    datagrams: u32,
    urgent: bool,
    /// Timers that expired since the last turn.
    expired: u32,
}

/// Rule that decides by the results of turns whether arrivals are moderated. Pure.
#[derive(Debug, Default)]
pub(crate) struct ModerationRule {
    /// Begin of the current epoch.
    epoch_start: Duration,
    receives: u32,
    datagrams: u32,
    urgent: u32,
    expired: u32,
    /// Consecutive epochs with enough arrivals.
    busy_epochs: u32,
    /// Time between two turns; `None` while arrivals are events.
    period: Option<Duration>,
    /// Consecutive turns without a datagram or an expired timer.
    idle_turns: u32,
    /// Consecutive turns with an urgent packet.
    urgent_turns: u32,
    paused_until: Duration,
}

impl ModerationRule {
    /// Time until the next turn; `None` if arrivals are events.
    fn decide_period(&mut self, taken: TurnResult, paths: impl FnOnce() -> PathClasses) -> Option<Duration> {
        let TurnResult { at, datagrams, urgent, expired } = taken;
        self.receives += u32::from(datagrams > 0);
        self.datagrams = self.datagrams.saturating_add(datagrams);
        self.urgent += u32::from(urgent);
        self.expired = self.expired.saturating_add(expired);
        let lasted = at.saturating_sub(self.epoch_start);
        if lasted >= RULE_EPOCH {
            let period = paths().common_period().filter(|period| self.is_worth_moderating(*period, lasted));
            self.busy_epochs = if period.is_some() { self.busy_epochs + 1 } else { 0 };
            self.period = period.filter(|_| self.period.is_some() || self.busy_epochs >= MIN_BUSY_EPOCHS);
            (self.epoch_start, self.receives, self.datagrams, self.urgent, self.expired) = (at, 0, 0, 0, 0);
        }
        self.idle_turns = if datagrams > 0 || expired > 0 { 0 } else { self.idle_turns + 1 };
        if self.idle_turns >= MAX_IDLE_TURNS {
            (self.period, self.busy_epochs, self.idle_turns) = (None, 0, 0);
        }
        self.urgent_turns = if urgent { self.urgent_turns + 1 } else { 0 };
        if self.urgent_turns >= INTERRUPT_URGENT_TURNS || datagrams >= INTERRUPT_DATAGRAMS {
            self.paused_until = at + INTERRUPTION;
        }
        self.period.filter(|_| at >= self.paused_until)
    }

    /// Whether two turns of `period` have on average at least three datagrams and expired timers, each of which would
    /// wake the worker by itself, and few of which are urgent.
    fn is_worth_moderating(&self, period: Duration, lasted: Duration) -> bool {
        let arrivals = if self.period.is_some() { self.datagrams } else { self.receives };
        let count = arrivals.saturating_add(self.expired);
        let turns = lasted.as_micros() / period.as_micros().max(1);
        u128::from(count) * 2 >= turns * 3 && self.urgent <= count / NEGLIGIBLE_PART
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const FAR: PathClasses = PathClasses { near: 0, middle: 0, far: 100 };

    /// A rule with the time and the paths of a test.
    struct Trial {
        rule: ModerationRule,
        now: Duration,
        paths: PathClasses,
    }

    impl Trial {
        fn new(paths: PathClasses) -> Self {
            Self { rule: ModerationRule::default(), now: Duration::ZERO, paths }
        }

        /// Receives `datagrams` datagrams `later` than before.
        fn take(&mut self, later: Duration, datagrams: u32, urgent: bool) -> Option<Duration> {
            self.now += later;
            self.rule.decide_period(TurnResult { at: self.now, datagrams, urgent, expired: 0 }, || self.paths)
        }

        /// Receives a datagram each half millisecond.
        fn busy(&mut self, time: Duration) -> Option<Duration> {
            let until = self.now + time;
            let mut last = None;
            while self.now < until {
                last = self.take(Duration::from_micros(500), 1, false);
            }
            last
        }

        /// A rule that moderates, with turns of 2 ms.
        fn moderated() -> Self {
            let mut trial = Self::new(FAR);
            assert_eq!(trial.busy(2 * RULE_EPOCH * MIN_BUSY_EPOCHS), Some(MAX_TURN_PERIOD));
            trial
        }
    }

    #[test]
    fn the_period_is_the_longest_that_nearly_all_paths_allow() {
        for (near, middle, far, expected) in [
            (0, 0, 0, None),
            (1, 0, 0, None),
            (0, 0, 1, Some(MAX_TURN_PERIOD)),
            (1, 0, 14, None),
            (1, 0, 15, Some(MAX_TURN_PERIOD)),
            (0, 1, 14, Some(MIN_TURN_PERIOD)),
            (1, 4, 11, Some(MIN_TURN_PERIOD)),
            (2, 0, 14, None),
        ] {
            assert_eq!(PathClasses { near, middle, far }.common_period(), expected, "{near}, {middle}, {far}");
        }
        let moderation = Moderation::new(true, Arc::default());
        for turn in [0, 999, 1_000, 1_999, 2_000, 30_000] {
            moderation.count_path(Duration::from_micros(turn));
        }
        assert_eq!(moderation.0.paths.each_ref().map(|class| class.get()), [2, 2, 2]);
    }

    #[test]
    fn a_path_allows_a_part_of_its_round_trip_or_buffer() {
        let us = Duration::from_micros;
        for (rtt, share, window, turn) in [
            (50_000, None, 600_000, 6_250),
            (50_000, Some(9_000), 600_000, 6_250),
            (50_000, Some(1_500), 600_000, 1_500),
            (50_000, Some(0), 600_000, 400),
            // At 10 Mbit/s 4 packets of 1200 bytes take 3.84 ms.
            (50_000, Some(0), 62_500, 3_840),
            (50_000, Some(0), 0, 6_250),
            (7_000, Some(0), 0, 875),
        ] {
            assert_eq!(longest_turn(us(rtt), share.map(us), window, 1_200), us(turn), "{rtt}, {share:?}, {window}");
        }
    }

    #[test]
    fn moderation_begins_after_enough_busy_epochs() {
        let mut trial = Trial::new(FAR);
        assert_eq!(trial.busy(RULE_EPOCH * MIN_BUSY_EPOCHS - RULE_EPOCH / 2), None);
        assert_eq!(trial.busy(RULE_EPOCH), Some(MAX_TURN_PERIOD));
        // Too few arrivals; too near a client; only urgent packets.
        for (later, urgent, paths) in
            [(2_000, false, FAR), (500, false, PathClasses { near: 10, ..FAR }), (500, true, FAR)]
        {
            let mut trial = Trial::new(paths);
            for _ in 0..1_000 {
                assert_eq!(trial.take(Duration::from_micros(later), 1, urgent), None, "{later}, {urgent}, {paths:?}");
            }
        }
    }

    #[test]
    fn expired_timers_count_as_arrivals() {
        let mut trial = Trial::new(FAR);
        let mut last = None;
        for turn in 0..2_000 {
            trial.now += Duration::from_millis(1);
            // Each second turn has a datagram, and each an expired timer.
            let taken = TurnResult { at: trial.now, datagrams: turn % 2, urgent: false, expired: 1 };
            last = trial.rule.decide_period(taken, || FAR);
        }
        assert_eq!(last, Some(MAX_TURN_PERIOD));
    }

    #[test]
    fn moderation_ends_without_enough_arrivals() {
        let mut trial = Trial::moderated();
        for _ in 1..MAX_IDLE_TURNS {
            assert_eq!(trial.take(MAX_TURN_PERIOD, 0, false), Some(MAX_TURN_PERIOD));
        }
        assert_eq!(trial.take(MAX_TURN_PERIOD, 0, false), None);
        let mut trial = Trial::moderated();
        let last = (0..2 * RULE_EPOCH.as_millis()).map(|_| trial.take(MAX_TURN_PERIOD, 1, false)).last();
        assert_eq!(last, Some(None), "as many as turns");
        let mut trial = Trial::moderated();
        trial.paths = PathClasses { near: 10, ..FAR };
        assert_eq!(trial.busy(RULE_EPOCH * 2), None, "a client nearby");
    }

    #[test]
    fn urgent_packets_and_large_batches_interrupt_moderation() {
        let mut trial = Trial::moderated();
        for _ in 1..INTERRUPT_URGENT_TURNS {
            assert_eq!(trial.take(MAX_TURN_PERIOD, 9, true), Some(MAX_TURN_PERIOD));
        }
        assert_eq!(trial.take(MAX_TURN_PERIOD, 9, false), Some(MAX_TURN_PERIOD), "one now and then");
        for _ in 1..INTERRUPT_URGENT_TURNS {
            trial.take(MAX_TURN_PERIOD, 9, true);
        }
        assert_eq!(trial.take(MAX_TURN_PERIOD, 9, true), None);
        assert_eq!(trial.take(INTERRUPTION / 2, 9, false), None);
        assert_eq!(trial.take(INTERRUPTION / 2, 9, false), Some(MAX_TURN_PERIOD));
        assert_eq!(
            trial.take(MAX_TURN_PERIOD, INTERRUPT_DATAGRAMS, false),
            None,
            "the socket's buffer might have been full"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn timers_and_turns_are_at_multiples_of_the_period() {
        let moderation = Moderation::new(true, Arc::default());
        let epoch = moderation.0.epoch;
        let micros = |micros| epoch + Duration::from_micros(micros);
        for (period, time, expected) in
            [(0, 3_900, 3_000), (1, 3_900, 3_000), (2, 3_900, 4_000), (2, 4_100, 4_000), (2, 5_000, 6_000)]
        {
            moderation.0.period.set(period);
            assert_eq!(moderation.align_timer(micros(time)), micros(expected), "{period}, {time}");
        }
        let mut rule = Trial::moderated().rule;
        tokio::time::advance(Duration::from_micros(401_300)).await;
        assert_eq!(moderation.next_receive_turn(&mut rule, 5), Some(micros(402_000)));
        assert_eq!(moderation.period(), MAX_TURN_PERIOD);
        assert_eq!(Moderation::new(false, Arc::default()).next_receive_turn(&mut rule, 5), None);
    }

    #[tokio::test(start_paused = true)]
    async fn lateness_of_timers_is_remembered_for_two_windows_and_bounded() {
        let moderation = Moderation::new(false, Arc::default());
        let expire = async |later: u64, late: Duration| {
            tokio::time::advance(Duration::from_millis(later)).await;
            moderation.record_lateness(Instant::now().checked_sub(late).unwrap());
            moderation.lateness()
        };
        assert_eq!(expire(500, MAX_TIMELY_LATENESS).await, Duration::ZERO, "as timers go");
        let late = Duration::from_millis(9);
        assert_eq!(expire(1, late).await, late);
        assert_eq!(expire(2 * LATENESS_WINDOW_MILLIS - 2, Duration::ZERO).await, late, "in the window before");
        assert_eq!(expire(LATENESS_WINDOW_MILLIS, Duration::ZERO).await, Duration::ZERO);
        assert_eq!(expire(1, Duration::from_millis(400)).await, MAX_LATENESS);
    }

    proptest! {
        #[test]
        fn any_arrivals_give_a_valid_period_and_silence_ends_it(
            steps in prop::collection::vec((0u64..5_000, 0u32..40, any::<bool>(), 0u64..9, 0u64..9, 0u64..9), 0..2_000),
        ) {
            let mut trial = Trial::new(FAR);
            for (later, datagrams, urgent, near, middle, far) in steps {
                trial.paths = PathClasses { near, middle, far };
                let period = trial.take(Duration::from_micros(later), datagrams, urgent);
                prop_assert!(period.is_none_or(|period| period == MIN_TURN_PERIOD || period == MAX_TURN_PERIOD));
            }
            for _ in 0..MAX_IDLE_TURNS {
                trial.take(MAX_TURN_PERIOD, 0, false);
            }
            prop_assert_eq!(trial.take(MAX_TURN_PERIOD, 0, false), None);
        }
    }
}
