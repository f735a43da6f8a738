//! Keeps the state before a reduction of the window, which returns if the reduction was spurious: packets were late,
//! and no other one is missing for longer than that (RFC 9438 §4.9.2). Pure.

use super::{bottleneck_buffer::BottleneckBuffer, cubic::Cubic, reordering_window::max_lateness};
use s2n_quic::provider::congestion_controller::Timestamp;
use std::time::Duration;

/// A reduction of the window that may be undone, with the state before.
#[derive(Debug, Clone)]
pub(super) struct UndoableReduction {
    pub(super) cubic: Cubic,
    pub(super) buffer: BottleneckBuffer,
    pub(super) declared_lost: Timestamp,
}

impl UndoableReduction {
    /// Returns the reduction to undo: `earlier`, if it may be spurious, as the two are then treated as one.
    pub(super) fn join_earlier(self: Box<Self>, earlier: Option<Box<Self>>, rtt: Duration) -> Box<Self> {
        earlier.filter(|earlier| earlier.may_be_spurious(self.declared_lost, rtt)).unwrap_or(self)
    }

    /// Whether the packets for which the window was reduced may still arrive.
    pub(super) fn may_be_spurious(&self, now: Timestamp, rtt: Duration) -> bool {
        now.saturating_duration_since(self.declared_lost) <= max_lateness(rtt)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use s2n_quic_core::time::{Clock as _, NoopClock};

    #[test]
    fn a_second_reduction_joins_one_that_may_be_spurious() {
        let at = |milliseconds: u64| NoopClock.get_time() + Duration::from_millis(1_000 + milliseconds);
        let rtt = Duration::from_millis(50);
        let reduction = |window, declared_lost| {
            let (cubic, buffer) = (Cubic::new(window, 1), BottleneckBuffer::default());
            Box::new(UndoableReduction { cubic, buffer, declared_lost })
        };
        for (now, saved) in [(0, 100), (150, 100), (225, 100), (226, 70)] {
            let first = reduction(100, at(0));
            assert_eq!(first.may_be_spurious(at(now), rtt), saved == 100, "{now}");
            let undone = reduction(70, at(now)).join_earlier(Some(first), rtt);
            assert_eq!(undone.cubic.window_bytes(), saved, "{now}");
        }
    }
}
