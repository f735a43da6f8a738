//! Measures how long streams that are woken wait for their turn on this worker. A worker that serves many busy
//! connections comes back to each of them late, so that each has to hand over more at once.

use std::{
    cell::Cell,
    sync::LazyLock,
    time::{Duration, Instant},
};

/// Part of the longest delay by which it falls with each shorter one.
const DECAY_DIVISOR: u64 = 16;

thread_local! {
    /// Longest of the last delays, in microseconds.
    static LONGEST_DELAY: Cell<u64> = const { Cell::new(0) };
}

static START: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Time at which a stream is woken, in microseconds after the first call.
pub(super) fn wake_time() -> u64 {
    u64::try_from(START.elapsed().as_micros()).unwrap_or(u64::MAX)
}

/// Records that a stream which was woken at `woken` has its turn.
pub(super) fn record_turn(woken: u64) {
    let delay = wake_time().saturating_sub(woken);
    LONGEST_DELAY.set(fold_delay(LONGEST_DELAY.get(), delay));
}

/// Returns the longest of the last delays on this worker.
pub(super) fn longest_delay() -> Duration {
    Duration::from_micros(LONGEST_DELAY.get())
}

/// Returns the longest delay once another `delay` was measured after `longest`.
fn fold_delay(longest: u64, delay: u64) -> u64 {
    delay.max(longest.saturating_sub(longest.div_ceil(DECAY_DIVISOR)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delay_counts_at_once_and_is_forgotten_within_some_turns() {
        assert_eq!(fold_delay(200, 30_000), 30_000);
        let later = (0..100).fold(30_000, |longest, _| fold_delay(longest, 100));
        assert_eq!(later, 100);
    }
}
