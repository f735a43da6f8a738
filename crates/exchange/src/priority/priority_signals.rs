//! What the client of one connection has signalled of its requests' priorities (RFC 9218 §5, §7). Pure.

use super::{Priority, PriorityParameters};
use std::collections::BTreeMap;

/// The signals of one connection's client.
#[derive(Debug)]
pub struct PrioritySignals {
    /// The connection has brought a signal.
    has_signal: bool,
    /// PRIORITY_UPDATE frames for streams that are still to come, the last of each.
    early: BTreeMap<u64, Priority>,
    max_early: usize,
}

/// What becomes of a PRIORITY_UPDATE frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UpdateOutcome {
    /// The stream has come: it gets this priority, if it is still open.
    Known(Priority),
    /// The stream is still to come, and the update is kept. False if that is what was kept before.
    Early(bool),
    /// The stream is still to come, and too many are kept.
    Dropped,
    /// The value does not parse.
    Invalid,
}

impl PrioritySignals {
    /// No signal yet. At most `max_early` streams that are still to come have theirs kept.
    pub const fn new(max_early: usize) -> Self {
        Self { has_signal: false, early: BTreeMap::new(), max_early }
    }

    /// Returns the priority of a request that came with the parameters `field`, if it had any that parse. A tunnel is
    /// incremental unless it says otherwise: neither of its sides ever has the whole.
    pub fn request_priority(&mut self, field: Option<PriorityParameters>, is_tunnel: bool) -> Priority {
        if field.is_none() && !self.has_signal {
            return Priority::UNSIGNALLED;
        }
        self.has_signal |= field.is_some();
        let otherwise = if self.has_signal { Priority::DEFAULT } else { Priority::UNSIGNALLED };
        let incremental = otherwise.incremental || is_tunnel;
        field.unwrap_or_default().or_priority(Priority { incremental, ..otherwise })
    }

    /// A PRIORITY_UPDATE frame came for `stream`, with the parameters `field` if its value parses. It replaces all that
    /// was signalled of the stream (RFC 9218 §7). Streams from `next_stream` on are still to come.
    pub fn on_priority_update(
        &mut self,
        stream: u64,
        field: Option<PriorityParameters>,
        next_stream: u64,
    ) -> UpdateOutcome {
        let Some(field) = field else { return UpdateOutcome::Invalid };
        self.has_signal = true;
        let priority = field.or_priority(Priority::DEFAULT);
        if stream < next_stream {
            return UpdateOutcome::Known(priority);
        }
        if self.early.len() >= self.max_early && !self.early.contains_key(&stream) {
            return UpdateOutcome::Dropped;
        }
        UpdateOutcome::Early(self.early.insert(stream, priority) != Some(priority))
    }

    /// Number of streams that are still to come and have theirs kept.
    pub fn early_count(&self) -> usize {
        self.early.len()
    }

    /// Returns the priority that was signalled of `stream` before the stream came, which it does now. Those below it
    /// that have not come never do (RFC 9113 §5.1.1).
    pub fn take_early_in_sequence(&mut self, stream: u64) -> Option<Priority> {
        if self.early.is_empty() {
            return None;
        }
        let mut later = self.early.split_off(&stream);
        let priority = later.remove(&stream);
        self.early = later;
        priority
    }

    /// Returns the priority that was signalled of `stream` before the stream came, which it does now.
    pub fn take_early(&mut self, stream: u64) -> Option<Priority> {
        if self.early.is_empty() { None } else { self.early.remove(&stream) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: PriorityParameters = PriorityParameters { urgency: None, incremental: None };

    fn of(urgency: u8, incremental: bool) -> Priority {
        Priority { urgency, incremental }
    }

    #[test]
    fn requests_share_a_connection_until_it_has_brought_a_signal() {
        let mut signals = PrioritySignals::new(1);
        assert_eq!(signals.request_priority(None, false), of(3, true));
        assert_eq!(signals.request_priority(Some(NONE), false), of(3, false), "an empty value is a signal");
        assert_eq!(signals.request_priority(None, false), of(3, false));
        let urgent = PriorityParameters { urgency: Some(1), incremental: None };
        assert_eq!(signals.request_priority(Some(urgent), false), of(1, false));

        let mut signals = PrioritySignals::new(1);
        assert_eq!(signals.on_priority_update(0, None, 0), UpdateOutcome::Invalid);
        assert_eq!(signals.request_priority(None, false), of(3, true), "a value that does not parse is no signal");
        assert_eq!(signals.on_priority_update(0, Some(NONE), 0), UpdateOutcome::Early(true));
        assert_eq!(signals.request_priority(None, false), of(3, false));
    }

    #[test]
    fn a_tunnel_is_incremental_unless_it_says_otherwise() {
        let mut signals = PrioritySignals::new(1);
        assert_eq!(signals.request_priority(None, true), of(3, true));
        let urgent = PriorityParameters { urgency: Some(0), incremental: None };
        assert_eq!(signals.request_priority(Some(urgent), true), of(0, true));
        assert_eq!(signals.request_priority(None, true), of(3, true));
        let whole = PriorityParameters { urgency: None, incremental: Some(false) };
        assert_eq!(signals.request_priority(Some(whole), true), of(3, false));
    }

    #[test]
    fn an_update_is_kept_for_so_many_streams_that_are_to_come_and_the_last_counts() {
        let mut signals = PrioritySignals::new(2);
        let urgency = |urgency| Some(PriorityParameters { urgency: Some(urgency), incremental: None });
        assert_eq!(signals.on_priority_update(8, urgency(1), 4), UpdateOutcome::Early(true));
        assert_eq!(signals.on_priority_update(8, urgency(1), 4), UpdateOutcome::Early(false));
        assert_eq!(signals.on_priority_update(4, urgency(6), 4), UpdateOutcome::Early(true));
        assert_eq!(signals.on_priority_update(12, urgency(6), 4), UpdateOutcome::Dropped);
        assert_eq!(signals.on_priority_update(8, urgency(2), 4), UpdateOutcome::Early(true));
        assert_eq!(signals.on_priority_update(0, urgency(5), 4), UpdateOutcome::Known(of(5, false)));
        assert_eq!(signals.take_early(0), None);
        assert_eq!(signals.take_early(8), Some(of(2, false)));
        assert_eq!(signals.take_early(8), None);
        assert_eq!(signals.on_priority_update(12, urgency(6), 12), UpdateOutcome::Early(true));
    }

    #[test]
    fn streams_that_come_in_sequence_end_the_wait_for_those_below_them() {
        let mut signals = PrioritySignals::new(4);
        let urgency = |urgency| Some(PriorityParameters { urgency: Some(urgency), incremental: None });
        for stream in [1, 3, 5, 7] {
            assert_eq!(signals.on_priority_update(stream, urgency(1), 1), UpdateOutcome::Early(true));
        }
        assert_eq!((signals.take_early_in_sequence(5), signals.early_count()), (Some(of(1, false)), 1));
        assert_eq!((signals.take_early_in_sequence(9), signals.early_count()), (None, 0));
    }
}
