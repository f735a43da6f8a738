//! Compiles the configuration of requests for all workers, and answers queries of the operator and of handshakes.

use super::maintenance::{ActiveMaintenance, Maintenance};
use super::routes::{self, Routes};
use crate::access::{AddressSet, PasswordChecker, RateLimiter, Users};
use crate::answer::{PageSet, Pages};
use crate::balance::{CheckResult, CookieKey, HealthState};
use crate::connection::TlsToOrigin;
use crate::message::forwarded;
use crate::metrics::{CheckMetricsTable, ServerName};
use crate::origin::{CheckSummary, CheckTarget, RoutedOrigin, ServerState, check_servers};
use crate::pool::Capacity;
use crate::rules::{RouteState, RuleSet};
use arc_swap::ArcSwap;
use litequic_config::{self as config, Config, Network, OriginAddress, OriginServer, Sources, Timeouts};
use litequic_exchange::{CertificateRequest, Client, Fields, Head};
use std::{collections::BTreeMap, convert::Infallible, net::IpAddr, path::PathBuf, sync::Arc};
use tokio::sync::Notify;

/// Content of a configuration's files, for requests.
#[derive(Debug, Clone, Default)]
pub struct RoutingFiles {
    /// Error pages, and bodies of fixed responses.
    pub pages: Pages,
    /// TLS to the origins that have https, by their names.
    pub tls: BTreeMap<String, Arc<TlsToOrigin>>,
    /// Users of routes, by the paths of their files.
    pub users: BTreeMap<PathBuf, Arc<Users>>,
}

impl From<Pages> for RoutingFiles {
    fn from(pages: Pages) -> Self {
        Self { pages, ..Self::default() }
    }
}

/// Routes, their rules, and origins. Replaced as a whole by a reload.
#[derive(Debug)]
pub struct Routing {
    routes: Routes,
    /// Names of the routes, in the order of the configuration.
    pub names: Vec<String>,
    /// Rate limiters of the routes, in the same order.
    limiters: Vec<Option<Arc<RateLimiter>>>,
    /// Content of all files.
    pub files: RoutingFiles,
    /// The routes in maintenance.
    pub maintenance: Maintenance,
    /// For requests that match no route.
    pub(crate) general_pages: PageSet,
    /// For requests that match no route.
    pub(crate) general_rules: Option<RuleSet>,
    pub(crate) origins: BTreeMap<String, RoutedOrigin>,
    pub(crate) timeouts: Timeouts,
    /// Timeouts of streaming calls.
    pub(crate) streaming_timeouts: Timeouts,
    /// Most tunnels of a worker.
    pub(crate) max_tunnels: u32,
    /// Networks of trusted proxies.
    pub(crate) trusted: AddressSet,
    /// Networks whose addresses are no sources: trusted proxies, and those of `sources`.
    exempt: AddressSet,
    sources: Sources,
    /// Key of the cookies of sticky sessions.
    pub cookie_key: CookieKey,
    /// Resources of connections to origins.
    pub capacity: Arc<Capacity>,
    /// Checks passwords, for all workers.
    pub(crate) passwords: Arc<PasswordChecker>,
}

impl Routing {
    /// Compiles `config`, without the content of its files: error pages, users, and TLS to origins.
    pub fn new(config: &Config) -> Self {
        Self::compile_after(config, RoutingFiles::default(), None)
    }

    /// Compiles `config` with its `files`, and keeps state of the routing `before`: the health of a server that stays,
    /// and is still checked; the counts of an unchanged rate limit; the key of cookies; and maintenance.
    pub fn compile_after(config: &Config, files: impl Into<RoutingFiles>, before: Option<&Self>) -> Self {
        let maintenance = before.map(|before| before.maintenance.clone()).unwrap_or_default();
        Self::compile_routing(config, files.into(), before, maintenance)
    }

    /// Returns the routing with another `maintenance`. `config` is the configuration of this routing.
    #[must_use]
    pub fn with_maintenance(&self, config: &Config, maintenance: Maintenance) -> Self {
        Self::compile_routing(config, self.files.clone(), Some(self), maintenance)
    }

