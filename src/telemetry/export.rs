//! What a scrape reads: the workers' counters summed, and a few facts about the process, as OpenMetrics 1.0 text.
//! Runs on the control thread; no worker waits for it: it holds no lock of theirs while it writes.

use super::{
    control::Control,
    counter::Distribution,
    metrics::{DESCRIPTIONS, Description, HISTOGRAMS, Kind, Metrics, SIZES, Spread, WorkerMetrics},
    process::Process,
    routes::{RouteMetrics, RouteTable},
    servers::{FAMILIES, Read, ServerTable},
};
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, text},
    metrics::{MetricType, exemplar::Exemplar, info::Info},
    registry::Registry,
};
use std::{fmt, sync::Arc};

/// The `Content-Type` of [`Metrics::render`]'s text.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Bytes that most scrapes do not exceed.
const USUAL: usize = 64 * 1024;

impl Metrics {
    /// Everything that is counted, as OpenMetrics text: each family once, counters with `_total`.
    pub fn render(&self) -> String {
        self.render_with(Process::read())
    }

    pub(super) fn render_with(&self, process: Process) -> String {
        let mut text = String::with_capacity(USUAL);
        // Writing to a String cannot fail, and neither do the collectors.
        let _ = self.write(&mut text, process);
        text
    }

    fn write(&self, out: &mut impl fmt::Write, process: Process) -> fmt::Result {
        let mut registry = Registry::default();
        let ours = registry.sub_registry_with_prefix("litequic");
        ours.register("build", "The version that runs", Info::new([("version", env!("CARGO_PKG_VERSION"))]));
        ours.register_collector(Box::new(Workers(self.workers().to_vec())));
        ours.register_collector(Box::new(Control(Arc::clone(self.control()))));
        registry.register_collector(Box::new(process));
        text::encode(out, &registry)
    }
}

/// All workers' counters, each the sum over the workers.
#[derive(Debug)]
struct Workers(Vec<Arc<WorkerMetrics>>);

impl Collector for Workers {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        encoder
            .encode_descriptor("workers", "Worker threads.", None, MetricType::Gauge)?
            .encode_gauge(&self.0.len())?;
        for family in DESCRIPTIONS.chunk_by(|one, next| one.name == next.name) {
            let Some(&Description { name, help, kind, .. }) = family.first() else { continue };
            let mut samples = encoder.encode_descriptor(name, help, None, metric_type(kind))?;
            for line in family {
                let sum: u64 = self.0.iter().map(|worker| (line.read)(worker)).sum();
                if line.labels.is_empty() {
                    sample(&mut samples, kind, sum)?;
                } else {
                    sample(&mut samples.encode_family(&line.labels)?, kind, sum)?;
                }
            }
        }
        for times in HISTOGRAMS {
            self.encode_spread(times, &mut encoder)?;
        }
        for sizes in SIZES {
            self.encode_spread(sizes, &mut encoder)?;
        }
        self.encode_servers(&mut encoder)?;
        self.encode_routes(encoder)
    }
}

impl Workers {
    fn encode_spread<D: Distribution>(&self, spread: &Spread<D>, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let told = |counted: u64| counted as f64 / D::UNIT;
        // What the format calls infinity.
        let bounds = D::BOUNDS.iter().map(|&bound| told(bound)).chain([f64::MAX]);
        let mut buckets: Vec<(f64, u64)> = bounds.map(|bound| (bound, 0)).collect();
        let mut sum = 0;
        for worker in &self.0 {
            let (counts, of_worker) = (spread.read)(worker).get();
            buckets.iter_mut().zip(counts).for_each(|((_, total), count)| *total += count);
            sum += of_worker;
        }
        let count = buckets.iter().map(|(_, count)| count).sum();
        let mut histogram = encoder.encode_descriptor(spread.name, spread.help, None, MetricType::Histogram)?;
        histogram.encode_histogram::<NoLabelSet>(told(sum), count, &buckets, None)
    }

    fn encode_servers(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let servers = ServerTable::merged(self.0.iter().map(|worker| &worker.servers));
        for family in FAMILIES {
            let kind = match family.read {
                Read::Counter(_) => Kind::Counter,
                Read::Gauge(_) => Kind::Gauge,
            };
            let mut samples = encoder.encode_descriptor(family.name, family.help, None, metric_type(kind))?;
            for ((origin, server), workers) in &servers {
                let labels = [("origin", &**origin), ("server", &**server)];
                sample(&mut samples.encode_family(&labels)?, kind, family.read.sum(workers))?;
            }
        }
        Ok(())
    }

