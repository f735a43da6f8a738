//! A module's metrics, declared beside it: [`metrics!`] makes a struct of counters of a table. The composition root
//! gives each worker one of each module's, and registers them for the scrape.

use super::counter::{Counter, Distribution, Gauge, Histogram, SizeHistogram};
use std::{
    borrow::Cow,
    fmt::Debug,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

/// The common part of samples of one name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Family {
    /// Without the `litequic_` prefix and the `_total` suffix, which the exposition format adds.
    pub name: &'static str,
    /// Description of the metric: a sentence.
    pub help: &'static str,
}

impl From<(&'static str, &'static str)> for Family {
    fn from((name, help): (&'static str, &'static str)) -> Self {
        Self { name, help }
    }
}

/// TLS handshakes, which the transports count.
pub const HANDSHAKES: Family = Family { name: "handshakes", help: "TLS handshakes that were completed." };
/// Key exchange groups, which the transports count.
pub const HANDSHAKE_GROUPS: Family =
    Family { name: "handshake_groups", help: "TLS handshakes that were completed, by key exchange group." };
/// Client certificates, of which each transport has its own verifier.
pub const CLIENT_CERTIFICATES_REFUSED: Family =
    Family { name: "client_certificates_refused", help: "Handshakes that ended because of the client's certificate." };
/// Requests, by the protocol's module.
pub const REQUESTS: Family = Family { name: "requests", help: "Requests whose header was accepted." };
/// Clients whose network the operator denies, counted where they are refused.
pub const DENIED: Family = Family {
    name: "denied",
    help: "Connections and requests that were refused because the operator denies their client's network.",
};
/// Limits, each counted where it is enforced.
pub const LIMIT_REACHED: Family = Family { name: "limit_reached", help: "Times a limit was reached." };
/// Timeouts, each counted where it is awaited.
pub const TIMEOUTS: Family = Family { name: "timeouts", help: "Times a timeout ended something." };
/// System calls of the sockets, but those of TCP clients, and of the runtime's waits.
pub const IO_SYSCALLS: Family =
    Family { name: "io_syscalls", help: "System calls for datagrams and to origins, and waits for any event." };

/// Names and values.
pub type Labels = Vec<(&'static str, Cow<'static, str>)>;

/// A metric at one time.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// The metric's name and help.
    pub family: Family,
    /// Labels of the metric within its family.
    pub labels: Labels,
    /// Text in the reference (docs/reference/metrics.md) besides the help: Markdown.
    pub note: &'static str,
    /// The count.
    pub value: SampleValue,
}

impl Sample {
    /// Name of the sample, with `suffix` and its labels: `name{label="value"}`.
    pub fn labeled_name(&self, suffix: &str) -> String {
        let labels: Vec<String> = self.labels.iter().map(|(name, value)| format!("{name}=\"{value}\"")).collect();
        let braced = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
        format!("{}{suffix}{braced}", self.family.name)
    }

    /// Name of the sample in a scrape.
    pub(super) fn scraped_name(&self) -> String {
        format!(
            "litequic_{}",
            self.labeled_name(if matches!(self.value, SampleValue::Counter(_)) { "_total" } else { "" })
        )
    }

    /// Adds the count of another worker, or another module.
    pub(super) fn merge_sample(&mut self, other: Self) {
        self.value.merge_value(other.value);
        if self.note.is_empty() {
            self.note = other.note;
        }
    }
}

/// A count.
#[derive(Debug, Clone, PartialEq)]
pub enum SampleValue {
    /// Only ever grows.
    Counter(u64),
    /// Goes up and down.
    Gauge(u64),
    /// Nothing: its labels are the information.
    Info,
    /// A histogram.
    Histogram {
        /// Upper bounds of the buckets, in the scrape's unit.
        bounds: Vec<f64>,
        /// How many were in each bucket, those above the last bound at the end.
        counts: Vec<u64>,
        /// The sum of all, in the counter's unit.
        sum: u64,
        /// How much of that is one of the scrape's unit.
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
            // One name has one kind.
            _ => {}
        }
    }
}

/// A field of a module's metrics.
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

/// One that several threads add to.
impl Measure for AtomicU64 {
    fn value(&self) -> SampleValue {
        SampleValue::Counter(self.load(Relaxed))
    }
}

impl Measure for Histogram {
    fn value(&self) -> SampleValue {
        histogram_value(self)
    }
}

impl Measure for SizeHistogram {
    fn value(&self) -> SampleValue {
        histogram_value(self)
    }
}

fn histogram_value<D: Distribution>(of: &D) -> SampleValue {
    let (counts, sum) = of.counts_and_sum();
    let bounds = D::BOUNDS.iter().map(|&bound| bound as f64 / D::UNIT).collect();
    SampleValue::Histogram { bounds, counts: counts.collect(), sum, unit: D::UNIT }
}

/// One module's metrics, of one worker or of the process.
pub trait Group: Debug + Send + Sync {
    /// Passes each of its samples to `see`. No lock is held meanwhile.
    fn visit(&self, see: &mut dyn FnMut(Sample));
}

impl<G: Group + ?Sized> Group for Arc<G> {
    fn visit(&self, see: &mut dyn FnMut(Sample)) {
        (**self).visit(see);
    }
}

/// A struct of counters. Families come once each, with their help; below, a line a field with its labels and its text
/// in the reference. `+ with` has other groups that are exported as well, `+ beside` what is not exported.
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
