//! One server of an origin: its connections, and its state by health checks and by a worker's own requests.

use crate::balance::{Ejection, HashKey, HealthState, View, weight};
use crate::connection::TlsToOrigin;
use crate::metrics::{Metrics, ServerMetrics, ServerName};
use crate::pool::{Pool, Resources};
use litequic_config::{self as config, OriginAddress, OriginServer};
use litequic_telemetry::Counted;
use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    sync::Arc,
    time::{Duration, Instant},
};

/// One worker's state of one server.
#[derive(Debug)]
pub(crate) struct Server {
    /// The address in the configuration.
    pub(crate) name: Arc<str>,
    pub(crate) pool: Rc<Pool>,
    /// Identity of the server for consistent hashing.
    key: HashKey,
    health_state: RefCell<Arc<HealthState>>,
    /// How often that had changed when it was last read.
    seen: Cell<u32>,
    pub(super) ejection: RefCell<Ejection>,
    /// Set while it is ejected, for the metrics.
    ejected: RefCell<Option<Counted<ServerMetrics>>>,
    pub(super) counters: Arc<ServerMetrics>,
}

impl Server {
    /// The state for the server at an address, by TLS if it has https, without a connection yet.
    pub(crate) fn new(
        origin_name: &str,
        origin: &config::Origin,
        address: &OriginAddress,
        tls: Option<&TlsToOrigin>,
        health_state: &Arc<HealthState>,
        metrics: &Arc<Metrics>,
        resources: &Rc<Resources>,
    ) -> Self {
        let name = address.to_string();
        let counters = metrics.servers.of(&ServerName::new(origin_name, &name));
        Self {
            key: HashKey::of(name.as_bytes()),
            name: name.into(),
            pool: Pool::new(origin, address, tls, Arc::clone(metrics), Arc::clone(&counters), resources),
            health_state: RefCell::new(Arc::clone(health_state)),
            seen: Cell::new(health_state.transitions()),
            ejection: RefCell::default(),
            ejected: RefCell::default(),
            counters,
        }
    }

    /// The results of the health checks are in `health_state` from now on.
    pub(crate) fn follow(&self, health_state: &Arc<HealthState>) {
        if !Arc::ptr_eq(&self.health_state.borrow(), health_state) {
            self.seen.set(health_state.transitions());
            self.health_state.replace(Arc::clone(health_state));
        }
    }

    /// State of the server, with `it` of the configuration. `slow_start` is the origin's.
    pub(crate) fn view(&self, now: Instant, it: &OriginServer, slow_start: Option<Duration>) -> View {
        let transitions = self.health_state.borrow().transitions();
        let up = HealthState::is_up_after(transitions);
        let mut ejection = self.ejection.borrow_mut();
        if self.seen.replace(transitions) != transitions && up {
            ejection.revived();
        }
        let out = ejection.is_out(now);
        self.show(out);
        View {
            up,
            kept: !out,
            open: ejection.is_open(now),
            backup: it.backup,
            requests: self.pool.requests(),
            weight: weight(it.weight, slow_start, ejection.back_for(now)),
            key: self.key,
        }
    }

    pub(super) fn show(&self, out: bool) {
        let mut ejected = self.ejected.borrow_mut();
        if out != ejected.is_some() {
            *ejected = out.then(|| Counted::new(&self.counters, |counters| &counters.ejected));
        }
    }

    /// A reload leaves no server beside it, or takes it away: what its requests showed is of no use any more.
    pub(super) fn pardon(&self) {
        self.ejection.take();
        self.show(false);
    }

    /// The server was picked for a request. Returns whether that is its trial.
    pub(crate) fn chosen(&self, now: Instant) -> bool {
        self.ejection.borrow_mut().chosen(now)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Idle connections hold their pool.
        self.pool.close();
    }
}

/// By tokio's clock, which tests control.
pub(crate) fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}
