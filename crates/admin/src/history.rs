//! Keeps some totals of the last ten minutes, from which the status page draws its charts when it is opened.

use super::objects::{Lenient, deserialize_lenient, objects};
use super::state::AdminState;
use litequic_base::lifecycle::{PhaseWatch, ProcessPhase};
use litequic_telemetry::{MetricsRegistry, ProcessFigures};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use tokio::time::sleep;

/// Time between two points.
const INTERVAL: Duration = Duration::from_secs(5);
/// Maximum number of points: ten minutes.
const MAX_POINTS: usize = 120;

objects! {
    /// The response to `/history`.
    History {
        /// Totals of the last ten minutes, the oldest first.
        points: Vec<HistoryPoint>,
    }

    /// Totals of the process at a time.
    HistoryPoint {
        /// Time, in seconds since the Unix epoch.
        time: Option<f64>,
        /// Requests over all protocols.
        requests: Option<u64>,
        /// Bytes of responses' bodies.
        bytes: Option<u64>,
        /// Responses with 5xx.
        errors: Option<u64>,
        /// User and system time of all threads, in seconds.
        cpu: Option<f64>,
    }
}

/// The points of the last ten minutes.
#[derive(Debug, Default)]
pub struct MetricHistory(Mutex<VecDeque<HistoryPoint>>);

impl MetricHistory {
    /// Returns the points, the oldest first.
    pub(super) fn recorded_history(&self) -> History {
        History { points: self.0.lock().iter().cloned().collect() }
    }

    fn add_point(&self, point: HistoryPoint) {
        let mut points = self.0.lock();
        if points.len() >= MAX_POINTS {
            points.pop_front();
        }
        points.push_back(point);
    }
}

/// Records the totals of `metrics` in `state` every five seconds, until the process stops. Cancel safe.
///
/// They should be few: metrics by route or server take as long as there are routes and servers.
pub async fn record_history(state: Arc<AdminState>, metrics: MetricsRegistry, mut watch: PhaseWatch) {
    loop {
        state.history.add_point(present_totals(&metrics));
        tokio::select! {
            () = watch.wait_for_phase(ProcessPhase::Stopping) => return,
            () = sleep(INTERVAL) => {}
        }
    }
}

fn present_totals(metrics: &MetricsRegistry) -> HistoryPoint {
    let samples = metrics.summed_samples();
    let sum =
        |wanted: &dyn Fn(&str) -> bool| samples.iter().filter(|(name, _)| wanted(name)).map(|(_, value)| value).sum();
    HistoryPoint {
        time: SystemTime::now().duration_since(UNIX_EPOCH).ok().map(|now| now.as_secs_f64()),
        requests: Some(sum(&|name| name.starts_with("requests{"))),
        bytes: Some(sum(&|name| name == "response_body_bytes")),
        errors: Some(sum(&|name| name == "responses{class=\"5xx\"}")),
        cpu: ProcessFigures::read_process_figures().cpu_seconds,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_history_keeps_ten_minutes() {
        let history = MetricHistory::default();
        let point = |time: usize| HistoryPoint { time: Some(time as f64), ..HistoryPoint::default() };
        (0..MAX_POINTS + 5).for_each(|time| history.add_point(point(time)));
        let History { points } = history.recorded_history();
        assert_eq!((points.len(), &points[0]), (MAX_POINTS, &point(5)));
        assert_eq!(MAX_POINTS as u64 * INTERVAL.as_secs(), 600);
    }
}
