//! Collects the metrics of all modules: those of each worker, and those of the process.

use litequic_acme as acme;
use litequic_admin as admin;
use litequic_http3 as http3;
use litequic_net as net;
use litequic_proxy::{self as proxy, CheckMetricsTable, ServerMetrics, ServerName};
use litequic_quic as quic;
use litequic_tcp as tcp;
use litequic_telemetry::{
    CertificateValidity, ControlMetrics, Counter, Exemplars, Gauge, Group, LIMIT_REACHED, MetricsRegistry,
    RequestMetrics, WakeTracker, access_log, log, metrics, traces,
};
use litequic_tls as tls;
use std::sync::Arc;

/// Metrics of all workers and of the control thread.
#[derive(Debug, Default)]
pub struct ProcessMetrics {
    /// Metrics of the control thread.
    pub control: Arc<ControlMetrics>,
    /// Metrics of the admin addresses.
    pub admin: Arc<admin::AdminMetrics>,
    /// Counters of the threads that write the access log.
    pub access_log: Arc<access_log::WriterMetrics>,
    /// Counters of the error log.
    pub log: Arc<log::LogLineMetrics>,
    /// Metrics of the health checks.
    pub checks: Arc<CheckMetricsTable>,
    /// Metrics of certificates that litequic obtains.
    pub acme: Arc<acme::AcmeMetrics>,
    /// Counters of the exporter of spans.
    pub traces: Arc<traces::ExportMetrics>,
    /// Sampled requests by the buckets of histograms.
    pub exemplars: Arc<Exemplars>,
    /// Handshakes of clients for whom there is no certificate yet.
    pub unanswered: Arc<tls::CertificateMisses>,
    workers: Vec<WorkerMetrics>,
}

/// Metrics of one worker, by module. Only that worker writes them.
#[derive(Debug, Clone, Default)]
#[expect(missing_docs, reason = "the modules document them")]
pub struct WorkerMetrics {
    pub net: Arc<net::SocketMetrics>,
    pub quic: Arc<quic::QuicMetrics>,
    pub tls: Arc<tls::TlsMetrics>,
    pub http3: Arc<http3::Http3Metrics>,
    pub tcp: Arc<tcp::TcpMetrics>,
    pub shared: Arc<RequestMetrics>,
    pub proxy: Arc<proxy::ProxyMetrics>,
    pub access_log: Arc<access_log::AccessLogMetrics>,
    pub traces: Arc<traces::SpanMetrics>,
    pub worker: Arc<TurnMetrics>,
    pub wake: Arc<WakeTracker>,
}

metrics! {
    /// Metrics that a worker sets twice a second while it works, and before it sleeps.
    pub struct TurnMetrics {
        Gauge(
            "receive_granted_bytes",
            "Flow control windows, in bytes, of the QUIC and HTTP/2 connections on which an upload is in progress."
        ) {
            receive_granted
                "A body counts as an upload from 64 KiB on. The window of a new connection depends on it: see \
                    `limits.worker_receive_buffer`.",
        }
        Gauge(
            "receive_held_bytes",
            "Bytes received over QUIC and HTTP/2 and not read yet, because an origin is slow or bytes before them are \
                missing."
        ) {
            receive_held "`limits.worker_receive_buffer` is the limit of each worker.",
        }
        Gauge("send_buffered_bytes", "Response bytes that streams have leased, over all protocols.") {
            send_buffered "`limits.worker_send_buffer` is the limit of each worker. The value is sampled twice a \
                           second while there is traffic.",
        }
        Counter(LIMIT_REACHED) {
            limit_memory_idle [limit: "memory_idle"]
                "Connections without a request that were closed because memory is short.",
            limit_memory_held [limit: "memory_held"]
                "Connections that were closed because memory is short and they held the most of it.",
        }
    }
}

impl WorkerMetrics {
    /// Creates the metrics of a worker. Modules that count the same thing share one metric.
    fn new() -> Self {
        let (requests, wake) = (Arc::<RequestMetrics>::default(), Arc::<WakeTracker>::default());
        let shared = || (Arc::clone(&requests), Arc::clone(&wake));
        let (of_http3, of_tcp) = (shared(), shared());
        Self {
            quic: Arc::new(quic::QuicMetrics { wake: Arc::clone(&wake), ..quic::QuicMetrics::default() }),
            http3: Arc::new(http3::Http3Metrics {
                shared: of_http3.0,
                wake: of_http3.1,
                ..http3::Http3Metrics::default()
            }),
            tcp: Arc::new(tcp::TcpMetrics { shared: of_tcp.0, wake: of_tcp.1, ..tcp::TcpMetrics::default() }),
            proxy: Arc::new(proxy::ProxyMetrics { wake: Arc::clone(&wake), ..proxy::ProxyMetrics::default() }),
            shared: requests,
            wake,
            ..Self::default()
        }
    }

    /// Metrics by module, in the order of a scrape.
    fn metric_groups(&self) -> [Arc<dyn Group>; 11] {
        [
            self.quic.clone(),
            self.tls.clone(),
            self.http3.clone(),
            self.tcp.clone(),
            self.shared.clone(),
            self.proxy.clone(),
            self.access_log.clone(),
            self.traces.clone(),
            self.net.clone(),
            self.wake.clone(),
            self.worker.clone(),
        ]
    }
}

impl ProcessMetrics {
    /// Creates the metrics of a process with `workers` workers.
    pub fn new(workers: usize) -> Self {
        let control = ControlMetrics::default();
        control.workers.set(workers as u64);
        Self {
            control: Arc::new(control),
            workers: (0..workers).map(|_| WorkerMetrics::new()).collect(),
            ..Self::default()
        }
    }

