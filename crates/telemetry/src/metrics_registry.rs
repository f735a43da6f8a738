//! Exposes the metrics of all workers, summed, and a few figures of the process, as OpenMetrics 1.0 text. Runs on the
//! control thread; no worker waits for it: it holds no lock of theirs while it writes.

use super::{
    exemplar::Exemplars,
    group::{Family, Group, Labels, Sample, SampleValue},
    process::ProcessFigures,
};
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, NoLabelSet, text},
    metrics::{MetricType, exemplar::Exemplar, info::Info},
    registry,
};
use std::{collections::HashMap, fmt, sync::Arc};

/// `Content-Type` of the text of [`MetricsRegistry::render_metrics`].
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Number of bytes that most scrapes do not exceed.
const USUAL_SCRAPE_BYTES: usize = 64 * 1024;

/// Registry of all metrics, of each module and each worker.
#[derive(Debug, Clone, Default)]
pub struct MetricsRegistry {
    groups: Vec<Arc<dyn Group>>,
    exemplars: Arc<Exemplars>,
}

impl MetricsRegistry {
    /// Adds `group`. A scrape lists families in the order in which groups were added.
    pub fn register_group(&mut self, group: Arc<dyn Group>) {
        self.groups.push(group);
    }

    /// Adds `exemplars` to the buckets of histograms.
    #[must_use]
    pub fn with_exemplars(self, exemplars: Arc<Exemplars>) -> Self {
        Self { exemplars, ..self }
    }

    /// All counters and gauges with their labels, as `name{label="value"}`, summed over all workers.
    pub fn summed_samples(&self) -> Vec<(String, u64)> {
        let samples = self.gather_families().into_iter().flatten();
        let read = |sample: Sample| match sample.value {
            SampleValue::Counter(value) | SampleValue::Gauge(value) => Some((sample.labeled_name(""), value)),
            SampleValue::Info | SampleValue::Histogram { .. } => None,
        };
        samples.filter_map(read).collect()
    }

    /// Renders all metrics as OpenMetrics text: each family once, counters with `_total`.
    pub fn render_metrics(&self) -> String {
        self.render_with_process(ProcessFigures::read_process_figures())
    }

    pub(super) fn render_with_process(&self, process: ProcessFigures) -> String {
        let mut text = String::with_capacity(USUAL_SCRAPE_BYTES);
        // Writing to a String cannot fail, and the collectors do not fail.
        let _ = self.write_metrics(&mut text, process);
        self.exemplars.append_exemplars(text)
    }

    fn write_metrics(&self, out: &mut impl fmt::Write, process: ProcessFigures) -> fmt::Result {
        let mut registry = registry::Registry::default();
        let ours = registry.sub_registry_with_prefix("litequic");
        ours.register("build", "Version of the running program", Info::new([("version", env!("CARGO_PKG_VERSION"))]));
        ours.register_collector(Box::new(FamilyCollector(self.gather_families())));
        registry.register_collector(Box::new(process));
        text::encode(out, &registry)
    }

    /// Groups samples by family. Samples with the same labels (of several workers, or modules) are added up.
    pub(super) fn gather_families(&self) -> Vec<Vec<Sample>> {
        let mut families: Vec<Vec<Sample>> = Vec::new();
        // Index of each family, and index of each of its samples by labels.
        let mut known: HashMap<&'static str, (usize, HashMap<Labels, usize>)> = HashMap::new();
        self.visit(&mut |sample| {
            let (family, samples) = known.entry(sample.family.name).or_insert_with(|| {
                families.push(Vec::new());
                (families.len() - 1, HashMap::new())
            });
            let Some(family) = families.get_mut(*family) else { return };
            match samples.get(&sample.labels).and_then(|&at| family.get_mut(at)) {
                Some(before) => before.merge_sample(sample),
                None => {
                    samples.insert(sample.labels.clone(), family.len());
                    family.push(sample);
                }
            }
        });
        families
    }
}

impl Group for MetricsRegistry {
    fn visit(&self, see: &mut dyn FnMut(Sample)) {
        self.groups.iter().for_each(|group| group.visit(see));
    }
}

/// All families of a scrape, as a collector of the encoder.
#[derive(Debug)]
struct FamilyCollector(Vec<Vec<Sample>>);