    fn compile_routing(config: &Config, files: RoutingFiles, before: Option<&Self>, maintenance: Maintenance) -> Self {
        let RoutingFiles { pages, tls, users } = &files;
        let origin = |(name, origin): (&String, &config::OriginConfig)| {
            let before = before.and_then(|before| before.origins.get(name));
            let before = before.filter(|before| origin.health.is_some() && before.config.health.is_some());
            let health_state = |server: &OriginServer| {
                let mut kept = before.iter().flat_map(|before| before.config.servers.iter().zip(&before.health_states));
                kept.find(|(before, _)| before.address == server.address)
                    .map(|(_, health_state)| Arc::clone(health_state))
                    .unwrap_or_default()
            };
            let health_states = origin.servers.iter().map(health_state).collect();
            (name.clone(), RoutedOrigin { config: origin.clone(), health_states, tls: tls.get(name).cloned() })
        };
        let origins = config.origins.iter().map(origin).collect();
        let names = config::RouteConfig::unique_route_names(&config.routes);
        let limiters = config.routes.iter().zip(&names).map(|(route, name)| {
            let limit = route.rate_limit?;
            let kept = before.and_then(|before| before.find_limiter(name)).filter(|kept| kept.limit == limit);
            Some(kept.unwrap_or_else(|| Arc::new(RateLimiter::new(limit, std::time::Instant::now()))))
        });
        let limiters: Vec<_> = limiters.collect();
        let general_pages = pages.compile_pages(&config.error_pages);
        let in_maintenance = maintenance.retry_after_by_route(&config.routes, &names);
        let mut routes =
            Routes::new(&config.routes, &config.origins, config.limits.max_body_bytes, &config.client_certificates);
        let withheld = config.withheld_fields();
        routes.set_rules(|number| {
            let Some(route) = config.routes.get(number) else { return Default::default() };
            let own = RouteState {
                limiter: limiters.get(number).cloned().flatten(),
                file: pages.fixed_body(route),
                maintenance: in_maintenance.get(number).copied().flatten(),
                users: route.users.as_ref().and_then(|file| users.get(file)).cloned(),
                withheld: route
                    .target_origin()
                    .and_then(|origin| withheld.get(origin))
                    .map_or_else(Vec::new, |names| names.iter().map(|name| (*name).to_owned()).collect()),
            };
            let pages = pages.compile_pages(&route.error_pages).with_general(&general_pages, route.intercept_errors);
            (RuleSet::new(route, config, own).map(Arc::new), pages)
        });
        Self {
            routes,
            names,
            limiters,
            files,
            maintenance,
            general_pages,
            general_rules: RuleSet::without_route(config),
            origins,
            timeouts: config.timeouts,
            streaming_timeouts: config.timeouts.for_streaming_calls(),
            max_tunnels: config.limits.max_tunnels,
            trusted: AddressSet::new(&config.trusted_proxies),
            exempt: AddressSet::new(config.trusted_proxies.iter().chain(&config.sources.exempt)),
            sources: config.sources.clone(),
            cookie_key: before.map_or_else(CookieKey::with_random_secret, |before| before.cookie_key.clone()),
            capacity: before.map(|before| Arc::clone(&before.capacity)).unwrap_or_default(),
            passwords: before.map(|before| Arc::clone(&before.passwords)).unwrap_or_default(),
        }
    }

    /// The client behind `peer`, as far as trusted proxies name it.
    pub(crate) fn forwarded_client(&self, peer: IpAddr, fields: &Fields) -> IpAddr {
        forwarded::client_behind(peer, fields, &self.trusted)
    }

    /// The source of `peer`, or that of the client that it forwards for, if it is trusted and `fields` name it.
    pub(crate) fn forwarded_source(&self, peer: IpAddr, fields: &Fields) -> Option<Network> {
        let client = self.forwarded_client(peer, fields);
        self.sources.source_of_address(client, || self.exempt.covers_address(client))
    }

    /// The orders of maintenance and their routes; `config` is the configuration of this routing.
    pub fn maintenance_orders(&self, config: &Config) -> Vec<ActiveMaintenance> {
        self.maintenance.list_orders(&config.routes, &self.names)
    }

    fn find_limiter(&self, name: &str) -> Option<Arc<RateLimiter>> {
        let place = self.names.iter().position(|known| known == name)?;
        self.limiters.get(place)?.clone()
    }

