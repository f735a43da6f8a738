//! Logs the limits in force in one line at the start: those that are derived from the system, and those of the
//! configuration that are not the defaults.

use super::{descriptors::DescriptorPlan, memory_watch};
use litequic_config::{Config, Limits};
use litequic_resources::{
    descriptors::ProxySide,
    memory::{MemoryGauge, MemoryReading, MemoryStep},
};

/// Logs the limits in force. Buffers and origins' connections are per worker; descriptors are those of the process, by
/// `plan`.
pub(super) fn log_limits_in_force(config: &Config, plan: &DescriptorPlan) {
    let &DescriptorPlan { division, derived, workers, .. } = plan;
    let limits = &config.limits;
    let memory = memory_watch::allowed_memory(limits.memory);
    let changed = config.changed_limits().into_iter().map(|(key, value)| format!("{key} = {value}"));
    let changed = Some(changed.collect::<Vec<_>>().join(", ")).filter(|changed| !changed.is_empty());
    let [worker_send_buffer, worker_receive_buffer] = worker_budgets(limits, memory, workers);
    tracing::info!(
        workers,
        changed,
        worker_send_buffer,
        worker_receive_buffer,
        memory,
        open_files = division.limit,
        fixed_files = division.fixed,
        client_files = division.max_for_side(ProxySide::Clients),
        origin_files = division.max_for_side(ProxySide::Origins),
        derived_origin_max_connections = derived.max_connections,
        derived_origin_max_queue = derived.max_queue,
        "limits in force"
    );
}

/// `worker_send_buffer` and `worker_receive_buffer` of each of `workers` workers in a process that may use `memory`
/// bytes.
fn worker_budgets(limits: &Limits, memory: Option<u64>, workers: usize) -> [u64; 2] {
    let gauge = MemoryGauge::default();
    gauge.publish_pressure(MemoryStep::Normal, MemoryReading { used: 0, limit: memory.unwrap_or(0) });
    let pressure = gauge.subscribe_pressure();
    [limits.worker_send_buffer, limits.worker_receive_buffer]
        .map(|configured| pressure.worker_budget(configured, workers))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_as_configured_unless_memory_allows_less() {
        const MIB: u64 = 1024 * 1024;
        let limits = Limits { worker_send_buffer: 64 * MIB, worker_receive_buffer: 256 * MIB, ..Limits::default() };
        for (memory, workers, expected) in [
            (None, 2, [64, 256]),
            (Some(4096 * MIB), 2, [64, 256]),
            (Some(1024 * MIB), 2, [64, 128]),
            (Some(128 * MIB), 2, [16, 16]),
            (Some(128 * MIB), 1, [32, 32]),
        ] {
            assert_eq!(
                worker_budgets(&limits, memory, workers),
                expected.map(|size| size * MIB),
                "{memory:?} {workers}"
            );
        }
    }
}
