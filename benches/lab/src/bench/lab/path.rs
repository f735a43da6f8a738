//! Figures of a run from a link's report. Pure.

use super::ports::{OTHER_PORT, PORT};
use crate::link::{Report, Sample};
use std::collections::BTreeMap;

/// Figures of a link's direction from server to client, and of how the emulator kept time; `known` are the run's
/// others.
pub(super) fn figures(report: &Report, link: usize, known: &BTreeMap<String, f64>) -> BTreeMap<String, f64> {
    let mut figures = BTreeMap::new();
    let mut put = |name: &str, value: f64| figures.insert(name.to_owned(), value);
    put("late_us", report.lateness_us.p99_9 as f64);
    let figure = |name: &str| known.get(name).copied().unwrap_or_default();
    if figure("seconds") > 0.0 && !known.contains_key("goodput") {
        put("goodput", figure("bytes") * 8e-6 / figure("seconds"));
    }
    let Some(down) = report.links.get(link).map(|link| &link.down).filter(|down| down.packets > 0) else {
        return figures;
    };
    let packets = down.packets as f64;
    put("queue_drops", down.dropped as f64 / packets * 1e6);
    put("lost_on_the_way", down.lost as f64 / packets * 1e6);
    put("queue_p50_us", down.wait_us.p50 as f64);
    put("queue_p99_us", down.wait_us.p99 as f64);
    put("burst_mean", down.bursts.mean);
    put("burst_p99", down.bursts.p99 as f64);
    put("burst_1ms_mean", down.bursts_1ms.mean);
    put("burst_1ms_p99", down.bursts_1ms.p99 as f64);
    if down.flows > 1 {
        put("flows", down.flows as f64);
        down.fairness.map(|fairness| put("fairness", fairness));
    }
    let bytes = |port| down.senders.get(&port).map_or(0.0, |bytes| *bytes as f64);
    let (own, other) = (bytes(PORT), bytes(OTHER_PORT));
    if other > 0.0 {
        put("share", 100.0 * own / (own + other));
    }
    if figure("sends") > 0.0 && figure("bytes") > 0.0 {
        put("packets_per_send", packets / (figure("sends") * figure("bytes") / 1e6));
    }
    figures
}

/// Means of samples.
pub(super) fn sampled(samples: &[Sample]) -> BTreeMap<String, f64> {
    let mean = |of: fn(&Sample) -> f64| samples.iter().map(of).sum::<f64>() / samples.len().max(1) as f64;
    let figures = [("throughput", mean(|sample| sample.throughput)), ("delay", mean(|sample| sample.delay))];
    figures.map(|(name, figure)| (name.to_owned(), figure)).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::{DirectionReport, LinkReport};

    #[test]
    fn a_report_becomes_shares_of_a_million_packets_and_packets_a_send() {
        let down = DirectionReport { packets: 1_000, dropped: 10, flows: 1, ..DirectionReport::default() };
        let link = LinkReport { down, up: DirectionReport::default() };
        let report = Report { links: vec![link], ..Report::default() };
        let known = [("seconds", 2.0), ("bytes", 1e6), ("sends", 100.0)].map(|(name, value)| (name.to_owned(), value));
        let figures = figures(&report, 0, &BTreeMap::from(known));
        assert_eq!((figures["goodput"], figures["queue_drops"], figures["packets_per_send"]), (4.0, 10_000.0, 10.0));
        assert!(!figures.contains_key("fairness") && !figures.contains_key("share"), "one flow shares with no other");
        for name in figures.keys() {
            assert!(crate::report::figures::is_shown(name), "{name}");
        }
    }

    #[test]
    fn the_share_is_that_of_what_both_servers_sent() {
        let senders = BTreeMap::from([(PORT, 750), (OTHER_PORT, 2_250), (53, 9_000)]);
        let down = DirectionReport { packets: 1_000, senders, ..DirectionReport::default() };
        let report = Report { links: vec![LinkReport { down, up: DirectionReport::default() }], ..Report::default() };
        assert_eq!(figures(&report, 0, &BTreeMap::new())["share"], 25.0);
    }

    #[test]
    fn samples_are_told_by_their_means() {
        let samples = [(20.0, 10.0), (30.0, 14.0)].map(|(delay, throughput)| Sample { delay, throughput });
        let figures = sampled(&samples);
        assert_eq!((figures["delay"], figures["throughput"]), (25.0, 12.0));
        for name in figures.keys() {
            assert!(crate::report::figures::is_shown(name), "{name}");
        }
    }
}
