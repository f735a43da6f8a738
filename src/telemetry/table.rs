//! Counters whose names come with the configuration, so that they have no line in the table of metrics. Whoever counts asks
//! for them once and keeps them.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// Those of each name.
type Names<K, T> = BTreeMap<K, Arc<T>>;

/// Counters by name. A scrape holds the lock for as long as a pointer takes to copy: a worker that asks for a name while a
/// scrape's text is put together does not wait for it.
#[derive(Debug)]
pub(super) struct Table<K, T>(Mutex<Arc<Names<K, T>>>);

impl<K, T> Default for Table<K, T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Ord + Clone, T: Default> Table<K, T> {
    /// That of `name`, from now on at least.
    pub(super) fn of(&self, name: K) -> Arc<T> {
        let mut names = self.lock();
        if let Some(known) = names.get(&name) {
            return Arc::clone(known);
        }
        Arc::clone(Arc::make_mut(&mut names).entry(name).or_default())
    }

    /// Forgets all but those that are `wanted`.
    pub(super) fn keep(&self, wanted: impl Fn(&K) -> bool) {
        Arc::make_mut(&mut self.lock()).retain(|name, _| wanted(name));
    }

    /// All of them, as they are now.
    pub(super) fn all(&self) -> Arc<Names<K, T>> {
        Arc::clone(&self.lock())
    }

    /// Those of all `tables` by name.
    pub(super) fn merged<'a>(tables: impl Iterator<Item = &'a Self>) -> BTreeMap<K, Vec<Arc<T>>>
    where
        Self: 'a,
    {
        let mut merged = BTreeMap::<K, Vec<Arc<T>>>::new();
        for table in tables {
            for (name, one) in &*table.all() {
                match merged.get_mut(name) {
                    Some(others) => others.push(Arc::clone(one)),
                    None => drop(merged.insert(name.clone(), vec![Arc::clone(one)])),
                }
            }
        }
        merged
    }

    fn lock(&self) -> MutexGuard<'_, Arc<Names<K, T>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether nobody holds the lock.
    #[cfg(test)]
    pub(super) fn is_free(&self) -> bool {
        self.0.try_lock().is_ok()
    }
}

/// The exposition format would need quotation marks and backslashes escaped, and its library does not.
pub(super) fn plain(text: &str) -> Arc<str> {
    text.replace(['"', '\\'], "_").into()
}
