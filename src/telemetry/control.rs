//! What the control thread counts: reloads, and what the configuration in force says of itself.

use super::{
    counter::{Counter, Gauge},
    servers::{CheckMetrics, ServerTable},
};
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, NoLabelSet},
    metrics::{MetricType, exemplar::Exemplar},
};
use std::{
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

/// When a certificate is valid, in seconds since the Unix epoch.
#[derive(Debug, Clone, Copy)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Validity {
    pub from: u64,
    pub until: u64,
}

/// Written by the control thread, but where it says otherwise.
#[derive(Debug, Default)]
pub struct ControlMetrics {
    /// Reloads that were taken on.
    pub reloads: Counter,
    /// Reloads that were refused for a fault; what was in force stayed.
    pub reloads_refused: Counter,
    /// Processes that have taken over from this one: one at most.
    pub upgrades: Counter,
    /// Those that were about to, and did not.
    pub upgrades_failed: Counter,
    /// What this process' connection IDs carry, to tell it from others at the same addresses.
    pub generation: Gauge,
    /// Processes before this one that still finish what they have begun.
    pub older_processes: Gauge,
    /// Lines of the access log that could not be written. Its writers count here: two while one takes over.
    pub access_log_lost: AtomicU64,
    /// When the last of the one and of the other was, in seconds since the Unix epoch; 0 before the first.
    pub reloaded_at: Gauge,
    /// See [`ControlMetrics::reloaded_at`].
    pub refused_at: Gauge,
    /// Since when reloads are refused, in seconds since the Unix epoch; 0 while the last one was taken on.
    pub refused_since: Gauge,
    /// Refused reloads with which files of the configuration in force were renewed.
    pub renewals: Counter,
    /// When certificates, authorities or error pages were renewed last, in seconds since the Unix epoch; 0 before the first.
    pub renewed_at: Gauge,
    /// When the configuration in force was read, in seconds since the Unix epoch.
    pub configured_at: Gauge,
    /// Its version. Taken by reloads, scrapes and `/status` alone.
    pub version: Mutex<String>,
    /// When the first of the certificates expires, in seconds since the Unix epoch.
    pub certificates_expire_at: Gauge,
    /// When each of them is valid, in their order. Taken by reloads and scrapes alone.
    pub certificates: Mutex<Vec<Validity>>,
    /// Connections to an admin address that were closed, silent for the longest time, because another came and all places were
    /// taken.
    pub admin_connections: Counter,
    /// Connections to an admin address that were closed because a request's header was too large, or did not come in time.
    pub admin_header: Counter,
    /// Those that were closed for their age.
    pub admin_age: Counter,
    /// Requests to an admin address that had to wait because there were too many.
    pub admin_requests: Counter,
    /// Bytes that the process uses, of those that it may, when [`crate::memory`] last looked; 0 without a limit.
    pub memory_used: Gauge,
    /// See [`ControlMetrics::memory_used`].
    pub memory_limit: Gauge,
    /// How short memory is: 0 to 3.
    pub memory_step: Gauge,
    /// Times that it became shorter.
    pub memory_steps: Counter,
    /// Checks of origins' servers.
    pub servers: ServerTable<CheckMetrics>,
}

impl ControlMetrics {
    /// A reload was taken on, or `refused`, at `now`, in seconds since the Unix epoch.
    pub fn count_reload(&self, refused: bool, now: u64) {
        let (counter, time) = match refused {
            false => (&self.reloads, &self.reloaded_at),
            true => (&self.reloads_refused, &self.refused_at),
        };
        counter.increment();
        time.set(now);
        if refused && self.refused_since.get() == 0 {
            self.refused_since.set(now);
        }
    }

