//! The notifications to the service manager, and when they are sent.

use super::notify_socket;
use litequic_admin::WORKER_DEADLINE;
use litequic_base::timers;
use litequic_telemetry::Heartbeat;
use sd_notify::NotifyState;
use std::{
    env, io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};
use tokio::{
    select,
    time::{interval, sleep, timeout},
};

/// How long to wait for a service manager that is behind, so that a moment's load loses no notification that it needs.
/// The control thread is blocked meanwhile.
const SEND_TIMEOUT: Duration = Duration::from_millis(200);
/// How long the notification of the service's main process is repeated.
const MAIN_PROCESS_TIMEOUT: Duration = Duration::from_secs(5);
/// Delay between two notifications.
const RETRY_DELAY: Duration = Duration::from_millis(100);

/// The service is up: units that wait for it may start.
pub(crate) fn notify_ready() {
    send_states(&[NotifyState::Ready, NotifyState::Status("serving")], SEND_TIMEOUT);
}

/// A reload has begun. To be followed by [`ready`], whatever comes of it.
pub(crate) fn notify_reloading() {
    // With the time at which it began, by which systemd knows that it is the reload it asked for (Type=notify-reload).
    match NotifyState::monotonic_usec_now() {
        Ok(now) => {
            send_states(&[NotifyState::Reloading, now], SEND_TIMEOUT);
        }
        Err(error) => tracing::warn!(%error, "cannot notify the service manager of a reload"),
    }
}

/// The end has begun.
pub(crate) fn notify_stopping() {
    send_states(&[NotifyState::Stopping, NotifyState::Status("draining")], SEND_TIMEOUT);
}

/// The service's main process is now that one. Repeated until a manager that is behind has taken it, for
/// [`PERSISTENCE`]: without it the end of this process is the service's.
///
/// # Cancel safety
///
/// Dropping the future leaves it sent or not.
pub(crate) async fn notify_main_process(process: u32) {
    let said = async {
        while send_states(&[NotifyState::MainPid(process)], Duration::ZERO) == NotifyOutcome::QueueFull {
            sleep(RETRY_DELAY).await;
        }
    };
    if timeout(MAIN_PROCESS_TIMEOUT, said).await.is_err() {
        tracing::error!(process, "cannot notify the service manager of the new main process");
    }
}

/// Sends watchdog notifications as often as the service manager wants them, as long as every worker's loop turns, and
/// until another process has taken over, which then sends its own. Without a watchdog it returns at once.
pub(crate) async fn run_watchdog(heartbeats: Vec<Arc<Heartbeat>>, handed_over: impl Future<Output = ()>) {
    select! {
        () = handed_over => {}
        () = ping_watchdog(heartbeats) => {}
    }
}

async fn ping_watchdog(heartbeats: Vec<Arc<Heartbeat>>) {
    let Some(deadline) = sd_notify::watchdog_enabled().filter(|deadline| !deadline.is_zero()) else { return };
    // As sd_watchdog_enabled(3) recommends.
    let mut ticks = interval(deadline / 2);
    loop {
        ticks.tick().await;
        let running = timers::time_since_suspension();
        if no_worker_hangs(heartbeats.iter().map(|heartbeat| heartbeat.unresponsive_time().min(running))) {
            // There is another one soon.
            send_states(&[NotifyState::Watchdog], Duration::ZERO);
        }
    }
}

/// Whether no worker hangs, by how long ago each one's last tick was.
fn no_worker_hangs(ages: impl IntoIterator<Item = Duration>) -> bool {
    ages.into_iter().all(|age| age < WORKER_DEADLINE)
}

/// The outcome of a notification.
#[derive(Debug, PartialEq, Eq)]
enum NotifyOutcome {
    /// The notification was sent, or there is no service manager.
    Sent,
    /// The manager's queue is full.
    QueueFull,
}

/// Sends `states` to the socket that `NOTIFY_SOCKET` names. What it has not taken within `patience` is lost.
fn send_states(states: &[NotifyState<'_>], patience: Duration) -> NotifyOutcome {
    /// Whether a failure was logged.
    static FAILURE_LOGGED: AtomicBool = AtomicBool::new(false);

    let Some(to) = env::var_os("NOTIFY_SOCKET") else { return NotifyOutcome::Sent };
    let message: String = states.iter().map(|state| format!("{state}\n")).collect();
    match notify_socket::send_notification(&to, message.as_bytes(), patience) {
        Ok(()) => FAILURE_LOGGED.store(false, Relaxed),
        Err(error) => {
            if !FAILURE_LOGGED.swap(true, Relaxed) {
                tracing::warn!(%error, lost = message.trim_end(), "cannot notify the service manager");
            }
            if error.kind() == io::ErrorKind::WouldBlock {
                return NotifyOutcome::QueueFull;
            }
        }
    }
    NotifyOutcome::Sent
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_worker_that_hangs_is_enough_to_be_silent() {
        let well = Duration::from_millis(700);
        assert!(no_worker_hangs([well, well]));
        assert!(!no_worker_hangs([well, WORKER_DEADLINE]));
    }
}
