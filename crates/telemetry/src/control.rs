//! Metrics of the control thread: reloads, and the configuration in force.

use super::{
    counter::{Counter, Gauge},
    group::{Family, Group, Sample, SampleValue},
};
use crate::metrics;
use parking_lot::Mutex;

metrics! {
    /// Metrics that the control thread writes.
    pub struct ControlMetrics {
        Gauge("workers", "Worker threads.") { workers }
        Counter("reloads", "Reloads of the configuration and certificates.") {
            reloads [result: "ok"],
            reloads_refused [result: "refused"],
        }
        Counter("upgrades", "Hot upgrades: new processes that this process started, by result.") {
            upgrades [result: "ok"],
            upgrades_failed [result: "failed"],
        }
        Gauge(
            "reload_timestamp_seconds",
            "Time of the last reload with this result, in seconds since the Unix epoch; 0 before the first."
        ) {
            reloaded_at [result: "ok"],
            refused_at [result: "refused"],
        }
        Counter(
            "renewals",
            "Rejected reloads that nevertheless renewed certificates, authorities or error pages of the configuration \
             in force."
        ) {
            renewals,
        }
        Gauge(
            "config_refused_since_timestamp_seconds",
            "Time of the first of the reloads that have been rejected since the last applied one, in seconds since \
             the Unix epoch; 0 if the last one was applied."
        ) {
            refused_since,
        }
        Gauge(
            "renewed_timestamp_seconds",
            "Time of the last renewal of certificates, authorities or error pages, in seconds since the Unix epoch; 0 \
             before \
                the first."
        ) {
            renewed_at,
        }
        Gauge("maintenance_routes", "Routes that the operator has switched to maintenance.") { maintenance_routes }
        Gauge("denied_networks", "Networks whose clients the operator denies: `litequic ctl deny`.") { denied_networks }
        Counter("memory_steps", "Times that the memory step (`litequic_memory_step`) rose.") { memory_steps }
        Gauge(
            "memory_used_bytes",
            "Memory used by the process, or by the cgroup whose limit is nearest, without files that the kernel can \
             drop; 0 without a limit."
        ) {
            memory_used,
        }
        Gauge("memory_limit_bytes", "The limit of that memory; 0 without one.") { memory_limit }
        Gauge(
            "memory_step",
            "How short memory is. 0: enough; 1: a client that has two connections gets no third; 2: buffers are \
             smaller; 3: no \
                client gets a connection, and those that hold the most end."
        ) {
            memory_step,
        }
        Gauge("generation", "Generation of the process: a process that takes over has the next number.") { generation }
        Gauge("older_processes", "Previous processes that still drain.") { older_processes }
        Gauge(
            "config_timestamp_seconds",
            "Time at which the configuration in force was read, in seconds since the Unix epoch."
        ) {
            configured_at,
        }
        Gauge(
            "certificate_expiry_timestamp_seconds",
            "Time at which the first certificate expires, in seconds since the Unix epoch."
        ) {
            certificates_expire_at,
        }
        + with {
            /// Version of the configuration in force.
            pub version: ConfigVersion,
            /// Validity of each certificate, in the configuration's order.
            pub certificates: CertificateValidities,
            /// Problems that the status shows.
            pub problems: ProblemTable,
        }
    }
}

impl ControlMetrics {
    /// Counts a reload that was applied, or `refused`, at `now`, in seconds since the Unix epoch.
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
}

/// Version of the configuration. Locked by reloads, scrapes and `/status` only.
#[derive(Debug, Default)]
pub struct ConfigVersion(Mutex<String>);

impl ConfigVersion {
    /// Sets the version.
    pub fn set_version(&self, version: String) {
        *self.0.lock() = version;
    }

    /// The current version.
    pub fn get(&self) -> String {
        self.0.lock().clone()
    }

    #[cfg(test)]
    pub(super) fn is_version_unlocked(&self) -> bool {
        self.0.try_lock().is_some()
    }
}

impl Group for ConfigVersion {
    fn visit(&self, see: &mut dyn FnMut(Sample)) {
        let help = "The configuration in force, by a hash of its keys and values.";
        let labels = vec![("version", self.get().into())];
        see(Sample { family: Family { name: "config", help }, labels, note: "", value: SampleValue::Info });
    }
}

/// Validity of a certificate, in seconds since the Unix epoch.
#[derive(Debug, Clone)]
#[expect(missing_docs, reason = "the names say it")]
pub struct CertificateValidity {
    /// Key of the certificate in the configuration, or its host if ACME obtained it.
    pub name: String,
    pub from: u64,
    pub until: u64,
}

/// Validity of each certificate. Locked by reloads and scrapes only.
#[derive(Debug, Default)]
pub struct CertificateValidities(Mutex<Vec<CertificateValidity>>);

impl CertificateValidities {
    /// Sets the validity of all certificates.
    pub fn set_validities(&self, certificates: Vec<CertificateValidity>) {
        *self.0.lock() = certificates;
    }

    #[cfg(test)]
    pub(super) fn is_list_unlocked(&self) -> bool {
        self.0.try_lock().is_some()
    }
}

impl Group for CertificateValidities {
    fn visit(&self, see: &mut dyn FnMut(Sample)) {
        let expiry = Family {
            name: "certificates_expiry_timestamp_seconds",
            help: "Time at which each certificate expires, in seconds since the Unix epoch.",
        };
        let not_before = Family {
            name: "certificates_not_before_timestamp_seconds",
            help: "Time from which each certificate is valid, in seconds since the Unix epoch.",
        };
        let certificates = self.0.lock().clone();
        for CertificateValidity { name, from, until } in certificates {
            for (family, time) in [(expiry, until), (not_before, from)] {
                let labels = vec![("certificate", name.clone().into())];
                see(Sample { family, labels, note: "", value: SampleValue::Gauge(time) });
            }
        }
    }
}

/// Problems of the process, each by its kind and subject. Locked by scrapes and `/status` only.
#[derive(Debug, Default)]
pub struct ProblemTable(Mutex<Vec<(&'static str, String)>>);

impl ProblemTable {
    /// Sets the problems: pairs of a kind, which is a fixed word, and of a subject that the configuration names, or
    /// none.
    pub fn set_problems(&self, problems: Vec<(&'static str, String)>) {
        *self.0.lock() = problems;
    }
}

impl Group for ProblemTable {
    fn visit(&self, see: &mut dyn FnMut(Sample)) {
        let help = "Problems that the status page and `litequic ctl status` show, by kind and subject.";
        let problems = self.0.lock().clone();
        for (kind, subject) in problems {
            let labels = vec![("kind", kind.into()), ("subject", subject.into())];
            see(Sample { family: Family { name: "problems", help }, labels, note: "", value: SampleValue::Gauge(1) });
        }
    }
}
