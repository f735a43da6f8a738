//! Adds exemplars to histograms (OpenMetrics 1.0, §4.6.1): the newest sampled trace of each bucket.

use parking_lot::Mutex;
use std::{
    collections::BTreeMap,
    fmt::Write as _,
    time::{SystemTime, UNIX_EPOCH},
};

/// Request that was counted in a bucket.
#[derive(Debug, Clone, PartialEq)]
pub struct Exemplar {
    /// Observed value, in seconds.
    pub seconds: f64,
    /// Approximate time of the observation.
    pub at: SystemTime,
    /// ID of the trace in hexadecimal digits.
    pub trace_id: String,
    /// ID of the span in hexadecimal digits.
    pub span_id: String,
}

/// Newest exemplar of each bucket, by the family's name and the bucket's index. Only the control thread writes it.
#[derive(Debug, Default)]
pub struct Exemplars(Mutex<BTreeMap<(&'static str, usize), Exemplar>>);

impl Exemplars {
    /// Sets the exemplar of a bucket of the histogram `family`.
    pub fn set_exemplar(&self, family: &'static str, bucket: usize, exemplar: Exemplar) {
        self.0.lock().insert((family, bucket), exemplar);
    }

    /// Returns the scrape `text` with the exemplars after their buckets: the encoder cannot write an exemplar that its
    /// own histogram did not observe.
    pub(super) fn append_exemplars(&self, text: String) -> String {
        let all = self.0.lock().clone();
        if all.is_empty() {
            return text;
        }
        let mut families: Vec<&str> = all.keys().map(|(family, _)| *family).collect();
        families.dedup();
        let mut out = String::with_capacity(text.len().saturating_add(all.len().saturating_mul(128)));
        let mut bucket = 0;
        for line in text.lines() {
            out.push_str(line);
            let family = families.iter().find(|family| {
                let rest = line.strip_prefix("litequic_").and_then(|line| line.strip_prefix(**family));
                rest.is_some_and(|rest| rest.starts_with("_bucket{"))
            });
            if let Some(Exemplar { seconds, at, trace_id, span_id }) =
                family.and_then(|family| all.get(&(*family, bucket)))
            {
                let at = at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
                // Writing to a String cannot fail.
                let _ = write!(out, " # {{trace_id=\"{trace_id}\",span_id=\"{span_id}\"}} {seconds} {at:.3}");
            }
            bucket = if family.is_some() { bucket.saturating_add(1) } else { 0 };
            out.push('\n');
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn an_exemplar_stands_behind_its_bucket() {
        let exemplars = Exemplars::default();
        let text = "# TYPE litequic_a_seconds histogram\nlitequic_a_seconds_sum 1\n\
                    litequic_a_seconds_bucket{le=\"1\"} 1\nlitequic_a_seconds_bucket{le=\"+Inf\"} 2\n# EOF\n";
        assert_eq!(exemplars.append_exemplars(text.into()), text);
        let at = UNIX_EPOCH + Duration::from_millis(1500);
        let exemplar = |seconds| Exemplar { seconds, at, trace_id: "ab".into(), span_id: "cd".into() };
        exemplars.set_exemplar("a_seconds", 1, exemplar(1.5));
        exemplars.set_exemplar("a_seconds", 1, exemplar(2.5));
        exemplars.set_exemplar("b_seconds", 0, exemplar(1.5));
        let expected = text.replace("} 2\n", "} 2 # {trace_id=\"ab\",span_id=\"cd\"} 2.5 1.500\n");
        assert_eq!(exemplars.append_exemplars(text.into()), expected);
    }
}
