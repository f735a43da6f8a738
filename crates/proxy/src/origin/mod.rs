//! One origin: picks a server for each request, sends it over that server's pool and enforces the timeouts.

mod addresses;
mod attempt;
mod check;
mod connect;
mod connection;
mod deadline;
mod giving_way;
mod lookup;
mod pool;
mod proxied;
mod race;
mod records;
mod request_body;
mod resolve;
mod resources;
mod response_body;
mod rest;
mod server;
mod tls;
mod transfer;
mod tunnel;
mod wait;

pub(super) use check::{Checked, check_all};
pub(super) use resources::Resources;
pub(super) use server::{CheckResult, HealthState};
pub use tls::TlsToOrigin;

#[cfg(test)]
/// Has the process resolve a name to these addresses.
pub(super) fn resolve_for_tests(name: &str, addresses: &[IpAddr]) {
    lookup::tests::resolve(name, addresses);
}

use super::{
    balance::{self, CookieKey, Cookies, HashKey, RetryBudget, Rotation, Set, Shown, View, Wish},
    error::Error,
    request::{BodyFraming, FieldPolicy},
    retry,
    routing::{RoutedOrigin, ServerState},
    rules::Rules,
    upgrade::Switch,
};
use crate::Metrics;
use attempt::{Attempts, SentRequest};
use litequic_config::{self as config, Fraction, OriginServer, Sticky, StickyBy, Timeouts};
use litequic_exchange::{Abort, Body, BodyError, Client, FieldName, Fields, Head, Interim, Record, Response, name};
use litequic_resources::fairness::Source;
use server::{Server, Ticket};
use std::{
    cell::{Cell, RefCell},
    net::IpAddr,
    rc::Rc,
    sync::Arc,
    time::{Duration, Instant},
};

/// One worker's state of one origin.
#[derive(Debug)]
pub(super) struct Origin {
    name: Arc<str>,
    config: config::Origin,
    /// TLS to its servers, if they have https.
    tls: Option<Arc<TlsToOrigin>>,
    /// Fields of requests that the origin does not get.
    policy: FieldPolicy,
    /// In the order of the configuration.
    servers: Vec<Rc<Server>>,
    rotation: RefCell<Rotation>,
    stickiness: Stickiness,
    budget: RefCell<RetryBudget>,
    /// A reload has replaced it: its last requests eject no server.
    replaced: Cell<bool>,
    metrics: Arc<Metrics>,
}

/// Session persistence: the server of a client.
#[derive(Debug)]
enum Stickiness {
    /// Nothing, or there is one server alone.
    None,
    Cookies(Cookies),
    Address,
    Field(FieldName),
}

impl Stickiness {
    fn new(name: &str, config: &config::Origin, key: &CookieKey) -> Self {
        match config.sticky.as_ref().filter(|_| config.servers.len() > 1) {
            Some(Sticky { by: StickyBy::Cookie, cookie, .. }) => {
                let servers = config.servers.iter().map(|server| server.address.to_string());
                Self::Cookies(Cookies::new(cookie, key, name, servers))
            }
            Some(Sticky { by: StickyBy::Address, .. }) => Self::Address,
            Some(Sticky { by: StickyBy::Header, header: Some(header), .. }) => Self::Field(header.into()),
            _ => Self::None,
        }
    }
}

/// The parts of sending one request.
pub(super) struct Sending<'a> {
    pub(super) head: &'a Head,
    pub(super) framing: BodyFraming,
    pub(super) body: Body,
    pub(super) max_body_bytes: Option<u64>,
    pub(super) client: &'a Client,
    /// The client by whose share of the pools it is served.
    pub(super) source: Source,
    pub(super) interim: &'a Interim,
    pub(super) record: &'a Record,
    /// The record that gets a span for each attempt.
    pub(super) traced: &'a Record,
    pub(super) timeouts: &'a Timeouts,
    /// The route's rules.
    pub(super) rules: Option<&'a Arc<Rules>>,
    /// Whether the route has a condition on the method, or another one for the same paths has.
    pub(super) methods_matter: bool,
    /// The protocol to switch to.
    pub(super) switch: Option<Switch>,
    /// The server on which its client is to stay.
    pub(super) wish: Wish,
}

/// Why there is no response from the origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// litequic answers.
    Answer(Error),
    /// There is no answer.
    Abort(Abort),
}

impl From<Error> for Outcome {
    fn from(error: Error) -> Self {
        Self::Answer(error)
    }
}

