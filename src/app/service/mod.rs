//! Notifications to the service manager: sd_notify(3). Without `NOTIFY_SOCKET` none are sent.

mod manager;
mod notify;

pub(super) use manager::{main_process, ready, reloading, stopping, watchdog};
