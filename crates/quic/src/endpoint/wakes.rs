//! Classifies the reasons for which an endpoint's task runs, for the count of its worker's wakes. s2n-quic's event loop
//! reports them for every I/O.

use litequic_telemetry::WakeCause;
use s2n_quic::provider::event::events::PlatformEventLoopWakeup;

/// Cause of a turn. Datagrams come first of several causes: epoll_wait(2) had something to return before the timer
/// expired. `None` if a stream woke the endpoint: its own task ran before.
pub(super) fn wake_cause(turn: &PlatformEventLoopWakeup) -> Option<WakeCause> {
    match *turn {
        PlatformEventLoopWakeup { rx_ready: true, .. } => Some(WakeCause::Datagrams),
        PlatformEventLoopWakeup { timeout_expired: true, .. } => Some(WakeCause::Timer),
        // A socket that was full accepts datagrams again.
        PlatformEventLoopWakeup { tx_ready: true, .. } => Some(WakeCause::Other),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use s2n_quic_core::event::{IntoEvent as _, builder};

    #[test]
    fn datagrams_precede_timers_as_cause_of_a_turn() {
        for ([rx_ready, timeout_expired, tx_ready, application_wakeup], expected) in [
            ([true, true, true, true], Some(WakeCause::Datagrams)),
            ([false, true, true, true], Some(WakeCause::Timer)),
            ([false, false, true, true], Some(WakeCause::Other)),
            ([false, false, false, true], None),
        ] {
            let turn = builder::PlatformEventLoopWakeup { timeout_expired, rx_ready, tx_ready, application_wakeup };
            assert_eq!(wake_cause(&turn.into_event()), expected);
        }
    }
}
