//! What the control thread counts: reloads, and what the configuration in force says of itself.

use super::counter::{Counter, Gauge};
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, NoLabelSet},
    metrics::{MetricType, exemplar::Exemplar},
};
use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

/// Written by the control thread, but where it says otherwise.
#[derive(Debug, Default)]
pub struct ControlMetrics {
    /// Reloads that were taken on.
    pub reloads: Counter,
    /// Reloads that were refused for a fault; what was in force stayed.
    pub reloads_refused: Counter,
    /// Lines of the access log that could not be written. Its writer alone counts here.
    pub access_log_lost: Counter,
    /// When the configuration in force was read, in seconds since the Unix epoch.
    pub configured_at: Gauge,
    /// When the first of the certificates expires, in seconds since the Unix epoch.
    pub certificates_expire_at: Gauge,
    /// When each of them does, in their order. Taken by reloads and scrapes alone.
    pub certificates: Mutex<Vec<u64>>,
}

/// For a scrape.
#[derive(Debug)]
pub(super) struct Control(pub(super) Arc<ControlMetrics>);

impl Collector for Control {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let help = "Reloads of the configuration and certificates.";
        let mut reloads = encoder.encode_descriptor("reloads", help, None, MetricType::Counter)?;
        for (result, counter) in [("ok", &self.0.reloads), ("refused", &self.0.reloads_refused)] {
            let none = None::<&Exemplar<NoLabelSet, u64>>;
            reloads.encode_family(&[("result", result)])?.encode_counter(&counter.get(), none)?;
        }
        let help = "Lines of the access log that could not be written.";
        encoder
            .encode_descriptor("access_log_lost_lines", help, None, MetricType::Counter)?
            .encode_counter(&self.0.access_log_lost.get(), None::<&Exemplar<NoLabelSet, u64>>)?;
        let gauges = [
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
        let help = "When each certificate expires, in seconds since the Unix epoch.";
        let mut family =
            encoder.encode_descriptor("certificates_expiry_timestamp_seconds", help, None, MetricType::Gauge)?;
        for (n, expiry) in self.0.certificates.lock().unwrap_or_else(PoisonError::into_inner).iter().enumerate() {
            family.encode_family(&[("certificate", format!("certificates[{n}]"))])?.encode_gauge(expiry)?;
        }
        Ok(())
    }
}