impl Origin {
    /// The origin `routed` with the name `name`, whose cookies are made with `key`. Servers that it shares with the one
    /// `before` stay, with their connections and their state. New ones' connections use `resources`.
    pub(super) fn new(
        name: &str,
        routed: &RoutedOrigin,
        key: &CookieKey,
        before: Option<&Self>,
        metrics: &Arc<Metrics>,
        resources: &Rc<Resources>,
    ) -> Self {
        let RoutedOrigin { config, health_states, tls } = routed;
        // One configuration of rustls for all of them, so that sessions are this worker's and this origin's.
        let resuming = tls.as_deref().map(|tls| tls.resuming(config.servers.len()));
        let server = |(OriginServer { address, .. }, health_state): (&OriginServer, &Arc<HealthState>)| {
            let mut kept = before.iter().flat_map(|before| &before.servers);
            let Some(kept) = kept.find(|server| server.pool.fits(config, address, resuming.as_ref())) else {
                let tls = resuming.as_ref();
                return Rc::new(Server::new(name, config, address, tls, health_state, metrics, resources));
            };
            kept.follow(health_state);
            Rc::clone(kept)
        };
        let servers: Vec<_> = config.servers.iter().zip(health_states).map(server).collect();
        if let [alone] = &*servers {
            alone.pardon();
        }
        let mut rotation = Rotation::new(servers.len());
        let weights: Vec<_> = config.servers.iter().map(|server| balance::weight(server.weight, None, None)).collect();
        let all = (0..servers.len()).fold(Set::default(), Set::with);
        // Not all workers begin with the same server.
        for _ in 0..rand::random_range(0..servers.len().max(1)) {
            rotation.next(all, &weights);
        }
        Self {
            name: name.into(),
            config: config.clone(),
            tls: tls.clone(),
            policy: FieldPolicy::of(config),
            servers,
            rotation: RefCell::new(rotation),
            stickiness: Stickiness::new(name, config, key),
            budget: RefCell::new(RetryBudget::new(config.retry_share, config.retry_minimum)),
            replaced: Cell::new(false),
            metrics: Arc::clone(metrics),
        }
    }

    /// Whether it is what `routed` has.
    pub(super) fn is(&self, routed: &RoutedOrigin) -> bool {
        self.config == routed.config && self.tls == routed.tls
    }

    /// Fields of requests that the origin does not get.
    pub(super) fn policy(&self) -> &FieldPolicy {
        &self.policy
    }

    /// The health of the origin's servers is in `health_states` from now on.
    pub(super) fn follow(&self, health_states: &[Arc<HealthState>]) {
        self.servers.iter().zip(health_states).for_each(|(server, health_state)| server.follow(health_state));
    }

    /// Is replaced by `next`: closes idle connections, now and later, to the servers that `next` does not have.
    pub(super) fn close_but(&self, next: Option<&Self>) {
        self.replaced.set(!next.is_some_and(|next| std::ptr::eq(self, next)));
        let stays =
            |server: &Rc<Server>| next.is_some_and(|next| next.servers.iter().any(|kept| Rc::ptr_eq(kept, server)));
        for server in self.servers.iter().filter(|server| !stays(server)) {
            server.pool.close();
            server.pardon();
        }
    }

    /// The server on which the client of a request with `fields` is to stay; `client` is its address.
    pub(super) fn wish(&self, fields: &Fields, client: impl FnOnce() -> IpAddr) -> Wish {
        match &self.stickiness {
            Stickiness::None => Wish::Any,
            Stickiness::Cookies(cookies) => match cookies.shown(fields) {
                Shown::Nothing => Wish::Any,
                Shown::Server(server) => Wish::Server(server),
                Shown::Unknown => {
                    self.metrics.sticky_cookies_refused.increment();
                    Wish::Any
                }
            },
            Stickiness::Address => Wish::Hash(match client() {
                IpAddr::V4(address) => HashKey::of(&address.octets()),
                // A client may have any address of its network, and others from day to day.
                IpAddr::V6(address) => HashKey::of(address.octets().first_chunk::<8>().unwrap_or(&[0; 8])),
            }),
            Stickiness::Field(name) => {
                fields.get(name.name()).map_or(Wish::Any, |value| Wish::Hash(HashKey::of(value)))
            }
        }
    }

    /// Sets the cookie of the `number`th server, which answered, for a client that came with `wish`, unless it has
    /// that.
    fn stick(&self, wish: Wish, number: usize, fields: &mut Fields) {
        if let Stickiness::Cookies(cookies) = &self.stickiness
            && wish != Wish::Server(number)
            && let Some(field) = cookies.field(number)
        {
            if wish != Wish::Any {
                self.metrics.sticky_moves.increment();
            }
            fields.append(name::SET_COOKIE, field.as_bytes());
        }
    }

