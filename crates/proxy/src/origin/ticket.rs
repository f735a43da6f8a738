//! Chooses a server for a request, and reports the request's outcome to that server.

use super::worker_origin::WorkerOrigin;
use super::worker_server::{WorkerServer, tokio_now};
use crate::balance::{self, Affinity, EjectionCause, EjectionRule, ServerSet};
use std::{cell::Cell, net::SocketAddr, rc::Rc, time::Instant};

/// A request on a server: it reports the outcome of the request once. Dropped without a report, as when the client goes
/// away, it does not affect the server's state.
#[derive(Debug)]
pub(crate) struct Ticket {
    origin: Rc<WorkerOrigin>,
    pub(crate) number: usize,
    pub(crate) server: Rc<WorkerServer>,
    /// Time at which the request began, unless the server is the only one, which is never ejected, with one address.
    began: Cell<Option<Instant>>,
    /// Address to which the request goes, if the server has several.
    address: Cell<Option<SocketAddr>>,
    /// Whether this request is the server's trial.
    trial: Cell<bool>,
    settled: Cell<bool>,
}

impl WorkerOrigin {
    /// Chooses a server for a request that was tried at `tried`, with a preference for `wish`: another server, if there
    /// is one.
    pub(crate) fn issue_ticket(self: &Rc<Self>, tried: ServerSet, wish: Affinity) -> Option<Ticket> {
        // A single server gets every request in any state.
        if let [server] = &*self.servers {
            return Some(Ticket::new(self, 0, server, None, false));
        }
        let now = tokio_now();
        if let Some(from) = self.equal_servers(now).filter(|_| tried.is_empty()) {
            let requests = |server: usize| Some(self.servers.get(server)?.pool.active_requests());
            let mut rotation = self.rotation.borrow_mut();
            let chosen = balance::choose_equal_server(&mut rotation, self.config.balance, wish, from, requests);
            if let Some(number) = chosen
                && let Some(server) = self.servers.get(number)
            {
                return Some(Ticket::new(self, number, server, Some(now), false));
            }
        }
        let choose = |tried| {
            let mut rotation = self.rotation.borrow_mut();
            balance::choose_server(&mut rotation, self.config.balance, wish, self.server_views(now), tried)
        };
        let choice = choose(tried).or_else(|| choose(ServerSet::default()))?;
        if choice.panic {
            self.metrics.origin_panics.increment();
        }
        let server = self.servers.get(choice.server)?;
        Some(Ticket::new(self, choice.server, server, Some(now), server.claim_trial(now)))
    }
}

impl Ticket {
    /// A ticket for a request that `origin` sends to the `number`th of its servers: `began` now, unless that is the
    /// only one; `trial` if it is the server's trial.
    fn new(
        origin: &Rc<WorkerOrigin>,
        number: usize,
        server: &Rc<WorkerServer>,
        began: Option<Instant>,
        trial: bool,
    ) -> Self {
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

    /// Notes that the request goes over a connection to `address`.
    pub(crate) fn set_address(&self, address: Option<SocketAddr>) {
        if address.is_some() && self.server.pool.connector.address_count() > 1 {
            self.address.set(address);
            self.began.set(self.began.get().or_else(|| Some(tokio_now())));
        }
    }

    /// Reports that the response's header has come.
    pub(crate) fn report_answered(&self) {
        if self.trial.take() && self.server.ejection.borrow_mut().on_answered(tokio_now()) {
            tracing::info!(origin = &*self.origin.name, server = &*self.server.name, "the server is no longer ejected");
        }
    }

    /// Reports that the response is complete.
    pub(crate) fn report_completed(&self) {
        if self.settled.replace(true) || self.began.get().is_none() {
            return;
        }
        self.server.ejection.borrow_mut().on_request_succeeded(tokio_now());
        if let (Some(address), Some(resolver)) = (self.address.get(), self.server.pool.connector.resolver()) {
            resolver.on_address_success(address);
        }
    }

    /// Reports that connecting to the server failed.
    pub(crate) fn report_unreachable(&self) {
        self.settle_failed(EjectionCause::Connection);
    }

    /// Reports that the server failed the request that was sent to it.
    pub(crate) fn report_failed(&self) {
        self.settle_failed(self.began.get().map_or(EjectionCause::Connection, EjectionCause::Request));
    }

    /// Reports that the request's connection broke: the fault of its address, if the server has another one.
    pub(crate) fn report_connection_broken(&self) {
        let (Some(address), Some(began)) = (self.address.get(), self.began.get()) else { return self.report_failed() };
        if self.settled.get() {
            return;
        }
        if self.server.pool.report_address_broken(address, self.ejection_rule(), EjectionCause::Request(began)) {
            self.report_failed();
        } else {
            self.settled.set(true);
            self.server.counters.failures.increment();
        }
    }

    fn ejection_rule(&self) -> EjectionRule {
        let config = &self.origin.config;
        EjectionRule { after: config.eject_after, time: config.eject_time }
    }

    fn settle_failed(&self, cause: EjectionCause) {
        if self.settled.replace(true) {
            return;
        }
        let trial = self.trial.take();
        self.server.counters.failures.increment();
        let now = tokio_now();
        let may = self.origin.may_eject(self.number, now);
        let out = self.server.ejection.borrow_mut().on_request_failed(now, self.ejection_rule(), cause, may, trial);
        if let Some(time) = out {
            self.server.counters.ejections.increment();
            self.server.show_ejected(true);
            let (origin, server) = (&*self.origin.name, &*self.server.name);
            tracing::warn!(origin, server, ?time, "the server failed too often: ejected");
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if self.trial.get() {
            self.server.ejection.borrow_mut().on_undecided();
        }
    }
}
