//! Sends notifications to the service manager: sd_notify(3). Without `NOTIFY_SOCKET` none is sent.

mod notifications;
mod notify_socket;

pub(super) use notifications::{
    ends_with_process, notify_main_process, notify_ready, notify_reloading, notify_stopping, run_watchdog,
};
