//! Why an endpoint's task runs, for the count of wakes of its worker. s2n-quic's event loop reports that for every I/O.

use crate::{
    quic::{io::Moderation, metrics::Metrics},
    telemetry::Cause,
};
use s2n_quic::provider::event::{
    ConnectionInfo, ConnectionMeta, Subscriber,
    events::{EndpointMeta, PlatformEventLoopWakeup},
};
use std::sync::Arc;

/// Subscribes to the turns of the event loop.
#[derive(Debug)]
pub(super) struct WakeSubscriber {
    moderation: Moderation,
    metrics: Arc<Metrics>,
}

impl WakeSubscriber {
    /// Reports timers to `moderation`, and counts in `metrics`.
    pub(super) fn new(moderation: Moderation, metrics: Arc<Metrics>) -> Self {
        Self { moderation, metrics }
    }
}

impl Subscriber for WakeSubscriber {
    type ConnectionContext = ();

    fn create_connection_context(&mut self, _: &ConnectionMeta, _: &ConnectionInfo<'_>) {}

    fn on_platform_event_loop_wakeup(&mut self, _: &EndpointMeta, turn: &PlatformEventLoopWakeup) {
        if turn.timeout_expired {
            self.moderation.expired();
        }
        if let Some(cause) = cause(turn) {
            self.metrics.wake.note(cause);
        }
    }
}

/// Where several hold, datagrams: epoll_wait(2) had something to return before the timer expired. `None` where a stream
/// woke the endpoint: its own task ran before.
fn cause(turn: &PlatformEventLoopWakeup) -> Option<Cause> {
    match *turn {
        PlatformEventLoopWakeup { rx_ready: true, .. } => Some(Cause::Datagrams),
        PlatformEventLoopWakeup { timeout_expired: true, .. } => Some(Cause::Timer),
        // A socket that was full accepts datagrams again.
        PlatformEventLoopWakeup { tx_ready: true, .. } => Some(Cause::Other),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use s2n_quic_core::event::{IntoEvent as _, builder};

    #[test]
    fn a_turn_is_the_datagrams_before_it_is_the_timers_and_a_stream_counts_as_none() {
        for ([rx_ready, timeout_expired, tx_ready, application_wakeup], expected) in [
            ([true, true, true, true], Some(Cause::Datagrams)),
            ([false, true, true, true], Some(Cause::Timer)),
            ([false, false, true, true], Some(Cause::Other)),
            ([false, false, false, true], None),
        ] {
            let turn = builder::PlatformEventLoopWakeup { timeout_expired, rx_ready, tx_ready, application_wakeup };
            assert_eq!(cause(&turn.into_event()), expected);
        }
    }
}
