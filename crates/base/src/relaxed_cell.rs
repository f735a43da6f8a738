//! A number in memory that a library wants to be `Send`, and that one thread alone uses.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A change is a plain load and store: nothing locks the bus on the way of a packet. Changes that two threads make at
/// once may be lost; each may read it.
#[derive(Debug, Default)]
pub struct RelaxedCell(AtomicU64);

impl RelaxedCell {
    /// A number that begins as `value`.
    pub const fn new(value: u64) -> Self {
        Self(AtomicU64::new(value))
    }

    /// The number.
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }

    /// Replaces the number.
    pub fn set(&self, value: u64) {
        self.0.store(value, Relaxed);
    }

    /// Up to the largest number there is.
    pub fn add_saturating(&self, more: u64) {
        self.set(self.get().saturating_add(more));
    }

    /// Down to zero.
    pub fn subtract_saturating(&self, less: u64) {
        self.set(self.get().saturating_sub(less));
    }

    /// What it was; it is zero from now on.
    pub fn take_value(&self) -> u64 {
        let value = self.get();
        self.set(0);
        value
    }
}
