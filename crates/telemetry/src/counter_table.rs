//! Counters whose labels come with the configuration: an origin's server, a route. A module looks them up once and
//! keeps them.

use super::group::{Group, Labels, Sample};
use std::{
    collections::BTreeMap,
    fmt::Debug,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// The key of counters.
pub trait CounterKey: Ord + Clone + Debug + Send + Sync {
    /// Returns the key without what a scrape has no room for: by [`plain`].
    fn plain_key(&self) -> Self;
    /// The labels in a scrape.
    fn key_labels(&self) -> Labels;
}

/// The metrics of each name.
type CountersByKey<K, T> = BTreeMap<K, Arc<T>>;

/// Counters by name. Those of earlier configurations stay until they are removed: counts are not lost. A scrape holds
/// the lock for as long as a pointer takes to copy: a worker that looks up a name while a scrape's text is put together
/// does not wait for it.
#[derive(Debug)]
pub struct CounterTable<K, T>(Mutex<Arc<CountersByKey<K, T>>>);

impl<K, T> Default for CounterTable<K, T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: CounterKey, T: Default> CounterTable<K, T> {
    /// The counters of `name`, to be kept by the caller: this takes a lock.
    pub fn counters_for(&self, name: &K) -> Arc<T> {
        let name = name.plain_key();
        let mut names = self.lock_counters();
        if let Some(known) = names.get(&name) {
            return Arc::clone(known);
        }
        Arc::clone(Arc::make_mut(&mut names).entry(name).or_default())
    }

    /// What `read` finds at `name`, if it is known; a look-up does not add it.
    pub fn read_counter(&self, name: &K, read: impl Fn(&T) -> u64) -> u64 {
        self.current_counters().get(&name.plain_key()).map_or(0, |counters| read(counters))
    }

    /// Removes all but `wanted`.
    pub fn retain_keys(&self, wanted: &[K]) {
        let wanted: Vec<K> = wanted.iter().map(CounterKey::plain_key).collect();
        Arc::make_mut(&mut self.lock_counters()).retain(|name, _| wanted.contains(name));
    }

    /// All of them, as they are now.
    fn current_counters(&self) -> Arc<CountersByKey<K, T>> {
        Arc::clone(&self.lock_counters())
    }

    fn lock_counters(&self) -> MutexGuard<'_, Arc<CountersByKey<K, T>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the lock is free.
    #[cfg(test)]
    pub(crate) fn is_table_unlocked(&self) -> bool {
        self.0.try_lock().is_ok()
    }
}

impl<K: CounterKey, T: Group + Default> Group for CounterTable<K, T> {
    fn visit(&self, see: &mut dyn FnMut(Sample)) {
        for (name, counters) in &*self.current_counters() {
            counters.visit(&mut |mut sample| {
                sample.labels.splice(0..0, name.key_labels());
                see(sample);
            });
        }
    }
}

/// The exposition format would need quotation marks and backslashes escaped, and its library does not.
pub fn plain_label(text: &str) -> Arc<str> {
    text.replace(['"', '\\'], "_").into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Counter, metrics};

    metrics! {
        struct Counted {
            Counter("named", "Something of each.") {
                one [kind: "one"],
                other [kind: "other"],
            }
        }
    }

    #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
    struct Name(Arc<str>);

    impl CounterKey for Name {
        fn plain_key(&self) -> Self {
            Self(plain_label(&self.0))
        }

        fn key_labels(&self) -> Labels {
            vec![("name", self.0.to_string().into())]
        }
    }

    #[test]
    fn counters_go_by_their_name_and_are_forgotten_when_told() {
        let table = CounterTable::<Name, Counted>::default();
        let name = |name: &str| Name(name.into());
        table.counters_for(&name("a\"x")).one.increment_by(2);
        table.counters_for(&name("a\"x")).one.increment_by(3);
        table.counters_for(&name("b")).other.increment_by(7);
        let mut seen = Vec::new();
        table.visit(&mut |sample| {
            let labels: Vec<String> = sample.labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
            seen.push((labels.join(","), sample.value));
        });
        let counted = |labels: &str, count| (labels.to_owned(), crate::SampleValue::Counter(count));
        assert_eq!(
            seen,
            [
                counted("name=a_x,kind=one", 5),
                counted("name=a_x,kind=other", 0),
                counted("name=b,kind=one", 0),
                counted("name=b,kind=other", 7),
            ]
        );
        assert_eq!(table.read_counter(&name("c"), |counters| counters.one.get()), 0);
        table.retain_keys(&[name("b")]);
        assert_eq!(table.current_counters().len(), 1);
    }
}
