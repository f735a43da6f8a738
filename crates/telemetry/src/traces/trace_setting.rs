//! Settings of traces: sampling, and the destination of spans.

use super::{otlp::ExportEnvelope, sampler::Sampler};
use arc_swap::ArcSwapOption;
use litequic_config::{Config, Fraction, Network, TraceEndpoint, TraceParent, Traces};
use litequic_exchange::{TraceId, TraceStart};
use rustls::ClientConfig;
use std::{net::IpAddr, sync::Arc, time::Duration};

/// TLS to a collector, by the present content of its files.
#[derive(Clone)]
pub struct CollectorTls {
    /// TLS configuration, with the offered ALPN protocol.
    pub config: Arc<ClientConfig>,
    /// Digest of the files that verify the collector's certificate.
    pub digest: [u8; 32],
}

impl PartialEq for CollectorTls {
    fn eq(&self, other: &Self) -> bool {
        self.digest == other.digest
    }
}

impl Eq for CollectorTls {}

litequic_base::partial_debug!(CollectorTls);

#[derive(Debug)]
pub(super) struct SpanDestination {
    pub(super) endpoint: TraceEndpoint,
    pub(super) headers: Vec<(http::HeaderName, http::HeaderValue)>,
    pub(super) timeout: Duration,
    pub(super) tls: Option<CollectorTls>,
    pub(super) envelope: ExportEnvelope,
}

#[derive(Debug)]
pub(super) struct TraceSetting {
    pub(super) sampler: Sampler,
    parent: TraceParent,
    trusted: Vec<Network>,
    pub(super) max_per_second: u32,
    pub(super) destination: Arc<SpanDestination>,
}

impl TraceSetting {
    /// The setting of `config`; `None` if traces are off, or need TLS and `tls` is `None`.
    pub(super) fn new(config: &Config, tls: Option<CollectorTls>) -> Option<Self> {
        let Traces { endpoint, ratio, parent, max_per_second, headers, timeout, .. } = &config.traces;
        let endpoint = endpoint.clone()?;
        if endpoint.is_https && tls.is_none() {
            return None;
        }
        let destination = SpanDestination {
            tls: tls.filter(|_| endpoint.is_https),
            endpoint,
            headers: headers.clone(),
            timeout: *timeout,
            envelope: ExportEnvelope::new(&config.traces),
        };
        Some(Self {
            sampler: Sampler::new(Fraction(ratio.0)),
            parent: *parent,
            trusted: config.trusted_proxies.clone(),
            max_per_second: *max_per_second,
            destination: Arc::new(destination),
        })
    }

    /// Decides about a request of `peer` before its header is known. A trace that begins here has the ID `own`, which
    /// decides whether it is sampled; only a trusted peer's `traceparent` may be continued.
    pub(super) fn begin_trace(&self, peer: IpAddr, own: TraceId) -> TraceStart {
        if self.sampler.samples_trace(own) || self.parent == TraceParent::Any || self.is_trusted_peer(peer) {
            TraceStart::Undecided(own)
        } else {
            TraceStart::Unsampled(own)
        }
    }

    fn is_trusted_peer(&self, address: IpAddr) -> bool {
        self.trusted.iter().any(|network| network.contains_address(address))
    }

    /// Whether the `traceparent` of the peer at `address` is continued.
    pub(super) fn follows_traceparent(&self, address: IpAddr) -> bool {
        match self.parent {
            TraceParent::Any => true,
            TraceParent::None => false,
            TraceParent::Trusted => self.is_trusted_peer(address),
        }
    }
}

/// Setting in force, read without a lock, written by the control thread.
pub(super) type CurrentTraceSetting = Arc<ArcSwapOption<TraceSetting>>;
