//! What an emulation did and how well it kept time, as JSON has it; and when it means nothing. Pure.

use super::{model::Fate, packet::Flow};
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

/// Packets of one direction that arrive closer to each other than this are one burst: what leaves together,
const BURST_GAP: Duration = Duration::from_micros(100);
/// and what a queue of a few milliseconds sees together.
const LONG_GAP: Duration = Duration::from_millis(1);
/// A time for which the emulator did not run while it should have: the host was busy elsewhere, or its hypervisor was.
pub(super) const PAUSE: Duration = Duration::from_millis(10);
/// So much of a run may be pauses: one of 20 ms in 20 s changes no figure, and a virtual machine has some each minute.
const PAUSED_SHARE: f64 = 0.001;
/// Lateness that a run may have, p99.9: this,
const LATE: Duration = Duration::from_millis(1);
/// or this share of the round-trip time.
const LATE_SHARE: f64 = 0.05;
/// A flow that got less has not even shaken hands: it is what an earlier connection left.
const FLOW: u64 = 1_000; // bytes
/// Significant digits.
const DIGITS: u8 = 3;

/// What an emulation did.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Report {
    /// Why nothing here may be used. `null`: it stands.
    pub(crate) void: Option<String>,
    /// How long it lasted.
    pub(crate) seconds: f64,
    /// CPU time of the emulator, the receiving stacks' soft interrupts on its core included, seconds.
    pub(crate) cpu_seconds: f64,
    /// How much later than due packets were handed over, microseconds.
    pub(crate) lateness_us: Quantiles,
    /// How often it did not run for 10 ms or longer while it should have, all of these times together, and the longest.
    pub(crate) pauses: u64,
    pub(crate) paused_us: u64,
    pub(crate) longest_pause_us: u64,
    /// By link.
    pub(crate) links: Vec<LinkReport>,
}

/// A link's two directions.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct LinkReport {
    /// From server to client.
    pub(crate) down: DirectionReport,
    /// From client to server.
    pub(crate) up: DirectionReport,
}

/// One direction.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct DirectionReport {
    /// Packets that came, and their bytes, IP headers included.
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
    /// Lost on purpose.
    pub(crate) lost: u64,
    /// Lost to the full queue.
    pub(crate) dropped: u64,
    /// Handed over, duplicates not counted.
    pub(crate) delivered: u64,
    pub(crate) duplicated: u64,
    /// Held back so that others overtook them.
    pub(crate) reordered: u64,
    /// Marked as having met congestion.
    pub(crate) marked: u64,
    /// Lost in front of the emulator or behind it, which voids the run.
    pub(crate) device_drops: u64,
    /// Bytes in the queue that packets find.
    pub(crate) queue_bytes: Quantiles,
    /// Time that delivered packets spend beyond the delay, microseconds: the queue, their own bits, jitter.
    pub(crate) wait_us: Quantiles,
    /// Packets that arrive within 100 µs of each other.
    pub(crate) bursts: Quantiles,
    /// Packets that arrive within 1 ms of each other.
    #[serde(default)]
    pub(crate) bursts_1ms: Quantiles,
    /// Bytes delivered of each sender, by its port.
    #[serde(default)]
    pub(crate) senders: BTreeMap<u16, u64>,
    /// Flows (protocol and ports) of which 1,000 bytes or more were delivered, and Jain's index of their bytes.
    pub(crate) flows: u64,
    pub(crate) fairness: Option<f64>,
}

/// Quantiles of something.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Quantiles {
    pub(crate) mean: f64,
    pub(crate) p50: u64,
    pub(crate) p99: u64,
    pub(crate) p99_9: u64,
    pub(crate) max: u64,
}

/// Collects values.
#[derive(Debug)]
pub(super) struct Values(Histogram<u64>);

impl Values {
    fn new() -> Self {
        #[expect(clippy::expect_used, reason = "the bound is a constant that hdrhistogram takes")]
        let histogram = Histogram::new_with_max(1 << 40, DIGITS).expect("bounds");
        Self(histogram)
    }

    fn add(&mut self, value: u64) {
        self.0.saturating_record(value);
    }

    fn quantiles(&self) -> Quantiles {
        let Self(histogram) = self;
        Quantiles {
            mean: if histogram.is_empty() { 0.0 } else { histogram.mean() },
            p50: histogram.value_at_quantile(0.5),
            p99: histogram.value_at_quantile(0.99),
            p99_9: histogram.value_at_quantile(0.999),
            max: histogram.max(),
        }
    }
}

/// Bursts of packets: those that arrive within `gap` of the one before.
#[derive(Debug)]
struct Bursts {
    gap: Duration,
    sizes: Values,
    /// The last arrival, and how many came with it.
    last: (Duration, u64),
}

impl Bursts {
    fn new(gap: Duration) -> Self {
        Self { gap, sizes: Values::new(), last: (Duration::ZERO, 0) }
    }

