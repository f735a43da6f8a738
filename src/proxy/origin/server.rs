//! One server of an origin: its connections, and its state by health checks and by a worker's own requests.

use super::{Origin, Resources, pool::Pool};
use crate::{
    config::{self, OriginAddress, OriginServer},
    proxy::balance::{Cause, Ejection, Key, Rule, View, weight},
    proxy::{Metrics, ServerMetrics, ServerName},
    telemetry::Counted,
};
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

/// The state of a server by its health checks. The control thread writes it; workers read it without a lock.
#[derive(Debug, Default)]
pub(in crate::proxy) struct Standing {
    /// Grows by one whenever it changes: even while the server is healthy.
    changes: AtomicU32,
    finding: Mutex<Finding>,
}

/// The result of the last check, for the operator.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::proxy) enum Finding {
    /// There was none yet.
    #[default]
    Nothing,
    /// It succeeded.
    Well,
    /// It failed.
    Failed(String),
}

impl Standing {
    /// Whether the server is healthy, as far as is known.
    pub(in crate::proxy) fn is_up(&self) -> bool {
        Self::is_up_after(self.changes())
    }

    const fn is_up_after(changes: u32) -> bool {
        changes.is_multiple_of(2)
    }

    fn changes(&self) -> u32 {
        self.changes.load(Relaxed)
    }

    /// Sets whether the server is `up`.
    pub(super) fn set(&self, up: bool) {
        if up != self.is_up() {
            self.changes.store(self.changes().wrapping_add(1), Relaxed);
        }
    }

    /// The last check's result.
    pub(in crate::proxy) fn finding(&self) -> Finding {
        self.finding.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn found(&self, finding: Finding) {
        *self.finding.lock().unwrap_or_else(PoisonError::into_inner) = finding;
    }
}

/// One worker's state of one server.
#[derive(Debug)]
pub(super) struct Server {
    /// The address in the configuration.
    pub(super) name: Arc<str>,
    pub(super) pool: Rc<Pool>,
    /// Its identity for consistent hashing.
    key: Key,
    standing: RefCell<Arc<Standing>>,
    /// How often that had changed when it was last read.
    seen: Cell<u32>,
    ejection: RefCell<Ejection>,
    /// Set while it is ejected, for the metrics.
    ejected: RefCell<Option<Counted<ServerMetrics>>>,
    counters: Arc<ServerMetrics>,
}

impl Server {
    /// The state for `address`, without a connection yet.
    pub(super) fn new(
        origin_name: &str,
        origin: &config::Origin,
        address: &OriginAddress,
        standing: &Arc<Standing>,
        metrics: &Arc<Metrics>,
        resources: &Rc<Resources>,
    ) -> Self {
        let name = address.to_string();
        let counters = metrics.servers.of(&ServerName::new(origin_name, &name));
        Self {
            key: Key::of(name.as_bytes()),
            name: name.into(),
            pool: Pool::new(origin, address, Arc::clone(metrics), Arc::clone(&counters), resources),
            standing: RefCell::new(Arc::clone(standing)),
            seen: Cell::new(standing.changes()),
            ejection: RefCell::default(),
            ejected: RefCell::default(),
            counters,
        }
    }

    /// Its health checks are in `standing` from now on.
    pub(super) fn follow(&self, standing: &Arc<Standing>) {
        if !Arc::ptr_eq(&self.standing.borrow(), standing) {
            self.seen.set(standing.changes());
            self.standing.replace(Arc::clone(standing));
        }
    }

    /// Its state, with `it` of the configuration. `slow_start` is the origin's.
    pub(super) fn view(&self, now: Instant, it: &OriginServer, slow_start: Option<Duration>) -> View {
        let changes = self.standing.borrow().changes();
        let up = Standing::is_up_after(changes);
        let mut ejection = self.ejection.borrow_mut();
        if self.seen.replace(changes) != changes && up {
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

    /// It was picked for a request. Returns whether that is its trial.
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
        let (began, trial) = (Cell::new(began), Cell::new(trial));
        let (address, settled) = Default::default();
        Self { origin: Rc::clone(origin), number, server: Rc::clone(server), began, address, trial, settled }
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
        self.fail(Cause::Connection);
    }

    /// The server failed the request that was sent to it.
    pub(super) fn failed(&self) {
        self.fail(self.began.get().map_or(Cause::Connection, Cause::Request));
    }

    /// The connection broke over which the request was sent. That is its address' fault, if the server has another one.
    pub(super) fn broke(&self) {
        let (Some(address), Some(began)) = (self.address.get(), self.began.get()) else { return self.failed() };
        if self.settled.get() {
            return;
        }
        if self.server.pool.broke(address, self.rule(), Cause::Request(began)) {
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

    fn fail(&self, cause: Cause) {
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
