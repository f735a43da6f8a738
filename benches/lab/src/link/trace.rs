//! A log as time series: what explains a run. What the server had in flight and how long its acknowledgements took is
//! inferred from what passed the link: a packet from the client is taken to acknowledge all that had been delivered to
//! it, as QUIC's and TCP's do. Pure but for [`Trace::read`].

use super::log::{BEGUN, Logged, logged};
use anyhow::{Context as _, Result};
use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs::File,
    io::{BufRead as _, BufReader},
    path::Path,
};

/// A point of a series.
const STEP: f64 = 0.1; // seconds

/// What happened in a tenth of a second. Sizes are of IP packets, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Moment {
    /// Delivered to the client.
    pub(crate) delivered: f64,
    /// In front of the bottleneck towards the client, at most.
    pub(crate) queued: f64,
    /// Sent by the server and not yet acknowledged, at most.
    pub(crate) in_flight: f64,
    /// Packets towards the client that the queue had no room for, or that were lost on purpose.
    pub(crate) dropped: f64,
    /// Packets delivered to the client, and those that came from it.
    pub(crate) packets: f64,
    pub(crate) acks: f64,
    /// From the delivery of the oldest packet that a packet from the client can have acknowledged first, to that
    /// packet: median and most, milliseconds.
    pub(crate) ack_delay: f64,
    pub(crate) ack_delay_most: f64,
}

/// Series over a run.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Trace {
    pub(crate) moments: Vec<Moment>,
    /// Of all ACK delays, in microseconds: median and 99th percentile.
    pub(crate) ack_delays: Option<(f64, f64)>,
}

/// A packet of the log. Times in seconds since what is measured began.
#[derive(Debug, Clone, Copy)]
struct Packet {
    came: f64,
    /// `None`: it was dropped or lost.
    went: Option<f64>,
    bytes: f64,
    queued: f64,
}

/// A flow's packets, by arrival.
#[derive(Debug, Default)]
struct Flow {
    down: Vec<Packet>,
    up: Vec<Packet>,
}

impl Trace {
    /// Of the first link of a log.
    pub(crate) fn read(log: &Path) -> Result<Self> {
        let file = File::open(log).with_context(|| format!("cannot read {}", log.display()))?;
        let lines = BufReader::new(file).lines().collect::<Result<Vec<String>, _>>()?;
        Ok(Self::of(&lines))
    }

    fn of(lines: &[String]) -> Self {
        let begun = lines.iter().rposition(|line| line.starts_with(BEGUN));
        let from = begun.and_then(|at| lines.get(at)?.strip_prefix(BEGUN)?.parse().ok()).unwrap_or(0.0);
        let mut flows: BTreeMap<(u16, u16), Flow> = BTreeMap::new();
        for line in lines.iter().skip(begun.map_or(0, |at| at + 1)) {
            let Some((packet, is_down, ports)) = packet(line, from) else { continue };
            let flow = flows.entry(ports).or_default();
            if is_down { flow.down.push(packet) } else { flow.up.push(packet) }
        }
        let mut series = Series::default();
        let mut delays = Vec::new();
        for flow in flows.values_mut() {
            // The log has packets as they went.
            flow.down.sort_by(|a, b| a.came.total_cmp(&b.came));
            flow.up.sort_by(|a, b| a.came.total_cmp(&b.came));
            flow.count(&mut series);
            series.in_flight.extend(flow.in_flight());
            delays.extend(flow.ack_delays());
        }
        series.finish(delays)
    }

    /// What the whole run comes to, by the names of `report::figures`.
    pub(crate) fn figures(&self) -> BTreeMap<String, f64> {
        let sum = |of: fn(&Moment) -> f64| self.moments.iter().map(of).sum::<f64>();
        let mut figures = BTreeMap::new();
        let acks = sum(|moment| moment.acks);
        if acks > 0.0 {
            figures.insert("link_packets_per_ack".to_owned(), sum(|moment| moment.packets) / acks);
        }
        if let Some((median, p99)) = self.ack_delays {
            figures.insert("link_ack_delay_p50_us".to_owned(), median);
            figures.insert("link_ack_delay_p99_us".to_owned(), p99);
        }
        let mut windows: Vec<f64> = self.moments.iter().map(|moment| moment.in_flight).collect();
        windows.sort_by(f64::total_cmp);
        if let Some(median) = windows.get(windows.len() / 2) {
            figures.insert("link_in_flight".to_owned(), median / 1e3);
        }
        figures
    }

