//! Saturation, imposed from outside on every contender alike.
//!
//! With two cores the client (and the origin beside it) is often slower than the server, which then takes packets one
//! by one, as no busy server does: batches of acknowledgements exist only where the server is the bottleneck. So
//! whenever a contender runs dry, the lab stops its processes (SIGSTOP) for a multiple of the CPU time that they used
//! since they were continued. While they are stopped, datagrams collect in their sockets as they would while a busy
//! server works for other clients. Stopped time is not CPU time, so seconds a GB stay comparable; throughput does not.

use super::process::Server;
use nix::{
    sys::{
        prctl,
        signal::{Signal, killpg},
    },
    time::{ClockId, clock_getcpuclockid, clock_gettime},
    unistd::Pid,
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// How long a contender that ran dry is stopped, as a multiple of the CPU time it used: enough for client and origin to
/// do, on one core, what answers it.
const REST: f64 = 3.0;
/// No longer, or clients' probe timeouts strike.
const LONGEST_REST: Duration = Duration::from_millis(20);
/// Between two looks at a contender's CPU clock; looks run on the client's core, and cost about 2 % of it.
const LOOK: Duration = Duration::from_micros(100);
/// Dry: it used less than this part of the time since the last look.
const DRY: f64 = 0.5;
/// Below this part of the time that it was let run, a contender was not saturated, whatever the throttle did.
pub(crate) const SATURATED: f64 = 0.75;

/// What came of it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Throttled {
    /// CPU time used while let run, as a part of that time: what `SATURATED` is compared with.
    pub(crate) busy: f64,
    /// How often it was stopped.
    pub(crate) stops: u64,
}

/// Throttles a contender until it is dropped.
#[derive(Debug)]
pub(crate) struct Throttle {
    end: Arc<AtomicBool>,
    thread: Option<JoinHandle<Throttled>>,
}

impl Throttle {
    /// From now on.
    pub(crate) fn start(server: &Server) -> Self {
        let group = server.group();
        let clocks: Vec<ClockId> =
            server.processes().iter().filter_map(|(pid, _)| clock_getcpuclockid(*pid).ok()).collect();
        let end = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&end);
        let thread = thread::spawn(move || throttle(group, &clocks, &told));
        Self { end, thread: Some(thread) }
    }

    /// Lets the contender run again, for good.
    pub(crate) fn stop(mut self) -> Option<Throttled> {
        self.end.store(true, Ordering::Relaxed);
        self.thread.take()?.join().ok()
    }
}

impl Drop for Throttle {
    fn drop(&mut self) {
        self.end.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn throttle(group: Pid, clocks: &[ClockId], end: &AtomicBool) -> Throttled {
    // Sleeps of 100 µs otherwise last half as long again; without it the throttle is only coarser.
    let _ = prctl::set_timerslack(1_000);
    let used = || clocks.iter().filter_map(|clock| clock_gettime(*clock).ok()).map(Duration::from).sum::<Duration>();
    let (mut ran, mut worked, mut stops) = (Duration::ZERO, Duration::ZERO, 0);
    while !end.load(Ordering::Relaxed) {
        let (began, at_first) = (Instant::now(), used());
        let (mut looked, mut last) = (began, at_first);
        loop {
            thread::sleep(LOOK);
            let (now, cpu) = (Instant::now(), used());
            let dry = is_dry(cpu.saturating_sub(last), now - looked);
            (looked, last) = (now, cpu);
            if dry || end.load(Ordering::Relaxed) {
                break;
            }
        }
        let work = last.saturating_sub(at_first);
        ran += looked - began;
        worked += work;
        let rest = rest(work);
        if rest.is_zero() {
            continue;
        }
        if killpg(group, Signal::SIGSTOP).is_err() {
            break;
        }
        stops += 1;
        thread::sleep(rest);
        if killpg(group, Signal::SIGCONT).is_err() {
            break;
        }
    }
    let busy = if ran.is_zero() { 0.0 } else { worked.as_secs_f64() / ran.as_secs_f64() };
    Throttled { busy, stops }
}

fn is_dry(used: Duration, time: Duration) -> bool {
    used.as_secs_f64() < DRY * time.as_secs_f64()
}

/// For how long to stop; not at all when next to nothing was done, or an idle server would never hear its clients.
fn rest(work: Duration) -> Duration {
    if work < LOOK / 10 { Duration::ZERO } else { work.mul_f64(REST).min(LONGEST_REST) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_contender_that_waits_is_dry_and_one_that_works_is_not() {
        assert!(is_dry(Duration::from_micros(10), Duration::from_micros(100)));
        assert!(!is_dry(Duration::from_micros(95), Duration::from_micros(100)));
    }

    #[test]
    fn rest_follows_work_up_to_a_bound() {
        assert_eq!(rest(Duration::from_millis(2)), Duration::from_millis(6));
        assert_eq!(rest(Duration::from_secs(1)), LONGEST_REST);
        assert_eq!(rest(Duration::from_micros(2)), Duration::ZERO);
    }
}
