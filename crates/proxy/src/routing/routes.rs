//! Selects routes: by host first, then path, then conditions. Pure; compiled once a configuration.
//!
//! Among the routes that match, the most specific host wins (exact, then the longest `*.`, then any host); within one
//! host an exact path, then the longest path prefix; of those with the same path the one with the most conditions
//! ([`Specificity`]), and at last the file's first. The path is compared byte by byte, and a request is rejected whose
//! origin could read it as one for a route before that (docs/adr/0022-ambiguous-paths.md).
//!
//! [`Specificity`]: config::Specificity

use super::route_index::RouteIndex;
use crate::{answer::PageSet, message::RouteHead, rules::RuleSet};
use http::Method;
use litequic_config::{self as config, ClientCertificates, MatchConditions, PathReading, ValuePattern};
use litequic_exchange::{self as exchange, CertificateRequest, FieldName, Head};
use std::{
    borrow::Cow,
    cmp::Reverse,
    collections::{BTreeMap, HashMap},
    net::{Ipv4Addr, Ipv6Addr},
    sync::Arc,
};

/// All routes, compiled.
#[derive(Debug, Default)]
pub(crate) struct Routes {
    exact: HashMap<String, HostRoutes>,
    /// Hosts with a wildcard, by the part behind `*.`.
    wildcard: HashMap<String, HostRoutes>,
    any: HostRoutes,
    /// Certificate request of the routes of all IP addresses.
    addresses: CertificateRequest,
    /// Certificate request of every host, if they do not differ.
    everywhere: Option<CertificateRequest>,
}

/// Number of routes of a host above which they are found by [`RouteIndex`]: below, a look at each costs less.
const MAX_SCANNED_ROUTES: usize = 16;

/// Routes of a host, or of all hosts of a kind.
#[derive(Debug, Default)]
struct HostRoutes {
    /// Routes, the most specific first.
    routes: Vec<CompiledRoute>,
    /// Routes by their paths, and by their paths after the furthest decoding in lower case, if they are many.
    indexes: Option<Box<[RouteIndex; 2]>>,
    /// Position of the first route that a path without readings of its own may be read as.
    first_with_readings: Option<usize>,
    /// Positions of the first routes that ignore a slash, by their paths without it.
    slash_ignoring: HashMap<String, usize>,
    /// Certificate request of the routes that could serve such a host, those of less specific hosts too.
    certificate_request: CertificateRequest,
}

/// A compiled route: its match, and the handling of matching requests.
#[derive(Debug, Clone)]
pub(crate) struct CompiledRoute {
    /// Name for logs and metrics: as in [`config::RouteConfig::unique_route_names`].
    pub(crate) name: Arc<str>,
    /// Path for spans: as configured, with `/*` behind a prefix.
    pub(crate) http_route: Arc<str>,
    /// Index of the route in the configuration.
    pub(crate) number: usize,
    /// Path prefix without the trailing slash: `/live/` and `/live` are one prefix, and `/` is empty. An exact path is
    /// whole.
    prefix: String,
    /// Whether the path must be equal to the prefix.
    is_exact: bool,
    /// Whether the path with another slash at its end, or without one, could be this route's: of an exact path with
    /// access rules, as many origins read both alike.
    ignores_slash: bool,
    conditions: Option<Box<RouteConditions>>,
    /// Prefix after the furthest decoding, without the trailing slash either.
    read_prefix: Vec<u8>,
    /// Whether a path without readings of its own may be read as below the prefix: one with capitals, or with escapes.
    has_readings: bool,
    /// Decoding of paths by the origin.
    reading: PathReading,
    /// Name of the origin; `None` if the route answers by itself.
    pub(crate) origin: Option<String>,
    pub(crate) rules: Option<Arc<RuleSet>>,
    /// Bodies of the route's errors.
    pub(crate) pages: PageSet,
    /// Settings for the heads of the route's requests.
    pub(crate) head: RouteHead,
    /// Most bytes of a request's body: 413 beyond.
    pub(crate) max_body_bytes: Option<u64>,
    /// Protocols to which a client may switch, in lower case.
    pub(crate) upgrade: Vec<String>,
}

/// Host and path of a route, for a comparison with others.
struct RouteScope<'a> {
    host: Option<Cow<'a, str>>,
    /// Path after the furthest decoding, in lower case.
    path: Vec<u8>,
}

