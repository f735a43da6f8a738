//! A log as points of delay and throughput: what a performance envelope is made of (*Containing the Cambrian Explosion
//! in QUIC Congestion Control*, IMC 2023, §3.1). Pure but for [`samples`].

use super::log::{BEGUN, Logged, logged};
use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};
use std::{
    fs::File,
    io::{BufRead as _, BufReader},
    path::Path,
    time::Duration,
};

/// What one sender got for so many round trips.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Sample {
    /// From server to client, mean of its packets, milliseconds.
    pub(crate) delay: f64,
    /// Delivered, IP headers included, Mbit/s.
    pub(crate) throughput: f64,
}

/// Of each link of a log, the samples of the sender with this port, one for each `step` of `time` since what is
/// measured began. A step without a packet has no delay, and is left out.
pub(crate) fn samples(log: &Path, links: u8, port: u16, step: Duration, time: Duration) -> Result<Vec<Vec<Sample>>> {
    let file = File::open(log).with_context(|| format!("cannot read {}", log.display()))?;
    let mut series = Series::new(links, port, step, time);
    for line in BufReader::new(file).lines() {
        series.read(&line?);
    }
    Ok(series.finish())
}

/// A step's sums.
#[derive(Debug, Clone, Copy, Default)]
struct Sums {
    packets: f64,
    bytes: f64,
    /// Microseconds.
    delay: f64,
}

struct Series {
    port: u16,
    step: f64,
    begun: f64,
    /// By link, then by step.
    links: Vec<Vec<Sums>>,
}

impl Series {
    fn new(links: u8, port: u16, step: Duration, time: Duration) -> Self {
        let step = step.as_secs_f64() * 1e6;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the steps of a run")]
        let steps = (time.as_secs_f64() * 1e6 / step) as usize;
        Self { port, step, begun: 0.0, links: vec![vec![Sums::default(); steps]; usize::from(links)] }
    }

    fn read(&mut self, line: &str) {
        if let Some(begun) = line.strip_prefix(BEGUN) {
            self.begun = begun.parse().unwrap_or_default();
            self.links.iter_mut().flatten().for_each(|sums| *sums = Sums::default());
        }
        let Some(Logged { link, is_down: true, came, went: Some(went), bytes, source, .. }) = logged(line) else {
            return;
        };
        let since = went - self.begun;
        if source != self.port || since < 0.0 {
            return;
        }
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "not negative")]
        let at = (since / self.step) as usize;
        if let Some(sums) = self.links.get_mut(usize::from(link)).and_then(|steps| steps.get_mut(at)) {
            sums.packets += 1.0;
            sums.bytes += bytes;
            sums.delay += went - came;
        }
    }

    fn finish(self) -> Vec<Vec<Sample>> {
        let sample = |sums: &Sums| Sample {
            delay: thousandths(sums.delay / sums.packets / 1e3),
            // Bits a microsecond.
            throughput: thousandths(sums.bytes * 8.0 / self.step),
        };
        let of = |steps: &Vec<Sums>| steps.iter().filter(|sums| sums.packets > 0.0).map(sample).collect();
        self.links.iter().map(of).collect()
    }
}

/// More digits mean nothing, and take room.
fn thousandths(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_has_a_sample_for_each_step_of_its_sender() {
        let log = "link,direction,came_us,went_us,bytes,queued,protocol,source,destination,fate
0,down,1000.0,21000.0,9000,0,udp,8443,5000,delivered
# begun at 1000000.0
0,down,1000000.0,1020000.0,1000,0,udp,8443,5000,delivered
0,down,1010000.0,1040000.0,1500,0,udp,8443,5000,delivered
0,down,1010000.0,1040000.0,1500,0,tcp,8445,5000,delivered
0,down,1010000.0,,1500,0,udp,8443,5000,dropped
0,up,1030000.0,1050000.0,50,0,udp,5000,8443,delivered
1,down,1210000.0,1250000.0,1000,0,udp,8443,5000,delivered
1,down,1390000.0,1410000.0,1000,0,udp,8443,5000,delivered
";
        let mut series = Series::new(2, 8443, Duration::from_millis(100), Duration::from_millis(400));
        log.lines().for_each(|line| series.read(line));
        let links = series.finish();
        assert_eq!(links[0], [Sample { delay: 25.0, throughput: 0.2 }]);
        assert_eq!(links[1], [Sample { delay: 40.0, throughput: 0.08 }], "the second one came after the end");
    }
}
