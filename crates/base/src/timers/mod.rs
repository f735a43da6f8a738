//! Timers that allow for time in which the process did not run: it was stopped (SIGSTOP, a debugger), its cgroup or
//! virtual machine was frozen, or it got no CPU time. When the process runs again, timers have expired although the
//! bytes that they wait for may have arrived meanwhile: a timeout counts only once sockets have been read.
//!
//! Each thread that enforces timeouts ticks, at least twice a second while it works. A gap between two ticks is a
//! suspension, which the first timer that expires afterwards detects as well as the next tick. A thread without work
//! rests: it does not tick, and a timer that expires late reveals the suspension.
//!
//! The clock is read once a [`ClockTurn`], and timeouts of the same duration share a timer of the runtime
//! ([`serve_timers`]).

mod clock_turn;
mod deadline_lists;
mod deadline_timer;
mod suspension;
mod thread_timers;
mod throttle;
mod timeout;

pub use clock_turn::{ClockTurn, turn_time};
pub use deadline_timer::{DeadlineTimer, IdleTimer};
pub use suspension::{
    elapsed_since_resume, grace_deadline, poll_sleep_elapsed, record_expiry, record_rest, record_tick,
    simulate_suspension, time_since_suspension,
};
pub use thread_timers::{Timeout, serve_timers};
pub use throttle::Throttle;
pub use timeout::{Elapsed, sleep_until_counted, timeout, timeout_at};