impl Collector for FamilyCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for family in &self.0 {
            let Some(Sample { family: Family { name, help }, value, .. }) = family.first() else { continue };
            let mut samples = encoder.encode_descriptor(name, help, None, metric_type(value))?;
            for Sample { labels, value, .. } in family {
                let none = None::<&Exemplar<NoLabelSet, u64>>;
                match value {
                    // The encoder rejects a family without labels.
                    SampleValue::Counter(value) if labels.is_empty() => samples.encode_counter(value, none)?,
                    SampleValue::Gauge(value) if labels.is_empty() => samples.encode_gauge(value)?,
                    SampleValue::Counter(value) => samples.encode_family(labels)?.encode_counter(value, none)?,
                    SampleValue::Gauge(value) => samples.encode_family(labels)?.encode_gauge(value)?,
                    SampleValue::Info => samples.encode_info(labels)?,
                    SampleValue::Histogram { bounds, counts, sum, unit } => {
                        // The encoder writes f64::MAX as infinity.
                        let bounds = bounds.iter().copied().chain([f64::MAX]);
                        let buckets: Vec<(f64, u64)> = bounds.zip(counts.iter().copied()).collect();
                        samples.encode_histogram::<NoLabelSet>(
                            *sum as f64 / unit,
                            counts.iter().sum(),
                            &buckets,
                            None,
                        )?;
                    }
                }
            }
        }
        Ok(())
    }
}

const fn metric_type(value: &SampleValue) -> MetricType {
    match value {
        SampleValue::Counter(_) => MetricType::Counter,
        SampleValue::Gauge(_) => MetricType::Gauge,
        SampleValue::Info => MetricType::Info,
        SampleValue::Histogram { .. } => MetricType::Histogram,
    }
}