    /// As CSV, a line for each tenth of a second.
    pub(crate) fn csv(&self) -> String {
        let mut text = String::from(
            "seconds,delivered_mbit,queued_bytes,in_flight_bytes,dropped_packets,packets,acks,packets_per_ack,ack_delay_ms,ack_delay_most_ms\n",
        );
        for (at, moment) in self.moments.iter().enumerate() {
            let _ = writeln!(
                text,
                "{:.1},{:.2},{:.0},{:.0},{:.0},{:.0},{:.0},{:.1},{:.2},{:.2}",
                at as f64 * STEP,
                moment.mbit(),
                moment.queued,
                moment.in_flight,
                moment.dropped,
                moment.packets,
                moment.acks,
                moment.packets_per_ack(),
                moment.ack_delay,
                moment.ack_delay_most
            );
        }
        text
    }

    /// When each moment began, in seconds.
    pub(crate) fn times(&self) -> impl Iterator<Item = (f64, &Moment)> {
        self.moments.iter().enumerate().map(|(at, moment)| (at as f64 * STEP, moment))
    }
}

impl Moment {
    /// Delivered, Mbit/s.
    pub(crate) fn mbit(&self) -> f64 {
        self.delivered * 8e-6 / STEP
    }

    /// 0 where no ACK came.
    pub(crate) fn packets_per_ack(&self) -> f64 {
        if self.acks > 0.0 { self.packets / self.acks } else { 0.0 }
    }
}

/// A line, whether it leads to the client, and the server's and the client's port. `None`: another link's, or no
/// packet.
fn packet(line: &str, from: f64) -> Option<(Packet, bool, (u16, u16))> {
    let Logged { is_down, source, destination, came, went, bytes, queued, .. } =
        logged(line).filter(|packet| packet.link == 0)?;
    let time = |micros: f64| (micros - from) / 1e6;
    let (came, went) = (time(came), went.map(time));
    // What was sent before is the business of those who were before.
    if came < 0.0 {
        return None;
    }
    let ports = if is_down { (source, destination) } else { (destination, source) };
    Some((Packet { came, went, bytes, queued }, is_down, ports))
}

impl Flow {
    /// What needs no inference.
    fn count(&self, series: &mut Series) {
        for packet in &self.down {
            let came = series.at(packet.came);
            came.queued = came.queued.max(packet.queued);
            match packet.went {
                None => came.dropped += 1.0,
                Some(went) => {
                    let went = series.at(went);
                    went.delivered += packet.bytes;
                    went.packets += 1.0;
                }
            }
        }
        for packet in &self.up {
            series.at(packet.came).acks += 1.0;
        }
    }

    /// Changes of what is in flight: when, and by how many bytes.
    fn in_flight(&self) -> Vec<(f64, f64)> {
        let mut acks: Vec<(f64, f64)> = self.up.iter().filter_map(|ack| Some((ack.came, ack.went?))).collect();
        acks.sort_by(|a, b| a.0.total_cmp(&b.0));
        let acknowledged = |went: f64| acks.get(acks.partition_point(|ack| ack.0 < went)).map(|ack| ack.1);
        let mut changes = Vec::with_capacity(self.down.len() * 2);
        // What was dropped is known to be when the next packet is acknowledged.
        let mut next = None;
        for packet in self.down.iter().rev() {
            if let Some(went) = packet.went {
                next = acknowledged(went);
            }
            changes.push((packet.came, packet.bytes));
            changes.extend(next.map(|settled| (settled.max(packet.came), -packet.bytes)));
        }
        changes
    }

    /// For each packet from the client that acknowledges anything: when it came, and after what delay.
    fn ack_delays(&self) -> Vec<(f64, f64)> {
        let mut delivered: Vec<f64> = self.down.iter().filter_map(|packet| packet.went).collect();
        delivered.sort_by(f64::total_cmp);
        let mut waiting = delivered.into_iter().peekable();
        let mut delays = Vec::new();
        for ack in &self.up {
            let Some(oldest) = waiting.next_if(|went| *went <= ack.came) else { continue };
            while waiting.next_if(|went| *went <= ack.came).is_some() {}
            delays.push((ack.came, ack.came - oldest));
        }
        delays
    }
}

/// Series that are being made.
#[derive(Debug, Default)]
struct Series {
    moments: Vec<Moment>,
    in_flight: Vec<(f64, f64)>,
}

impl Series {
    /// The moment of a time.
    fn at(&mut self, time: f64) -> &mut Moment {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from 0 to the minutes of a run")]
        let at = (time.max(0.0) / STEP) as usize;
        if self.moments.len() <= at {
            self.moments.resize(at + 1, Moment::default());
        }
        #[expect(clippy::expect_used, reason = "made above")]
        self.moments.get_mut(at).expect("a moment")
    }

