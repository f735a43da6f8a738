//! Deadlines of waits, in one list for each duration, so that a wait that begins later ends later. A wait begins at the
//! end of its list, and the next deadline is the first of one of the lists: both cost the same however many waits there
//! are. Pure.

use slab::Slab;
use std::{task::Waker, time::Duration};
use tokio::time::Instant;

/// Maximum number of durations that have a list. A configuration has fewer durations.
const MAX_LISTS: usize = 16;
/// Waits for which memory is retained while the lists are empty.
const RETAINED_WAITS: usize = 64;
/// Index of no wait: the end of a list.
const NO_WAIT: usize = usize::MAX;

#[derive(Debug, Default)]
pub(super) struct DeadlineLists {
    waits: Slab<DeadlineWait>,
    lists: Vec<DeadlineList>,
}

/// Waits of one duration, in the order of their deadlines.
#[derive(Debug)]
struct DeadlineList {
    duration: Duration,
    first: usize,
    last: usize,
}

#[derive(Debug)]
struct DeadlineWait {
    deadline: Instant,
    /// `None` once the deadline has passed: then the wait is in no list.
    waker: Option<Waker>,
    list: usize,
    previous: usize,
    following: usize,
}

impl DeadlineLists {
    /// Begins a wait of `duration` at the time `now`; its deadline wakes `waker`. Returns the wait's number and
    /// deadline; `None` if there are too many durations, or the clock cannot represent the deadline.
    pub(super) fn begin_wait(&mut self, duration: Duration, now: Instant, waker: Waker) -> Option<(usize, Instant)> {
        let deadline = now.checked_add(duration)?;
        let number = self.list_for_duration(duration)?;
        let list = self.lists.get_mut(number)?;
        let before = std::mem::replace(&mut list.last, NO_WAIT);
        // Two turns may read the clock in another order than they begin waits.
        let deadline = self.waits.get(before).map_or(deadline, |before| before.deadline.max(deadline));
        let wait = self.waits.insert(DeadlineWait {
            deadline,
            waker: Some(waker),
            list: number,
            previous: before,
            following: NO_WAIT,
        });
        list.last = wait;
        match self.waits.get_mut(before) {
            Some(before) => before.following = wait,
            None => list.first = wait,
        }
        Some((wait, deadline))
    }

    /// The number of the list of `duration`. A new duration reuses the list of another one if that is empty.
    fn list_for_duration(&mut self, duration: Duration) -> Option<usize> {
        if let Some(number) = self.lists.iter().position(|list| list.duration == duration) {
            return Some(number);
        }
        let list = DeadlineList { duration, first: NO_WAIT, last: NO_WAIT };
        if self.lists.len() < MAX_LISTS {
            self.lists.push(list);
            return Some(self.lists.len() - 1);
        }
        let number = self.lists.iter().position(|list| list.first == NO_WAIT)?;
        *self.lists.get_mut(number)? = list;
        Some(number)
    }

    /// Whether the deadline of `wait` has passed; if not, the deadline wakes `waker` from now on. Also returns the
    /// former waker, which the caller drops outside the borrow.
    pub(super) fn poll_deadline(&mut self, wait: usize, waker: &Waker) -> (bool, Option<Waker>) {
        match self.waits.get_mut(wait) {
            Some(DeadlineWait { waker: Some(known), .. }) if known.will_wake(waker) => (false, None),
            Some(DeadlineWait { waker: Some(known), .. }) => (false, Some(std::mem::replace(known, waker.clone()))),
            Some(DeadlineWait { waker: None, .. }) | None => (true, None),
        }
    }

    /// Ends a wait. Returns its waker, which the caller drops outside the borrow.
    pub(super) fn end_wait(&mut self, wait: usize) -> Option<Waker> {
        let waker = self.unlink_wait(wait);
        self.waits.try_remove(wait);
        if self.waits.is_empty() && self.waits.capacity() > RETAINED_WAITS {
            self.waits = Slab::new();
        }
        waker
    }

    /// Removes a wait from its list, unless its deadline has passed. Returns its waker.
    fn unlink_wait(&mut self, wait: usize) -> Option<Waker> {
        let DeadlineWait { waker, list, previous: before, following: behind, .. } = self.waits.get_mut(wait)?;
        let waker = waker.take()?;
        let (number, before, behind) = (*list, *before, *behind);
        let list = self.lists.get_mut(number)?;
        match self.waits.get_mut(before) {
            Some(wait) => wait.following = behind,
            None => list.first = behind,
        }
        match self.waits.get_mut(behind) {
            Some(wait) => wait.previous = before,
            None => list.last = before,
        }
        Some(waker)
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.lists.iter().filter_map(|list| self.waits.get(list.first)).map(|wait| wait.deadline).min()
    }

