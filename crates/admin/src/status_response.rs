//! Builds the responses to `/status` and `/config` from the state of the process.

use super::objects::Samples;
use super::problems;
use super::state::AdminState;
use super::status::{ConfigurationStatus, ConfinementStatus, MemoryStatus, ProcessStatus, Status, WorkerStatus};
use litequic_resources::memory;
use litequic_telemetry::{Confinement, Heartbeat, ProcessFigures};
use std::{
    collections::BTreeMap,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// Maximum age of probes in the status: however many pages are open, a server is probed once in that time.
const STATUS_PROBE_AGE: Duration = Duration::from_secs(5);
/// Maximum age of probes for a scrape, which no person waits for.
const SCRAPE_PROBE_AGE: Duration = Duration::from_secs(60);

/// Builds the response to `/status`.
pub(super) async fn build_status(state: &AdminState) -> Status {
    let samples = state.registry.summed_samples();
    let status = build_without_metrics(state, STATUS_PROBE_AGE).await;
    Status { metrics: Some(Samples(samples.into_iter().collect())), ..status }
}

/// Sets the metric of problems to the present ones.
pub(super) async fn refresh_problems(state: &AdminState) {
    build_without_metrics(state, SCRAPE_PROBE_AGE).await;
}

/// Builds the response to `/status` but for its metrics, and sets the metric of problems. Probes of servers may be as
/// old as `age`.
async fn build_without_metrics(state: &AdminState, age: Duration) -> Status {
    let inside = (state.hooks.status)(age).await;
    let ProcessFigures { cpu_seconds, resident_bytes, start_time, open_fds, max_fds } =
        ProcessFigures::read_process_figures();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    let control = &state.control;
    let mut status = Status {
        version: Some(env!("CARGO_PKG_VERSION").into()),
        time: Some(now.as_secs_f64()),
        phase: Some(state.lifecycle.current_phase()),
        generation: Some(control.generation.get()),
        older_processes: Some(control.older_processes.get()),
        denied_networks: Some(control.denied_networks.get()),
        workers: (0..)
            .zip(&state.heartbeats)
            .map(|(worker, heartbeat)| WorkerStatus::from_heartbeat(worker, heartbeat))
            .collect(),
        configuration: ConfigurationStatus {
            file: Some(state.identity.config.clone()),
            version: Some(control.version.get()),
            read: Some(control.configured_at.get()),
            reloads: Some(control.reloads.get()),
            reloaded_at: Some(control.reloaded_at.get()),
            refused: Some(control.reloads_refused.get()),
            refused_at: Some(control.refused_at.get()),
            refused_since: Some(control.refused_since.get()),
            renewed_at: Some(control.renewed_at.get()),
        },
        memory: MemoryStatus {
            step: Some(memory::MemoryStep::from(control.memory_step.get()).step_name().into()),
            used: Some(control.memory_used.get()),
            limit: Some(control.memory_limit.get()),
        },
        process: ProcessStatus {
            id: Some(std::process::id().into()),
            user: Some(state.identity.user.clone()),
            cpu_seconds,
            resident_bytes,
            started: start_time,
            open_files: open_fds,
            open_files_limit: max_fds,
        },
        confinement: ConfinementStatus::current_confinement(),
        ..inside
    };
    let problems = problems::list_problems(&status);
    status.problems = problems::problem_lines(&problems);
    control.problems.set_problems(problems.into_iter().map(|problem| (problem.kind, problem.subject)).collect());
    status
}

impl ConfinementStatus {
    fn current_confinement() -> Self {
        let found = Confinement::read_confinement();
        Self {
            user: Some(found.user.into()),
            capabilities: found.capability_names(),
            no_new_privileges: found.no_new_privileges,
            seccomp: found.seccomp.map(Into::into),
            read_only_root: found.read_only_root,
            core_dumps: found.core_dumps,
        }
    }
}

impl WorkerStatus {
    fn from_heartbeat(worker: u64, heartbeat: &Heartbeat) -> Self {
        Self {
            worker: Some(worker),
            seconds_since_turn: Some(heartbeat.unresponsive_time().as_secs_f64()),
            idle: Some(heartbeat.is_parked()),
        }
    }
}

/// Returns the response to `/config`: every key of the configuration in force, as a flat object of strings.
pub(super) fn configuration_object(state: &AdminState) -> BTreeMap<String, String> {
    (state.hooks.configuration)().into_iter().collect()
}
