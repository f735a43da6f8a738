//! Holds the state in force that workers read. Reloads, orders of the operator and new certificates replace parts of
//! it.

use super::acme_certificates::{IssuedCertificates, SharedAcme as Acme};
use super::denial::Denial;
use super::descriptors::SharedDescriptors;
use super::http3_switch::Http3Switch;
use super::last_reload::LastReload;
use super::metrics::ProcessMetrics;
use arc_swap::ArcSwap;
use litequic_config as config;
use litequic_proxy::Routing;
use litequic_quic::IdScheme;
use litequic_telemetry::{access_log::AccessLogger, traces::Tracing};
use litequic_tls::CertificateResolver;
use parking_lot::Mutex;
use std::sync::Arc;
use tokio::sync::Notify;

/// State in force that workers read: configuration, routes, certificates and switches.
#[derive(Debug, Clone)]
pub(super) struct ActiveState {
    pub(super) config: config::LiveConfig,
    pub(super) routing: Arc<ArcSwap<Routing>>,
    /// Notified of each change of `routing`.
    pub(super) rerouted: Arc<Notify>,
    pub(super) resolver: Arc<CertificateResolver>,
    pub(super) access: Arc<AccessLogger>,
    pub(super) traces: Arc<Tracing>,
    pub(super) metrics: Arc<ProcessMetrics>,
    pub(super) last_reload: Arc<LastReload>,
    /// Descriptors of the process, and the limits derived from their number.
    pub(super) shared: SharedDescriptors,
    /// Scheme of connection IDs: new IDs follow `listen.server_id`.
    pub(super) ids: Arc<IdScheme>,
    /// Switch of HTTP/3, which open connections follow.
    pub(super) http3: Arc<Http3Switch>,
    /// Networks whose clients are refused.
    pub(super) denial: Arc<Denial>,
    pub(super) acme: Acme,
    /// Locked while `routing` or the certificates are replaced: the new routes are made of the old ones and of
    /// `config`, the new certificates of those of files and of these, which ACME has obtained.
    pub(super) replacing: Arc<Mutex<IssuedCertificates>>,
}
