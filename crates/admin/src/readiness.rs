//! Decides whether new clients are accepted, by the lifecycle and, if configured, by the state of the origins.

use litequic_base::{
    lifecycle::{Lifecycle, ProcessPhase},
    timers,
};
use std::{pin::Pin, time::Duration};
use tokio::{sync::Mutex, time::Instant};

/// Longest time of an origin's probe: below kubelet's probe timeout if that is a few seconds; kubelet retries anyway.
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);

/// Time for which a result is reused: however often readiness is requested, an origin is probed at most once a second.
const PROBE_VALIDITY: Duration = Duration::from_secs(1);

/// Probes whether origins can be reached; resolves to the reason if one cannot.
pub type OriginProbe = Box<dyn Fn() -> Pin<Box<dyn Future<Output = Result<(), String>> + Send>> + Send + Sync>;

/// Decides the response to `/readyz`.
pub struct Readiness {
    probe: Option<OriginProbe>,
    /// Last result, and its time. Locked during a probe, so that concurrent callers wait for the same result.
    last: Mutex<Option<(Instant, Result<(), String>)>>,
}

impl Readiness {
    /// Creates a check of the process's phase and, with `probe`, of the origins.
    pub fn new(probe: Option<OriginProbe>) -> Self {
        Self { probe, last: Mutex::new(None) }
    }

    /// Returns `Ok` if new clients are accepted, otherwise the reason.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the probe in progress; the next caller starts another.
    pub(super) async fn check_ready(&self, lifecycle: &Lifecycle) -> Result<(), String> {
        match lifecycle.current_phase() {
            ProcessPhase::Starting => return Err("starting: not every worker listens yet".into()),
            ProcessPhase::Ready => {}
            ProcessPhase::Leaving | ProcessPhase::Draining => return Err("draining".into()),
            ProcessPhase::Stopping => return Err("stopping".into()),
        }
        let Some(probe) = &self.probe else { return Ok(()) };
        let mut last = self.last.lock().await;
        if let Some((at, finding)) = &*last
            && at.elapsed() < PROBE_VALIDITY
        {
            return finding.clone();
        }
        let finding = match timers::timeout(PROBE_TIMEOUT, probe()).await {
            Ok(finding) => finding.map_err(|reason| format!("an origin is unreachable: {reason}")),
            Err(_) => Err(format!("an origin is unreachable: no answer within {PROBE_TIMEOUT:?}")),
        };
        *last = Some((Instant::now(), finding.clone()));
        finding
    }
}

litequic_base::partial_debug!(Readiness);

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::future;
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    };

    fn at(phase: ProcessPhase) -> Lifecycle {
        let lifecycle = Lifecycle::default();
        lifecycle.advance_phase(phase);
        lifecycle
    }

    #[tokio::test]
    async fn only_the_ready_phase_is_ready() {
        let readiness = Readiness::new(None);
        for (phase, expected) in [
            (ProcessPhase::Starting, "starting"),
            (ProcessPhase::Leaving, "draining"),
            (ProcessPhase::Draining, "draining"),
            (ProcessPhase::Stopping, "stopping"),
        ] {
            let reason = readiness.check_ready(&at(phase)).await.unwrap_err();
            assert!(reason.starts_with(expected), "{reason}");
        }
        assert_eq!(readiness.check_ready(&at(ProcessPhase::Ready)).await, Ok(()));
    }

    #[tokio::test]
    async fn an_origin_is_probed_once_however_many_ask() {
        let probes = Arc::new(AtomicUsize::new(0));
        let counted = probes.clone();
        let readiness = Readiness::new(Some(Box::new(move || {
            counted.fetch_add(1, Relaxed);
            Box::pin(async {
                tokio::task::yield_now().await;
                Err("connection refused".into())
            })
        })));
        let ready = at(ProcessPhase::Ready);
        let answers = future::join_all((0..10).map(|_| readiness.check_ready(&ready))).await;
        for answer in answers {
            assert_eq!(answer, Err("an origin is unreachable: connection refused".into()));
        }
        assert_eq!(probes.load(Relaxed), 1);
    }

    #[tokio::test]
    async fn a_probe_result_that_is_too_old_is_probed_again() {
        let readiness = Readiness::new(Some(Box::new(|| Box::pin(future::ready(Ok(()))))));
        *readiness.last.lock().await =
            Instant::now().checked_sub(PROBE_VALIDITY * 2).map(|long_ago| (long_ago, Err("it was down".into())));
        assert_eq!(readiness.check_ready(&at(ProcessPhase::Ready)).await, Ok(()));
    }

    #[tokio::test]
    async fn an_origin_that_does_not_answer_is_not_waited_for() {
        let readiness = Readiness::new(Some(Box::new(|| Box::pin(future::pending()))));
        let began = Instant::now();
        let reason = readiness.check_ready(&at(ProcessPhase::Ready)).await.unwrap_err();
        assert!(reason.contains("within"), "{reason}");
        assert!(began.elapsed() < PROBE_TIMEOUT * 5);
    }

    #[tokio::test]
    async fn a_draining_process_probes_no_origin() {
        let readiness = Readiness::new(Some(Box::new(|| panic!("the origin was probed"))));
        assert!(readiness.check_ready(&at(ProcessPhase::Leaving)).await.is_err());
    }
}