/// Encodes the figures under the names of Prometheus' own client libraries.
impl Collector for ProcessFigures {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        if let Some(seconds) = self.cpu_seconds {
            let help = "User and system CPU time spent, in seconds.";
            encoder
                .encode_descriptor("process_cpu_seconds", help, None, MetricType::Counter)?
                .encode_counter(&seconds, None::<&Exemplar<NoLabelSet, u64>>)?;
        }
        if let Some(seconds) = self.start_time {
            let help = "Start time, in seconds since the Unix epoch.";
            encoder
                .encode_descriptor("process_start_time_seconds", help, None, MetricType::Gauge)?
                .encode_gauge(&seconds)?;
        }
        let gauges = [
            ("process_resident_memory_bytes", "Resident memory, in bytes.", self.resident_bytes),
            ("process_open_fds", "Open file descriptors.", self.open_fds),
            ("process_max_fds", "Maximum number of open file descriptors (RLIMIT_NOFILE).", self.max_fds),
        ];
        for (name, help, value) in gauges {
            let Some(value) = value else { continue };
            encoder.encode_descriptor(name, help, None, MetricType::Gauge)?.encode_gauge(&value)?;
        }
        Ok(())
    }
}
#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        CertificateValidity, ControlMetrics, Counter, CounterKey, CounterTable, Gauge, Histogram, LIMIT_REACHED,
        metrics, plain_label,
    };
    use std::time::Duration;

    const PROCESS: ProcessFigures = ProcessFigures {
        cpu_seconds: Some(1.5),
        resident_bytes: Some(4096),
        start_time: Some(1.7e9),
        open_fds: None,
        max_fds: None,
    };

    metrics! {
        /// Metrics of one module.
        struct Metrics {
            Counter("things", "Things.") {
                things [kind: "one"],
                others [kind: "other"],
            }
            Gauge("things_open", "Things that are open.") { open }
            Counter(LIMIT_REACHED) { limit [limit: "things"] }
            Histogram("thing_seconds", "How long things take.") {
                times,
            }
            + with {
                /// Metrics by name.
                pub named: CounterTable<Name, Named>,
            }
        }
    }

    metrics! {
        /// Metrics of another module.
        struct Others {
            Counter(LIMIT_REACHED) {
                same [limit: "things"],
                other [limit: "others"],
            }
        }
    }

    metrics! {
        /// Metrics of one name.
        struct Named {
            Counter("named_things", "Things with a name.") { count }
        }
    }

    #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
    struct Name(Arc<str>);

    impl CounterKey for Name {
        fn plain_key(&self) -> Self {
            Self(plain_label(&self.0))
        }

        fn key_labels(&self) -> Labels {
            vec![("name", self.0.to_string().into())]
        }
    }

    fn registry(workers: &[Arc<Metrics>]) -> MetricsRegistry {
        let mut registry = MetricsRegistry::default();
        workers.iter().for_each(|worker| registry.register_group(worker.clone()));
        registry
    }

    #[test]
    fn a_scrape_has_this_format() {
        let workers: [Arc<Metrics>; 2] = Default::default();
        for worker in &workers {
            worker.things.increment_by(2);
            worker.open.increment();
            worker.limit.increment_by(3);
            worker.named.counters_for(&Name("a\"b".into())).count.increment_by(7);
        }
        workers[1].others.increment_by(9);
        let others = Arc::<Others>::default();
        others.same.increment();
        let mut registry = registry(&workers);
        registry.register_group(others);
        let text = registry.render_with_process(PROCESS);
        let version = env!("CARGO_PKG_VERSION");
        let start = format!(
            "# HELP litequic_build Version of the running program.\n\
             # TYPE litequic_build info\n\
             litequic_build_info{{version=\"{version}\"}} 1\n\
             # HELP litequic_things Things.\n\
             # TYPE litequic_things counter\n\
             litequic_things_total{{kind=\"one\"}} 4\n\
             litequic_things_total{{kind=\"other\"}} 9\n\
             # HELP litequic_things_open Things that are open.\n\
             # TYPE litequic_things_open gauge\n\
             litequic_things_open 2\n\
             # HELP litequic_limit_reached Times a limit was reached.\n\
             # TYPE litequic_limit_reached counter\n\
             litequic_limit_reached_total{{limit=\"things\"}} 7\n\
             litequic_limit_reached_total{{limit=\"others\"}} 0\n"
        );
        let process = "# HELP process_cpu_seconds User and system CPU time spent, in seconds.\n\
             # TYPE process_cpu_seconds counter\n\
             process_cpu_seconds_total 1.5\n\
             # HELP process_start_time_seconds Start time, in seconds since the Unix epoch.\n\
             # TYPE process_start_time_seconds gauge\n\
             process_start_time_seconds 1700000000.0\n\
             # HELP process_resident_memory_bytes Resident memory, in bytes.\n\
             # TYPE process_resident_memory_bytes gauge\n\
             process_resident_memory_bytes 4096\n";
        assert!(text.starts_with(&format!("{process}{start}")), "{text}");
        let named = "# HELP litequic_named_things Things with a name.\n\
             # TYPE litequic_named_things counter\n\
             litequic_named_things_total{name=\"a_b\"} 14\n\
             # EOF\n";
        assert!(text.ends_with(named), "{text}");
        let names =
            ["things{kind=\"one\"}", "things{kind=\"other\"}", "things_open", "limit_reached{limit=\"things\"}"];
        let samples = registry.summed_samples();
        assert_eq!(samples[..4], std::array::from_fn::<_, 4, _>(|n| (names[n].to_owned(), [4, 9, 2, 7][n]))[..]);
    }

    #[test]
    fn times_of_all_workers_add_up_in_one_histogram() {
        let workers: [Arc<Metrics>; 2] = Default::default();
        for (worker, millis) in workers.iter().zip([3, 40]) {
            worker.times.observe_time(Duration::from_millis(millis));
        }
        let text = registry(&workers).render_with_process(PROCESS);
        for line in [
            "# TYPE litequic_thing_seconds histogram",
            "litequic_thing_seconds_sum 0.043",
            "litequic_thing_seconds_count 2",
            "litequic_thing_seconds_bucket{le=\"0.002\"} 0",
            "litequic_thing_seconds_bucket{le=\"0.003\"} 1",
            "litequic_thing_seconds_bucket{le=\"0.05\"} 2",
            "litequic_thing_seconds_bucket{le=\"+Inf\"} 2",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in {text}");
        }
    }

    /// Checks every lock at each piece of the text.
    struct Watch<'a>(&'a Metrics, &'a ControlMetrics, usize);

    impl fmt::Write for Watch<'_> {
        fn write_str(&mut self, _: &str) -> fmt::Result {
            assert!(
                self.0.named.is_table_unlocked()
                    && self.1.version.is_version_unlocked()
                    && self.1.certificates.is_list_unlocked()
            );
            self.2 += 1;
            Ok(())
        }
    }

    #[test]
    fn no_lock_is_held_while_a_scrape_is_rendered() {
        let (metrics, control) = (Arc::<Metrics>::default(), Arc::<ControlMetrics>::default());
        metrics.named.counters_for(&Name("a".into()));
        control.certificates.set_validities(vec![CertificateValidity {
            name: "certificates[0]".into(),
            from: 1,
            until: 1,
        }]);
        let mut registry = registry(std::slice::from_ref(&metrics));
        registry.register_group(control.clone());
        let mut watch = Watch(&metrics, &control, 0);
        registry.write_metrics(&mut watch, PROCESS).unwrap();
        assert!(watch.2 > 100, "{} pieces", watch.2);
    }
}
