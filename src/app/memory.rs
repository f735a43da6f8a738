//! Watches the memory that the process uses, and signals to the workers how short it is.

use super::{active_state::ActiveState, memory_limit::limit};
use litequic_base::{
    lifecycle::{Phase, PhaseWatch},
    timers,
};
use litequic_resources::memory::{Ladder, MemoryGauge, Reading, Usage};
use std::{sync::Arc, time::Duration};
use tokio::{select, time::Instant};

/// Watches until the process stops.
pub(super) async fn watch(in_force: ActiveState, gauge: MemoryGauge, mut watch: PhaseWatch) {
    let control = &in_force.metrics.control;
    let usage = Usage::of_this_process();
    if let Some(directory) = usage.group() {
        tracing::debug!(directory = %directory.display(), "the process has a memory cgroup");
    }
    let (mut ladder, mut failed) = (Ladder::default(), false);
    let mut pause = Duration::ZERO;
    let mut before = in_force.config.load_full();
    let look = async {
        loop {
            let until = Instant::now() + pause;
            timers::rest(Some(until));
            gauge.roused_within(pause).await;
            // This thread enforces the timeouts of health checks and probes.
            timers::tick();
            let config = in_force.config.load_full();
            if !Arc::ptr_eq(&config, &before) {
                // Workers that rest apply the limits in force, and end with the former access log.
                gauge.rouse();
                before = Arc::clone(&config);
            }
            let reading = match usage.read(limit(config.limits.memory)) {
                Ok(reading) => reading,
                Err(error) => {
                    // The last step stays in force.
                    if !std::mem::replace(&mut failed, true) {
                        tracing::warn!(%error, "cannot read the memory usage");
                    }
                    pause = gauge.pause(Some(Reading::default()), 1);
                    continue;
                }
            };
            failed = false;
            let last = ladder.step();
            let step = ladder.look(reading);
            gauge.set(step, reading.unwrap_or_default());
            let Reading { used, limit } = reading.unwrap_or_default();
            control.memory_used.set(used);
            control.memory_limit.set(limit);
            control.memory_step.set(step.into());
            if step > last {
                control.memory_steps.increment();
                tracing::warn!(step = step.name(), used, limit, "memory is short");
            } else if step < last {
                tracing::info!(step = step.name(), used, limit, "memory is less short");
            }
            pause = gauge.pause(reading, in_force.metrics.workers().len());
        }
    };
    select! {
        () = look => {}
        () = watch.reached(Phase::Stopping) => {}
    }
}
