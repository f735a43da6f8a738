//! What an endpoint is made from, beside its socket: the configuration, and what it shares with its worker, the other
//! workers and other processes.

use super::{
    admission::{Admission, SourceLimits},
    endpoint_state::EndpointState,
};
use crate::{
    connection::Connections,
    identity::{
        Generations, IdScheme, SecretError, Secrets,
        connection_id::{OwnIds, WorkerIndex},
    },
    io::Moderation,
    metrics::QuicMetrics,
};
use litequic_base::lifecycle::{Lifecycle, PhaseWatch};
use litequic_config::{Limits, LiveConfig};
use litequic_resources::{memory::MemoryPressure, receive::ReceiveBudget};
use litequic_telemetry::clients::DenyList;
use std::sync::Arc;

/// The parts of an endpoint, beside its socket. Cheap to clone: one for each endpoint of a worker.
#[derive(Debug, Clone)]
pub struct EndpointParts<T> {
    /// Limits and timeouts: each connection has those in force when it begins.
    pub config: LiveConfig,
    /// The server's side of TLS: certificates and the key of session tickets, the same for all workers.
    pub tls: T,
    /// Token keys, the same for all workers.
    pub secrets: Arc<Secrets>,
    /// How connection IDs are made, the same for all workers.
    pub ids: Arc<IdScheme>,
    /// Distinguishes this process' connection IDs from another's on the same port.
    pub generation: u8,
    /// Generations of the other processes that run.
    pub others: Arc<Generations>,
    /// How many workers there are.
    pub workers: usize,
    /// This worker's counters.
    pub metrics: Arc<QuicMetrics>,
    /// The budget of its clients' windows.
    pub receive: ReceiveBudget,
    /// The sources of its connections, and of its handshakes.
    pub sources: SourceLimits,
    /// How short memory is.
    pub pressure: MemoryPressure,
    /// Networks whose clients are refused.
    pub denied: Arc<DenyList>,
    /// The phase of the process: one that drains refuses new connections.
    pub watch: PhaseWatch,
}

impl<T> EndpointParts<T> {
    /// The parts of the only worker of a process that shares its port with no other: random secrets, no server ID,
    /// generation 0, and a receive budget of `limits.worker_receive_buffer`. Memory is never short, no client is
    /// denied, and the process never drains.
    ///
    /// # Errors
    ///
    /// [`SecretError::Random`].
    pub fn for_one_worker(config: LiveConfig, tls: T) -> Result<Self, SecretError> {
        let receive = ReceiveBudget::new(config.load().limits.worker_receive_buffer, Limits::MIN_RECEIVE_WINDOW);
        Ok(Self {
            config,
            tls,
            secrets: Arc::new(Secrets::from_random()?),
            ids: Arc::new(IdScheme::new(None, None, None)?),
            generation: 0,
            others: Arc::default(),
            workers: 1,
            metrics: Arc::default(),
            receive,
            sources: SourceLimits::default(),
            pressure: MemoryPressure::default(),
            denied: Arc::default(),
            watch: Lifecycle::default().watch_phase(),
        })
    }

    /// The connection IDs that `worker` issues.
    pub(super) fn own_ids(&self, worker: WorkerIndex) -> OwnIds {
        OwnIds::new(&self.ids, self.generation, Arc::clone(&self.others), worker, self.workers)
    }

    /// The state of an endpoint that has no connection yet.
    pub(super) fn build_state(&self, moderation: Moderation) -> Arc<EndpointState> {
        let (config, metrics) = (|| Arc::clone(&self.config), || Arc::clone(&self.metrics));
        let admission = Admission::new(config(), metrics(), self.sources.clone(), self.pressure.clone());
        let admission = admission.with_phase(self.watch.clone()).with_denied_networks(Arc::clone(&self.denied));
        let connections = Connections::new(&self.config.load().limits, metrics());
        EndpointState::new(config(), metrics(), moderation, admission, connections)
    }
}
