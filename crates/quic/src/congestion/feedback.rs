//! Passes reports between the congestion controller of a path and the state of its connection. s2n-quic passes neither:
//! it ignores the acknowledgement of a packet that it has declared lost (docs/upstream/spurious-losses.md), and
//! publishes slow start when it ends.
//!
//! `quic::connection` reads each ACK frame before s2n-quic, which then reports the acknowledged packets to the
//! controller.

use crate::{metrics::QuicMetrics, wire::frame::NumberRange};
use litequic_base::relaxed_cell::RelaxedCell;
use parking_lot::Mutex;
use std::{num::NonZeroU64, sync::Arc};

/// Largest number of paths of a connection: s2n-quic has no more, and forgets none.
const MAX_PATHS: usize = 5;
/// Ranges of arrived packets that wait for the controller, 16 bytes each. Of more packets it does not know that they
/// arrived, and reduces the window.
const MAX_ARRIVED_RANGES: usize = 256;

/// Feedback of one path, shared by its controller and its connection.
#[derive(Debug, Default)]
pub(crate) struct PathFeedback {
    /// Number of the packet declared lost last; 0 once the controller has read it.
    lost_number: RelaxedCell,
    /// Packets declared lost that have arrived, and are not reported to the controller yet.
    arrived: Mutex<Vec<NumberRange>>,
    /// 1 if `arrived` is not empty: most ACK frames take no lock.
    has_arrived: RelaxedCell,
    /// 1 if the controller was in slow start at the last paced burst.
    slow_start: RelaxedCell,
    /// Number of paced bursts so far.
    bursts: RelaxedCell,
    /// Counts undone and awaited reductions.
    pub(super) metrics: Arc<QuicMetrics>,
}

impl PathFeedback {
    /// Feedback of a new path; `metrics` counts its undone reductions.
    pub(crate) fn new(metrics: Arc<QuicMetrics>) -> Self {
        Self { metrics, ..Self::default() }
    }

    /// Reports the number of the packet for which the controller was called last: s2n-quic does not tell it.
    pub(crate) fn report_lost_number(&self, number: u64) {
        self.lost_number.set(number);
    }

    /// Takes the number of the packet declared lost last, if it was reported.
    pub(super) fn take_lost_number(&self) -> Option<NonZeroU64> {
        NonZeroU64::new(self.lost_number.take_value())
    }

    /// Reports the arrival of packets that were declared lost. An ACK frame may acknowledge nothing else, and then no
    /// controller is called: the report waits for the next frame.
    pub(crate) fn report_arrived(&self, packets: &[NumberRange]) {
        let mut arrived = self.arrived.lock();
        let free = MAX_ARRIVED_RANGES.saturating_sub(arrived.len());
        arrived.extend(packets.iter().take(free));
        self.has_arrived.set(1);
    }

    /// Takes the reported packets.
    pub(crate) fn take_arrived(&self) -> Vec<NumberRange> {
        match self.has_arrived.get() {
            0 => Vec::new(),
            _ => {
                self.has_arrived.set(0);
                std::mem::take(&mut *self.arrived.lock())
            }
        }
    }

    /// Records the start of a burst, in slow start or not.
    pub(super) fn record_burst(&self, slow_start: bool) {
        self.slow_start.set(slow_start.into());
        self.bursts.add_saturating(1);
    }

    /// Number of bursts that have begun so far.
    pub(crate) fn bursts(&self) -> u64 {
        self.bursts.get()
    }

    /// Whether the window grows as in slow start.
    pub(crate) fn is_slow_start(&self) -> bool {
        self.slow_start.get() > 0
    }
}

/// Feedback of a connection's paths, by s2n-quic's path numbers.
#[derive(Debug, Default)]
pub(crate) struct PathFeedbacks([Option<Arc<PathFeedback>>; MAX_PATHS]);

impl PathFeedbacks {
    /// Sets the feedback of a new path. If the number is not new, the path replaces another for which no packet was
    /// authenticated.
    pub(crate) fn bind_feedback(&mut self, path: u64, feedback: Option<Arc<PathFeedback>>) {
        if let Some(place) = usize::try_from(path).ok().and_then(|path| self.0.get_mut(path)) {
            *place = feedback;
        }
    }

    /// Feedback of path number `path`.
    pub(crate) fn get(&self, path: u64) -> Option<Arc<PathFeedback>> {
        self.0.get(usize::try_from(path).ok()?)?.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_are_taken_once() {
        let feedback = PathFeedback::default();
        let range = |low, high| NumberRange { low, high };
        feedback.report_arrived(&[range(7, 9), range(3, 3)]);
        feedback.report_arrived(&[range(5, 5)]);
        assert_eq!(feedback.take_arrived(), [range(7, 9), range(3, 3), range(5, 5)]);
        assert_eq!(feedback.take_arrived(), []);
        feedback.report_lost_number(7);
        assert_eq!((feedback.take_lost_number(), feedback.take_lost_number()), (NonZeroU64::new(7), None));
    }

    #[test]
    fn reports_that_no_controller_takes_are_bounded() {
        let feedback = PathFeedback::default();
        (0..200).for_each(|low| feedback.report_arrived(&[NumberRange { low, high: low }; 2]));
        assert_eq!(feedback.take_arrived().len(), MAX_ARRIVED_RANGES);
    }

    #[test]
    fn a_path_beyond_the_last_has_no_feedback() {
        let mut paths = PathFeedbacks::default();
        for path in [0, 4, 5, u64::MAX] {
            paths.bind_feedback(path, Some(Arc::default()));
            assert_eq!(paths.get(path).is_some(), path < 5, "{path}");
        }
        paths.bind_feedback(4, None);
        assert!(paths.get(4).is_none());
    }
}
