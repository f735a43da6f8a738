//! Counters whose labels come from the configuration: an origin's server, a route. A module looks them up once and
//! keeps them.

use super::group::{Group, Labels, Sample};
use parking_lot::Mutex;
use std::{collections::BTreeMap, fmt::Debug, sync::Arc};

/// Key of counters in a [`CounterTable`].
pub trait CounterKey: Ord + Clone + Debug + Send + Sync {
    /// Returns the key without characters that a scrape cannot have: by [`plain_label`].
    fn plain_key(&self) -> Self;
    /// Returns the labels in a scrape.
    fn key_labels(&self) -> Labels;
}

/// Counters by key.
type CountersByKey<K, T> = BTreeMap<K, Arc<T>>;

/// Table of counters by key. Counters of earlier configurations stay until they are removed, so that no count is lost.
/// A scrape holds the lock for as long as a pointer takes to copy: a worker that looks up a key while a scrape is
/// rendered does not wait for it.
#[derive(Debug)]
pub struct CounterTable<K, T>(Mutex<Arc<CountersByKey<K, T>>>);

impl<K, T> Default for CounterTable<K, T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: CounterKey, T: Default> CounterTable<K, T> {
    /// The counters of `name`, which the caller should keep, as this takes a lock. Adds them if they are missing.
    pub fn counters_for(&self, name: &K) -> Arc<T> {
        let name = name.plain_key();
        let mut names = self.0.lock();
        if let Some(known) = names.get(&name) {
            return Arc::clone(known);
        }
        Arc::clone(Arc::make_mut(&mut names).entry(name).or_default())
    }

    /// Reads a counter of `name` by `read`; 0 if the table does not have `name`, which is not added.
    pub fn read_counter(&self, name: &K, read: impl Fn(&T) -> u64) -> u64 {
        self.current_counters().get(&name.plain_key()).map_or(0, |counters| read(counters))
    }

    /// Removes all keys except `wanted`.
    pub fn retain_keys(&self, wanted: &[K]) {
        let wanted: Vec<K> = wanted.iter().map(CounterKey::plain_key).collect();
        Arc::make_mut(&mut self.0.lock()).retain(|name, _| wanted.contains(name));
    }

    /// Snapshot of all counters.
    fn current_counters(&self) -> Arc<CountersByKey<K, T>> {
        Arc::clone(&self.0.lock())
    }

    /// Whether the lock is free.
    #[cfg(test)]
    pub(crate) fn is_table_unlocked(&self) -> bool {
        self.0.try_lock().is_some()
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

/// Replaces quotation marks and backslashes, which the exposition format requires to be escaped: its library does not.
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
    fn counters_have_a_key_and_are_removed_on_request() {
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
