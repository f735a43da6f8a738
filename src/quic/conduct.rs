//! Whether a client keeps within what a connection may ask of litequic below HTTP/3: how many frames it sends that move
//! no data. s2n-quic answers or at least reads each, and counts none; HTTP/3, which can close the connection, sees none.

use super::frame::{Frames, kind};
use crate::rate::Bucket;
use futures_util::task::AtomicWaker;
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
    time::Instant,
};

/// The control frames of a packet's payload. One acknowledgement is what a packet needs: further ones count as well.
pub(super) fn control_frames(payload: &[u8]) -> u32 {
    let mut control = 0;
    let mut acknowledged = false;
    for frame in Frames::new(payload) {
        let again = matches!(frame.kind, kind::ACK | kind::ACK_ECN) && std::mem::replace(&mut acknowledged, true);
        control += u32::from(again || frame.is_control());
    }
    control
}

/// One connection's account of control frames.
#[derive(Debug)]
pub(super) struct Conduct {
    bucket: Bucket,
    signal: Arc<Signal>,
}

#[derive(Debug, Default)]
struct Signal {
    exceeded: AtomicBool,
    waker: AtomicWaker,
}

impl Conduct {
    /// For a client that may send `per_second` control frames, and more at once ([`Bucket`]).
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

    pub(super) fn excess(&self) -> Excess {
        Excess(Arc::clone(&self.signal))
    }
}

/// Tells whoever serves a connection that its client sent more control frames than it may.
#[derive(Debug, Default)]
pub struct Excess(Arc<Signal>);

impl Excess {
    /// Ready once it did, and from then on. The last task that polls is woken.
    pub fn poll(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.0.waker.register(cx.waker());
        if self.0.exceeded.load(Ordering::Relaxed) { Poll::Ready(()) } else { Poll::Pending }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_needs_one_acknowledgement() {
        let ack = [0x02, 9, 0, 0, 2];
        let data = [&[0x0a, 0, 20], &[7; 20][..]].concat();
        for (what, payload, expected) in [
            ("a download's", ack.to_vec(), 0),
            ("an upload's", [&ack[..], &data].concat(), 0),
            ("acknowledged thrice", ack.repeat(3), 2),
            ("a window raised", [&ack[..], &[0x11, 0, 9], &data].concat(), 1),
            ("PING and PADDING", vec![1, 0, 0, 1, 0], 2),
            ("full of PING", vec![1; 1200], 1200),
            ("nothing", vec![], 0),
        ] {
            assert_eq!(control_frames(&payload), expected, "{what}");
        }
    }
}
