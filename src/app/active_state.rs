//! What is in force, as workers see it. Reloads, orders of the operator and certificates that were obtained replace it.

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
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// What is in force, as workers see it.
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
    /// Descriptors, and what follows from them.
    pub(super) shared: SharedDescriptors,
    /// How connection IDs are made: new ones follow `listen.server_id`.
    pub(super) ids: Arc<IdScheme>,
    /// Whether HTTP/3 is served: open connections follow.
    pub(super) http3: Arc<Http3Switch>,
    /// Networks whose clients are refused.
    pub(super) denial: Arc<Denial>,
    pub(super) acme: Acme,
    /// Held while `routing` is replaced, which follows from what it was and from `config`; and while certificates are,
    /// of which these come from no file.
    pub(super) replacing: Arc<Mutex<IssuedCertificates>>,
}

impl ActiveState {
    /// Locks what is replaced as a whole.
    pub(super) fn lock_replacement(&self) -> MutexGuard<'_, IssuedCertificates> {
        self.replacing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
