//! Estimates from lost packets the delay that the buffer at a path's bottleneck can add. Pure.
//!
//! A router that drops a packet for congestion has a full buffer: the queue at that time, by the round-trip time, is
//! the buffer's depth. If next to nothing was queued, packets are lost at random, or by a policer, and nothing is
//! known.

use crate::io::MAX_TURN_PERIOD;
use std::time::Duration;

/// Part of a buffer that a burst may fill: an eighth. With more, the window has a shorter queue left, and packets are
/// lost although the path is not full.
const BURST_PART: u32 = 8;

/// Part of the shortest round trip below which a queue is noise: a sixteenth.
const NOISE_PART: u32 = 16;

/// Estimate of the buffer at a path's bottleneck.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct BottleneckBuffer {
    /// Delay of the packets that are queued now.
    queued: Duration,
    /// Delay below which a queue is noise.
    noise: Duration,
    /// Least delay that a full buffer adds; `None` before the first congestion.
    depth: Option<Duration>,
}

impl BottleneckBuffer {
    /// An acknowledgement measured the round-trip time.
    pub(crate) fn on_rtt_measured(&mut self, smoothed_rtt: Duration, min_rtt: Duration) {
        self.queued = smoothed_rtt.saturating_sub(min_rtt);
        self.noise = min_rtt / NOISE_PART;
        self.depth = self.depth.map(|depth| depth.max(self.queued));
    }

    /// A lost packet showed congestion.
    pub(crate) fn on_congestion(&mut self) {
        if self.queued >= self.noise {
            self.depth = Some(self.queued);
        }
    }

    /// Longest burst that the buffer holds, as time at the path's rate; `None` if bursts are not limited.
    pub(crate) fn burst_limit(&self) -> Option<Duration> {
        // A limit of the longest moderated turn or more bounds nothing.
        self.depth.map(|depth| depth / BURST_PART).filter(|burst_limit| *burst_limit < MAX_TURN_PERIOD)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_depth_of_a_buffer_is_its_largest_queue_since_congestion() {
        let ms = Duration::from_millis;
        let mut buffer = BottleneckBuffer::default();
        buffer.on_rtt_measured(ms(90), ms(10));
        assert_eq!(buffer.burst_limit(), None);
        for (rtt, congestion, burst_limit) in [
            (18, true, Some(1_000)),
            (10, false, Some(1_000)),
            (10, true, Some(1_000)),
            (22, false, Some(1_500)),
            (11, true, Some(125)),
            (30, true, None),
            (9, true, None),
        ] {
            buffer.on_rtt_measured(ms(rtt), ms(10));
            if congestion {
                buffer.on_congestion();
            }
            assert_eq!(buffer.burst_limit().map(|burst_limit| burst_limit.as_micros()), burst_limit, "{rtt} ms");
        }
    }
}