impl<'a> RouteScope<'a> {
    fn from_config(route: &'a config::RouteConfig) -> Self {
        let path = route.path.as_deref().unwrap_or_else(|| route.normalized_prefix());
        let path = exchange::path_readings(path).next().unwrap_or_default().to_ascii_lowercase();
        Self { host: route.host.as_deref().map(normalize_host), path }
    }

    /// Whether a request can be for both routes, in some reading of its path; also true of a few pairs where none can.
    fn may_overlap(&self, other: &Self) -> bool {
        let covers = |wide: &str, host: &str| wide.strip_prefix('*').is_some_and(|end| host.ends_with(end));
        let hosts = match (&self.host, &other.host) {
            (None, _) | (_, None) => true,
            (Some(one), Some(other)) => one == other || covers(one, other) || covers(other, one),
        };
        hosts && (self.path.starts_with(&other.path) || other.path.starts_with(&self.path))
    }
}

impl HostRoutes {
    /// Prepares the search among the sorted routes.
    fn index_routes(&mut self) {
        let routes = &self.routes;
        if routes.len() > MAX_SCANNED_ROUTES {
            let paths = routes.iter().map(|route| (route.prefix.as_bytes(), route.conditions.as_deref()));
            let readings =
                routes.iter().map(|route| (route.read_prefix.to_ascii_lowercase(), route.conditions.as_deref()));
            self.indexes = Some(Box::new([RouteIndex::new(paths), RouteIndex::new(readings)]));
        }
        self.first_with_readings = routes.iter().position(|route| route.has_readings);
        let ignoring = routes.iter().enumerate().filter(|(_, route)| route.ignores_slash);
        for (at, route) in ignoring {
            self.slash_ignoring.entry(route.prefix.trim_end_matches('/').to_owned()).or_insert(at);
        }
    }

    /// Position of the first route that matches `path` and `head`.
    fn find_by_path(&self, path: &str, head: &Head) -> Option<usize> {
        let matches = |route: &CompiledRoute| route.matches_path(path) && route.accepts_head(head);
        match self.indexes.as_deref() {
            None => self.routes.iter().position(matches),
            Some([paths, _]) => {
                let positions = paths.positions_for(path.as_bytes(), head);
                positions.filter(|at| self.routes.get(*at).is_some_and(matches)).min()
            }
        }
    }

    /// The first route that matches `reading`, one of a path's readings, and `head`, and that `accepts` accepts with
    /// its position.
    fn find_by_reading(
        &self,
        reading: &[u8],
        ignore_case: bool,
        head: &Head,
        accepts: impl Fn(usize, &CompiledRoute) -> bool,
    ) -> Option<&CompiledRoute> {
        let matches = |at: usize| {
            let fits = |route: &&CompiledRoute| route.matches_reading(reading, ignore_case) && accepts(at, route);
            self.routes.get(at).filter(|route| fits(route) && route.accepts_head(head))
        };
        match self.indexes.as_deref() {
            None => (0..self.routes.len()).find_map(matches),
            Some([_, readings]) => {
                let lower = reading.to_ascii_lowercase();
                let first = readings.positions_for(&lower, head).filter(|at| matches(*at).is_some()).min();
                first.and_then(|at| self.routes.get(at))
            }
        }
    }

    /// Whether one of the routes before the position `before` could be that of `path` as an origin reads it, although
    /// the path has no readings of its own.
    fn may_read_otherwise(&self, path: &str, before: usize) -> bool {
        let is_earlier = |at: &usize| *at < before;
        self.first_with_readings.as_ref().is_some_and(is_earlier)
            || !self.slash_ignoring.is_empty()
                && self.slash_ignoring.get(path.trim_end_matches('/')).is_some_and(is_earlier)
    }
}

