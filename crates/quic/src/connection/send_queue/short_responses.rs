//! Counts responses that were handed over to s2n-quic at once and whole. Such a stream never has more to hand over: it
//! needs no place in the order of priorities, and its bytes count until the last one was sent.

use litequic_base::relaxed_cell::RelaxedCell;

/// Largest number of short responses that are counted. Further streams get a place in the order.
const MAX_SHORT_RESPONSES: usize = 16;

/// Responses that were handed over whole and not sent yet, as a ring: s2n-quic sends the oldest first, with rare
/// exceptions.
#[derive(Debug, Default)]
pub(super) struct ShortResponses {
    entries: [ShortResponse; MAX_SHORT_RESPONSES],
    /// Number of the oldest entry in use; equals `next` if none is.
    first: RelaxedCell,
    next: RelaxedCell,
    pub(super) unsent: RelaxedCell,
}

#[derive(Debug, Default)]
struct ShortResponse {
    /// One more than the stream's ID; 0 in a free entry.
    stream: RelaxedCell,
    /// Bytes of the response.
    length: RelaxedCell,
}

impl ShortResponses {
    /// Adds a response of `length` bytes of the stream `id`. False if there is no room.
    #[inline]
    pub(super) fn add_response(&self, id: u64, length: u64) -> bool {
        let next = self.next.get();
        if next - self.first.get() >= MAX_SHORT_RESPONSES as u64 {
            return false;
        }
        let entry = self.entry_at(next);
        entry.stream.set(id.wrapping_add(1));
        entry.length.set(length);
        self.next.set(next + 1);
        self.unsent.add_saturating(length);
        true
    }

    /// The bytes of the stream `id` up to `end` were sent, perhaps once more. Returns whether the stream has a short
    /// response.
    #[inline]
    pub(super) fn on_short_sent(&self, id: u64, end: u64) -> bool {
        let Some((count, entry)) = self.find_short_entry(id) else { return false };
        if end >= entry.length.get() {
            self.free_entry(count, entry);
        }
        true
    }

    /// Removes the response of the stream `id`, which ends or is counted elsewhere from now on. Returns its counted
    /// bytes.
    #[inline]
    pub(super) fn remove_short_response(&self, id: u64) -> u64 {
        self.find_short_entry(id).map_or(0, |(count, entry)| self.free_entry(count, entry))
    }

    /// Frees an entry. Returns the bytes of the response.
    fn free_entry(&self, count: u64, entry: &ShortResponse) -> u64 {
        let length = entry.length.get();
        self.unsent.subtract_saturating(length);
        entry.stream.set(0);
        let (mut first, next) = (self.first.get(), self.next.get());
        if count == first {
            first += 1;
            while first != next && self.entry_at(first).stream.get() == 0 {
                first += 1;
            }
            self.first.set(first);
        }
        length
    }

    fn find_short_entry(&self, id: u64) -> Option<(u64, &ShortResponse)> {
        let (stream, next) = (id.wrapping_add(1), self.next.get());
        let mut count = self.first.get();
        while count != next {
            let entry = self.entry_at(count);
            if entry.stream.get() == stream {
                return Some((count, entry));
            }
            count += 1;
        }
        None
    }

    fn entry_at(&self, count: u64) -> &ShortResponse {
        let [first, ..] = &self.entries;
        self.entries.get(usize::try_from(count).unwrap_or(0) % MAX_SHORT_RESPONSES).unwrap_or(first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    #[derive(Debug, Clone, Copy)]
    enum Step {
        Adds(u64, u64),
        Sends(u64, u64),
        Removes(u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        let id = || (0_u64..40).prop_map(|id| 4 * id);
        prop_oneof![
            3 => (id(), 1_u64..3_000).prop_map(|(id, length)| Step::Adds(id, length)),
            5 => (id(), 1_u64..3_000).prop_map(|(id, end)| Step::Sends(id, end)),
            1 => id().prop_map(Step::Removes),
        ]
    }

    proptest! {
        #[test]
        fn bytes_count_until_the_last_was_sent_whatever_the_order(
            steps in prop::collection::vec(step(), 0..300),
        ) {
            let responses = ShortResponses::default();
            // Length of each response.
            let mut expected = BTreeMap::<u64, u64>::new();
            for step in steps {
                match step {
                    // Each ID is added once.
                    Step::Adds(id, _) if expected.contains_key(&id) => {}
                    Step::Adds(id, length) => {
                        if responses.add_response(id, length) {
                            expected.insert(id, length);
                        } else {
                            prop_assert!(responses.next.get() - responses.first.get() == MAX_SHORT_RESPONSES as u64);
                        }
                    }
                    Step::Sends(id, end) => {
                        prop_assert_eq!(responses.on_short_sent(id, end), expected.contains_key(&id));
                        expected.retain(|other, length| *other != id || end < *length);
                    }
                    Step::Removes(id) => {
                        prop_assert_eq!(responses.remove_short_response(id), expected.remove(&id).unwrap_or_default());
                    }
                }
                prop_assert_eq!(responses.unsent.get(), expected.values().sum::<u64>());
            }
        }
    }

    #[test]
    fn responses_sent_in_order_always_have_room() {
        let responses = ShortResponses::default();
        for id in 0..1_000 {
            assert!(responses.add_response(4 * id, 1_000));
            if id >= 15 {
                assert!(responses.on_short_sent(4 * (id - 15), 1_000));
            }
        }
        assert_eq!(responses.unsent.get(), 15_000);
    }
}
