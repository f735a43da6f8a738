//! `/status`: the current state of litequic, as JSON, for the status page and for programs. Counters are totals; for
//! rates a client requests it twice.

use super::{AdminState, verdict};
use crate::{lifecycle::Phase, memory, telemetry::Process};
use serde_json::{Map, Value as Json, json};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The whole of it.
pub(super) async fn status(state: &AdminState) -> Json {
    let inside = match &state.hooks {
        Some(hooks) => (hooks.status)().await,
        None => Json::Null,
    };
    let workers = state.heartbeats.iter().enumerate().map(|(worker, heartbeat)| {
        let (since, is_idle) = (heartbeat.age().as_secs_f64(), heartbeat.is_parked());
        json!({ "worker": worker, "seconds_since_turn": since, "idle": is_idle })
    });
    let metrics: Map<String, Json> =
        state.registry.samples().into_iter().map(|(name, value)| (name, value.into())).collect();
    let Process { cpu_seconds, resident_bytes, start_time, open_fds, max_fds } = Process::read();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    let control = &state.control;
    let mut status = json!({
        "version": env!("CARGO_PKG_VERSION"),
        "time": now.as_secs_f64(),
        "phase": phase(state.lifecycle.phase()),
        "generation": control.generation.get(),
        "older_processes": control.older_processes.get(),
        "workers": workers.collect::<Vec<_>>(),
        "configuration": {
            "version": control.version.get(),
            "read": control.configured_at.get(),
            "reloads": control.reloads.get(),
            "reloaded_at": control.reloaded_at.get(),
            "refused": control.reloads_refused.get(),
            "refused_at": control.refused_at.get(),
            "refused_since": control.refused_since.get(),
            "renewed_at": control.renewed_at.get(),
        },
        "memory": {
            "step": memory::Step::from(control.memory_step.get()).name(),
            "used": control.memory_used.get(),
            "limit": control.memory_limit.get(),
        },
        "process": {
            "cpu_seconds": cpu_seconds,
            "resident_bytes": resident_bytes,
            "started": start_time,
            "open_files": open_fds,
            "open_files_limit": max_fds,
        },
        "metrics": metrics,
    });
    if let (Some(status), Json::Object(inside)) = (status.as_object_mut(), inside) {
        status.extend(inside);
    }
    let problems = verdict::problems(&status);
    if let Some(status) = status.as_object_mut() {
        status.insert("problems".into(), problems.into());
    }
    status
}

/// `/config`: every key of the configuration in force, as a flat object of texts.
pub(super) fn configuration(state: &AdminState) -> Json {
    let keys = state.hooks.iter().flat_map(|hooks| (hooks.configuration)());
    Json::Object(keys.map(|(key, value)| (key, value.into())).collect())
}

const fn phase(phase: Phase) -> &'static str {
    match phase {
        Phase::Starting => "starting",
        Phase::Ready => "ready",
        Phase::Leaving => "leaving",
        Phase::Draining => "draining",
        Phase::Stopping => "stopping",
    }
}
