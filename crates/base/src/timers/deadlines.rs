//! Deadlines of waits: a list for each duration, in which what begins later ends later. So a wait begins at the end of
//! its list, and the next deadline is that of a first one: both take the same few steps however many wait. Pure.

use slab::Slab;
use std::{task::Waker, time::Duration};
use tokio::time::Instant;

/// Durations with a list at most. Those of a configuration are fewer.
const MAX_LISTS: usize = 16;
/// Waits for which memory is kept while there are none.
const KEPT: usize = 64;
/// No wait.
const NONE: usize = usize::MAX;

/// The waits that have a deadline.
#[derive(Debug, Default)]
pub(super) struct Deadlines {
    waits: Slab<Wait>,
    lists: Vec<List>,
}

/// The waits of one duration.
#[derive(Debug)]
struct List {
    patience: Duration,
    first: usize,
    last: usize,
}

#[derive(Debug)]
struct Wait {
    deadline: Instant,
    /// `None` once the deadline has passed: then the wait is in no list.
    waker: Option<Waker>,
    list: usize,
    before: usize,
    behind: usize,
}

impl Deadlines {
    /// Begins a wait of `patience` at the time `now`, whose end wakes `waker`. Returns its number and its deadline;
    /// `None` if there are too many durations, or the clock has no such time.
    pub(super) fn begin(&mut self, patience: Duration, now: Instant, waker: Waker) -> Option<(usize, Instant)> {
        let deadline = now.checked_add(patience)?;
        let number = self.list(patience)?;
        let list = self.lists.get_mut(number)?;
        let before = std::mem::replace(&mut list.last, NONE);
        // A turn's time may be read before that of another.
        let deadline = self.waits.get(before).map_or(deadline, |before| before.deadline.max(deadline));
        let wait = self.waits.insert(Wait { deadline, waker: Some(waker), list: number, before, behind: NONE });
        list.last = wait;
        match self.waits.get_mut(before) {
            Some(before) => before.behind = wait,
            None => list.first = wait,
        }
        Some((wait, deadline))
    }

    /// The list of a duration: one that is empty is another duration's from then on.
    fn list(&mut self, patience: Duration) -> Option<usize> {
        if let Some(number) = self.lists.iter().position(|list| list.patience == patience) {
            return Some(number);
        }
        let list = List { patience, first: NONE, last: NONE };
        if self.lists.len() < MAX_LISTS {
            self.lists.push(list);
            return Some(self.lists.len() - 1);
        }
        let number = self.lists.iter().position(|list| list.first == NONE)?;
        *self.lists.get_mut(number)? = list;
        Some(number)
    }

    /// Whether the deadline of a wait has passed. Until then its end wakes `waker`. Returns what is to be dropped, too.
    pub(super) fn poll(&mut self, wait: usize, waker: &Waker) -> (bool, Option<Waker>) {
        match self.waits.get_mut(wait) {
            Some(Wait { waker: Some(known), .. }) if known.will_wake(waker) => (false, None),
            Some(Wait { waker: Some(known), .. }) => (false, Some(std::mem::replace(known, waker.clone()))),
            Some(Wait { waker: None, .. }) | None => (true, None),
        }
    }

    /// Ends a wait. Returns what is to be dropped.
    pub(super) fn end(&mut self, wait: usize) -> Option<Waker> {
        let waker = self.leave(wait);
        self.waits.try_remove(wait);
        if self.waits.is_empty() && self.waits.capacity() > KEPT {
            self.waits = Slab::new();
        }
        waker
    }

    /// Takes a wait out of its list, if it is in one.
    fn leave(&mut self, wait: usize) -> Option<Waker> {
        let Wait { waker, list, before, behind, .. } = self.waits.get_mut(wait)?;
        let waker = waker.take()?;
        let (number, before, behind) = (*list, *before, *behind);
        let list = self.lists.get_mut(number)?;
        match self.waits.get_mut(before) {
            Some(wait) => wait.behind = behind,
            None => list.first = behind,
        }
        match self.waits.get_mut(behind) {
            Some(wait) => wait.before = before,
            None => list.last = before,
        }
        Some(waker)
    }

    /// The next deadline.
    pub(super) fn next(&self) -> Option<Instant> {
        self.lists.iter().filter_map(|list| self.waits.get(list.first)).map(|wait| wait.deadline).min()
    }