    fn finish(mut self, delays: Vec<(f64, f64)>) -> Trace {
        let mut changes = std::mem::take(&mut self.in_flight);
        changes.sort_by(|a, b| a.0.total_cmp(&b.0));
        let (mut bytes, mut last) = (0.0, 0.0);
        for (time, change) in changes {
            // It was so much until now.
            let mut at = last;
            while at <= time {
                let moment = self.at(at);
                moment.in_flight = moment.in_flight.max(bytes);
                at += STEP;
            }
            bytes += change;
            let moment = self.at(time);
            moment.in_flight = moment.in_flight.max(bytes);
            last = time;
        }
        let mut by_moment: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
        for (time, delay) in &delays {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "from 0 to the minutes of a run"
            )]
            by_moment.entry((time / STEP) as usize).or_default().push(*delay);
        }
        for (at, mut delays) in by_moment {
            if let Some(moment) = self.moments.get_mut(at) {
                (moment.ack_delay, moment.ack_delay_most) =
                    (quantile(&mut delays, 0.5) * 1e3, quantile(&mut delays, 1.0) * 1e3);
            }
        }
        let mut all: Vec<f64> = delays.into_iter().map(|(_, delay)| delay * 1e6).collect();
        let ack_delays = (!all.is_empty()).then(|| (quantile(&mut all, 0.5), quantile(&mut all, 0.99)));
        Trace { moments: self.moments, ack_delays }
    }
}

/// Of some values, which it sorts; 0 of none.
fn quantile(values: &mut [f64], at: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an index")]
    let at = ((values.len().saturating_sub(1)) as f64 * at).round() as usize;
    values.get(at).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two packets of 1000 bytes 10 ms apart, the second of them delayed by the first; a third is dropped; one ACK; a
    /// fourth.
    const LOG: &str = "link,direction,came_us,went_us,bytes,queued,protocol,source,destination,fate
0,down,500000.0,520000.0,9000,0,udp,443,5000,delivered
# begun at 1000000.0
0,down,1000000.0,1020000.0,1000,0,udp,443,5000,delivered
0,down,1020000.0,,1000,1000,udp,443,5000,dropped
0,down,1010000.0,1030000.0,1000,900,udp,443,5000,delivered
1,down,1010000.0,1030000.0,1000,900,udp,443,5000,delivered
0,up,1045000.0,1065000.0,50,0,udp,5000,443,delivered
0,down,1200000.0,1220000.0,1000,0,udp,443,5000,delivered
0,up,1220500.0,1240500.0,50,0,udp,5000,443,delivered
";

    fn trace() -> Trace {
        Trace::of(&LOG.lines().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn a_log_becomes_series_from_where_it_began() {
        let trace = trace();
        let [first, second, third] = trace.moments.as_slice() else { panic!("{:?}", trace.moments) };
        assert_eq!((first.delivered, first.packets, first.acks, first.dropped), (2_000.0, 2.0, 1.0, 1.0));
        assert_eq!((first.queued, first.packets_per_ack(), first.mbit()), (1_000.0, 2.0, 0.16));
        assert_eq!(*second, Moment { in_flight: 1_000.0, ..Moment::default() });
        assert_eq!((third.delivered, third.acks), (1_000.0, 1.0));
    }

    #[test]
    fn what_is_in_flight_ends_with_the_acknowledgement_that_arrives() {
        let trace = trace();
        // Three packets until the ACK arrives at 65 ms, which reveals the drop too once another packet is acknowledged.
        assert_eq!(trace.moments[0].in_flight, 3_000.0);
        assert_eq!(trace.moments[2].in_flight, 2_000.0, "the dropped one is not known to be lost yet");
    }

    #[test]
    fn an_acknowledgements_delay_counts_from_the_oldest_packet_that_waits_for_it() {
        let trace = trace();
        assert!((trace.moments[0].ack_delay - 25.0).abs() < 1e-6 && (trace.moments[2].ack_delay - 0.5).abs() < 1e-6);
        let figures = trace.figures();
        assert!((figures["link_ack_delay_p99_us"] - 25_000.0).abs() < 1.0, "{figures:?}");
        assert_eq!((figures["link_packets_per_ack"], figures["link_in_flight"]), (1.5, 2.0));
        for name in figures.keys() {
            assert!(crate::report::figures::is_shown(name), "{name}");
        }
    }

    #[test]
    fn a_trace_is_written_as_a_line_for_each_moment() {
        let csv = trace().csv();
        assert_eq!(csv.lines().nth(1), Some("0.0,0.16,1000,3000,1,2,1,2.0,25.00,25.00"));
        assert_eq!(csv.lines().count(), 4);
    }
}
