//! Tracks the priority signals of one connection's client (RFC 9218 §5, §7). Pure.

use super::{Priority, PriorityParameters};
use std::collections::BTreeMap;

/// The priority signals of one connection's client.
#[derive(Debug)]
pub struct PrioritySignals {
    has_signal: bool,
    /// The last PRIORITY_UPDATE of each stream that has not been opened yet.
    early: BTreeMap<u64, Priority>,
    max_early: usize,
}

/// The outcome of a PRIORITY_UPDATE frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UpdateOutcome {
    /// The stream was opened before, and has this priority if it is still open.
    Known(Priority),
    /// The stream was not opened yet, and the update is kept. False if an equal one was kept before.
    Early(bool),
    /// The stream was not opened yet, and the update is dropped: too many are kept.
    Dropped,
    /// The frame's value does not parse.
    Invalid,
}

impl PrioritySignals {
    /// Creates the state of a connection without signals. Updates are kept for at most `max_early` streams that were
    /// not opened yet.
    pub const fn new(max_early: usize) -> Self {
        Self { has_signal: false, early: BTreeMap::new(), max_early }
    }

    /// Returns the priority of a new request, whose `Priority` field, if there is a valid one, has the parameters
    /// `field`. A tunnel is incremental unless the field denies that: neither of its sides ever has the whole.
    pub fn request_priority(&mut self, field: Option<PriorityParameters>, is_tunnel: bool) -> Priority {
        if field.is_none() && !self.has_signal {
            return Priority::UNSIGNALLED;
        }
        self.has_signal |= field.is_some();
        let otherwise = if self.has_signal { Priority::DEFAULT } else { Priority::UNSIGNALLED };
        let incremental = otherwise.incremental || is_tunnel;
        field.unwrap_or_default().or_priority(Priority { incremental, ..otherwise })
    }

    /// Handles a PRIORITY_UPDATE frame for `stream`, with the parameters `field` if its value parses. It replaces all
    /// earlier signals for the stream (RFC 9218 §7). Streams from `next_stream` on are not opened yet.
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

    /// Returns the number of streams with an early update.
    pub fn early_count(&self) -> usize {
        self.early.len()
    }

    /// Takes the early priority of `stream`, which is opened now. Streams with a lower ID that were not opened never
    /// will be (RFC 9113 §5.1.1).
    pub fn take_early_in_sequence(&mut self, stream: u64) -> Option<Priority> {
        let mut later = self.early.split_off(&stream);
        let priority = later.remove(&stream);
        self.early = later;
        priority
    }

    /// Takes the early priority of `stream`, which is opened now.
    pub fn take_early(&mut self, stream: u64) -> Option<Priority> {
        self.early.remove(&stream)
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
    fn early_updates_are_bounded_and_the_last_one_counts() {
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
