//! An integer cell for one thread, in types that a library requires to be `Send`.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A `u64` that one thread changes. A change is a plain load and store, without a locked instruction in the path of a
/// packet. If two threads change the cell at once, a change may be lost; any thread may read it.
#[derive(Debug, Default)]
pub struct RelaxedCell(AtomicU64);

impl RelaxedCell {
    /// A cell with the value `value`.
    pub const fn new(value: u64) -> Self {
        Self(AtomicU64::new(value))
    }

    /// The value.
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }

    /// Replaces the value.
    pub fn set(&self, value: u64) {
        self.0.store(value, Relaxed);
    }

    /// Adds `more`; saturates at `u64::MAX`.
    pub fn add_saturating(&self, more: u64) {
        self.set(self.get().saturating_add(more));
    }

    /// Subtracts `less`; saturates at zero.
    pub fn subtract_saturating(&self, less: u64) {
        self.set(self.get().saturating_sub(less));
    }

    /// Sets the value to zero, and returns the value before.
    pub fn take_value(&self) -> u64 {
        let value = self.get();
        self.set(0);
        value
    }
}
