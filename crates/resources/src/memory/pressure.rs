//! How short memory is: written by the control thread, read by each worker.

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

/// The time between two measurements of usage while memory is short, or may be before another one.
pub const MEASURE_INTERVAL: Duration = Duration::from_millis(100);
/// The time between two measurements while memory is plentiful.
const NORMAL_INTERVAL: Duration = Duration::from_secs(1);
/// The time between two measurements while no worker works, or there is no limit: it may have been set meanwhile.
const RESTING_INTERVAL: Duration = Duration::from_secs(5);
/// Bytes by which the use of memory grows in a second for each worker, at most: 3,000 handshakes take 84 MB.
const MAX_GROWTH_PER_SECOND: u64 = 128 << 20;

/// Publishes how short memory is, to all copies of [`Pressure`].
#[derive(Debug, Clone)]
pub struct MemoryGauge {
    state: Sender<PressureState>,
    workers: Arc<AwakeWorkers>,
}

/// How short memory is. Each worker has a copy.
#[derive(Debug, Clone)]
pub struct MemoryPressure {
    state: Receiver<PressureState>,
    workers: Arc<AwakeWorkers>,
}

/// The workers that do not rest.
#[derive(Debug, Default)]
struct AwakeWorkers {
    awake: AtomicUsize,
    roused: Notify,
}

/// A worker that does not rest, until this is dropped.
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
    /// Bytes; 0 while there is no limit.
    limit: u64,
    /// Bytes that are used beyond what [`Step::Close`] is left at, while it is in force.
    excess: u64,
}

/// The share of the limit that a budget of all workers has at most: a quarter. What clients that do not read can fill
/// at once then leaves room for connections, and brings no step by itself.
const BUDGET_DIVISOR: u64 = 4;
/// The share of the limit that a budget of all workers has once buffers are made smaller: a sixteenth.
const SHRUNK_BUDGET_DIVISOR: u64 = 16;

impl Default for MemoryGauge {
    fn default() -> Self {
        Self { state: watch::channel(PressureState::default()).0, workers: Arc::default() }
    }
}

impl MemoryGauge {
    /// For a worker.
    pub fn subscribe_pressure(&self) -> MemoryPressure {
        MemoryPressure { state: self.state.subscribe(), workers: Arc::clone(&self.workers) }
    }

    /// Has all workers look at what they hold and what they may: their limits may have changed.
    pub fn rouse_workers(&self) {
        self.state.send_modify(|_| ());
    }

    /// How long to wait before the next measurement if the last one was `reading`, in a process of `workers` workers.
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

    /// Waits until `pause` has passed, or a worker has something to do again that rested. Cancel safe.
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

    /// Sets how short memory is, by `reading`.
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
    /// How short memory is now.
    pub fn pressure_step(&self) -> MemoryStep {
        self.state.borrow().step
    }

    /// Bytes that one of `workers` workers is to free by closing connections.
    pub fn excess_bytes(&self, workers: usize) -> u64 {
        self.state.borrow().excess.checked_div(workers as u64).unwrap_or(0)
    }

    /// The budget of one of `workers` workers, of the bytes that are configured.
    pub fn worker_budget(&self, configured: u64, workers: usize) -> u64 {
        let PressureState { step, limit, .. } = *self.state.borrow();
        if limit == 0 {
            return configured;
        }
        let share = if step < MemoryStep::Shrink { BUDGET_DIVISOR } else { SHRUNK_BUDGET_DIVISOR };
        (limit / share).checked_div(workers as u64).map_or(configured, |share| share.min(configured))
    }

    /// The worker does not rest any more: memory is measured more often.
    pub fn mark_awake(&self) -> AwakeWorker {
        if self.workers.awake.fetch_add(1, Relaxed) == 0 {
            self.workers.roused.notify_one();
        }
        AwakeWorker(Arc::clone(&self.workers))
    }

    /// Waits until `after` has passed, or [`Self::changed`] is ready. Cancel safe.
    pub async fn wait_for_pressure_within(&mut self, after: Duration) {
        let _ = timeout(after, self.wait_for_pressure_change()).await;
    }

    /// Waits until memory has become shorter or less short, or limits may have changed. Cancel safe.
    pub async fn wait_for_pressure_change(&mut self) {
        // An error means that memory is not measured any more: the process ends.
        if self.state.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budgets_are_a_share_of_the_limit_and_a_smaller_one_once_memory_is_short() {
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
    fn memory_is_measured_as_often_as_it_can_become_short_and_seldom_while_no_worker_works() {
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
