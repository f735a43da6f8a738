//! Metrics of traces.

use crate::{Counter, Family, Group, Sample, SampleValue, metrics};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Spans by their outcome, which workers and the exporter count.
const SPANS: Family = Family { name: "spans", help: "Spans, by result." };

metrics! {
    /// Counters of spans on one worker.
    pub struct SpanMetrics {
        Counter(SPANS) {
            full [result: "full"]
                "Spans that were dropped because 4 MiB, or 1,024 pieces, wait for the collector.",
            over_limit [result: "over_limit"]
                "Requests that were not sampled because a worker had 1,000 in that second.",
        }
    }
}

metrics! {
    /// Counters of the exporter.
    pub struct ExportMetrics {
        AtomicU64(SPANS) {
            exported [result: "exported"] "Spans that the collector accepted.",
            failed [result: "failed"]
                "Spans of requests that the collector rejected, and spans that were left when the process ended.",
            rejected [result: "rejected"] "Spans that the collector rejected in a request that it accepted.",
        }
        AtomicU64("span_exports", "Requests with spans to the collector by their result.") {
            exports_ok [result: "ok"],
            exports_retried [result: "retried"] "The collector did not answer, or asked for a retry: the request is \
                                                 sent again.",
            exports_failed [result: "failed"],
        }
        + with {
            /// Number of bytes of spans that wait for the collector.
            pub waiting: WaitingSpanBytes,
        }
    }
}

/// Counts the bytes of spans that workers have sent and the collector has not accepted. Several threads write it.
#[derive(Debug, Default)]
pub struct WaitingSpanBytes(AtomicU64);

impl WaitingSpanBytes {
    /// Adds `bytes`, unless the sum would exceed `most`. Returns whether they were added.
    pub(super) fn reserve_bytes(&self, bytes: u64, most: u64) -> bool {
        let fits = self.0.fetch_add(bytes, Relaxed).saturating_add(bytes) <= most;
        if !fits {
            self.release_bytes(bytes);
        }
        fits
    }

    pub(super) fn release_bytes(&self, bytes: u64) {
        self.0.fetch_sub(bytes, Relaxed);
    }

    /// Number of waiting bytes.
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

impl Group for WaitingSpanBytes {
    fn visit(&self, see: &mut dyn FnMut(Sample)) {
        let help = "Bytes of spans that wait for the collector.";
        let family = Family { name: "spans_waiting_bytes", help };
        see(Sample { family, labels: Vec::new(), note: "At most 4 MiB.", value: SampleValue::Gauge(self.get()) });
    }
}