    /// Metrics of each worker, by the worker's index.
    pub fn worker_metrics(&self) -> &[WorkerMetrics] {
        &self.workers
    }

    /// Registry of all metrics, for a scrape.
    pub fn registry(&self) -> MetricsRegistry {
        let mut registry = MetricsRegistry::default();
        self.workers.iter().flat_map(WorkerMetrics::metric_groups).for_each(|group| registry.register_group(group));
        registry.register_group(self.control.clone());
        registry.register_group(self.admin.clone());
        registry.register_group(self.access_log.clone());
        registry.register_group(self.log.clone());
        registry.register_group(self.checks.clone());
        registry.register_group(self.acme.clone());
        registry.register_group(self.unanswered.clone());
        registry.register_group(self.traces.clone());
        registry.with_exemplars(Arc::clone(&self.exemplars))
    }

    /// Registry of the metrics of requests and responses alone, whose number does not grow with the configuration.
    pub fn request_registry(&self) -> MetricsRegistry {
        let mut registry = MetricsRegistry::default();
        for WorkerMetrics { http3, tcp, shared, .. } in &self.workers {
            registry.register_group(http3.clone());
            registry.register_group(tcp.clone());
            registry.register_group(shared.clone());
        }
        registry
    }

    /// Sums `read` of `server` over all workers.
    pub fn sum_of_server(&self, server: &ServerName, read: impl Fn(&ServerMetrics) -> u64) -> u64 {
        self.sum_over_workers(|worker| worker.proxy.servers.read_counter(server, &read))
    }

    /// Sums `read` over all workers.
    pub fn sum_over_workers(&self, read: impl Fn(&WorkerMetrics) -> u64) -> u64 {
        self.workers.iter().map(read).sum()
    }

    /// Metrics of one worker with every possible label: `…` for labels that the configuration names.
    pub fn with_placeholders() -> Self {
        let metrics = Self::new(1);
        let (any, server) = (PLACEHOLDER, ServerName::new(PLACEHOLDER, PLACEHOLDER));
        for worker in &metrics.workers {
            worker.proxy.routes.counters_for(&proxy::RouteName(any.into()));
            worker.proxy.servers.counters_for(&server);
        }
        metrics.checks.counters_for(&server);
        metrics.control.version.set_version(any.into());
        metrics.control.problems.set_problems(admin::Problem::KINDS.iter().map(|kind| (*kind, any.into())).collect());
        metrics.control.certificates.set_validities(vec![CertificateValidity {
            name: "certificates[0]".into(),
            from: 0,
            until: 0,
        }]);
        metrics
    }
}

/// Placeholder for a label that the configuration names.
const PLACEHOLDER: &str = "…";

/// The reference of all metrics, as Markdown.
pub fn metrics_reference() -> String {
    ProcessMetrics::with_placeholders().registry().render_reference()
}

/// Returns whether there is `metric`, given by its name in a scrape and its labels.
pub fn has_metric(metric: &str) -> bool {
    ProcessMetrics::with_placeholders().registry().contains_metric(metric)
}

#[cfg(test)]
mod tests {
    use super::*;
    use litequic_telemetry::Sample;
    use std::{collections::HashMap, mem};

    fn samples() -> Vec<Sample> {
        let metrics = ProcessMetrics::with_placeholders();
        let mut samples = Vec::new();
        metrics.registry().visit(&mut |sample| samples.push(sample));
        samples
    }

    #[test]
    fn samples_of_one_name_agree_on_kind_help_and_labels() {
        let mut known = HashMap::new();
        for sample in samples() {
            let name = sample.family.name;
            assert!(!name.ends_with("_total"), "{name}: the format adds the suffix");
            let bytes = name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_');
            assert!(bytes, "{name}");
            let help = sample.family.help;
            assert!(help.ends_with('.') && !help.contains(['\n', '\\', '"']), "{name}");
            let labels: Vec<&str> = sample.labels.iter().map(|(label, _)| *label).collect();
            let kind = (mem::discriminant(&sample.value), help, labels);
            assert_eq!(known.entry(name).or_insert_with(|| kind.clone()), &kind, "{name}");
        }
        assert!(known.len() > 100, "{} families", known.len());
    }

    #[test]
    fn one_module_documents_a_shared_metric() {
        let mut noted = HashMap::new();
        for sample in samples().into_iter().filter(|sample| !sample.note.is_empty()) {
            let before = noted.insert(sample.labeled_name(""), sample.note);
            assert!(
                before.is_none_or(|before| before == sample.note),
                "{}: {before:?}, {}",
                sample.labeled_name(""),
                sample.note
            );
        }
    }

    #[test]
    fn a_scrape_has_each_sample_once() {
        let text = ProcessMetrics::new(2).registry().render_metrics();
        let mut lines: Vec<&str> = text.lines().filter_map(|line| Some(line.rsplit_once(' ')?.0)).collect();
        let all = lines.len();
        lines.sort_unstable();
        lines.dedup();
        assert_eq!((lines.len(), text.ends_with("# EOF\n")), (all, true));
    }

    #[test]
    fn two_protocols_share_one_metric() {
        let metrics = ProcessMetrics::new(1);
        let worker = &metrics.worker_metrics()[0];
        worker.http3.shared.limit_headers.increment();
        worker.tcp.shared.limit_headers.increment();
        worker.tcp.timeout_idle.increment();
        worker.quic.timeout_idle.increment();
        let samples: HashMap<String, u64> = metrics.registry().summed_samples().into_iter().collect();
        let of = |name: &str| samples[name];
        assert_eq!((of("limit_reached{limit=\"max_headers\"}"), of("timeouts{timeout=\"idle\"}")), (2, 2));
    }
}