    /// Sends a request and waits for its response's header.
    ///
    /// # Errors
    ///
    /// [`Outcome`]
    ///
    /// # Cancel safety
    ///
    /// Dropping the future cancels the request: its connection is closed.
    pub(super) fn send<'a>(
        self: &'a Rc<Self>,
        sending: Sending<'a>,
    ) -> impl Future<Output = Result<Response, Outcome>> {
        let head = sending.head;
        // Outside of the future, which would hold `sending` as well.
        let mut attempts = Attempts::new(self, sending);
        async move {
            attempts.prepare().await?;
            for number in 0..=retry::MAX_RETRIES {
                let Some((ticket, connection)) = attempts.connect(number).await? else { continue };
                let outcome = attempts.send(head, &connection).await;
                if let SentRequest::Answered(response) = attempts.end(number, outcome, ticket, connection)? {
                    return Ok(response);
                }
            }
            Err(Error::Terminated.into())
        }
    }

    /// The states of the servers.
    fn views(&self, now: Instant) -> impl Iterator<Item = View> + Clone {
        let servers = self.servers.iter().zip(&self.config.servers);
        servers.map(move |(server, it)| server.view(now, it, self.config.slow_start))
    }

    /// A server for a request that was tried at `tried`, with a preference for `wish`: another one, if there is one.
    fn choose(self: &Rc<Self>, tried: Set, wish: Wish) -> Option<Ticket> {
        // A single one gets everything, whatever its state.
        if let [server] = &*self.servers {
            return Some(Ticket::only(self, server));
        }
        let now = server::now();
        let choose = |tried| {
            let mut rotation = self.rotation.borrow_mut();
            balance::choose(&mut rotation, self.config.balance, wish, self.views(now), tried)
        };
        let choice = choose(tried).or_else(|| choose(Set::default()))?;
        if choice.panic {
            self.metrics.origin_panics.increment();
        }
        let server = self.servers.get(choice.server)?;
        Some(Ticket::new(self, choice.server, server, now, server.chosen(now)))
    }

    /// Whether there is a server that is not in `tried`.
    fn has_other(&self, tried: Set) -> bool {
        (0..self.servers.len()).any(|server| !tried.has(server))
    }

    /// Whether one of those is healthy.
    fn has_well_other(&self, tried: Set) -> bool {
        self.views(server::now()).enumerate().any(|(number, view)| !tried.has(number) && view.up && view.kept)
    }

    /// Whether a retry is permitted; then it is counted.
    fn may_retry(&self) -> bool {
        let may = self.budget.borrow_mut().spend(server::now());
        let counter = if may { &self.metrics.origin_retries } else { &self.metrics.origin_retries_refused };
        counter.increment();
        may
    }

    /// Whether the `number`th server may be ejected: another healthy one is left, and not too many are ejected. For a
    /// backup server all others may be: that is its purpose.
    fn may_eject(&self, number: usize, now: Instant) -> bool {
        let is_backup = self.config.servers.get(number).is_some_and(|server| server.backup);
        let (mut left, mut replaced, mut out) = (false, false, 0_u64);
        for (_, view) in self.views(now).enumerate().filter(|(other, _)| *other != number) {
            let is_well = view.up && view.kept;
            left |= is_well;
            replaced |= is_well && view.backup && !is_backup;
            out += u64::from(!view.kept);
        }
        let most = self.servers.len() as u64 * u64::from(self.config.max_ejected.0) / u64::from(Fraction::ALL.0);
        left && (replaced || out < most.max(1)) && !self.replaced.get()
    }

    /// The request's body failed before there was a response.
    fn request_failed(&self, cause: BodyError) -> Outcome {
        match cause {
            BodyError::TooLarge => {
                self.metrics.limit_body_bytes.increment();
                Error::BodyTooLarge.into()
            }
            // Counted by the front end, whose timeout it was.
            BodyError::TimedOut => Error::ClientTooSlow.into(),
            BodyError::Evicted => Error::Evicted.into(),
            BodyError::Cancelled | BodyError::Malformed | BodyError::Truncated => Outcome::Abort(Abort::Request),
        }
    }
}

/// Whether `server` accepts connections, and TLS if it has https.
///
/// # Errors
///
/// Why it does not, in words for the operator.
pub(super) async fn probe(server: &ServerState, timeout: Duration) -> Result<(), connect::Unopened> {
    let ServerState { address, tls, proxy_protocol, .. } = server;
    let target = connect::CheckedServer { address, tls: tls.as_deref(), proxy_protocol: *proxy_protocol };
    connect::probe(target, timeout).await
}

#[cfg(test)]
mod oracle;