    /// Moves the wakers of all waits whose deadline has passed at `now` to `woken`.
    pub(super) fn expire_waits(&mut self, now: Instant, woken: &mut Vec<Waker>) {
        for number in 0..self.lists.len() {
            while let Some(first) = self.lists.get(number).map(|list| list.first)
                && self.waits.get(first).is_some_and(|wait| wait.deadline <= now)
            {
                woken.extend(self.unlink_wait(first));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::task::{ArcWake, waker};
    use proptest::prelude::*;
    use std::{
        collections::BTreeMap,
        sync::{
            Arc,
            atomic::{AtomicUsize, Ordering},
        },
    };

    #[derive(Debug, Default)]
    struct Count(AtomicUsize);

    impl ArcWake for Count {
        fn wake_by_ref(count: &Arc<Self>) {
            count.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[derive(Debug, Clone)]
    enum Step {
        Begin(u64),
        End(usize),
        Pass(u64),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            prop::sample::select(vec![1, 5, 60]).prop_map(Step::Begin),
            (0_usize..8).prop_map(Step::End),
            (0_u64..30).prop_map(Step::Pass),
        ];
        prop::collection::vec(step, 0..60)
    }

    proptest! {
        #[test]
        fn each_wait_ends_once_at_its_deadline_unless_cancelled(steps in steps()) {
            let mut now = Instant::now();
            let mut deadlines = DeadlineLists::default();
            // Deadline and number of wakes of each wait, by its number.
            let mut expected: BTreeMap<usize, (Instant, Arc<Count>)> = BTreeMap::new();
            for step in steps {
                match step {
                    Step::Begin(seconds) => {
                        let count = Arc::<Count>::default();
                        let begun = deadlines.begin_wait(Duration::from_secs(seconds), now, waker(Arc::clone(&count)));
                        let (wait, deadline) = begun.unwrap();
                        prop_assert_eq!(deadline, now + Duration::from_secs(seconds));
                        prop_assert!(expected.insert(wait, (deadline, count)).is_none());
                    }
                    Step::End(nth) => {
                        if let Some(wait) = expected.keys().nth(nth).copied() {
                            expected.remove(&wait);
                            deadlines.end_wait(wait);
                        }
                    }
                    Step::Pass(seconds) => {
                        now += Duration::from_secs(seconds);
                        let mut woken = Vec::new();
                        deadlines.expire_waits(now, &mut woken);
                        woken.into_iter().for_each(Waker::wake);
                    }
                }
                for (wait, (deadline, count)) in &expected {
                    let is_over = *deadline <= now;
                    prop_assert_eq!(count.0.load(Ordering::Relaxed), usize::from(is_over));
                    prop_assert_eq!(deadlines.poll_deadline(*wait, &waker(Arc::clone(count))).0, is_over);
                }
                let next = expected.values().map(|(deadline, _)| *deadline).filter(|deadline| *deadline > now).min();
                prop_assert_eq!(deadlines.next_deadline(), next);
            }
            expected.keys().for_each(|wait| drop(deadlines.end_wait(*wait)));
            prop_assert!(deadlines.waits.is_empty() && deadlines.next_deadline().is_none());
        }
    }

    #[test]
    fn a_new_duration_reuses_the_list_of_an_unused_one() {
        let (now, mut deadlines) = (Instant::now(), DeadlineLists::default());
        let begin = |deadlines: &mut DeadlineLists, seconds: usize| {
            let duration = Duration::from_secs(seconds as u64);
            deadlines.begin_wait(duration, now, Waker::noop().clone()).map(|(wait, _)| wait)
        };
        let waits: Vec<_> = (0..MAX_LISTS).map(|seconds| begin(&mut deadlines, seconds).unwrap()).collect();
        assert_eq!(begin(&mut deadlines, MAX_LISTS), None);
        assert!(begin(&mut deadlines, 3).is_some(), "a known one");
        deadlines.end_wait(waits[5]);
        assert!(begin(&mut deadlines, MAX_LISTS).is_some());
        assert_eq!(begin(&mut deadlines, 5), None);
        assert_eq!(deadlines.begin_wait(Duration::MAX, now, Waker::noop().clone()), None);
    }

    #[test]
    fn a_wait_wakes_its_last_task_and_memory_is_released() {
        let (now, mut deadlines) = (Instant::now(), DeadlineLists::default());
        let [first, last] = [(), ()].map(|()| Arc::<Count>::default());
        let (wait, deadline) = deadlines.begin_wait(Duration::from_secs(1), now, waker(Arc::clone(&first))).unwrap();
        assert!(!deadlines.poll_deadline(wait, &waker(Arc::clone(&last))).0);
        let mut woken = Vec::new();
        deadlines.expire_waits(deadline, &mut woken);
        woken.into_iter().for_each(Waker::wake);
        assert_eq!([&first, &last].map(|count| count.0.load(Ordering::Relaxed)), [0, 1]);
        let noop = Waker::noop();
        let begin =
            |deadlines: &mut DeadlineLists| deadlines.begin_wait(Duration::from_secs(2), now, noop.clone()).unwrap().0;
        let waits: Vec<_> = (0..RETAINED_WAITS * 4).map(|_| begin(&mut deadlines)).collect();
        waits.into_iter().chain([wait]).for_each(|wait| drop(deadlines.end_wait(wait)));
        assert_eq!((deadlines.waits.capacity(), deadlines.next_deadline()), (0, None));
    }
}