    /// Passes the wakers of all whose deadline has passed at `now` to `woken`.
    pub(super) fn expire(&mut self, now: Instant, woken: &mut Vec<Waker>) {
        for number in 0..self.lists.len() {
            while let Some(first) = self.lists.get(number).map(|list| list.first)
                && self.waits.get(first).is_some_and(|wait| wait.deadline <= now)
            {
                woken.extend(self.leave(first));
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
        fn each_wait_ends_at_its_deadline_once_unless_it_was_given_up(steps in steps()) {
            let mut now = Instant::now();
            let mut deadlines = Deadlines::default();
            // By the number of a wait: its deadline, and how often it was woken.
            let mut expected: BTreeMap<usize, (Instant, Arc<Count>)> = BTreeMap::new();
            for step in steps {
                match step {
                    Step::Begin(seconds) => {
                        let count = Arc::<Count>::default();
                        let begun = deadlines.begin(Duration::from_secs(seconds), now, waker(Arc::clone(&count)));
                        let (wait, deadline) = begun.unwrap();
                        prop_assert_eq!(deadline, now + Duration::from_secs(seconds));
                        prop_assert!(expected.insert(wait, (deadline, count)).is_none());
                    }
                    Step::End(nth) => {
                        if let Some(wait) = expected.keys().nth(nth).copied() {
                            expected.remove(&wait);
                            deadlines.end(wait);
                        }
                    }
                    Step::Pass(seconds) => {
                        now += Duration::from_secs(seconds);
                        let mut woken = Vec::new();
                        deadlines.expire(now, &mut woken);
                        woken.into_iter().for_each(Waker::wake);
                    }
                }
                for (wait, (deadline, count)) in &expected {
                    let is_over = *deadline <= now;
                    prop_assert_eq!(count.0.load(Ordering::Relaxed), usize::from(is_over));
                    prop_assert_eq!(deadlines.poll(*wait, &waker(Arc::clone(count))).0, is_over);
                }
                let next = expected.values().map(|(deadline, _)| *deadline).filter(|deadline| *deadline > now).min();
                prop_assert_eq!(deadlines.next(), next);
            }
            expected.keys().for_each(|wait| drop(deadlines.end(*wait)));
            prop_assert!(deadlines.waits.is_empty() && deadlines.next().is_none());
        }
    }

    #[test]
    fn a_duration_beyond_those_that_have_a_list_gets_one_once_another_has_no_wait() {
        let (now, mut deadlines) = (Instant::now(), Deadlines::default());
        let begin = |deadlines: &mut Deadlines, seconds: usize| {
            let patience = Duration::from_secs(seconds as u64);
            deadlines.begin(patience, now, Waker::noop().clone()).map(|(wait, _)| wait)
        };
        let waits: Vec<_> = (0..MAX_LISTS).map(|seconds| begin(&mut deadlines, seconds).unwrap()).collect();
        assert_eq!(begin(&mut deadlines, MAX_LISTS), None);
        assert!(begin(&mut deadlines, 3).is_some(), "a known one");
        deadlines.end(waits[5]);
        assert!(begin(&mut deadlines, MAX_LISTS).is_some());
        assert_eq!(begin(&mut deadlines, 5), None);
        assert_eq!(deadlines.begin(Duration::MAX, now, Waker::noop().clone()), None);
    }

    #[test]
    fn a_wait_wakes_its_last_task_and_memory_of_many_is_given_back() {
        let (now, mut deadlines) = (Instant::now(), Deadlines::default());
        let [first, last] = [(), ()].map(|()| Arc::<Count>::default());
        let (wait, deadline) = deadlines.begin(Duration::from_secs(1), now, waker(Arc::clone(&first))).unwrap();
        assert!(!deadlines.poll(wait, &waker(Arc::clone(&last))).0);
        let mut woken = Vec::new();
        deadlines.expire(deadline, &mut woken);
        woken.into_iter().for_each(Waker::wake);
        assert_eq!([&first, &last].map(|count| count.0.load(Ordering::Relaxed)), [0, 1]);
        let noop = Waker::noop();
        let begin = |deadlines: &mut Deadlines| deadlines.begin(Duration::from_secs(2), now, noop.clone()).unwrap().0;
        let waits: Vec<_> = (0..KEPT * 4).map(|_| begin(&mut deadlines)).collect();
        waits.into_iter().chain([wait]).for_each(|wait| drop(deadlines.end(wait)));
        assert_eq!((deadlines.waits.capacity(), deadlines.next()), (0, None));
    }
}
