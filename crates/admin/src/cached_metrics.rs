//! The text of `/metrics`, cached so that a flood of requests does not render it each time.

use bytes::Bytes;
use litequic_base::token_bucket::TokenBucket;
use litequic_telemetry::MetricsRegistry;
use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// How often the text is rendered at most, a second, and as often at once: several Prometheus servers that scrape every
/// second. Beyond it the last text is returned again, which then is no older than 50 ms.
const MAX_RENDERS_PER_SECOND: u32 = 20;

/// The text, and how often it was rendered. One for all admin addresses, whose answers share its bytes.
#[derive(Debug)]
pub struct CachedMetrics(Mutex<RenderedMetrics>);

#[derive(Debug)]
struct RenderedMetrics {
    text: Bytes,
    bucket: TokenBucket,
}

impl Default for CachedMetrics {
    fn default() -> Self {
        let bucket = TokenBucket::with_burst(MAX_RENDERS_PER_SECOND, Duration::from_secs(1));
        Self(Mutex::new(RenderedMetrics { text: Bytes::new(), bucket }))
    }
}

impl CachedMetrics {
    /// The text of `registry` at `now`.
    pub(super) fn metrics_text(&self, registry: &MetricsRegistry, now: Instant) -> Bytes {
        let mut made = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if made.bucket.try_take_token(now) {
            made.text = registry.render_metrics().into();
        }
        made.text.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::AdminMetrics;
    use std::sync::Arc;

    #[test]
    fn a_flood_of_scrapes_gets_one_text_and_a_later_one_a_new_one() {
        let (scrape, mut registry, start) = (CachedMetrics::default(), MetricsRegistry::default(), Instant::now());
        let admin = Arc::<AdminMetrics>::default();
        registry.register_group(admin.clone());
        let mut texts: Vec<Bytes> = (0..1000).map(|_| scrape.metrics_text(&registry, start)).collect();
        texts.dedup_by_key(|text| text.as_ptr());
        assert!(texts.len() <= MAX_RENDERS_PER_SECOND as usize, "{} were made", texts.len());
        let counted = |text: &Bytes| {
            String::from_utf8_lossy(text).contains("litequic_admin_limit_reached_total{limit=\"age\"} 1\n")
        };
        admin.age.increment();
        assert!(!counted(&scrape.metrics_text(&registry, start)));
        assert!(counted(&scrape.metrics_text(&registry, start + Duration::from_millis(50))));
    }
}
