//! How much the buffer of a path holds, in time, as lost packets tell. Pure.
//!
//! A router that drops a packet had no room for it: what was queued then, by the round-trip time, is what its buffer holds.
//! Where nothing was queued, it is not a full buffer that drops, or one that holds next to nothing.

use std::time::Duration;

/// What leaves at once, or is acknowledged at once, may fill so much of a buffer. With more the queue that is left for the
/// window is shorter, and packets are lost while the path is not full.
const SHARE: u32 = 8;

/// One path's.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::quic) struct Buffer {
    /// What is queued now.
    queued: Duration,
    /// What it holds at least; `None` before a packet was lost.
    depth: Option<Duration>,
}

impl Buffer {
    /// A packet was acknowledged.
    pub(in crate::quic) fn measured(&mut self, smoothed_rtt: Duration, min_rtt: Duration) {
        self.queued = smoothed_rtt.saturating_sub(min_rtt);
        self.depth = self.depth.map(|depth| depth.max(self.queued));
    }

    /// A packet was lost.
    pub(in crate::quic) fn lost(&mut self) {
        self.depth = Some(self.queued);
    }

    /// The time within which leaves what may be sent at once; `None` before a packet was lost.
    pub(in crate::quic) fn share(&self) -> Option<Duration> {
        self.depth.map(|depth| depth / SHARE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_holds_what_was_queued_when_a_packet_was_lost_or_has_been_since() {
        let ms = Duration::from_millis;
        let mut buffer = Buffer::default();
        buffer.measured(ms(90), ms(10));
        assert_eq!(buffer.share(), None);
        for (rtt, lost, share) in [(18, true, 1), (10, false, 1), (26, false, 2), (14, true, 0), (9, true, 0)] {
            buffer.measured(ms(rtt), ms(10));
            if lost {
                buffer.lost();
            }
            assert_eq!(buffer.share().map(|share| share.as_millis()), Some(share), "{rtt} ms");
        }
    }
}
