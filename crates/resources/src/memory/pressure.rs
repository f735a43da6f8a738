//! Passes the shortage of memory from the control thread, which writes it, to the workers.

use super::{MemoryReading, MemoryStep, memory_step};
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};
use tokio::{
    sync::{
        Notify,
        watch::{self, Receiver, Sender},
    },
    time::timeout,
};

/// Time between two measurements while memory is short, or may be short before the next one.
pub const MEASURE_INTERVAL: Duration = Duration::from_millis(100);
/// Time between two measurements while memory is plentiful.
const NORMAL_INTERVAL: Duration = Duration::from_secs(1);
/// Time between two measurements while no worker works, or there is no limit: an operator may set one meanwhile.
const RESTING_INTERVAL: Duration = Duration::from_secs(5);
/// Upper bound of the growth of memory, in bytes a second for each worker: 3,000 handshakes take 84 MB.
const MAX_GROWTH_PER_SECOND: u64 = 128 << 20;

/// Publishes the shortage of memory to all copies of [`MemoryPressure`].
#[derive(Debug, Clone)]
pub struct MemoryGauge {
    state: Sender<PressureState>,
    workers: Arc<AwakeWorkers>,
}

/// Shortage of memory, as a worker reads it. Each worker has a copy.
#[derive(Debug, Clone)]
pub struct MemoryPressure {
    state: Receiver<PressureState>,
    workers: Arc<AwakeWorkers>,
}

/// Counts the workers that do not rest.
#[derive(Debug, Default)]
struct AwakeWorkers {
    awake: AtomicUsize,
    roused: Notify,
}

/// Counts one worker as awake, until dropped.
#[derive(Debug)]
pub struct AwakeWorker(Arc<AwakeWorkers>);

