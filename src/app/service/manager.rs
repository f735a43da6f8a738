//! The notifications to the service manager, and when they are sent.

use super::notify;
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
const PATIENCE: Duration = Duration::from_millis(200);
/// How long the notification of the service's main process is repeated.
const PERSISTENCE: Duration = Duration::from_secs(5);
/// Delay between two notifications.
const RETRY_DELAY: Duration = Duration::from_millis(100);

/// The service is up: units that wait for it may start.
pub(crate) fn ready() {
    tell(&[NotifyState::Ready, NotifyState::Status("serving")], PATIENCE);
}

/// A reload has begun. To be followed by [`ready`], whatever comes of it.
pub(crate) fn reloading() {
    // With the time at which it began, by which systemd knows that it is the reload it asked for (Type=notify-reload).
    match NotifyState::monotonic_usec_now() {
        Ok(now) => {
            tell(&[NotifyState::Reloading, now], PATIENCE);
        }
        Err(error) => tracing::warn!(%error, "cannot notify the service manager of a reload"),
    }
}

/// The end has begun.
pub(crate) fn stopping() {
    tell(&[NotifyState::Stopping, NotifyState::Status("draining")], PATIENCE);
}

/// The service's main process is now that one. Repeated until a manager that is behind has taken it, for
/// [`PERSISTENCE`]: without it the end of this process is the service's.
///
/// # Cancel safety
///
/// Dropping the future leaves it sent or not.
pub(crate) async fn main_process(process: u32) {
    let said = async {
        while tell(&[NotifyState::MainPid(process)], Duration::ZERO) == Notified::Later {
            sleep(RETRY_DELAY).await;
        }
    };
    if timeout(PERSISTENCE, said).await.is_err() {
        tracing::error!(process, "cannot notify the service manager of the new main process");
    }
}

/// Sends watchdog notifications as often as the service manager wants them, as long as every worker's loop turns, and
/// until another process has taken over, which then sends its own. Without a watchdog it returns at once.
pub(crate) async fn watchdog(heartbeats: Vec<Arc<Heartbeat>>, handed_over: impl Future<Output = ()>) {
    select! {
        () = handed_over => {}
        () = show_life(heartbeats) => {}
    }
}

async fn show_life(heartbeats: Vec<Arc<Heartbeat>>) {
    let Some(deadline) = sd_notify::watchdog_enabled().filter(|deadline| !deadline.is_zero()) else { return };
    // As sd_watchdog_enabled(3) recommends.
    let mut ticks = interval(deadline / 2);
    loop {
        ticks.tick().await;
        let running = timers::running_for();
        if turns(heartbeats.iter().map(|heartbeat| heartbeat.age().min(running))) {
            // There is another one soon.
            tell(&[NotifyState::Watchdog], Duration::ZERO);
        }
    }
}

/// Whether no worker hangs, by how long ago each one's last tick was.
fn turns(ages: impl IntoIterator<Item = Duration>) -> bool {
    ages.into_iter().all(|age| age < WORKER_DEADLINE)
}

/// The outcome of a notification.
#[derive(Debug, PartialEq, Eq)]
enum Notified {
    /// The notification was sent, or there is no service manager.
    Sent,
    /// The manager's queue is full.
    Later,
}

/// Sends `states` to the socket that `NOTIFY_SOCKET` names. What it has not taken within `patience` is lost.
fn tell(states: &[NotifyState<'_>], patience: Duration) -> Notified {
    /// Whether a failure was logged.
    static SAID: AtomicBool = AtomicBool::new(false);

    let Some(to) = env::var_os("NOTIFY_SOCKET") else { return Notified::Sent };
    let message: String = states.iter().map(|state| format!("{state}\n")).collect();
    match notify::send(&to, message.as_bytes(), patience) {
        Ok(()) => SAID.store(false, Relaxed),
        Err(error) => {
            if !SAID.swap(true, Relaxed) {
                tracing::warn!(%error, lost = message.trim_end(), "cannot notify the service manager");
            }
            if error.kind() == io::ErrorKind::WouldBlock {
                return Notified::Later;
            }
        }
    }
    Notified::Sent
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_worker_that_hangs_is_enough_to_be_silent() {
        let well = Duration::from_millis(700);
        assert!(turns([well, well]));
        assert!(!turns([well, WORKER_DEADLINE]));
    }
}
