//! Reverts a reduction of the window if all packets for which it was made arrive after all, as on a path that reorders
//! (RFC 9438 §4.9.2). Pure.

use s2n_quic::provider::congestion_controller::Timestamp;
use std::time::Duration;

/// Round trips within which a packet that was declared lost counts as spurious if acknowledged; later it stays lost.
const MAX_UNDO_ROUND_TRIPS: u32 = 4;
/// Delay of an acknowledgement, in addition to [`MAX_UNDO_ROUND_TRIPS`] (max_ack_delay, RFC 9000 §18.2).
const ASSUMED_MAX_ACK_DELAY: Duration = Duration::from_millis(25);

/// A reduction of the window that may be undone, with the state before.
#[derive(Debug, Clone)]
pub(super) struct UndoableReduction<T> {
    saved: T,
    reduced: Timestamp,
    /// Packets declared lost since the reduction that have not arrived.
    lost: u32,
}

impl<T> UndoableReduction<T> {
    /// The window is reduced now, for one packet so far. If an earlier reduction may be spurious, the two are treated
    /// as one: their packets cannot be distinguished.
    pub(super) fn from_reduction(earlier: Option<Self>, saved: T, now: Timestamp, rtt: Duration) -> Self {
        match earlier {
            Some(earlier) if earlier.may_be_spurious(now, rtt) => earlier,
            _ => Self { saved, reduced: now, lost: 0 },
        }
    }

    /// A packet was declared lost.
    pub(super) fn on_lost(&mut self) {
        self.lost = self.lost.saturating_add(1);
    }

    /// `packets` packets that were declared lost have arrived. Returns whether the reduction was spurious.
    pub(super) fn on_arrived(&mut self, packets: u32, now: Timestamp, rtt: Duration) -> bool {
        let in_doubt = self.may_be_spurious(now, rtt);
        self.lost = self.lost.saturating_sub(packets);
        in_doubt && self.lost == 0
    }

    /// The state before the reduction.
    pub(super) fn into_saved(self) -> T {
        self.saved
    }

    fn may_be_spurious(&self, now: Timestamp, rtt: Duration) -> bool {
        self.lost > 0
            && now.saturating_duration_since(self.reduced) <= rtt * MAX_UNDO_ROUND_TRIPS + ASSUMED_MAX_ACK_DELAY
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use s2n_quic_core::time::{Clock as _, NoopClock};

    const RTT: Duration = Duration::from_millis(50);

    fn at(milliseconds: u64) -> Timestamp {
        NoopClock.get_time() + Duration::from_millis(1_000 + milliseconds)
    }

    /// A reduction at 0 ms for `packets` packets.
    fn reduced(packets: u32) -> UndoableReduction<u32> {
        let mut undo = UndoableReduction::from_reduction(None, 100, at(0), RTT);
        (0..packets).for_each(|_| undo.on_lost());
        undo
    }

    #[test]
    fn a_reduction_is_spurious_once_all_its_packets_have_arrived() {
        let mut undo = reduced(3);
        assert!(!undo.on_arrived(1, at(5), RTT));
        undo.on_lost();
        assert!(!undo.on_arrived(2, at(6), RTT));
        assert!(undo.on_arrived(1, at(225), RTT));
        assert_eq!(undo.into_saved(), 100);
    }

    #[test]
    fn a_packet_beyond_four_round_trips_counts_as_lost() {
        let mut undo = reduced(1);
        assert!(!undo.on_arrived(1, at(226), RTT));
        assert!(!undo.on_arrived(1, at(0), RTT), "there is nothing left to arrive");
    }

    #[test]
    fn a_second_reduction_joins_one_that_may_be_spurious() {
        for (now, before, packets) in [(150, 100, 2), (250, 70, 1)] {
            let mut undo = UndoableReduction::from_reduction(Some(reduced(1)), 70, at(now), RTT);
            undo.on_lost();
            assert_eq!(undo.on_arrived(1, at(now), RTT), packets == 1);
            assert!(packets == 1 || undo.on_arrived(1, at(now), RTT));
            assert_eq!(undo.into_saved(), before);
        }
    }
}
