//! Watches the memory that the process uses and may use, and signals a shortage to the workers.

use super::active_state::ActiveState;
use litequic_base::{
    lifecycle::{PhaseWatch, ProcessPhase},
    timers,
};
use litequic_config::MemoryLimit;
use litequic_resources::memory::{MemoryGauge, MemoryReading, MemoryUsage, StepTracker, installed_memory};
use std::{sync::Arc, time::Duration};
use tokio::time::Instant;

/// Bytes of memory assumed for a machine that does not report its size: those of a small server.
const FALLBACK_INSTALLED_BYTES: u64 = 1 << 30;

/// Watches memory until the process stops.
pub(super) async fn watch_memory(in_force: ActiveState, gauge: MemoryGauge, watch: PhaseWatch) {
    let control = &in_force.metrics.control;
    let usage = MemoryUsage::open_own_files();
    if let Some(directory) = usage.cgroup_directory() {
        tracing::debug!(directory = %directory.display(), "the process has a memory cgroup");
    }
    let (mut ladder, mut failed) = (StepTracker::default(), false);
    let mut pause = Duration::ZERO;
    let mut before = in_force.config.load_full();
    let look = async {
        loop {
            let until = Instant::now() + pause;
            timers::record_rest(Some(until));
            gauge.wait_until_roused(pause).await;
            // This thread enforces the timeouts of health checks and probes.
            timers::record_tick();
            let config = in_force.config.load_full();
            if !Arc::ptr_eq(&config, &before) {
                // Idle workers wake to apply the limits in force, and to release the former access log.
                gauge.rouse_workers();
                before = Arc::clone(&config);
            }
            let reading = match usage.read_nearest(config.limits.memory) {
                Ok(reading) => reading,
                Err(error) => {
                    // The last step stays in force.
                    if !std::mem::replace(&mut failed, true) {
                        tracing::warn!(%error, "cannot read the memory usage");
                    }
                    pause = gauge.measurement_delay(Some(MemoryReading::default()), 1);
                    continue;
                }
            };
            failed = false;
            let last = ladder.0;
            let step = ladder.update_step(reading);
            gauge.publish_pressure(step, reading.unwrap_or_default());
            let MemoryReading { used, limit } = reading.unwrap_or_default();
            control.memory_used.set(used);
            control.memory_limit.set(limit);
            control.memory_step.set(step.into());
            if step > last {
                control.memory_steps.increment();
                tracing::warn!(step = step.step_name(), used, limit, "memory is short");
            } else if step < last {
                tracing::info!(step = step.step_name(), used, limit, "memory pressure has decreased");
            }
            pause = gauge.measurement_delay(reading, in_force.metrics.worker_metrics().len());
        }
    };
    watch.run_until(ProcessPhase::Stopping, look).await;
}

/// Bytes that the process may use: the smaller of `configured` and of its memory cgroups. `None` without a limit.
pub(super) fn allowed_memory(configured: MemoryLimit) -> Option<u64> {
    MemoryUsage::open_own_files().smallest_limit(configured)
}

/// Bytes that the process may use, by [`allowed_memory`] or by the machine's memory, whichever is less.
pub(super) fn available_memory(configured: MemoryLimit) -> u64 {
    let (allowed, installed) = (allowed_memory(configured), installed_memory());
    allowed.into_iter().chain(installed).min().unwrap_or(FALLBACK_INSTALLED_BYTES)
}
