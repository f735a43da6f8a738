//! Sends the notifications of the process's states and of its watchdog to the service manager.

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

/// Timeout of a notification to a service manager that is behind, so that a moment's load loses none. It blocks the
/// control thread.
const SEND_TIMEOUT: Duration = Duration::from_millis(200);
/// Time for which the notification of the service's main process is repeated.
const MAIN_PROCESS_TIMEOUT: Duration = Duration::from_secs(5);
/// Delay between two attempts to notify the service manager.
const RETRY_DELAY: Duration = Duration::from_millis(100);

/// Returns whether this process belongs to a service that ends with it, because the service manager gets no
/// notifications: a unit without Type=notify (systemd.exec(5), `INVOCATION_ID`).
pub(crate) fn ends_with_process() -> bool {
    env::var_os("INVOCATION_ID").is_some() && env::var_os("NOTIFY_SOCKET").is_none()
}

/// Notifies that the service is up: units that wait for it may start.
pub(crate) fn notify_ready() {
    send_states(&[NotifyState::Ready, NotifyState::Status("serving")], SEND_TIMEOUT);
}

/// Notifies that a reload has begun. [`notify_ready`] must follow, whatever the outcome.
pub(crate) fn notify_reloading() {
    // systemd recognizes the reload that it asked for by the time of its start (Type=notify-reload).
    match NotifyState::monotonic_usec_now() {
        Ok(now) => {
            send_states(&[NotifyState::Reloading, now], SEND_TIMEOUT);
        }
        Err(error) => tracing::warn!(%error, "cannot notify the service manager of a reload"),
    }
}

/// Notifies that the service ends.
pub(crate) fn notify_stopping() {
    send_states(&[NotifyState::Stopping, NotifyState::Status("draining")], SEND_TIMEOUT);
}

/// Notifies that `process` is now the service's main process. Repeated for [`MAIN_PROCESS_TIMEOUT`] while the manager
/// is behind: without it, the end of this process would be that of the service.
///
/// # Cancel safety
///
/// Dropping the future may leave the notification unsent.
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

/// Sends watchdog notifications at the service manager's interval, while no worker hangs, and until another process has
/// taken over and sends them. Returns at once without a watchdog.
pub(crate) async fn run_watchdog(heartbeats: Vec<Arc<Heartbeat>>, handed_over: impl Future<Output = ()>) {
    select! {
        () = handed_over => {}
        () = ping_watchdog(heartbeats) => {}
    }
}

async fn ping_watchdog(heartbeats: Vec<Arc<Heartbeat>>) {
    let Some(deadline) = sd_notify::watchdog_enabled().filter(|deadline| !deadline.is_zero()) else { return };
    // sd_watchdog_enabled(3) recommends half of the timeout.
    let mut ticks = interval(deadline / 2);
    loop {
        ticks.tick().await;
        let running = timers::time_since_suspension();
        if no_worker_hangs(heartbeats.iter().map(|heartbeat| heartbeat.unresponsive_time().min(running))) {
            // A lost notification is followed by another one soon.
            send_states(&[NotifyState::Watchdog], Duration::ZERO);
        }
    }
}

/// Returns whether no worker hangs, by the time since each worker's last tick.
fn no_worker_hangs(ages: impl IntoIterator<Item = Duration>) -> bool {
    ages.into_iter().all(|age| age < WORKER_DEADLINE)
}

#[derive(Debug, PartialEq, Eq)]
enum NotifyOutcome {
    /// The notification was sent, or no service manager is configured.
    Sent,
    /// The manager's queue is full.
    QueueFull,
}

/// Sends `states` to the socket that `NOTIFY_SOCKET` names. A message that takes longer than `timeout` is lost.
fn send_states(states: &[NotifyState<'_>], timeout: Duration) -> NotifyOutcome {
    /// Whether the last failure was logged.
    static FAILURE_LOGGED: AtomicBool = AtomicBool::new(false);

    let Some(to) = env::var_os("NOTIFY_SOCKET") else { return NotifyOutcome::Sent };
    let message: String = states.iter().map(|state| format!("{state}\n")).collect();
    match notify_socket::send_notification(&to, message.as_bytes(), timeout) {
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
    fn one_hanging_worker_stops_the_watchdog_notifications() {
        let well = Duration::from_millis(700);
        assert!(no_worker_hangs([well, well]));
        assert!(!no_worker_hangs([well, WORKER_DEADLINE]));
    }
}