    fn encode_routes(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let help = "Responses by route, status class and protocol, litequic's own among them; tunnels as 2xx.";
        let mut family = encoder.encode_descriptor("route_responses", help, None, MetricType::Counter)?;
        let routes = RouteTable::merged(self.0.iter().map(|worker| &worker.routes));
        for (route, workers) in &routes {
            for (protocol, class, count) in RouteMetrics::responses(workers) {
                let labels = [("route", &**route), ("protocol", protocol), ("class", class)];
                sample(&mut family.encode_family(&labels)?, Kind::Counter, count)?;
            }
        }
        let help = "Requests that a route's rate limit refused.";
        let mut family = encoder.encode_descriptor("route_limited", help, None, MetricType::Counter)?;
        for (route, workers) in &routes {
            sample(&mut family.encode_family(&[("route", &**route)])?, Kind::Counter, RouteMetrics::refused(workers))?;
        }
        Ok(())
    }
}

fn metric_type(kind: Kind) -> MetricType {
    match kind {
        Kind::Counter => MetricType::Counter,
        Kind::Gauge => MetricType::Gauge,
    }
}

fn sample(encoder: &mut MetricEncoder<'_>, kind: Kind, value: u64) -> fmt::Result {
    match kind {
        Kind::Counter => encoder.encode_counter(&value, None::<&Exemplar<NoLabelSet, u64>>),
        Kind::Gauge => encoder.encode_gauge(&value),
    }
}

/// The names that Prometheus' own client libraries give these.
impl Collector for Process {
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
            ("process_resident_memory_bytes", "Memory in RAM, in bytes.", self.resident_bytes),
            ("process_open_fds", "Open file descriptors.", self.open_fds),
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
    use super::{super::control::Validity, *};
    use std::{collections::HashSet, time::Duration};

    const PROCESS: Process =
        Process { cpu_seconds: Some(1.5), resident_bytes: Some(4096), start_time: Some(1.7e9), open_fds: None };

    #[test]
    fn a_scrape_reads_like_this() {
        let metrics = Metrics::new(2);
        for worker in metrics.workers() {
            worker.connections.add(2);
            worker.connections_open.increment();
            worker.requests.add(5);
        }
        metrics.workers()[1].responses_2xx.add(9);
        metrics.workers()[0].responses_5xx.increment();
        let text = metrics.render_with(PROCESS);
        let version = env!("CARGO_PKG_VERSION");
        let start = format!(
            "# HELP litequic_build The version that runs.\n\
             # TYPE litequic_build info\n\
             litequic_build_info{{version=\"{version}\"}} 1\n\
             # HELP litequic_workers Worker threads.\n\
             # TYPE litequic_workers gauge\n\
             litequic_workers 2\n\
             # HELP litequic_connections Connections over QUIC whose handshake was completed.\n\
             # TYPE litequic_connections counter\n\
             litequic_connections_total 4\n\
             # HELP litequic_connections_open Connections over QUIC that are open now.\n\
             # TYPE litequic_connections_open gauge\n\
             litequic_connections_open 2\n"
        );
        let families = [
            "# HELP litequic_requests Requests whose header was accepted.\n\
             # TYPE litequic_requests counter\n\
             litequic_requests_total{protocol=\"h3\"} 10\n",
            "# HELP litequic_responses Responses by status class.\n\
             # TYPE litequic_responses counter\n\
             litequic_responses_total{class=\"1xx\"} 0\n\
             litequic_responses_total{class=\"2xx\"} 9\n\
             litequic_responses_total{class=\"3xx\"} 0\n\
             litequic_responses_total{class=\"4xx\"} 0\n\
             litequic_responses_total{class=\"5xx\"} 1\n",
        ];
        let process = "# HELP process_cpu_seconds User and system CPU time spent, in seconds.\n\
             # TYPE process_cpu_seconds counter\n\
             process_cpu_seconds_total 1.5\n\
             # HELP process_start_time_seconds Start time, in seconds since the Unix epoch.\n\
             # TYPE process_start_time_seconds gauge\n\
             process_start_time_seconds 1700000000.0\n\
             # HELP process_resident_memory_bytes Memory in RAM, in bytes.\n\
             # TYPE process_resident_memory_bytes gauge\n\
             process_resident_memory_bytes 4096\n";
        assert!(text.starts_with(&format!("{process}{start}")), "{text}");
        for family in families {
            assert!(text.contains(family), "{text}");
        }
        assert!(text.ends_with("# EOF\n"), "{text}");
    }