impl Routes {
    /// Compiles `routes` to `origins`; `max_body_bytes` and `certificates` apply to those without their own.
    pub(crate) fn new(
        routes: &[config::RouteConfig],
        origins: &BTreeMap<String, config::OriginConfig>,
        max_body_bytes: Option<u64>,
        certificates: &ClientCertificates,
    ) -> Self {
        let mut this = Self::default();
        let by_method = routes.iter().filter(|route| !route.conditions.methods.is_empty());
        let by_method: Vec<_> = by_method.map(RouteScope::from_config).collect();
        for (number, (route, name)) in routes.iter().zip(config::RouteConfig::unique_route_names(routes)).enumerate() {
            let prefix = route.path.as_deref().unwrap_or_else(|| route.normalized_prefix());
            let mut read_prefix = exchange::path_readings(prefix).next().unwrap_or_default();
            let ignores_slash = route.path.is_some() && route.has_access_rules();
            if (route.path.is_none() || ignores_slash) && read_prefix.ends_with(b"/") {
                read_prefix.pop();
            }
            let conditions = &route.conditions;
            let origin = route.target_origin().and_then(|name| origins.get(name));
            let compiled = CompiledRoute {
                name: name.into(),
                http_route: if route.path.is_some() { prefix.into() } else { format!("{prefix}/*").into() },
                number,
                prefix: prefix.to_owned(),
                is_exact: route.path.is_some(),
                ignores_slash,
                conditions: (!conditions.is_empty()).then(|| Box::new(RouteConditions::new(conditions))),
                read_prefix,
                has_readings: exchange::may_have_readings(prefix, true),
                reading: origin.map_or(PathReading::default(), |origin| origin.path_reading),
                origin: route.target_origin().map(str::to_owned),
                rules: None,
                pages: PageSet::default(),
                head: RouteHead {
                    rewrite_host: route.rewrite_host.clone(),
                    certificate: route.client_certificate.unwrap_or(certificates.verify),
                    methods_matter: !by_method.is_empty() && {
                        let place = RouteScope::from_config(route);
                        by_method.iter().any(|other| place.may_overlap(other))
                    },
                },
                max_body_bytes: route.max_body_bytes.or(max_body_bytes),
                upgrade: route.upgrade.clone(),
            };
            let host = match route.host.as_deref() {
                None => &mut this.any,
                Some(host) => match host.strip_prefix("*.") {
                    Some(suffix) => this.wildcard.entry(normalize_host(suffix).into_owned()).or_default(),
                    None => this.exact.entry(normalize_host(host).into_owned()).or_default(),
                },
            };
            host.routes.push(compiled);
        }
        // The sort is stable: of two equal routes the file's first wins. Of two prefixes that match one path the longer
        // is also read as the longer, or as equal.
        this.hosts_mut().for_each(|host| {
            host.routes.sort_by_key(|route| {
                let weight = route.conditions.as_ref().map(|conditions| conditions.weight);
                Reverse((route.is_exact, route.read_prefix.len(), route.prefix.len(), weight))
            });
            host.index_routes();
        });
        this.set_certificate_requests(certificates.verify);
        this
    }

    /// Gives each route the rules and the pages that `of` has for its number.
    pub(crate) fn set_rules(&mut self, of: impl Fn(usize) -> (Option<Arc<RuleSet>>, PageSet)) {
        for route in self.hosts_mut().flat_map(|host| &mut host.routes) {
            (route.rules, route.pages) = of(route.number);
        }
    }

    fn hosts_mut(&mut self) -> impl Iterator<Item = &mut HostRoutes> {
        self.exact.values_mut().chain(self.wildcard.values_mut()).chain([&mut self.any])
    }

    /// Sets for each host the certificate request of its routes; `otherwise` if none could serve it.
    fn set_certificate_requests(&mut self, otherwise: CertificateRequest) {
        let asks = |host: &str| common_request(reachable_requests(self.matching_hosts(host))).unwrap_or(otherwise);
        let exact: Vec<_> = self.exact.keys().map(|host| (host.clone(), asks(host))).collect();
        // The shortest name that a wildcard matches; no exact host has an empty label.
        let wildcard: Vec<_> = self.wildcard.keys().map(|host| (host.clone(), asks(&format!(".{host}")))).collect();
        let any = asks("");
        let addresses = exact.iter().filter(|(host, _)| is_ip_address(host)).map(|(_, asks)| *asks).chain([any]);
        self.addresses = common_request(addresses).unwrap_or(otherwise);
        self.any.certificate_request = any;
        for (hosts, asks) in [(&mut self.exact, exact), (&mut self.wildcard, wildcard)] {
            for (host, asks) in asks {
                hosts.entry(host).or_default().certificate_request = asks;
            }
        }
        let addresses = self.addresses;
        let differs = self.hosts_mut().any(|host| host.certificate_request != addresses);
        self.everywhere = (!differs).then_some(addresses);
    }