    /// The version of the configuration in force.
    pub fn version(&self) -> String {
        self.version.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// For a scrape.
#[derive(Debug)]
pub(super) struct Control(pub(super) Arc<ControlMetrics>);

impl Collector for Control {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let results = [
            (
                "reloads",
                "Reloads of the configuration and certificates.",
                [("ok", &self.0.reloads), ("refused", &self.0.reloads_refused)],
            ),
            (
                "upgrades",
                "New processes that were to take over from this one.",
                [("ok", &self.0.upgrades), ("failed", &self.0.upgrades_failed)],
            ),
        ];
        for (name, help, counters) in results {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            for (result, counter) in counters {
                let none = None::<&Exemplar<NoLabelSet, u64>>;
                family.encode_family(&[("result", result)])?.encode_counter(&counter.get(), none)?;
            }
        }
        let limits = [
            ("connections", &self.0.admin_connections),
            ("header", &self.0.admin_header),
            ("age", &self.0.admin_age),
            ("requests", &self.0.admin_requests),
        ];
        let help = "Times a limit of the admin addresses was reached.";
        let mut family = encoder.encode_descriptor("admin_limit_reached", help, None, MetricType::Counter)?;
        for (limit, counter) in limits {
            let none = None::<&Exemplar<NoLabelSet, u64>>;
            family.encode_family(&[("limit", limit)])?.encode_counter(&counter.get(), none)?;
        }
        let help = "When the last reload went so, in seconds since the Unix epoch; 0 before the first.";
        let mut times = encoder.encode_descriptor("reload_timestamp_seconds", help, None, MetricType::Gauge)?;
        for (result, gauge) in [("ok", &self.0.reloaded_at), ("refused", &self.0.refused_at)] {
            times.encode_family(&[("result", result)])?.encode_gauge(&gauge.get())?;
        }
        let help = "The configuration in force, by a hash of its keys and values.";
        encoder
            .encode_descriptor("config", help, None, MetricType::Info)?
            .encode_info(&[("version", self.0.version())])?;
        let help = "Lines of the access log that could not be written.";
        encoder
            .encode_descriptor("access_log_lost_lines", help, None, MetricType::Counter)?
            .encode_counter(&self.0.access_log_lost.load(Relaxed), None::<&Exemplar<NoLabelSet, u64>>)?;
        let help = "Refused reloads with which certificates, authorities or error pages were renewed all the same, by the \
            configuration in force.";
        encoder
            .encode_descriptor("renewals", help, None, MetricType::Counter)?
            .encode_counter(&self.0.renewals.get(), None::<&Exemplar<NoLabelSet, u64>>)?;
        encoder
            .encode_descriptor(
                "memory_steps",
                "Times that memory became shorter by a step.",
                None,
                MetricType::Counter,
            )?
            .encode_counter(&self.0.memory_steps.get(), None::<&Exemplar<NoLabelSet, u64>>)?;
        let gauges = [
            (
                "config_refused_since_timestamp_seconds",
                "Since when reloads are refused, in seconds since the Unix epoch; 0 while the last one was taken on.",
                &self.0.refused_since,
            ),
            (
                "renewed_timestamp_seconds",
                "When certificates, authorities or error pages were renewed last, in seconds since the Unix epoch; 0 before the first.",
                &self.0.renewed_at,
            ),
            (
                "memory_used_bytes",
                "Memory that the process, or the cgroup whose limit is nearest, uses, without files that can be dropped; 0 \
                without a limit.",
                &self.0.memory_used,
            ),
            ("memory_limit_bytes", "The limit of that memory; 0 without one.", &self.0.memory_limit),
            (
                "memory_step",
                "How short memory is: 1: a client that has two connections gets no third; 2: buffers are smaller; 3: no client \
                gets a connection, and those that hold the most end.",
                &self.0.memory_step,
            ),
            ("generation", "The process' generation: each that takes over has the next.", &self.0.generation),
            ("older_processes", "Processes before this one that still drain.", &self.0.older_processes),
            (
                "config_timestamp_seconds",
                "When the configuration in force was read, in seconds since the Unix epoch.",
                &self.0.configured_at,
            ),
            (
                "certificate_expiry_timestamp_seconds",
                "When the first of the certificates expires, in seconds since the Unix epoch.",
                &self.0.certificates_expire_at,
            ),
        ];
        for (name, help, gauge) in gauges {
            encoder.encode_descriptor(name, help, None, MetricType::Gauge)?.encode_gauge(&gauge.get())?;
        }
        let certificates = self.0.certificates.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for (name, help, is_end) in [
            (
                "certificates_expiry_timestamp_seconds",
                "When each certificate expires, in seconds since the Unix epoch.",
                true,
            ),
            (
                "certificates_not_before_timestamp_seconds",
                "When each certificate becomes valid, in seconds since the Unix epoch.",
                false,
            ),
        ] {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for (n, Validity { from, until }) in certificates.iter().enumerate() {
                let labels = [("certificate", format!("certificates[{n}]"))];
                family.encode_family(&labels)?.encode_gauge(if is_end { until } else { from })?;
            }
        }
        self.encode_checks(encoder)
    }
}

impl Control {
    fn encode_checks(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let servers = self.0.servers.all();
        let help = "1 while a server of an origin is well by its checks, else 0.";
        let mut up = encoder.encode_descriptor("origin_server_up", help, None, MetricType::Gauge)?;
        for ((origin, server), checks) in &*servers {
            up.encode_family(&[("origin", &**origin), ("server", &**server)])?.encode_gauge(&checks.up.get())?;
        }
        let help = "Health checks of each server of an origin.";
        let mut family = encoder.encode_descriptor("origin_health_checks", help, None, MetricType::Counter)?;
        for ((origin, server), checks) in &*servers {
            for (result, counter) in [("ok", &checks.passed), ("failed", &checks.failed)] {
                let labels = [("origin", &**origin), ("server", &**server), ("result", result)];
                let none = None::<&Exemplar<NoLabelSet, u64>>;
                family.encode_family(&labels)?.encode_counter(&counter.get(), none)?;
            }
        }
        Ok(())
    }
}
