//! Declares a module's metrics beside its code: [`metrics!`] makes a struct of counters of a table. The composition
//! root gives each worker one struct of each module, and registers all of them for the scrape.

use super::counter::{Buckets, Counter, Gauge, Histogram, SIZE_BOUNDS, SizeHistogram, TIME_BOUNDS};
use std::{
    borrow::Cow,
    fmt::Debug,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

/// Metric family: the common part of samples of one name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Family {
    /// Name without the `litequic_` prefix and the `_total` suffix, which the exposition format adds.
    pub name: &'static str,
    /// Description of the metric: a sentence.
    pub help: &'static str,
}

impl From<(&'static str, &'static str)> for Family {
    fn from((name, help): (&'static str, &'static str)) -> Self {
        Self { name, help }
    }
}

/// Family of completed TLS handshakes, which the transports count.
pub const HANDSHAKES: Family = Family { name: "handshakes", help: "TLS handshakes that were completed." };
/// Family of key exchange groups, which the transports count.
pub const HANDSHAKE_GROUPS: Family =
    Family { name: "handshake_groups", help: "TLS handshakes that were completed, by key exchange group." };
/// Family of rejected client certificates, which the verifier of each transport counts.
pub const CLIENT_CERTIFICATES_REFUSED: Family =
    Family { name: "client_certificates_refused", help: "Handshakes that failed because of the client's certificate." };
/// Family of requests, which each protocol's module counts.
pub const REQUESTS: Family = Family { name: "requests", help: "Requests whose header was accepted." };
/// Family of denied connections and requests, counted where each is rejected.
pub const DENIED: Family = Family {
    name: "denied",
    help: "Connections and requests that were refused because the operator denies their client's network.",
};
/// Family of limits, each counted where it is enforced.
pub const LIMIT_REACHED: Family = Family { name: "limit_reached", help: "Times a limit was reached." };
/// Family of timeouts, each counted where it is awaited.
pub const TIMEOUTS: Family = Family { name: "timeouts", help: "Times a timeout expired." };
/// Family of system calls of sockets, except those of TCP clients, and of the runtime's waits.
pub const IO_SYSCALLS: Family =
    Family { name: "io_syscalls", help: "System calls for datagrams and to origins, and waits for any event." };

/// Labels of a sample: names and values.
pub type Labels = Vec<(&'static str, Cow<'static, str>)>;

/// Value of a metric at one time.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// Name and help of the metric.
    pub family: Family,
    /// Labels of the metric in the family.
    pub labels: Labels,
    /// Text in the reference (docs/reference/metrics.md) after the help, in Markdown.
    pub note: &'static str,
    /// The value.
    pub value: SampleValue,
}

impl Sample {
    /// Name of the sample, with `suffix` and its labels: `name{label="value"}`.
    pub fn labeled_name(&self, suffix: &str) -> String {
        let labels: Vec<String> = self.labels.iter().map(|(name, value)| format!("{name}=\"{value}\"")).collect();
        let braced = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
        format!("{}{suffix}{braced}", self.family.name)
    }

    /// Name of the sample as a scrape has it.
    pub(super) fn scraped_name(&self) -> String {
        format!(
            "litequic_{}",
            self.labeled_name(if matches!(self.value, SampleValue::Counter(_)) { "_total" } else { "" })
        )
    }

    /// Adds the value of another worker or module.
    pub(super) fn merge_sample(&mut self, other: Self) {
        self.value.merge_value(other.value);
        if self.note.is_empty() {
            self.note = other.note;
        }
    }
}

/// Value of a sample.
#[derive(Debug, Clone, PartialEq)]
pub enum SampleValue {
    /// A count that only grows.
    Counter(u64),
    /// A value that goes up and down.
    Gauge(u64),
    /// No value: the labels are the information.
    Info,
    /// Counts of a histogram.
    Histogram {
        /// Upper bounds of the buckets, in the scrape's unit.
        bounds: Vec<f64>,
        /// Counts of the buckets, of which the last is above all bounds.
        counts: Vec<u64>,
        /// Sum of all observations, in the histogram's unit.
        sum: u64,
        /// Number of the histogram's units in one unit of the scrape.
        unit: f64,
    },
}