    #[test]
    fn every_family_is_written_once_and_its_samples_follow_it() {
        let text = Metrics::new(1).render_with(PROCESS);
        let mut families = HashSet::new();
        let mut samples = HashSet::new();
        let mut family = ("", "");
        for line in text.lines() {
            if let Some(kind) = line.strip_prefix("# TYPE ") {
                family = kind.split_once(' ').unwrap();
                assert!(families.insert(family.0), "{} stands twice", family.0);
            } else if !line.starts_with('#') {
                let (key, value) = line.rsplit_once(' ').unwrap();
                assert!(samples.insert(key), "{key} stands twice");
                assert!(value.parse::<f64>().is_ok(), "{line}");
                let name = key.split('{').next().unwrap();
                assert!(name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_'));
                let suffix = name.strip_prefix(family.0).unwrap_or_else(|| panic!("{name} stands under {}", family.0));
                let expected: &[&str] = match family.1 {
                    "counter" => &["_total"],
                    "info" => &["_info"],
                    "histogram" => &["_sum", "_count", "_bucket"],
                    _ => &[""],
                };
                assert!(expected.contains(&suffix), "{line}");
            }
        }
        assert!(families.len() > 20);
    }

    #[test]
    fn round_trip_times_of_all_workers_stand_in_one_histogram() {
        let metrics = Metrics::new(2);
        for (worker, millis) in metrics.workers().iter().zip([3, 40]) {
            worker.smoothed_rtt.observe(Duration::from_millis(millis));
        }
        let text = metrics.render_with(PROCESS);
        for line in [
            "# TYPE litequic_smoothed_rtt_seconds histogram",
            "litequic_smoothed_rtt_seconds_sum 0.043",
            "litequic_smoothed_rtt_seconds_count 2",
            "litequic_smoothed_rtt_seconds_bucket{le=\"0.002\"} 0",
            "litequic_smoothed_rtt_seconds_bucket{le=\"0.003\"} 1",
            "litequic_smoothed_rtt_seconds_bucket{le=\"0.05\"} 2",
            "litequic_smoothed_rtt_seconds_bucket{le=\"+Inf\"} 2",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in {text}");
        }
    }

    /// Looks at every lock with each piece of the text.
    struct Watch<'a>(&'a Metrics, usize);

    impl fmt::Write for Watch<'_> {
        fn write_str(&mut self, _: &str) -> fmt::Result {
            let control = self.0.control();
            assert!(self.0.workers().iter().all(|worker| worker.routes.is_free() && worker.servers.is_free()));
            assert!(control.servers.is_free());
            assert!(control.version.try_lock().is_ok() && control.certificates.try_lock().is_ok());
            self.1 += 1;
            Ok(())
        }
    }

    #[test]
    fn no_lock_is_held_while_the_text_is_written() {
        let metrics = Metrics::new(2);
        for worker in metrics.workers() {
            worker.routes.of("a.test/");
            worker.servers.of("o", "http://a:80");
        }
        metrics.control().servers.of("o", "http://a:80");
        metrics.control().certificates.lock().unwrap().push(Validity { from: 1, until: 1 });
        let mut watch = Watch(&metrics, 0);
        metrics.write(&mut watch, PROCESS).unwrap();
        assert!(watch.1 > 1000, "{} pieces", watch.1);
    }

    #[test]
    fn lines_of_one_family_agree_on_kind_and_help() {
        for family in DESCRIPTIONS.chunk_by(|one, next| one.name == next.name) {
            let first = &family[0];
            assert!(!first.name.ends_with("_total"), "{}: the format adds the suffix", first.name);
            assert!(first.help.ends_with('.') && !first.help.contains(['\n', '\\', '"']), "{}", first.name);
            for line in family {
                assert_eq!((line.kind, line.help), (first.kind, first.help), "{}", first.name);
                assert_eq!(line.labels.is_empty(), family.len() == 1 && first.labels.is_empty(), "{}", first.name);
            }
        }
    }
}
