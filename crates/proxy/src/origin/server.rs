//! One server of an origin: its connections, and its state by health checks and by a worker's own requests.

use super::{Origin, Resources, pool::Pool, tls::TlsToOrigin};
use crate::{
    Metrics, ServerMetrics, ServerName,
    balance::{Ejection, EjectionCause, HashKey, Rule, View, weight},
};
use litequic_config::{self as config, OriginAddress, OriginServer};
use litequic_telemetry::Counted;
use std::{
    cell::{Cell, RefCell},
    net::SocketAddr,
    rc::Rc,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

/// The bit of [`HealthState::transitions`] that is set while the server is unhealthy.
const DOWN: u32 = 1;
/// What a transition adds, above that bit.
const ONE_TRANSITION: u32 = 2;

/// The state of a server by its health checks. The control thread writes it; workers read it without a lock.
#[derive(Debug, Default)]
pub(crate) struct HealthState {
    /// How often the server went up or down, and in the lowest bit whether it is down: one word, which a worker reads
    /// at once.
    transitions: AtomicU32,
    last_result: Mutex<CheckResult>,
}

/// The result of the last check, for the operator.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum CheckResult {
    /// There was none yet.
    #[default]
    Pending,
    /// The last check succeeded.
    Passed,
    /// The last check failed, for this reason.
    Failed(String),
}

impl HealthState {
    /// Whether the server is healthy, as far as is known.
    pub(crate) fn is_up(&self) -> bool {
        Self::is_up_after(self.transitions())
    }

    const fn is_up_after(transitions: u32) -> bool {
        transitions & DOWN == 0
    }

    /// The number of transitions, and [`DOWN`].
    fn transitions(&self) -> u32 {
        self.transitions.load(Relaxed)
    }

    /// Sets whether the server is `up`.
    pub(super) fn set(&self, up: bool) {
        if up != self.is_up() {
            let count = (self.transitions() & !DOWN).wrapping_add(ONE_TRANSITION);
            self.transitions.store(if up { count } else { count | DOWN }, Relaxed);
        }
    }

