//! Collects the parts of an endpoint, beside its socket: the configuration, and what it shares with its worker, the
//! other workers and other processes.

use super::{
    admission::{Admission, MAX_RESPONSES_PER_SECOND, SourceLimits},
    endpoint_state::EndpointState,
};
use crate::{
    connection::Connections,
    identity::{
        Generations, IdScheme, SecretError, Secrets,
        connection_id::{OwnIds, WorkerIndex},
    },
    io::{Moderation, ProxyFlows},
    metrics::QuicMetrics,
};
use litequic_base::{
    lifecycle::{Lifecycle, PhaseWatch},
    token_bucket::SharedTokenBucket,
};
use litequic_config::{Limits, LiveConfig};
use litequic_resources::{memory::MemoryPressure, receive::ReceiveBudget};
use litequic_telemetry::clients::DenyList;
use std::sync::Arc;

/// Parts of an endpoint, beside the socket. Cheap to clone: each endpoint of a worker has a clone.
#[derive(Debug, Clone)]
pub struct EndpointParts<T> {
    /// Configuration: each connection has the limits and timeouts in force when it begins.
    pub config: LiveConfig,
    /// The server's side of TLS: certificates and the key of session tickets, the same for all workers.
    pub tls: T,
    /// Token keys, the same for all workers.
    pub secrets: Arc<Secrets>,
    /// Scheme of connection IDs, the same for all workers.
    pub ids: Arc<IdScheme>,
    /// Generation of this process, which distinguishes its connection IDs from those of others on the same port.
    pub generation: u8,
    /// Generations of other processes that run on the same port.
    pub others: Arc<Generations>,
    /// Number of workers of the process.
    pub workers: usize,
    /// Metrics of the worker.
    pub metrics: Arc<QuicMetrics>,
    /// Budget of the worker's receive windows.
    pub receive: ReceiveBudget,
    /// Connections and handshakes of the worker, by source.
    pub sources: SourceLimits,
    /// Level of memory pressure.
    pub pressure: MemoryPressure,
    /// Networks whose clients are refused.
    pub denied: Arc<DenyList>,
    /// Flows of load balancers, the same for all workers.
    pub flows: Arc<ProxyFlows>,
    /// Phase of the process: a draining process refuses new connections.
    pub watch: PhaseWatch,
}

impl<T> EndpointParts<T> {
    /// Parts for the only worker of a process that shares its port with no other: random secrets, no server ID,
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
            flows: Arc::default(),
            watch: Lifecycle::default().watch_phase(),
        })
    }

    /// Connection IDs that `worker` issues.
    pub(super) fn own_ids(&self, worker: WorkerIndex) -> OwnIds {
        OwnIds::new(&self.ids, self.generation, Arc::clone(&self.others), worker, self.workers)
    }

    /// Builds the state of an endpoint without connections.
    pub(super) fn build_state(&self, moderation: Moderation) -> Arc<EndpointState> {
        let (config, metrics) = (|| Arc::clone(&self.config), || Arc::clone(&self.metrics));
        let admission = Admission {
            config: config(),
            metrics: metrics(),
            answers: SharedTokenBucket::new(MAX_RESPONSES_PER_SECOND),
            sources: self.sources.clone(),
            pressure: self.pressure.clone(),
            denied: Arc::clone(&self.denied),
            watch: self.watch.clone(),
        };
        let connections = Connections::new(&self.config.load().limits, metrics());
        EndpointState::new(config(), metrics(), moderation, admission, connections)
    }
}
