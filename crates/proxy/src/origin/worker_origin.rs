//! Holds one worker's state of one origin: its servers, the server on which a client is to stay, and the retry budget.

use super::worker_server::{self, WorkerServer};
use crate::balance::{
    self, Affinity, CookieKey, HashKey, HealthState, RequestCookie, RetryBudget, Rotation, ServerSet, ServerView,
    StickyCookies,
};
use crate::connection::TlsToOrigin;
use crate::message::FieldPolicy;
use crate::metrics::ProxyMetrics;
use crate::pool::PoolResources;
use litequic_config::{self as config, Fraction, OriginProtocol, OriginServer, Sticky};
use litequic_exchange::{FieldName, Fields, name};
use std::{
    cell::{Cell, RefCell},
    net::IpAddr,
    rc::Rc,
    sync::Arc,
    time::Instant,
};

/// An origin of the configuration, with the state that all workers share.
#[derive(Debug)]
pub(crate) struct RoutedOrigin {
    pub(crate) config: config::OriginConfig,
    /// Health of the servers, in the order of the configuration.
    pub(crate) health_states: Vec<Arc<HealthState>>,
    /// TLS to the servers, if they have https.
    pub(crate) tls: Option<Arc<TlsToOrigin>>,
}

impl RoutedOrigin {
    /// TLS for connections outside of any pool, which offers the origin's protocol.
    pub(crate) fn tls_for_probes(&self) -> Option<Arc<TlsToOrigin>> {
        let is_http2 = self.config.protocol == OriginProtocol::Http2;
        self.tls.as_ref().map(|tls| if is_http2 { Arc::new(tls.with_http2()) } else { Arc::clone(tls) })
    }
}

/// One worker's state of one origin.
#[derive(Debug)]
pub(crate) struct WorkerOrigin {
    pub(crate) name: Arc<str>,
    pub(crate) config: config::OriginConfig,
    /// TLS to the servers, if they have https.
    tls: Option<Arc<TlsToOrigin>>,
    /// Fields of requests that the origin does not get.
    pub(crate) policy: FieldPolicy,
    /// Servers in the order of the configuration.
    pub(super) servers: Vec<Rc<WorkerServer>>,
    pub(super) rotation: RefCell<Rotation>,
    /// Servers that take turns while nothing changes.
    equal: Cell<Option<EqualServers>>,
    stickiness: Stickiness,
    pub(crate) budget: RefCell<RetryBudget>,
    /// Whether a reload has replaced this state: its last requests eject no server.
    replaced: Cell<bool>,
    pub(crate) metrics: Arc<ProxyMetrics>,
}

/// Healthy servers of one weight, no backups: a choice among them needs no look at each.
#[derive(Debug, Clone, Copy)]
struct EqualServers {
    servers: ServerSet,
    /// Sum of the health transitions of all servers, which only grows.
    transitions: u64,
}

/// Session persistence: the rule for a client's server.
#[derive(Debug)]
enum Stickiness {
    /// No persistence, or a single server.
    None,
    Cookies(StickyCookies),
    Address,
    Field(FieldName),
}

impl Stickiness {
    fn new(name: &str, config: &config::OriginConfig, key: &CookieKey) -> Self {
        match config.sticky.as_ref().filter(|_| config.servers.len() > 1) {
            Some(Sticky::Cookie(cookie)) => {
                let servers = config.servers.iter().map(|server| server.address.to_string());
                Self::Cookies(StickyCookies::new(cookie, key, name, servers))
            }
            Some(Sticky::Address) => Self::Address,
            Some(Sticky::Header(header)) => Self::Field(header.into()),
            None => Self::None,
        }
    }
}