    /// Hosts that match `host`, which is normalized, the most specific first.
    fn matching_hosts<'a>(&'a self, host: &str) -> impl Iterator<Item = &'a HostRoutes> {
        let exact = self.exact.get(host);
        // Without a wildcard no dot is searched.
        let below = if self.wildcard.is_empty() { "" } else { host };
        let wildcards = below.match_indices('.').filter_map(move |(dot, _)| self.wildcard.get(host.get(dot + 1..)?));
        exact.into_iter().chain(wildcards).chain([&self.any])
    }

    /// Chooses the route for `host` (without a port), `path` (without a query) and the rest of `head`, if there is one.
    ///
    /// # Errors
    ///
    /// The path could be read as one for the route in the error, which is before the one that matches, if any does.
    pub(crate) fn choose_route(
        &self,
        host: &str,
        path: &str,
        head: &Head,
    ) -> Result<Option<&CompiledRoute>, &CompiledRoute> {
        // Without hosts in the configuration the host does not matter.
        let is_any = self.exact.is_empty() && self.wildcard.is_empty();
        let host = if is_any { Cow::Borrowed("") } else { normalize_host(host) };
        let (mut passed_over, mut read_otherwise) = (false, false);
        let chosen = self.matching_hosts(&host).find_map(|host| {
            let found = host.find_by_path(path, head);
            // Those before it do not match.
            let before = found.unwrap_or(host.routes.len());
            passed_over |= before > 0;
            read_otherwise |= host.may_read_otherwise(path, before);
            found.and_then(|at| Some((host, at, host.routes.get(at)?)))
        });
        let reading = chosen.map_or(PathReading::Any, |(.., route)| route.reading);
        let ignore_case = reading == PathReading::Any;
        // A route that matches by the path's bytes matches in each reading too: a reading selects it, or one before it.
        let checked = passed_over && reading != PathReading::Raw;
        if checked && (read_otherwise || exchange::may_have_readings(path, ignore_case)) {
            let is_chosen = |host: &HostRoutes| chosen.is_some_and(|(of, ..)| std::ptr::eq(host, of));
            let chosen_at = self.matching_hosts(&host).position(is_chosen);
            let hosts = chosen_at.map_or(usize::MAX, |at| at.saturating_add(1));
            let read_as = |reading: Vec<u8>| {
                self.matching_hosts(&host).take(hosts).find_map(|host| {
                    let here = chosen.filter(|(of, ..)| std::ptr::eq(host, *of));
                    let end = here.map_or(host.routes.len(), |(_, at, _)| at);
                    // Two routes of one host that are read alike are one to such an origin.
                    let longer_than = here.map(|(.., route)| route.read_prefix.len());
                    host.find_by_reading(&reading, ignore_case, head, |at, route| {
                        at < end && longer_than.is_none_or(|length| route.read_prefix.len() > length)
                    })
                })
            };
            if let Some(other) = exchange::path_readings(path).find_map(read_as) {
                return Err(other);
            }
        }
        Ok(chosen.map(|(.., route)| route))
    }

    /// The certificate request of a handshake for `host`: that of all of its routes, or [`Optional`] if they differ,
    /// for the handshake cannot know which path will be requested.
    ///
    /// A handshake without a name, and an IP address, which no client can request by SNI (RFC 6066 §3), are one host:
    /// that of the routes for addresses and for any host.
    ///
    /// [`Optional`]: CertificateRequest::Optional
    pub(super) fn certificate_request(&self, host: Option<&str>) -> CertificateRequest {
        if let Some(request) = self.everywhere {
            return request;
        }
        let Some(host) = host.map(normalize_host).filter(|host| !is_ip_address(host)) else { return self.addresses };
        self.matching_hosts(&host).next().map_or(self.addresses, |host| host.certificate_request)
    }
}

/// Certificate requests of the routes of `hosts` that a path can select: a route behind a prefix of its own prefix,
/// which matches every such path, never gets one.
fn reachable_requests<'a>(hosts: impl Iterator<Item = &'a HostRoutes>) -> impl Iterator<Item = CertificateRequest> {
    let mut before: Vec<&CompiledRoute> = Vec::new();
    for route in hosts.flat_map(|host| &host.routes) {
        if !before.iter().any(|earlier| earlier.hides_route(route)) {
            before.push(route);
        }
    }
    before.into_iter().map(|route| route.head.certificate)
}

