//! Holds one server of an origin for a worker: its connections, and its state by health checks and by requests.

use crate::balance::{Ejection, HashKey, HealthState, ServerView, effective_weight};
use crate::connection::TlsToOrigin;
use crate::metrics::{ProxyMetrics, ServerMetrics, ServerName};
use crate::pool::{PoolResources, ServerPool};
use litequic_config::{self as config, OriginAddress, OriginServer};
use litequic_telemetry::GaugeGuard;
use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    sync::Arc,
    time::{Duration, Instant},
};

/// One worker's state of one server.
#[derive(Debug)]
pub(crate) struct WorkerServer {
    /// Address of the server in the configuration.
    pub(crate) name: Arc<str>,
    pub(crate) pool: Rc<ServerPool>,
    /// Identity of the server for consistent hashing.
    key: HashKey,
    health_state: RefCell<Arc<HealthState>>,
    /// Number of health transitions at the last read.
    seen: Cell<u32>,
    pub(super) ejection: RefCell<Ejection>,
    /// Counts the ejected server in the metrics.
    ejected: RefCell<Option<GaugeGuard<ServerMetrics>>>,
    pub(super) counters: Arc<ServerMetrics>,
}

impl WorkerServer {
    /// The state of the server at `address`, by TLS if it has https, without a connection yet.
    pub(crate) fn new(
        origin_name: &str,
        origin: &config::OriginConfig,
        address: &OriginAddress,
        tls: Option<&TlsToOrigin>,
        health_state: &Arc<HealthState>,
        metrics: &Arc<ProxyMetrics>,
        resources: &Rc<PoolResources>,
    ) -> Self {
        let name = address.to_string();
        let counters = metrics.servers.counters_for(&ServerName::new(origin_name, &name));
        Self {
            key: HashKey::from_identity(name.as_bytes()),
            name: name.into(),
            pool: ServerPool::new(origin, address, tls, Arc::clone(metrics), Arc::clone(&counters), resources),
            health_state: RefCell::new(Arc::clone(health_state)),
            seen: Cell::new(health_state.transitions()),
            ejection: RefCell::default(),
            ejected: RefCell::default(),
            counters,
        }
    }

    /// Follows `health_state`, which has the results of the health checks from now on.
    pub(crate) fn follow_health(&self, health_state: &Arc<HealthState>) {
        if !Arc::ptr_eq(&self.health_state.borrow(), health_state) {
            self.seen.set(health_state.transitions());
            self.health_state.replace(Arc::clone(health_state));
        }
    }

    /// State of the server for the choice; `it` is its configuration, `slow_start` the origin's.
    pub(crate) fn server_view(&self, now: Instant, it: &OriginServer, slow_start: Option<Duration>) -> ServerView {
        let transitions = self.health_state.borrow().transitions();
        let up = HealthState::is_up_after(transitions);
        let mut ejection = self.ejection.borrow_mut();
        if self.seen.replace(transitions) != transitions && up {
            ejection.on_revived();
        }
        let out = ejection.is_ejected(now);
        self.show_ejected(out);
        ServerView {
            up,
            not_ejected: !out,
            open: ejection.accepts_requests(now),
            backup: it.backup,
            requests: self.pool.active_requests(),
            weight: effective_weight(it.weight, slow_start, ejection.time_since_readmission(now)),
            key: self.key,
        }
    }

    /// Number of health transitions; `None` while the server is ejected or on trial.
    pub(super) fn active_transitions(&self) -> Option<u32> {
        self.ejection.borrow().is_active().then(|| self.health_state.borrow().transitions())
    }

    pub(super) fn show_ejected(&self, out: bool) {
        let mut ejected = self.ejected.borrow_mut();
        if out != ejected.is_some() {
            *ejected = out.then(|| GaugeGuard::new(&self.counters, |counters| &counters.ejected));
        }
    }

    /// Ends an ejection, because a reload leaves no server beside this one, or removes it: earlier requests tell
    /// nothing any more.
    pub(super) fn clear_ejection(&self) {
        self.ejection.take();
        self.show_ejected(false);
    }

    /// Notes that the server was chosen for a request. Returns whether that is its trial.
    pub(crate) fn claim_trial(&self, now: Instant) -> bool {
        self.ejection.borrow_mut().on_chosen(now)
    }
}

impl Drop for WorkerServer {
    fn drop(&mut self) {
        // Idle connections hold their pool.
        self.pool.close_idle();
    }
}

/// Time of tokio's clock, which tests control.
pub(crate) fn tokio_now() -> Instant {
    tokio::time::Instant::now().into_std()
}