impl Drop for AwakeWorker {
    fn drop(&mut self) {
        self.0.awake.fetch_sub(1, Relaxed);
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct PressureState {
    step: MemoryStep,
    /// Limit in bytes; 0 while there is none.
    limit: u64,
    /// Bytes in use above the level at which [`MemoryStep::Close`] is left, while that step is in force.
    excess: u64,
}

/// Largest share of the limit for a budget of all workers: a quarter. If clients that do not read fill it at once,
/// memory is left for connections, and no step begins.
const BUDGET_DIVISOR: u64 = 4;
/// Share of the limit for a budget of all workers once buffers shrink: a sixteenth.
const SHRUNK_BUDGET_DIVISOR: u64 = 16;

impl Default for MemoryGauge {
    fn default() -> Self {
        Self { state: watch::channel(PressureState::default()).0, workers: Arc::default() }
    }
}

impl MemoryGauge {
    /// A [`MemoryPressure`] for a worker.
    pub fn subscribe_pressure(&self) -> MemoryPressure {
        MemoryPressure { state: self.state.subscribe(), workers: Arc::clone(&self.workers) }
    }

    /// Wakes all workers to compare their memory with their limits, which may have changed.
    pub fn rouse_workers(&self) {
        self.state.send_modify(|_| ());
    }

    /// Delay before the next measurement if the last one was `reading`, in a process of `workers` workers.
    pub fn measurement_delay(&self, reading: Option<MemoryReading>, workers: usize) -> Duration {
        match reading {
            Some(_) if self.state.borrow().step > MemoryStep::Normal => MEASURE_INTERVAL,
            Some(reading) if self.workers.awake.load(Relaxed) > 0 => {
                let growth = MAX_GROWTH_PER_SECOND.saturating_mul(workers as u64).max(1);
                let until_short =
                    Duration::from_secs_f64(memory_step::bytes_before_first_step(reading) as f64 / growth as f64);
                until_short.clamp(MEASURE_INTERVAL, NORMAL_INTERVAL)
            }
            _ => RESTING_INTERVAL,
        }
    }

    /// Waits until `pause` has passed, or a resting worker has work again. Cancel safe.
    pub async fn wait_until_roused(&self, pause: Duration) {
        let _ = timeout(pause, async {
            loop {
                self.workers.roused.notified().await;
                if pause > NORMAL_INTERVAL {
                    return;
                }
            }
        })
        .await;
    }

    /// Publishes `step`, and the shortage by `reading`.
    pub fn publish_pressure(&self, step: MemoryStep, reading: MemoryReading) {
        let excess = if step == MemoryStep::Close { memory_step::bytes_over_last_step(reading) } else { 0 };
        let now = PressureState { step, limit: reading.limit, excess };
        self.state.send_if_modified(|state| std::mem::replace(state, now) != now);
    }
}

impl Default for MemoryPressure {
    fn default() -> Self {
        MemoryGauge::default().subscribe_pressure()
    }
}

impl MemoryPressure {
    /// Step in force.
    pub fn pressure_step(&self) -> MemoryStep {
        self.state.borrow().step
    }

    /// Number of bytes that one of `workers` workers has to free by closing connections.
    pub fn excess_bytes(&self, workers: usize) -> u64 {
        self.state.borrow().excess.checked_div(workers as u64).unwrap_or(0)
    }

    /// Budget in bytes of one of `workers` workers: `configured`, or less if the limit allows less.
    pub fn worker_budget(&self, configured: u64, workers: usize) -> u64 {
        let PressureState { step, limit, .. } = *self.state.borrow();
        if limit == 0 {
            return configured;
        }
        let share = if step < MemoryStep::Shrink { BUDGET_DIVISOR } else { SHRUNK_BUDGET_DIVISOR };
        (limit / share).checked_div(workers as u64).map_or(configured, |share| share.min(configured))
    }

    /// Counts the worker as awake, so that memory is measured more often.
    pub fn mark_awake(&self) -> AwakeWorker {
        if self.workers.awake.fetch_add(1, Relaxed) == 0 {
            self.workers.roused.notify_one();
        }
        AwakeWorker(Arc::clone(&self.workers))
    }

    /// Waits until `after` has passed, or [`Self::wait_for_pressure_change`] is ready. Cancel safe.
    pub async fn wait_for_pressure_within(&mut self, after: Duration) {
        let _ = timeout(after, self.wait_for_pressure_change()).await;
    }

    /// Waits until the shortage has changed, or limits may have changed. Cancel safe.
    pub async fn wait_for_pressure_change(&mut self) {
        // An error means that memory is no longer measured: the process ends.
        if self.state.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budgets_are_a_share_of_the_limit_and_shrink_under_pressure() {
        const MIB: u64 = 1024 * 1024;
        let gauge = MemoryGauge::default();
        let pressure = gauge.subscribe_pressure();
        assert_eq!(pressure.worker_budget(64, 1), 64, "without a limit");
        for (step, configured, workers, budget) in [
            (MemoryStep::Normal, 8, 2, 8),
            (MemoryStep::Normal, 64, 2, 16),
            (MemoryStep::Refuse, 64, 2, 16),
            (MemoryStep::Refuse, 64, 1, 32),
            (MemoryStep::Shrink, 64, 2, 4),
            (MemoryStep::Close, 64, 2, 4),
            (MemoryStep::Shrink, 2, 2, 2),
            (MemoryStep::Shrink, 64, 0, 64),
        ] {
            gauge.publish_pressure(step, MemoryReading { used: 127 * MIB, limit: 128 * MIB });
            let excess = if step == MemoryStep::Close { 127 * MIB - 128 * MIB / 100 * 90 } else { 0 };
            assert!(
                pressure.excess_bytes(workers).abs_diff(excess.checked_div(workers as u64).unwrap_or(0)) < 100,
                "{step:?}"
            );
            assert_eq!(
                pressure.worker_budget(configured * MIB, workers),
                budget * MIB,
                "{step:?} {configured} {workers}"
            );
        }
    }

    #[test]
    fn memory_is_measured_often_near_the_limit_and_seldom_at_rest() {
        const MIB: u64 = 1024 * 1024;
        let gauge = MemoryGauge::default();
        let pause = |used: u64, limit: u64| {
            gauge.measurement_delay(Some(MemoryReading { used: used * MIB, limit: limit * MIB }), 2).as_millis()
        };
        assert_eq!((pause(100, 1000), gauge.measurement_delay(None, 2)), (5000, RESTING_INTERVAL));
        let awake = gauge.subscribe_pressure().mark_awake();
        for (used, limit, expected) in [(100, 1000, 1000), (30, 128, 307), (100, 128, 100), (20, 64, 134), (0, 0, 100)]
        {
            assert!(pause(used, limit).abs_diff(expected) <= 1, "{used} {limit}: {}", pause(used, limit));
        }
        assert_eq!(gauge.measurement_delay(None, 2), RESTING_INTERVAL, "without a limit");
        gauge.publish_pressure(MemoryStep::Refuse, MemoryReading { used: 86, limit: 100 });
        drop(awake);
        assert_eq!(pause(86, 100), 100);
    }

    #[tokio::test(start_paused = true)]
    async fn a_worker_that_works_again_has_memory_measured() {
        let gauge = MemoryGauge::default();
        let began = tokio::time::Instant::now();
        gauge.wait_until_roused(RESTING_INTERVAL).await;
        assert!(began.elapsed() >= RESTING_INTERVAL);
        let (first, began) = (gauge.subscribe_pressure().mark_awake(), tokio::time::Instant::now());
        gauge.wait_until_roused(RESTING_INTERVAL).await;
        assert!(began.elapsed() < MEASURE_INTERVAL);
        let _second = gauge.subscribe_pressure().mark_awake();
        gauge.wait_until_roused(NORMAL_INTERVAL).await;
        assert!(began.elapsed() >= NORMAL_INTERVAL, "only the first one counts");
        drop(first);
    }
}