impl WorkerOrigin {
    /// The state of the origin `routed` with the name `name`, whose cookies are made with `key`. Servers that it shares
    /// with the one `before` stay, with their connections and their state. Connections of new ones use `resources`.
    pub(crate) fn new(
        name: &str,
        routed: &RoutedOrigin,
        key: &CookieKey,
        before: Option<&Self>,
        metrics: &Arc<ProxyMetrics>,
        resources: &Rc<PoolResources>,
    ) -> Self {
        let RoutedOrigin { config, health_states, tls } = routed;
        // All servers share one configuration of rustls, so that sessions are this worker's and this origin's.
        let resuming = tls.as_deref().map(|tls| tls.with_resumption(config.servers.len()));
        let server = |(OriginServer { address, .. }, health_state): (&OriginServer, &Arc<HealthState>)| {
            let mut kept = before.iter().flat_map(|before| &before.servers);
            let Some(kept) = kept.find(|server| server.pool.matches_config(config, address, resuming.as_ref())) else {
                let tls = resuming.as_ref();
                return Rc::new(WorkerServer::new(name, config, address, tls, health_state, metrics, resources));
            };
            kept.follow_health(health_state);
            Rc::clone(kept)
        };
        let servers: Vec<_> = config.servers.iter().zip(health_states).map(server).collect();
        if let [alone] = &*servers {
            alone.clear_ejection();
        }
        let mut rotation = Rotation::new(servers.len());
        let weights: Vec<_> =
            config.servers.iter().map(|server| balance::effective_weight(server.weight, None, None)).collect();
        let all = (0..servers.len()).fold(ServerSet::default(), ServerSet::with_server);
        // Workers begin with different servers.
        for _ in 0..rand::random_range(0..servers.len().max(1)) {
            rotation.next_server(all, &weights);
            rotation.next_equal_server(all);
        }
        Self {
            name: name.into(),
            config: config.clone(),
            tls: tls.clone(),
            policy: FieldPolicy::from_origin(config),
            servers,
            rotation: RefCell::new(rotation),
            equal: Cell::new(None),
            stickiness: Stickiness::new(name, config, key),
            budget: RefCell::new(RetryBudget::new(config.retry_share, config.retry_minimum)),
            replaced: Cell::new(false),
            metrics: Arc::clone(metrics),
        }
    }

    /// Whether configuration and TLS are those of `routed`.
    pub(crate) fn matches_routed(&self, routed: &RoutedOrigin) -> bool {
        self.config == routed.config && self.tls == routed.tls
    }

    /// Follows `health_states`, which have the health of the servers from now on.
    pub(crate) fn follow_server_health(&self, health_states: &[Arc<HealthState>]) {
        self.servers.iter().zip(health_states).for_each(|(server, health_state)| server.follow_health(health_state));
        self.equal.set(None);
    }

    /// Closes idle connections, now and later, to the servers that `next`, which replaces this state, does not have.
    pub(crate) fn close_replaced(&self, next: Option<&Self>) {
        self.replaced.set(!next.is_some_and(|next| std::ptr::eq(self, next)));
        let stays = |server: &Rc<WorkerServer>| {
            next.is_some_and(|next| next.servers.iter().any(|kept| Rc::ptr_eq(kept, server)))
        };
        for server in self.servers.iter().filter(|server| !stays(server)) {
            server.pool.close_idle();
            server.clear_ejection();
        }
    }

    /// The server on which the client of a request with `fields` is to stay; `client` is its address.
    pub(crate) fn find_affinity(&self, fields: &Fields, client: impl FnOnce() -> IpAddr) -> Affinity {
        match &self.stickiness {
            Stickiness::None => Affinity::Any,
            Stickiness::Cookies(cookies) => match cookies.read_cookie(fields) {
                RequestCookie::Nothing => Affinity::Any,
                RequestCookie::Server(server) => Affinity::Server(server),
                RequestCookie::Unknown => {
                    self.metrics.sticky_cookies_refused.increment();
                    Affinity::Any
                }
            },
            Stickiness::Address => Affinity::Hash(match client() {
                IpAddr::V4(address) => HashKey::from_identity(&address.octets()),
                // A client may have any address of its network, and others from day to day.
                IpAddr::V6(address) => HashKey::from_identity(address.octets().first_chunk::<8>().unwrap_or(&[0; 8])),
            }),
            Stickiness::Field(name) => fields
                .get(name.as_name_ref())
                .map_or(Affinity::Any, |value| Affinity::Hash(HashKey::from_identity(value))),
        }
    }

