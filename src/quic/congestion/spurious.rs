//! Notifies a path's congestion controller of packets that were declared lost and arrived after all: s2n-quic ignores
//! their acknowledgement (docs/upstream/spurious-losses.md). `quic::connection::table` reads each ACK frame before
//! s2n-quic does, which then passes to the controller what the frame acknowledges.

use crate::quic::metrics::Metrics;
use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering::Relaxed},
};

/// Count of spurious losses of the connection whose ACK frame s2n-quic reads next. An endpoint has one; one thread
/// alone uses it.
#[derive(Debug, Clone, Default)]
pub(in crate::quic) struct SpuriousLosses {
    packets: Arc<AtomicU32>,
    metrics: Arc<Metrics>,
}

impl SpuriousLosses {
    /// Counts reductions that were undone in `metrics`.
    pub(in crate::quic) fn new(metrics: Arc<Metrics>) -> Self {
        Self { packets: Arc::default(), metrics }
    }

    /// Reports that the ACK frame which s2n-quic reads next is of a connection of which `packets` were declared lost
    /// wrongly.
    pub(in crate::quic) fn report(&self, packets: u32) {
        self.packets.store(packets, Relaxed);
    }

    /// Takes the report that no controller has taken: an ACK frame may acknowledge nothing else, and then no controller
    /// is called.
    pub(in crate::quic) fn take(&self) -> u32 {
        let packets = self.packets.load(Relaxed);
        if packets > 0 {
            self.packets.store(0, Relaxed);
        }
        packets
    }

    /// Counts a reduction of a window that was undone.
    pub(in crate::quic) fn count_undone(&self) {
        self.metrics.reductions_undone.increment();
    }
}