    /// The last check's result.
    pub(crate) fn last_result(&self) -> CheckResult {
        self.last_result.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn set_last_result(&self, result: CheckResult) {
        *self.last_result.lock().unwrap_or_else(PoisonError::into_inner) = result;
    }
}

/// One worker's state of one server.
#[derive(Debug)]
pub(super) struct Server {
    /// The address in the configuration.
    pub(super) name: Arc<str>,
    pub(super) pool: Rc<Pool>,
    /// Identity of the server for consistent hashing.
    key: HashKey,
    health_state: RefCell<Arc<HealthState>>,
    /// How often that had changed when it was last read.
    seen: Cell<u32>,
    ejection: RefCell<Ejection>,
    /// Set while it is ejected, for the metrics.
    ejected: RefCell<Option<Counted<ServerMetrics>>>,
    counters: Arc<ServerMetrics>,
}

impl Server {
    /// The state for the server at an address, by TLS if it has https, without a connection yet.
    pub(super) fn new(
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
    pub(super) fn follow(&self, health_state: &Arc<HealthState>) {
        if !Arc::ptr_eq(&self.health_state.borrow(), health_state) {
            self.seen.set(health_state.transitions());
            self.health_state.replace(Arc::clone(health_state));
        }
    }

    /// State of the server, with `it` of the configuration. `slow_start` is the origin's.
    pub(super) fn view(&self, now: Instant, it: &OriginServer, slow_start: Option<Duration>) -> View {
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

    fn show(&self, out: bool) {
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
    pub(super) fn chosen(&self, now: Instant) -> bool {
        self.ejection.borrow_mut().chosen(now)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Idle connections hold their pool.
        self.pool.close();
    }
}

/// A request's place on a server: it reports the outcome of the request once. Dropped without a report, as when the
/// client goes away, it does not affect the server's state.
#[derive(Debug)]
pub(super) struct Ticket {
    origin: Rc<Origin>,
    pub(super) number: usize,
    server: Rc<Server>,
    /// Since when it exists, unless the server is the only one, which is never ejected, with one address.
    began: Cell<Option<Instant>>,
    /// The address to which the request goes, if the server has several.
    address: Cell<Option<SocketAddr>>,
    /// This request is the server's trial.
    trial: Cell<bool>,
    settled: Cell<bool>,
}

impl Ticket {
    /// For a request that `origin` sends to its only server.
    pub(super) fn only(origin: &Rc<Origin>, server: &Rc<Server>) -> Self {
        Self::made(origin, 0, server, None, false)
    }

    /// For a request that `origin` sends to the `number`th of its servers; `trial` if it is the server's trial.
    pub(super) fn new(origin: &Rc<Origin>, number: usize, server: &Rc<Server>, now: Instant, trial: bool) -> Self {
        Self::made(origin, number, server, Some(now), trial)
    }

    fn made(origin: &Rc<Origin>, number: usize, server: &Rc<Server>, began: Option<Instant>, trial: bool) -> Self {
        server.counters.requests.increment();
        Self {
            origin: Rc::clone(origin),
            number,
            server: Rc::clone(server),
            began: Cell::new(began),
            address: Cell::new(None),
            trial: Cell::new(trial),
            settled: Cell::new(false),
        }
    }

    pub(super) fn server(&self) -> &Server {
        &self.server
    }

    /// The request goes over a connection to `address`.
    pub(super) fn goes_to(&self, address: Option<SocketAddr>) {
        if address.is_some() && self.server.pool.has_several_addresses() {
            self.address.set(address);
            self.began.set(self.began.get().or_else(|| Some(now())));
        }
    }

    /// The response's header came.
    pub(super) fn answered(&self) {
        if self.trial.take() && self.server.ejection.borrow_mut().answered(now()) {
            tracing::info!(origin = &*self.origin.name, server = &*self.server.name, "the server is no longer ejected");
        }
    }

    /// The response came to its end.
    pub(super) fn went_well(&self) {
        if self.settled.replace(true) || self.began.get().is_none() {
            return;
        }
        self.server.ejection.borrow_mut().went_well(now());
        if let Some(address) = self.address.get() {
            self.server.pool.went_well(address);
        }
    }

    /// Connecting to the server failed.
    pub(super) fn unreachable(&self) {
        self.fail(EjectionCause::Connection);
    }

    /// The server failed the request that was sent to it.
    pub(super) fn failed(&self) {
        self.fail(self.began.get().map_or(EjectionCause::Connection, EjectionCause::Request));
    }

    /// The connection broke over which the request was sent. That is its address' fault, if the server has another one.
    pub(super) fn broke(&self) {
        let (Some(address), Some(began)) = (self.address.get(), self.began.get()) else { return self.failed() };
        if self.settled.get() {
            return;
        }
        if self.server.pool.broke(address, self.rule(), EjectionCause::Request(began)) {
            self.failed();
        } else {
            self.settled.set(true);
            self.server.counters.failures.increment();
        }
    }

    /// The rule for ejections.
    fn rule(&self) -> Rule {
        let config = &self.origin.config;
        Rule { after: config.eject_after, time: config.eject_time }
    }

    fn fail(&self, cause: EjectionCause) {
        if self.settled.replace(true) {
            return;
        }
        let trial = self.trial.take();
        self.server.counters.failures.increment();
        let now = now();
        let may = self.origin.may_eject(self.number, now);
        let out = self.server.ejection.borrow_mut().failed(now, self.rule(), cause, may, trial);
        if let Some(time) = out {
            self.server.counters.ejections.increment();
            self.server.show(true);
            let (origin, server) = (&*self.origin.name, &*self.server.name);
            tracing::warn!(origin, server, ?time, "the server failed too often: ejected");
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if self.trial.get() {
            self.server.ejection.borrow_mut().undecided();
        }
    }
}

/// By tokio's clock, which tests control.
pub(super) fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}