    /// Sets the cookie of the `number`th server, which answered, for a client that came with `wish`, unless the client
    /// has that cookie.
    pub(crate) fn set_sticky_cookie(&self, wish: Affinity, number: usize, fields: &mut Fields) {
        if let Stickiness::Cookies(cookies) = &self.stickiness
            && wish != Affinity::Server(number)
            && let Some(field) = cookies.set_cookie_value(number)
        {
            if wish != Affinity::Any {
                self.metrics.sticky_moves.increment();
            }
            fields.append(name::SET_COOKIE, field.as_bytes());
        }
    }

    /// Healthy servers, if all servers have one weight, and none is ejected, on trial or in its slow start.
    pub(super) fn equal_servers(&self, now: Instant) -> Option<ServerSet> {
        let active = self.servers.iter().map(|server| server.active_transitions().map(u64::from));
        let Some(transitions) = active.sum::<Option<u64>>() else {
            // Its slow start follows.
            self.equal.set(None);
            return None;
        };
        if let Some(known) = self.equal.get().filter(|known| known.transitions == transitions) {
            return Some(known.servers);
        }
        let [OriginServer { weight, .. }, rest @ ..] = &*self.config.servers else { return None };
        if rest.iter().any(|server| server.weight != *weight) {
            return None;
        }
        let (mut servers, full) = (ServerSet::default(), balance::effective_weight(*weight, None, None));
        for (number, view) in self.server_views(now).enumerate() {
            if view.weight != full {
                return None;
            }
            if view.up && !view.backup {
                servers = servers.with_server(number);
            }
        }
        self.equal.set(Some(EqualServers { servers, transitions }));
        Some(servers)
    }

    pub(super) fn server_views(&self, now: Instant) -> impl Iterator<Item = ServerView> + Clone {
        let servers = self.servers.iter().zip(&self.config.servers);
        servers.map(move |(server, it)| server.server_view(now, it, self.config.slow_start))
    }

    /// Whether a server is not in `tried`.
    pub(crate) fn has_untried(&self, tried: ServerSet) -> bool {
        (0..self.servers.len()).any(|server| !tried.has_server(server))
    }

    /// Whether a healthy server is not in `tried`.
    pub(crate) fn has_healthy_untried(&self, tried: ServerSet) -> bool {
        self.server_views(worker_server::tokio_now())
            .enumerate()
            .any(|(number, view)| !tried.has_server(number) && view.up && view.not_ejected)
    }

    /// Whether a retry, which may cost a part of the budget, is permitted; if so, it is counted.
    pub(crate) fn may_retry(&self, costs: bool) -> bool {
        let is_free = !costs && self.config.retry_share.is_some();
        let may = is_free || self.budget.borrow_mut().take_retry(worker_server::tokio_now());
        let counter = if may { &self.metrics.origin_retries } else { &self.metrics.origin_retries_refused };
        counter.increment();
        may
    }

    /// Whether the `number`th server may be ejected: another healthy one is left, and not too many are ejected. For a
    /// backup server all others may be ejected: that is its purpose.
    pub(super) fn may_eject(&self, number: usize, now: Instant) -> bool {
        let is_backup = self.config.servers.get(number).is_some_and(|server| server.backup);
        let (mut left, mut replaced, mut out) = (false, false, 0_u64);
        for (_, view) in self.server_views(now).enumerate().filter(|(other, _)| *other != number) {
            let is_well = view.up && view.not_ejected;
            left |= is_well;
            replaced |= is_well && view.backup && !is_backup;
            out += u64::from(!view.not_ejected);
        }
        let most = self.servers.len() as u64 * u64::from(self.config.max_ejected.0) / u64::from(Fraction::ALL.0);
        left && (replaced || out < most.max(1)) && !self.replaced.get()
    }
}
