//! Passes reports between the congestion controller of a path and the state of its connection. s2n-quic passes neither:
//! it ignores the acknowledgement of a packet that it has declared lost (docs/upstream/spurious-losses.md), and
//! publishes slow start when it ends.
//!
//! `quic::connection` reads each ACK frame before s2n-quic, which then reports the acknowledged packets to the
//! controller.

use crate::metrics::QuicMetrics;
use litequic_base::relaxed_cell::RelaxedCell;
use std::sync::Arc;

/// Largest number of paths of a connection: s2n-quic has no more, and forgets none.
const MAX_PATHS: usize = 5;

/// Feedback of one path, shared by its controller and its connection.
#[derive(Debug, Default)]
pub(crate) struct PathFeedback {
    /// Packets declared lost that have arrived, and are not reported to the controller yet.
    spurious_losses: RelaxedCell,
    /// 1 if the controller was in slow start at the last paced burst.
    slow_start: RelaxedCell,
    /// Number of paced bursts so far.
    bursts: RelaxedCell,
    metrics: Arc<QuicMetrics>,
}

impl PathFeedback {
    /// Feedback of a new path; `metrics` counts its undone reductions.
    pub(crate) fn new(metrics: Arc<QuicMetrics>) -> Self {
        Self { metrics, ..Self::default() }
    }

    /// Reports the arrival of `packets` packets that were declared lost. An ACK frame may acknowledge nothing else, and
    /// then no controller is called: the report waits for the next frame.
    pub(crate) fn report_arrived(&self, packets: u32) {
        self.spurious_losses.add_saturating(packets.into());
    }

    /// Takes the number of reported packets.
    pub(crate) fn take_arrived(&self) -> u32 {
        match self.spurious_losses.get() {
            0 => 0,
            _ => u32::try_from(self.spurious_losses.take_value()).unwrap_or(u32::MAX),
        }
    }

    /// Counts a reduction of a window that was undone.
    pub(super) fn count_undone(&self) {
        self.metrics.reductions_undone.increment();
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
    fn a_report_is_taken_once() {
        let feedback = Arc::<PathFeedback>::default();
        feedback.report_arrived(2);
        feedback.report_arrived(1);
        assert_eq!((feedback.clone().take_arrived(), feedback.take_arrived()), (3, 0));
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