    fn arrived(&mut self, now: Duration) {
        if now.saturating_sub(self.last.0) >= self.gap {
            self.end();
        }
        self.last = (now, self.last.1 + 1);
    }

    fn end(&mut self) {
        if self.last.1 > 0 {
            self.sizes.add(self.last.1);
            self.last.1 = 0;
        }
    }

    fn quantiles(mut self) -> Quantiles {
        self.end();
        self.sizes.quantiles()
    }
}

/// What one direction did.
#[derive(Debug)]
pub(super) struct Direction {
    report: DirectionReport,
    queue: Values,
    wait: Values,
    bursts: [Bursts; 2],
    flows: HashMap<Flow, u64>,
}

impl Direction {
    pub(super) fn new() -> Self {
        Self {
            report: DirectionReport::default(),
            queue: Values::new(),
            wait: Values::new(),
            bursts: [BURST_GAP, LONG_GAP].map(Bursts::new),
            flows: HashMap::new(),
        }
    }

    /// A packet arrived, found a queue, and has a fate; `delay` is the direction's own.
    pub(super) fn arrived(&mut self, now: Duration, bytes: u64, queued: u64, fate: Fate, delay: Duration) {
        self.report.packets += 1;
        self.report.bytes += bytes;
        self.queue.add(queued);
        self.bursts.iter_mut().for_each(|bursts| bursts.arrived(now));
        match fate {
            Fate::Lost => self.report.lost += 1,
            Fate::Dropped => self.report.dropped += 1,
            Fate::Delivered(delivery) => {
                self.report.duplicated += u64::from(delivery.twice);
                self.report.reordered += u64::from(delivery.held);
                if !delivery.held {
                    self.wait.add(microseconds(delivery.at.saturating_sub(now).saturating_sub(delay)));
                }
            }
        }
    }

    /// A packet got its mark.
    pub(super) fn marked(&mut self) {
        self.report.marked += 1;
    }

    /// A packet was handed over; `false`: the device did not take it.
    pub(super) fn handed_over(&mut self, flow: Flow, bytes: u64, taken: bool) {
        if taken {
            self.report.delivered += 1;
            *self.flows.entry(flow).or_default() += bytes;
        } else {
            self.report.device_drops += 1;
        }
    }

    /// Of this direction; `unread` packets were lost in front of it.
    pub(super) fn report(self, unread: u64) -> DirectionReport {
        let [bursts, bursts_1ms] = self.bursts.map(Bursts::quantiles);
        let mut senders = BTreeMap::new();
        for (flow, bytes) in &self.flows {
            *senders.entry(flow.source).or_default() += bytes;
        }
        let bytes = self.flows.values().filter(|bytes| **bytes >= FLOW);
        let bytes: Vec<f64> = bytes.map(|bytes| *bytes as f64).collect();
        DirectionReport {
            device_drops: self.report.device_drops + unread,
            queue_bytes: self.queue.quantiles(),
            wait_us: self.wait.quantiles(),
            bursts,
            bursts_1ms,
            flows: bytes.len() as u64,
            fairness: fairness(&bytes),
            senders,
            ..self.report
        }
    }
}

/// How the emulator kept time.
#[derive(Debug)]
pub(super) struct Timing {
    lateness: Values,
    pauses: u64,
    paused: Duration,
    longest_pause: Duration,
}

impl Timing {
    pub(super) fn new() -> Self {
        Self { lateness: Values::new(), pauses: 0, paused: Duration::ZERO, longest_pause: Duration::ZERO }
    }

    /// A packet was handed over so much later than due.
    pub(super) fn late(&mut self, by: Duration) {
        self.lateness.add(microseconds(by));
    }

    /// The emulator came to run so much later than it should have.
    pub(super) fn overslept(&mut self, by: Duration) {
        if by >= PAUSE {
            self.pauses += 1;
            self.paused += by;
        }
        self.longest_pause = self.longest_pause.max(by);
    }

    /// All of it, of links with such a round-trip time.
    pub(super) fn report(&self, time: Duration, cpu: Duration, rtt: Duration, links: Vec<LinkReport>) -> Report {
        let mut report = Report {
            void: None,
            seconds: time.as_secs_f64(),
            cpu_seconds: cpu.as_secs_f64(),
            lateness_us: self.lateness.quantiles(),
            pauses: self.pauses,
            paused_us: microseconds(self.paused),
            longest_pause_us: microseconds(self.longest_pause),
            links,
        };
        report.void = report.why_void(rtt);
        report
    }
}

impl Report {
    fn why_void(&self, rtt: Duration) -> Option<String> {
        let bound = microseconds(LATE.max(rtt.mul_f64(LATE_SHARE)));
        let drops: u64 = self.links.iter().map(|link| link.down.device_drops + link.up.device_drops).sum();
        if drops > 0 {
            return Some(format!("the emulator's devices dropped {drops} packets"));
        }
        if self.paused_us as f64 > self.seconds * PAUSED_SHARE * 1e6 {
            let longest = self.longest_pause_us / 1000;
            return Some(format!("the host lost time: {} pauses of the emulator, up to {longest} ms", self.pauses));
        }
        let late = self.lateness_us.p99_9;
        (late > bound)
            .then(|| format!("the emulator was late: {late} µs in the 99.9th percentile, {bound} are allowed"))
    }
}

