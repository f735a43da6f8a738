//! Keeps the state before a reduction of the window, which returns if the reduction was spurious: packets were late,
//! and no other one is missing for longer than that (RFC 9438 §4.9.2). Pure.

use super::reordering_window::max_lateness;
use s2n_quic::provider::congestion_controller::Timestamp;
use std::time::Duration;

/// A reduction of the window that may be undone, with the state before.
#[derive(Debug, Clone)]
pub(super) struct UndoableReduction<T> {
    pub(super) saved: T,
    pub(super) declared_lost: Timestamp,
}

impl<T> UndoableReduction<T> {
    /// The window is reduced for a packet that was declared lost at `declared_lost`. If an earlier reduction may be
    /// spurious, the two are treated as one.
    pub(super) fn from_reduction(earlier: Option<Self>, saved: T, declared_lost: Timestamp, rtt: Duration) -> Self {
        match earlier {
            Some(earlier) if earlier.may_be_spurious(declared_lost, rtt) => earlier,
            _ => Self { saved, declared_lost },
        }
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
        for (now, saved) in [(0, 100), (150, 100), (225, 100), (226, 70)] {
            let first = UndoableReduction::from_reduction(None, 100, at(0), rtt);
            assert_eq!(first.may_be_spurious(at(now), rtt), saved == 100, "{now}");
            assert_eq!(UndoableReduction::from_reduction(Some(first), 70, at(now), rtt).saved, saved, "{now}");
        }
    }
}
