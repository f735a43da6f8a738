//! Caches the text of `/metrics`, so that a flood of requests does not render it each time.

use bytes::Bytes;
use litequic_base::token_bucket::TokenBucket;
use litequic_telemetry::MetricsRegistry;
use parking_lot::Mutex;
use std::time::{Duration, Instant};

/// Renderings per second, and in one burst: enough for several Prometheus servers that scrape every second. Beyond that
/// the cached text is returned, which is at most 50 ms old.
const MAX_RENDERS_PER_SECOND: u32 = 20;

/// The rendered text with the rate limit of renderings. All admin addresses share one.
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
    /// Returns the cached text if the rate limit is exceeded at `now`; `None` if the caller may render another.
    pub(super) fn cached_text(&self, now: Instant) -> Option<Bytes> {
        let mut made = self.0.lock();
        (!made.bucket.try_take_token(now) && !made.text.is_empty()).then(|| made.text.clone())
    }

    /// Returns the text of `registry`, and caches it.
    pub(super) fn render_text(&self, registry: &MetricsRegistry) -> Bytes {
        let mut made = self.0.lock();
        made.text = registry.render_metrics().into();
        made.text.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::AdminMetrics;
    use std::sync::Arc;

    #[test]
    fn a_flood_of_scrapes_gets_the_cached_text_until_a_later_one() {
        let (scrape, mut registry, start) = (CachedMetrics::default(), MetricsRegistry::default(), Instant::now());
        let admin = Arc::<AdminMetrics>::default();
        registry.register_group(admin.clone());
        let text = |at| scrape.cached_text(at).unwrap_or_else(|| scrape.render_text(&registry));
        let mut texts: Vec<Bytes> = (0..1000).map(|_| text(start)).collect();
        texts.dedup_by_key(|text| text.as_ptr());
        assert!(texts.len() <= MAX_RENDERS_PER_SECOND as usize, "{} were made", texts.len());
        let counted = |text: &Bytes| {
            String::from_utf8_lossy(text).contains("litequic_admin_limit_reached_total{limit=\"age\"} 1\n")
        };
        admin.age.increment();
        assert!(!counted(&text(start)));
        assert!(counted(&text(start + Duration::from_millis(50))));
    }
}
