//! Limits a client's behaviour below HTTP/3: frames that move no data, and changes of its address. s2n-quic answers or
//! at least reads each frame, and counts none; HTTP/3, which can close the connection, sees none.

use futures_util::task::AtomicWaker;
use litequic_base::token_bucket::TokenBucket;
use litequic_resources::transport::{self, Alert};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Waker},
    time::Instant,
};

/// Addresses from which s2n-quic accepts a connection's client, one after the other. s2n-quic forgets none as long as
/// the connection is open, and drops packets from further ones.
const MAX_ADDRESSES: u64 = 5;

/// Limit of one connection's control frames, and alerts about its client.
#[derive(Debug)]
pub(crate) struct ControlFrameLimit {
    bucket: TokenBucket,
    alerts: Arc<AlertFlags>,
}

#[derive(Debug, Default)]
struct AlertFlags {
    exceeded: AtomicBool,
    /// The client uses its last possible address; not reported yet.
    last_address: AtomicBool,
    /// The client stopped a critical stream; not reported yet.
    critical_stream_stopped: AtomicBool,
    waker: AtomicWaker,
}

impl ControlFrameLimit {
    /// A limit of `per_second` control frames, with the burst that a [`TokenBucket`] admits.
    pub(super) fn new(per_second: u32) -> Self {
        Self { bucket: TokenBucket::new(per_second), alerts: Arc::default() }
    }

    /// Counts `frames` frames; false from the first excess on, for ever. Adds the task to wake to `woken`.
    pub(super) fn admit_frames(&mut self, frames: u32, now: Instant, woken: &mut Vec<Waker>) -> bool {
        if self.alerts.exceeded.load(Ordering::Relaxed) {
            return false;
        }
        let admitted = self.bucket.take_tokens(frames, now);
        if !admitted {
            self.alerts.exceeded.store(true, Ordering::Relaxed);
            woken.extend(self.alerts.waker.take());
        }
        admitted
    }

    /// The client continues from address number `number`, counted from 0. Returns the task to wake.
    #[must_use]
    pub(crate) fn on_migration(&self, number: u64) -> Option<Waker> {
        if number + 1 != MAX_ADDRESSES {
            return None;
        }
        self.alerts.last_address.store(true, Ordering::Relaxed);
        self.alerts.waker.take()
    }

    /// The client sent STOP_SENDING for a unidirectional stream of litequic's. Returns the task to wake.
    #[must_use]
    pub(super) fn on_critical_stream_stopped(&self) -> Option<Waker> {
        self.alerts.critical_stream_stopped.store(true, Ordering::Relaxed);
        self.alerts.waker.take()
    }

    pub(crate) fn alert_handle(&self) -> AlertHandle {
        AlertHandle(Arc::clone(&self.alerts))
    }
}

/// Reports alerts about a client to the task that serves its connection.
#[derive(Debug, Default)]
pub struct AlertHandle(Arc<AlertFlags>);

impl transport::ConnectionAlerts for AlertHandle {
    fn poll_alert(&self, cx: &mut Context<'_>) -> Poll<Alert> {
        self.0.waker.register(cx.waker());
        if self.0.exceeded.load(Ordering::Relaxed) {
            Poll::Ready(Alert::Flood)
        } else if self.0.last_address.swap(false, Ordering::Relaxed) {
            Poll::Ready(Alert::LastAddress)
        } else if self.0.critical_stream_stopped.swap(false, Ordering::Relaxed) {
            Poll::Ready(Alert::CriticalStreamStopped)
        } else {
            Poll::Pending
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use litequic_resources::transport::ConnectionAlerts as _;

    #[test]
    fn a_stopped_stream_is_reported_once_and_a_flood_before_it() {
        let mut limit = ControlFrameLimit::new(1);
        let alert_handle = limit.alert_handle();
        let cx = &mut Context::from_waker(futures_util::task::noop_waker_ref());
        drop(limit.on_critical_stream_stopped());
        assert_eq!(alert_handle.poll_alert(cx), Poll::Ready(Alert::CriticalStreamStopped));
        assert!(alert_handle.poll_alert(cx).is_pending());
        drop(limit.on_critical_stream_stopped());
        assert!(!limit.admit_frames(1_000, Instant::now(), &mut Vec::new()));
        assert_eq!(alert_handle.poll_alert(cx), Poll::Ready(Alert::Flood));
    }

    #[test]
    fn the_last_address_is_reported_once() {
        let limit = ControlFrameLimit::new(1);
        let alert_handle = limit.alert_handle();
        let cx = &mut Context::from_waker(futures_util::task::noop_waker_ref());
        for number in 1..MAX_ADDRESSES - 1 {
            drop(limit.on_migration(number));
            assert!(alert_handle.poll_alert(cx).is_pending());
        }
        drop(limit.on_migration(MAX_ADDRESSES - 1));
        assert_eq!(alert_handle.poll_alert(cx), Poll::Ready(Alert::LastAddress));
        assert!(alert_handle.poll_alert(cx).is_pending());
    }
}
