//! The process's phases: starting → ready → leaving → draining → stopping.
//!
//! The control thread moves the phase forward; workers and connections watch it. It never moves back.

use serde::{Deserialize, Serialize};
use tokio::{sync::watch, task::JoinError};

/// The phase of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProcessPhase {
    /// Not every worker listens yet.
    Starting,
    /// All workers serve.
    Ready,
    /// Readiness fails, so that balancers choose another server; new work is still accepted.
    Leaving,
    /// Connections send GOAWAY; requests in flight may finish.
    Draining,
    /// Requests that still run are cancelled.
    Stopping,
}

/// Sets the phase of the process.
#[derive(Debug, Clone)]
pub struct Lifecycle(watch::Sender<ProcessPhase>);

/// Reads the phase of the process, and waits for one.
#[derive(Debug, Clone)]
pub struct PhaseWatch(watch::Receiver<ProcessPhase>);

impl Default for Lifecycle {
    fn default() -> Self {
        Self(watch::Sender::new(ProcessPhase::Starting))
    }
}

impl Lifecycle {
    /// Moves on to `phase`, unless the process has passed it. Returns whether the phase changed.
    pub fn advance_phase(&self, phase: ProcessPhase) -> bool {
        self.0.send_if_modified(|now| {
            let forward = phase > *now;
            if forward {
                *now = phase;
            }
            forward
        })
    }

    /// The phase now.
    pub fn current_phase(&self) -> ProcessPhase {
        *self.0.borrow()
    }

    /// A [`PhaseWatch`] for a worker, a connection or the admin listener.
    pub fn watch_phase(&self) -> PhaseWatch {
        PhaseWatch(self.0.subscribe())
    }
}

impl PhaseWatch {
    /// The phase now.
    pub fn watched_phase(&self) -> ProcessPhase {
        *self.0.borrow()
    }

    /// Waits until the process has reached or passed `phase`. Cancel safe. A process whose control thread has ended
    /// counts as stopping.
    pub async fn wait_for_phase(&mut self, phase: ProcessPhase) {
        // An error means that the sender is gone: the phase never changes again, and the process ends.
        let _ = self.0.wait_for(|now| *now >= phase).await;
    }

    /// Runs `task` until it ends, or until the process has reached or passed `phase`.
    pub async fn run_until(mut self, phase: ProcessPhase, task: impl Future) {
        tokio::select! {
            _ = task => {}
            () = self.wait_for_phase(phase) => {}
        }
    }
}

/// Continues the panic of a joined task of a worker: such a panic ends the worker, and that ends the process, so that
/// nothing continues half broken.
pub fn propagate_panic(ended: Result<(), JoinError>) {
    if let Err(error) = ended
        && let Ok(panic) = error.try_into_panic()
    {
        std::panic::resume_unwind(panic);
    }
}

/// Panics in builds for development if the environment variable `LITEQUIC_PANIC_IN` names `place`, so that a test can
/// observe the effect of a panic there. With `kill:` before the place, SIGKILL ends the process instead; with `abort:`
/// the panic ends by SIGABRT, as in release builds ([`abort_if_requested`]). Release builds ignore the variable.
pub fn panic_if_requested(place: &str) {
    #[cfg(debug_assertions)]
    #[expect(clippy::panic, reason = "what it is for")]
    if let Some(asked) = std::env::var_os("LITEQUIC_PANIC_IN") {
        if asked.to_str().and_then(|asked| asked.strip_prefix("kill:")) == Some(place) {
            // An error leaves the process running, which the test detects.
            let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
        }
        if asked.to_str().map(|asked| asked.strip_prefix(ABORT_PREFIX).unwrap_or(asked)) == Some(place) {
            panic!("panic requested by the environment, in {place}");
        }
    }
    #[cfg(not(debug_assertions))]
    let _ = place;
}

/// Prefix of a place in `LITEQUIC_PANIC_IN` whose panic aborts the process.
#[cfg(debug_assertions)]
const ABORT_PREFIX: &str = "abort:";

/// Aborts in builds for development if the environment variable `LITEQUIC_PANIC_IN` begins with `abort:`. The panic
/// hook calls it, so that a test observes the end of a release build, whose panics abort.
pub fn abort_if_requested() {
    #[cfg(debug_assertions)]
    if std::env::var("LITEQUIC_PANIC_IN").is_ok_and(|asked| asked.starts_with(ABORT_PREFIX)) {
        std::process::abort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_only_moves_forward() {
        let lifecycle = Lifecycle::default();
        assert!(lifecycle.advance_phase(ProcessPhase::Draining));
        assert!(!lifecycle.advance_phase(ProcessPhase::Ready));
        assert_eq!(lifecycle.current_phase(), ProcessPhase::Draining);
    }
}