    /// The route of a request.
    ///
    /// # Errors
    ///
    /// The error of [`Routes::choose_route`].
    pub(crate) fn find_route(&self, head: &Head) -> Result<Option<&routes::CompiledRoute>, &routes::CompiledRoute> {
        self.routes.choose_route(head.host(), head.path_without_query(), head)
    }

    /// Servers of all origins: the origin's name and configuration, the server's address and health.
    fn servers(&self) -> impl Iterator<Item = (&str, &RoutedOrigin, &OriginAddress, &Arc<HealthState>)> {
        self.origins.iter().flat_map(|(name, routed)| {
            let servers = routed.config.servers.iter().zip(&routed.health_states);
            servers.map(move |(server, health_state)| (name.as_str(), routed, &server.address, health_state))
        })
    }

    /// Servers that are to be checked.
    pub(crate) fn check_targets(&self) -> Vec<CheckTarget> {
        let target =
            |(name, routed, address, health_state): (&str, &RoutedOrigin, &OriginAddress, &Arc<HealthState>)| {
                let origin = &routed.config;
                Some(CheckTarget {
                    origin: name.into(),
                    address: address.clone(),
                    health: origin.health.clone()?,
                    tls: routed.tls_for_probes(),
                    proxy_protocol: origin.proxy_protocol,
                    protocol: origin.protocol,
                    dns_interval: origin.dns_interval,
                    health_state: Arc::clone(health_state),
                })
            };
        self.servers().filter_map(target).collect()
    }

    /// State of every server of every origin, in the order of their names and of the configuration.
    pub fn server_states(&self) -> Vec<ServerState> {
        let state =
            |(name, routed, address, health_state): (&str, &RoutedOrigin, &OriginAddress, &Arc<HealthState>)| {
                let problem = match health_state.last_result() {
                    CheckResult::Failed(problem) => Some(problem),
                    CheckResult::Pending | CheckResult::Passed => None,
                };
                ServerState {
                    origin: name.to_owned(),
                    address: address.clone(),
                    tls: routed.tls_for_probes(),
                    proxy_protocol: routed.config.proxy_protocol,
                    check: routed.config.health.as_ref().map(|_| CheckSummary { up: health_state.is_up(), problem }),
                }
            };
        self.servers().map(state).collect()
    }

    /// Labels of all servers in metrics.
    pub(crate) fn server_names(&self) -> Vec<ServerName> {
        let name = |server: ServerState| ServerName::new(&server.origin, &server.address.to_string());
        self.server_states().into_iter().map(name).collect()
    }

    /// The certificate request for a client that sends `server_name` (SNI).
    pub fn certificate_request(&self, server_name: Option<&str>) -> CertificateRequest {
        self.routes.certificate_request(server_name)
    }

    /// Whether `client`'s connection may carry requests for `host` (an authority without its port); 421 otherwise (RFC
    /// 9110 §15.5.20).
    ///
    /// It may if its handshake had the certificate request of this host. A reload may have changed that since: then the
    /// connection still serves the host that it was opened for, unless another handshake would request more.
    pub fn admits_host(&self, client: &Client, host: &str) -> bool {
        let (identity, now) = (&client.identity, self.routes.certificate_request(Some(host)));
        if identity.certificate_request == now {
            return true;
        }
        let opened_for_it = client.server_name.as_deref().map_or_else(
            || routes::is_ip_address(host),
            |name| name.trim_end_matches('.').eq_ignore_ascii_case(host.trim_end_matches('.')),
        );
        opened_for_it
            && match now {
                CertificateRequest::None => true,
                CertificateRequest::Optional => identity.certificate_request != CertificateRequest::None,
                CertificateRequest::Required => identity.certificate.is_some(),
            }
    }
}

/// Checks the health of origins' servers for all workers that follow `routing`, if the configuration has health checks,
/// now and after each of `reloads`. To run once a process.
///
/// # Cancel safety
///
/// Dropping the future ends all checks; servers keep their state.
pub async fn check_health(
    routing: Arc<ArcSwap<Routing>>,
    reloads: Arc<Notify>,
    checks: Arc<CheckMetricsTable>,
) -> Infallible {
    check_servers(|| routing.load().check_targets(), reloads, checks).await
}