/// The common request of all; `Optional` if they differ, `None` if there are none.
fn common_request(mut all: impl Iterator<Item = CertificateRequest>) -> Option<CertificateRequest> {
    let first = all.next()?;
    Some(if all.all(|other| other == first) { first } else { CertificateRequest::Optional })
}

/// Whether `host` is an IP address; an IPv6 address has brackets.
pub(super) fn is_ip_address(host: &str) -> bool {
    host.starts_with('[') || host.parse::<Ipv4Addr>().is_ok()
}

impl CompiledRoute {
    fn matches_path(&self, path: &str) -> bool {
        let rest = path.strip_prefix(self.prefix.as_str());
        rest.is_some_and(|rest| rest.is_empty() || (rest.starts_with('/') && !self.is_exact))
            // `*` of an OPTIONS request is about the host as a whole.
            || (self.prefix.is_empty() && path == "*")
    }

    /// Whether a request with a matching path meets the route's conditions.
    fn accepts_head(&self, head: &Head) -> bool {
        self.conditions.as_ref().is_none_or(|conditions| conditions.are_met_by(head))
    }

    /// Whether the route, if it comes before `other`, matches all requests that `other` could.
    fn hides_route(&self, other: &Self) -> bool {
        self.conditions.is_none() && (!self.is_exact || other.is_exact) && self.matches_path(&other.prefix)
    }

    /// Whether `reading`, one of a path's readings, matches.
    fn matches_reading(&self, reading: &[u8], ignore_case: bool) -> bool {
        let Some((start, rest)) = reading.split_at_checked(self.read_prefix.len()) else { return false };
        let same = if ignore_case { start.eq_ignore_ascii_case(&self.read_prefix) } else { start == self.read_prefix };
        same && (rest.is_empty() || (rest.starts_with(b"/") && !self.is_exact) || (rest == b"/" && self.ignores_slash))
    }
}

/// Conditions of a route, with the names looked up.
#[derive(Debug, Clone)]
pub(super) struct RouteConditions {
    methods: Vec<Method>,
    pub(super) fields: Vec<(FieldName, ValuePattern)>,
    pub(super) query: Vec<(String, ValuePattern)>,
    weight: config::Specificity,
}

impl RouteConditions {
    fn new(conditions: &MatchConditions) -> Self {
        let fields = conditions.headers.iter().map(|(name, pattern)| (name.into(), pattern.clone()));
        Self {
            methods: conditions.methods.clone(),
            fields: fields.collect(),
            query: conditions.query.clone(),
            weight: conditions.specificity(),
        }
    }

    fn are_met_by(&self, head: &Head) -> bool {
        let Self { methods, fields, query, weight: _ } = self;
        (methods.is_empty() || methods.contains(&head.method))
            && fields.iter().all(|(name, pattern)| {
                head.fields.all_values(name.as_name_ref()).any(|value| pattern.matches_value(value))
            })
            && query
                .iter()
                .all(|(name, pattern)| query_values(head, name).any(|value| pattern.matches_value(value.as_bytes())))
    }
}

/// Returns the values of the query's parameters with the name `name`, as they are written.
pub(super) fn query_values<'a>(head: &'a Head, name: &'a str) -> impl Iterator<Item = &'a str> {
    let pairs = head.query().unwrap_or_default().split('&');
    let parameters = pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    parameters.filter(move |(known, _)| *known == name).map(|(_, value)| value)
}

/// Normalizes `host`: lower case and without the root's dot, an IPv6 address as in RFC 5952, and an IPv4-mapped one as
/// IPv4; copies only a host that needs it.
fn normalize_host(host: &str) -> Cow<'_, str> {
    if let Some(address) = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')?.parse::<Ipv6Addr>().ok()) {
        return Cow::Owned(match address.to_ipv4_mapped() {
            Some(address) => address.to_string(),
            None => format!("[{address}]"),
        });
    }
    // `exchange::check_authority` accepts the root's dot.
    let host = if host.ends_with('.') { host.trim_end_matches('.') } else { host };
    if host.bytes().any(|byte| byte.is_ascii_uppercase()) {
        Cow::Owned(host.to_ascii_lowercase())
    } else {
        Cow::Borrowed(host)
    }
}

#[cfg(test)]
mod tests;
