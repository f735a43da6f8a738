//! A thread that samples a number at fixed intervals until it is finished.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// The number, and the seconds since the beginning.
pub(crate) type Series<T> = Vec<(f64, T)>;

/// The thread; it ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Sampler<T> {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<Series<T>>>,
}

impl<T: Send + 'static> Sampler<T> {
    /// Begins to sample; a sample without an answer is skipped.
    pub(crate) fn start(every: Duration, ask: impl Fn() -> Option<T> + Send + 'static) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        let thread = thread::spawn(move || {
            let (began, mut series, mut due) = (Instant::now(), Vec::new(), Duration::ZERO);
            while !over.load(Ordering::Relaxed) {
                series.extend(ask().map(|answer| (began.elapsed().as_secs_f64(), answer)));
                due += every;
                thread::sleep(due.saturating_sub(began.elapsed()));
            }
            series
        });
        Self { is_over, thread: Some(thread) }
    }

    /// All answers.
    pub(crate) fn finish(mut self) -> Series<T> {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.take().and_then(|thread| thread.join().ok()).unwrap_or_default()
    }
}

impl<T> Drop for Sampler<T> {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU32;

    #[test]
    fn sampling_ends_with_the_run_and_skips_missing_answers() {
        let asked = Arc::new(AtomicU32::new(0));
        let count = Arc::clone(&asked);
        let sampler = Sampler::start(Duration::from_millis(1), move || {
            let nth = count.fetch_add(1, Ordering::Relaxed);
            (nth != 1).then_some(nth)
        });
        let end = Instant::now() + Duration::from_secs(10);
        while asked.load(Ordering::Relaxed) < 3 {
            assert!(Instant::now() < end, "it does not ask");
            thread::yield_now();
        }
        let series = sampler.finish();
        assert_eq!(series.iter().take(2).map(|(_, nth)| *nth).collect::<Vec<_>>(), [0, 2]);
        assert!(series.is_sorted_by(|one, other| one.0 <= other.0));
    }
}
