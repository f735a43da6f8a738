//! Notifies a path's congestion controller of packets that were declared lost and arrived after all: s2n-quic ignores
//! their acknowledgement (docs/upstream/spurious-losses.md). [`super::connections`] reads each ACK frame before
//! s2n-quic does, which then passes to the controller what the frame acknowledges.

use crate::quic::Metrics;
use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering::Relaxed},
};

/// One endpoint's: of the connection whose ACK frame s2n-quic reads next. One thread alone has it.
#[derive(Debug, Clone, Default)]
pub(super) struct Spurious {
    packets: Arc<AtomicU32>,
    metrics: Arc<Metrics>,
}

impl Spurious {
    /// Counts reductions that were undone in `metrics`.
    pub(super) fn new(metrics: Arc<Metrics>) -> Self {
        Self { packets: Arc::default(), metrics }
    }

    /// The ACK frame that s2n-quic reads next is of a connection of which so many packets were declared lost wrongly.
    pub(super) fn tell(&self, packets: u32) {
        self.packets.store(packets, Relaxed);
    }

    /// The report that was not taken yet: an ACK frame may acknowledge nothing else, and then no controller is called.
    pub(super) fn take(&self) -> u32 {
        let packets = self.packets.load(Relaxed);
        if packets > 0 {
            self.packets.store(0, Relaxed);
        }
        packets
    }

    /// A reduction of the window was undone.
    pub(super) fn undone(&self) {
        self.metrics.reductions_undone.increment();
    }
}
