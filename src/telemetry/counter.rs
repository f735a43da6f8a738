//! Numbers that one worker writes and the control thread reads.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Only ever grows. One thread writes it, so an addition is a plain load and store: no locked instruction on the
/// way of a request.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds `n`. Called by the worker that owns the counter, and by nobody else.
    pub fn add(&self, n: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(n), Relaxed);
    }

    /// Adds one.
    pub fn increment(&self) {
        self.add(1);
    }

    /// What has been counted; any thread may ask.
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// Goes up and down. One thread writes it, as with [`Counter`].
#[derive(Debug, Default)]
pub struct Gauge(AtomicU64);

impl Gauge {
    /// Adds `n`.
    pub fn add(&self, n: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(n), Relaxed);
    }

    /// Takes `n` away; never below zero.
    pub fn sub(&self, n: u64) {
        self.0.store(self.0.load(Relaxed).saturating_sub(n), Relaxed);
    }

    /// Adds one.
    pub fn increment(&self) {
        self.add(1);
    }

    /// Takes one away.
    pub fn decrement(&self) {
        self.sub(1);
    }

    /// Sets it to `n`.
    pub fn set(&self, n: u64) {
        self.0.store(n, Relaxed);
    }

    /// How it stands; any thread may ask.
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}
