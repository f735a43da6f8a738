//! Whether a client respects the limits of a connection below HTTP/3: how many frames it sends that move no data, how
//! many addresses it comes from. s2n-quic answers or at least reads each frame, and counts none; HTTP/3, which can
//! close the connection, sees none.

use crate::{
    rate::Bucket,
    transport::{self, Notice},
};
use futures_util::task::AtomicWaker;
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
    time::Instant,
};

/// Addresses that s2n-quic lets a connection's client come from, one after the other. It forgets none as long as the
/// connection is open, and drops packets from further ones.
const ADDRESSES: u64 = 5;

/// One connection's account.
#[derive(Debug)]
pub(super) struct Conduct {
    bucket: Bucket,
    signal: Arc<Signal>,
}

#[derive(Debug, Default)]
struct Signal {
    exceeded: AtomicBool,
    /// Not reported yet.
    last_address: AtomicBool,
    /// Not reported yet.
    stopped: AtomicBool,
    waker: AtomicWaker,
}

impl Conduct {
    /// For a client with a limit of `per_second` control frames, and more at once ([`Bucket`]).
    pub(super) fn new(per_second: u32) -> Self {
        Self { bucket: Bucket::new(per_second), signal: Arc::default() }
    }

    /// Counts `frames`; false once there were too many, and from then on for ever.
    pub(super) fn admit(&mut self, frames: u32, now: Instant) -> bool {
        if self.signal.exceeded.load(Ordering::Relaxed) {
            return false;
        }
        let admitted = self.bucket.take(frames, now);
        if !admitted {
            self.signal.exceeded.store(true, Ordering::Relaxed);
            self.signal.waker.wake();
        }
        admitted
    }

    /// The client continues from its address number `number`, the first being 0.
    pub(super) fn moved(&self, number: u64) {
        if number + 1 == ADDRESSES {
            self.signal.last_address.store(true, Ordering::Relaxed);
            self.signal.waker.wake();
        }
    }

    /// The client sent STOP_SENDING for a unidirectional stream of litequic's.
    pub(super) fn stopped(&self) {
        self.signal.stopped.store(true, Ordering::Relaxed);
        self.signal.waker.wake();
    }

    pub(super) fn excess(&self) -> Excess {
        Excess(Arc::clone(&self.signal))
    }
}

/// Reports to the task that serves a connection how its client behaves.
#[derive(Debug, Default)]
pub struct Excess(Arc<Signal>);

impl transport::Excess for Excess {
    fn poll(&self, cx: &mut Context<'_>) -> Poll<Notice> {
        self.0.waker.register(cx.waker());
        if self.0.exceeded.load(Ordering::Relaxed) {
            Poll::Ready(Notice::Flood)
        } else if self.0.last_address.swap(false, Ordering::Relaxed) {
            Poll::Ready(Notice::LastAddress)
        } else if self.0.stopped.swap(false, Ordering::Relaxed) {
            Poll::Ready(Notice::CriticalStreamStopped)
        } else {
            Poll::Pending
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::Excess as _;

    #[test]
    fn a_stopped_stream_is_told_once_and_a_flood_before_it() {
        let mut conduct = Conduct::new(1);
        let excess = conduct.excess();
        let cx = &mut Context::from_waker(futures_util::task::noop_waker_ref());
        conduct.stopped();
        assert_eq!(excess.poll(cx), Poll::Ready(Notice::CriticalStreamStopped));
        assert!(excess.poll(cx).is_pending());
        conduct.stopped();
        assert!(!conduct.admit(1_000, Instant::now()));
        assert_eq!(excess.poll(cx), Poll::Ready(Notice::Flood));
    }

    #[test]
    fn the_last_address_is_told_once() {
        let conduct = Conduct::new(1);
        let excess = conduct.excess();
        let cx = &mut Context::from_waker(futures_util::task::noop_waker_ref());
        for number in 1..ADDRESSES - 1 {
            conduct.moved(number);
            assert!(excess.poll(cx).is_pending());
        }
        conduct.moved(ADDRESSES - 1);
        assert_eq!(excess.poll(cx), Poll::Ready(Notice::LastAddress));
        assert!(excess.poll(cx).is_pending());
    }
}
