//! The text of `/metrics`, cached so that a flood of requests does not render it each time.

use bytes::Bytes;
use litequic_base::rate::Bucket;
use litequic_telemetry::Registry;
use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// How often the text is rendered at most, a second, and as often at once: several Prometheus servers that scrape every
/// second. Beyond it the last text is returned again, which then is no older than 50 ms.
const A_SECOND: u32 = 20;

/// The text, and how often it was rendered. One for all admin addresses, whose answers share its bytes.
#[derive(Debug)]
pub struct Scrape(Mutex<Made>);

#[derive(Debug)]
struct Made {
    text: Bytes,
    bucket: Bucket,
}

impl Default for Scrape {
    fn default() -> Self {
        let bucket = Bucket::with_burst(A_SECOND, Duration::from_secs(1));
        Self(Mutex::new(Made { text: Bytes::new(), bucket }))
    }
}

impl Scrape {
    /// The text of `registry` at `now`.
    pub(super) fn text(&self, registry: &Registry, now: Instant) -> Bytes {
        let mut made = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if made.bucket.take_if_there(now) {
            made.text = registry.render().into();
        }
        made.text.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Metrics;
    use std::sync::Arc;

    #[test]
    fn a_flood_of_scrapes_gets_one_text_and_a_later_one_a_new_one() {
        let (scrape, mut registry, start) = (Scrape::default(), Registry::default(), Instant::now());
        let admin = Arc::<Metrics>::default();
        registry.register(admin.clone());
        let mut texts: Vec<Bytes> = (0..1000).map(|_| scrape.text(&registry, start)).collect();
        texts.dedup_by_key(|text| text.as_ptr());
        assert!(texts.len() <= A_SECOND as usize, "{} were made", texts.len());
        let counted = |text: &Bytes| {
            String::from_utf8_lossy(text).contains("litequic_admin_limit_reached_total{limit=\"age\"} 1\n")
        };
        admin.age.increment();
        assert!(!counted(&scrape.text(&registry, start)));
        assert!(counted(&scrape.text(&registry, start + Duration::from_millis(50))));
    }
}