fn microseconds(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// Jain's index: 1 when all have the same, 1/n when one has all.
fn fairness(shares: &[f64]) -> Option<f64> {
    let (sum, squares) = shares.iter().fold((0.0, 0.0), |(sum, squares), share| (sum + share, squares + share * share));
    (squares > 0.0).then(|| sum * sum / (shares.len() as f64 * squares))
}

#[cfg(test)]
mod tests {
    use super::{super::model::Delivery, *};

    const MILLISECOND: Duration = Duration::from_millis(1);

    #[test]
    fn jains_index_is_1_for_equals_and_a_share_for_a_monopoly() {
        assert_eq!(fairness(&[5.0, 5.0, 5.0, 5.0]), Some(1.0));
        assert_eq!(fairness(&[5.0, 0.0, 0.0, 0.0]), Some(0.25));
        assert_eq!(fairness(&[]), None);
    }

    #[test]
    fn a_burst_is_what_comes_close_together() {
        let mut direction = Direction::new();
        for (at, count) in [(0, 10), (10, 1), (18, 3), (19, 2)] {
            for _ in 0..count {
                direction.arrived(MILLISECOND / 2 * at, 100, 0, Fate::Dropped, Duration::ZERO);
            }
        }
        let report = direction.report(2);
        assert_eq!((report.packets, report.bytes, report.dropped, report.device_drops), (16, 1_600, 16, 2));
        assert_eq!((report.bursts.max, report.bursts.p50), (10, 2));
        // Half a millisecond between the last two.
        assert_eq!((report.bursts_1ms.max, report.bursts_1ms.p50), (10, 5));
    }

    #[test]
    fn what_waits_is_told_without_the_paths_delay() {
        let mut direction = Direction::new();
        let delivery = Delivery { at: MILLISECOND * 15, twice: true, held: false, congested: false };
        direction.arrived(MILLISECOND * 2, 100, 7_000, Fate::Delivered(delivery), MILLISECOND * 10);
        direction.handed_over(Flow { protocol: 17, source: 1, destination: 2 }, 1_000, true);
        direction.handed_over(Flow { protocol: 17, source: 1, destination: 3 }, 0, false);
        direction.handed_over(Flow { protocol: 6, source: 1, destination: 2 }, 52, true);
        let report = direction.report(1);
        assert_eq!((report.duplicated, report.delivered, report.device_drops, report.flows), (1, 2, 2, 1));
        assert!(report.wait_us.max.abs_diff(3_000) < 5);
        assert!(report.queue_bytes.max.abs_diff(7_000) < 10);
    }

    fn timing(late: &[u64], pause: u64) -> Timing {
        let mut timing = Timing::new();
        late.iter().for_each(|late| timing.late(Duration::from_micros(*late)));
        timing.overslept(MILLISECOND * u32::try_from(pause).unwrap());
        timing
    }

    #[test]
    fn a_late_emulator_voids_its_run_by_name() {
        let void = |timing: &Timing, rtt: u32| timing.report(MILLISECOND, MILLISECOND, MILLISECOND * rtt, vec![]).void;
        assert_eq!(void(&timing(&[900; 100], 0), 10), None);
        let late = void(&timing(&[1_500; 100], 0), 10).unwrap();
        assert!(late.starts_with("the emulator was late: 150"), "{late}");
        assert_eq!(void(&timing(&[1_500; 100], 0), 50), None, "5 % of the round-trip time");
        let mostly: Vec<u64> = (0..10_000).map(|number| if number < 5 { 9_000 } else { 10 }).collect();
        assert_eq!(void(&timing(&mostly, 9), 10), None, "fewer than one of a thousand");
    }

    #[test]
    fn lost_time_and_device_drops_void_a_run() {
        let report = timing(&[10], 100).report(MILLISECOND, MILLISECOND, MILLISECOND, vec![]);
        assert_eq!(report.void.unwrap(), "the host lost time: 1 pauses of the emulator, up to 100 ms");
        let minute = timing(&[10], 50).report(MILLISECOND * 60_000, MILLISECOND, MILLISECOND, vec![]);
        assert_eq!((minute.void, minute.pauses), (None, 1), "less than a thousandth");
        let down = DirectionReport { device_drops: 3, ..DirectionReport::default() };
        let link = LinkReport { down, up: DirectionReport::default() };
        let report = timing(&[10], 0).report(MILLISECOND, MILLISECOND, MILLISECOND, vec![link]);
        assert_eq!(report.void.unwrap(), "the emulator's devices dropped 3 packets");
    }
}
