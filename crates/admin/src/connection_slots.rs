//! Keeps the connections of an admin address, and selects the one to close for a new connection. Pure.

use parking_lot::Mutex;
use std::{collections::HashMap, hash::Hash, sync::Arc, time::Instant};

/// Activity of one connection.
#[derive(Debug)]
pub(super) struct ConnectionActivity(Mutex<ActivityState>);

#[derive(Debug, Clone, Copy)]
struct ActivityState {
    /// Whether a response is being made.
    answers: bool,
    /// Time of the last change of `answers`, or of the connection's beginning.
    since: Instant,
}

impl ConnectionActivity {
    fn new(now: Instant) -> Self {
        Self(Mutex::new(ActivityState { answers: false, since: now }))
    }

    /// Records that a response begins or ends.
    pub(super) fn set_answering(&self, answers: bool, now: Instant) {
        *self.0.lock() = ActivityState { answers, since: now };
    }

    /// Sort key for eviction: the first is closed first. Idle connections come before answering ones, the longest
    /// first.
    fn eviction_order(&self) -> (bool, Instant) {
        let ActivityState { answers, since } = *self.0.lock();
        (answers, since)
    }
}

/// Connections by their key, with a handle to end each.
#[derive(Debug)]
pub(super) struct ConnectionSlots<K, H> {
    most: usize,
    taken: HashMap<K, (H, Arc<ConnectionActivity>)>,
}

impl<K: Copy + Eq + Hash, H> ConnectionSlots<K, H> {
    /// Creates slots for `most` connections.
    pub(super) fn new(most: usize) -> Self {
        Self { most, taken: HashMap::new() }
    }

    /// Frees a slot if all are taken, and returns the handle of the connection to close.
    pub(super) fn evict_if_full(&mut self) -> Option<H> {
        if self.taken.len() < self.most {
            return None;
        }
        let first =
            self.taken.iter().min_by_key(|(_, (_, activity))| activity.eviction_order()).map(|(key, _)| *key)?;
        self.vacate_slot(first)
    }

    /// Fills a slot with a connection that begins at `now`. The function `begin` creates it, and gets its activity to
    /// update.
    pub(super) fn occupy_slot(&mut self, now: Instant, begin: impl FnOnce(Arc<ConnectionActivity>) -> (K, H)) {
        let activity = Arc::new(ConnectionActivity::new(now));
        let (key, end) = begin(Arc::clone(&activity));
        self.taken.insert(key, (end, activity));
    }

    /// Frees the slot of a connection that has ended.
    pub(super) fn vacate_slot(&mut self, key: K) -> Option<H> {
        self.taken.remove(&key).map(|(end, _)| end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn the_longest_idle_connection_is_evicted_before_answering_ones() {
        let start = Instant::now();
        let at = |second| start + Duration::from_secs(second);
        let mut places = ConnectionSlots::new(3);
        let mut activities = Vec::new();
        for key in 0..3 {
            assert_eq!(places.evict_if_full(), None);
            places.occupy_slot(at(key), |activity| {
                activities.push(activity);
                (key, key)
            });
        }
        activities[0].set_answering(true, at(4));
        activities[1].set_answering(true, at(5));
        activities[1].set_answering(false, at(6));
        assert_eq!([places.evict_if_full(), places.evict_if_full()], [Some(2), None]);
        for (key, displaced) in [(3, 1), (4, 3), (5, 4)] {
            places.occupy_slot(at(10 + key), |_| (key, key));
            assert_eq!(places.evict_if_full(), Some(displaced));
        }
        assert_eq!(places.vacate_slot(5), Some(5));
        places.occupy_slot(at(20), |activity| {
            activity.set_answering(true, at(21));
            (6, 6)
        });
        places.occupy_slot(at(22), |activity| {
            activity.set_answering(true, at(23));
            (7, 7)
        });
        assert_eq!(places.evict_if_full(), Some(0), "all are answered: the one that takes longest");
        assert_eq!(places.vacate_slot(9), None);
    }
}