impl SampleValue {
    /// Adds the value of another worker.
    fn merge_value(&mut self, other: Self) {
        match (self, other) {
            (Self::Counter(sum), Self::Counter(more)) | (Self::Gauge(sum), Self::Gauge(more)) => *sum += more,
            (Self::Histogram { counts, sum, .. }, Self::Histogram { counts: others, sum: more, .. }) => {
                counts.iter_mut().zip(others).for_each(|(count, other)| *count += other);
                *sum += more;
            }
            // All samples of one name have one kind.
            _ => {}
        }
    }
}

/// Type of a field of a module's metrics.
pub trait Measure {
    /// Returns the current value.
    fn value(&self) -> SampleValue;
}

impl Measure for Counter {
    fn value(&self) -> SampleValue {
        SampleValue::Counter(self.get())
    }
}

impl Measure for Gauge {
    fn value(&self) -> SampleValue {
        SampleValue::Gauge(self.get())
    }
}

/// Counter to which several threads add.
impl Measure for AtomicU64 {
    fn value(&self) -> SampleValue {
        SampleValue::Counter(self.load(Relaxed))
    }
}

impl Measure for Histogram {
    fn value(&self) -> SampleValue {
        histogram_value(&self.0, &TIME_BOUNDS, 1e6)
    }
}

impl Measure for SizeHistogram {
    fn value(&self) -> SampleValue {
        histogram_value(&self.0, &SIZE_BOUNDS, 1.0)
    }
}

/// Reads `buckets`, whose bounds are `bounds`; `unit` of the histogram's units are one unit of a scrape.
fn histogram_value<const N: usize>(buckets: &Buckets<N>, bounds: &[u64; N], unit: f64) -> SampleValue {
    let (counts, sum) = buckets.bucket_counts();
    let bounds = bounds.iter().map(|&bound| bound as f64 / unit).collect();
    SampleValue::Histogram { bounds, counts: counts.collect(), sum, unit }
}

/// Metrics of one module, of one worker or of the process.
pub trait Group: Debug + Send + Sync {
    /// Passes each sample to `see`, without holding a lock.
    fn visit(&self, see: &mut dyn FnMut(Sample));
}

impl<G: Group + ?Sized> Group for Arc<G> {
    fn visit(&self, see: &mut dyn FnMut(Sample)) {
        (**self).visit(see);
    }
}

/// Makes a struct of counters. Each family comes once, with its help, followed by a line for each field with its labels
/// and its text in the reference. `+ with` adds groups that are exported as well, `+ beside` fields that are not
/// exported.
#[macro_export]
macro_rules! metrics {
    (
        $(#[$meta:meta])*
        $vis:vis struct $name:ident {
            $($kind:ident($($family:expr),+) {
                $($field:ident $([$($label:ident: $value:literal),+])? $($note:literal)?),+ $(,)?
            })*
            $(+ with { $($(#[$group_meta:meta])* pub $group:ident: $Group:ty),+ $(,)? })?
            $(+ beside { $($(#[$other_meta:meta])* pub $other:ident: $Other:ty),+ $(,)? })?
        }
    ) => {
        $(#[$meta])*
        #[derive(Debug, Default)]
        $vis struct $name {
            $($(#[doc = "See the family's help."] $vis $field: $kind,)+)*
            $($($(#[$group_meta])* $vis $group: $Group,)+)?
            $($($(#[$other_meta])* $vis $other: $Other,)+)?
        }

        impl $crate::Group for $name {
            fn visit(&self, see: &mut dyn FnMut($crate::Sample)) {
                $({
                    let family = $crate::Family::from(($($family),+));
                    $(see($crate::Sample {
                        family,
                        labels: vec![$($((stringify!($label), $value.into())),+)?],
                        note: concat!($($note)?),
                        value: $crate::Measure::value(&self.$field),
                    });)+
                })*
                $($($crate::Group::visit(&self.$group, see);)+)?
            }
        }
    };
}
