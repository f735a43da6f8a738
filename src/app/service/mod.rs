//! Notifications to the service manager: sd_notify(3). Without `NOTIFY_SOCKET` none are sent.

mod manager;
mod notify;

pub(super) use manager::{notify_main_process, notify_ready, notify_reloading, notify_stopping, run_watchdog};
