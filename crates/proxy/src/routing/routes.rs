//! Route selection: host first, then path, then conditions. Pure; compiled once a configuration.
//!
//! Among the routes that match, the most specific host wins (exact, then the longest `*.`, then any host); within one
//! host an exact path, then the longest path prefix; of those with the same path the one with the most conditions
//! ([`Weight`]), and at last the file's first. The path is compared byte by byte, and a request is rejected whose
//! origin could read it as one for a route before that (docs/adr/0022-ambiguous-paths.md).
//!
//! [`Weight`]: config::Weight

use crate::{answer::PageSet, message::RouteHead, rules::Rules};
use http::Method;
use litequic_config::{self as config, ClientCertificates, Match, PathReading, Pattern, Verify};
use litequic_exchange::{self as exchange, CertificateRequest, FieldName, Head};
use std::{
    borrow::Cow,
    cmp::Reverse,
    collections::{BTreeMap, HashMap},
    net::{Ipv4Addr, Ipv6Addr},
    sync::Arc,
};

/// Every route, compiled.
#[derive(Debug, Default)]
pub(crate) struct Routes {
    exact: HashMap<String, Host>,
    /// By what follows `*.`.
    wildcard: HashMap<String, Host>,
    any: Host,
    /// The certificate requests of the routes of all IP addresses.
    addresses: CertificateRequest,
    /// The certificate request of every host, if they do not differ.
    everywhere: Option<CertificateRequest>,
}

/// A host, or all of a kind.
#[derive(Debug, Default)]
struct Host {
    /// The most specific first.
    routes: Vec<Route>,
    /// The certificate requests of the routes that could serve such a host, those of less specific hosts too.
    asks: CertificateRequest,
}

/// How a matching request is handled.
#[derive(Debug, Clone)]
pub(crate) struct Route {
    /// The name for logs and metrics: as in [`config::Route::names`].
    pub(crate) name: Arc<str>,
    /// The path for spans: as configured, with `/*` behind a prefix.
    pub(crate) http_route: Arc<str>,
    /// The route's place in the configuration.
    pub(crate) number: usize,
    /// Without the trailing slash: `/live/` and `/live` are one prefix, and `/` is empty. Of an exact path all of it.
    prefix: String,
    /// Nothing may follow the prefix.
    is_exact: bool,
    /// The conditions.
    conditions: Option<Box<Conditions>>,
    /// The prefix after the furthest decoding, without the trailing slash either.
    read_prefix: Vec<u8>,
    /// Whether a path without readings of its own may be read as below the prefix: one with capitals, or with escapes.
    has_readings: bool,
    /// How its origin may decode paths.
    reading: PathReading,
    /// The origin's name; `None` if the route answers by itself.
    pub(crate) origin: Option<String>,
    /// The route's rules.
    pub(crate) rules: Option<Arc<Rules>>,
    /// The bodies of its errors.
    pub(crate) pages: PageSet,
    /// What the route has for the heads of its requests.
    pub(crate) head: RouteHead,
    /// Bytes of a request's body: 413 beyond.
    pub(crate) max_body_bytes: Option<u64>,
    /// Protocols to which a client may switch, in lower case.
    pub(crate) upgrade: Vec<String>,
}

/// Host and path of a route, for a comparison with others.
struct Place<'a> {
    host: Option<Cow<'a, str>>,
    /// After the furthest decoding, in lower case.
    path: Vec<u8>,
}

impl<'a> Place<'a> {
    fn of(route: &'a config::Route) -> Self {
        let path = route.path.as_deref().unwrap_or_else(|| route.prefix());
        let path = exchange::readings(path).next().unwrap_or_default().to_ascii_lowercase();
        Self { host: route.host.as_deref().map(normalized), path }
    }

    /// Whether a request can be for both, in some reading of its path; also true of a few where none can.
    fn meets(&self, other: &Self) -> bool {
        let covers = |wide: &str, host: &str| wide.strip_prefix('*').is_some_and(|end| host.ends_with(end));
        let hosts = match (&self.host, &other.host) {
            (None, _) | (_, None) => true,
            (Some(one), Some(other)) => one == other || covers(one, other) || covers(other, one),
        };
        hosts && (self.path.starts_with(&other.path) || other.path.starts_with(&self.path))
    }
}

impl Routes {
    /// Compiles `routes` to `origins`; `max_body_bytes` and `certificates` apply to those without their own.
    pub(crate) fn new(
        routes: &[config::Route],
        origins: &BTreeMap<String, config::Origin>,
        max_body_bytes: Option<u64>,
        certificates: &ClientCertificates,
    ) -> Self {
        let mut this = Self::default();
        let by_method = routes.iter().filter(|route| !route.conditions.methods.is_empty());
        let by_method: Vec<_> = by_method.map(Place::of).collect();
        for (number, (route, name)) in routes.iter().zip(config::Route::names(routes)).enumerate() {
            let prefix = route.path.as_deref().unwrap_or_else(|| route.prefix());
            let mut read_prefix = exchange::readings(prefix).next().unwrap_or_default();
            if route.path.is_none() && read_prefix.ends_with(b"/") {
                read_prefix.pop();
            }
            let conditions = &route.conditions;
            let origin = route.origin().and_then(|name| origins.get(name));
            let compiled = Route {
                name: name.into(),
                http_route: if route.path.is_some() { prefix.into() } else { format!("{prefix}/*").into() },
                number,
                prefix: prefix.to_owned(),
                is_exact: route.path.is_some(),
                conditions: (!conditions.is_empty()).then(|| Box::new(Conditions::new(conditions))),
                read_prefix,
                has_readings: exchange::has_readings(prefix, true),
                reading: origin.map_or(PathReading::default(), |origin| origin.path_reading),
                origin: route.origin().map(str::to_owned),
                rules: None,
                pages: PageSet::default(),
                head: RouteHead {
                    rewrite_host: route.rewrite_host.clone(),
                    certificate: request(route.client_certificate.unwrap_or(certificates.verify)),
                    certificate_chain: certificates.chain,
                    methods_matter: !by_method.is_empty() && {
                        let place = Place::of(route);
                        by_method.iter().any(|other| place.meets(other))
                    },
                },
                max_body_bytes: route.max_body_bytes.or(max_body_bytes),
                upgrade: route.upgrade.clone(),
            };
            let host = match route.host.as_deref() {
                None => &mut this.any,
                Some(host) => match host.strip_prefix("*.") {
                    Some(suffix) => this.wildcard.entry(normalized(suffix).into_owned()).or_default(),
                    None => this.exact.entry(normalized(host).into_owned()).or_default(),
                },
            };
            host.routes.push(compiled);
        }
        // Stable: of two equal ones the file's first wins. Of two prefixes that match one path the longer is also read
        // as the longer, or as equal.
        this.hosts().for_each(|host| {
            host.routes.sort_by_key(|route| {
                let weight = route.conditions.as_ref().map(|conditions| conditions.weight);
                Reverse((route.is_exact, route.read_prefix.len(), route.prefix.len(), weight))
            });
        });
        this.ask(request(certificates.verify));
        this
    }

    /// Gives each route the rules and the pages that `of` has for its number.
    pub(crate) fn rule(&mut self, of: impl Fn(usize) -> (Option<Arc<Rules>>, PageSet)) {
        for route in self.hosts().flat_map(|host| &mut host.routes) {
            (route.rules, route.pages) = of(route.number);
        }
    }

    fn hosts(&mut self) -> impl Iterator<Item = &mut Host> {
        self.exact.values_mut().chain(self.wildcard.values_mut()).chain([&mut self.any])
    }

    /// Notes for each host the certificate requests of its routes; `otherwise` if none could serve it.
    fn ask(&mut self, otherwise: CertificateRequest) {
        let asks = |host: &str| together(served(self.matching(host))).unwrap_or(otherwise);
        let exact: Vec<_> = self.exact.keys().map(|host| (host.clone(), asks(host))).collect();
        // The shortest name that a wildcard matches; no exact host has an empty label.
        let wildcard: Vec<_> = self.wildcard.keys().map(|host| (host.clone(), asks(&format!(".{host}")))).collect();
        let any = asks("");
        let addresses = exact.iter().filter(|(host, _)| is_address(host)).map(|(_, asks)| *asks).chain([any]);
        self.addresses = together(addresses).unwrap_or(otherwise);
        self.any.asks = any;
        for (hosts, asks) in [(&mut self.exact, exact), (&mut self.wildcard, wildcard)] {
            for (host, asks) in asks {
                hosts.entry(host).or_default().asks = asks;
            }
        }
        let addresses = self.addresses;
        let differs = self.hosts().any(|host| host.asks != addresses);
        self.everywhere = (!differs).then_some(addresses);
    }

    /// The hosts that match `host`, as it is normalized, the most specific first.
    fn matching<'a>(&'a self, host: &str) -> impl Iterator<Item = &'a Host> {
        let exact = self.exact.get(host);
        // Without one no dot is searched.
        let below = if self.wildcard.is_empty() { "" } else { host };
        let wildcards = below.match_indices('.').filter_map(move |(dot, _)| self.wildcard.get(host.get(dot + 1..)?));
        exact.into_iter().chain(wildcards).chain([&self.any])
    }

    /// The route for `host` (without a port), `path` (without a query) and the rest of `head`, if there is one.
    ///
    /// # Errors
    ///
    /// The path could be read as one for the route in the error, which is before the one that matches, if any does.
    pub(crate) fn choose(&self, host: &str, path: &str, head: &Head) -> Result<Option<&Route>, &Route> {
        // Without hosts in the configuration it does not matter.
        let is_any = self.exact.is_empty() && self.wildcard.is_empty();
        let host = if is_any { Cow::Borrowed("") } else { normalized(host) };
        let routes = || self.matching(&host).flat_map(|host| host.routes.iter().map(move |route| (host, route)));
        let (mut passed_over, mut read_otherwise) = (false, false);
        let chosen = routes().find(|(_, route)| {
            let matches = route.matches(path) && route.accepts(head);
            passed_over |= !matches;
            read_otherwise |= !matches && route.has_readings;
            matches
        });
        let reading = chosen.map_or(PathReading::Any, |(_, route)| route.reading);
        let ignore_case = reading == PathReading::Any;
        // A route that matches by the path's bytes matches in each reading too: a reading selects it, or one before it.
        let checked = passed_over && reading != PathReading::Raw;
        if checked && (read_otherwise || exchange::has_readings(path, ignore_case)) {
            let before = |host: &Host, route: &Route| match chosen {
                None => true,
                Some((of, _)) if !std::ptr::eq(host, of) => true,
                // Two of one host that are read alike are one to such an origin.
                Some((_, chosen)) => route.read_prefix.len() > chosen.read_prefix.len(),
            };
            let is_chosen = |route: &Route| chosen.is_some_and(|(_, chosen)| std::ptr::eq(route, chosen));
            let read_as = |reading: Vec<u8>| {
                let mut others = routes().take_while(|(_, route)| !is_chosen(route));
                others.find(|(host, route)| {
                    before(host, route) && route.matches_reading(&reading, ignore_case) && route.accepts(head)
                })
            };
            if let Some((_, other)) = exchange::readings(path).find_map(read_as) {
                return Err(other);
            }
        }
        Ok(chosen.map(|(_, route)| route))
    }

    /// The certificate request of a handshake for `host`: that of all of its routes, or [`Optional`] if they differ,
    /// for the handshake cannot know which path will be requested.
    ///
    /// No name, and an IP address, which no client can request by SNI (RFC 6066 §3), are one host: that of the routes
    /// for addresses and for any host.
    ///
    /// [`Optional`]: CertificateRequest::Optional
    pub(super) fn certificate_request(&self, host: Option<&str>) -> CertificateRequest {
        if let Some(request) = self.everywhere {
            return request;
        }
        let Some(host) = host.map(normalized).filter(|host| !is_address(host)) else { return self.addresses };
        self.matching(&host).next().map_or(self.addresses, |host| host.asks)
    }
}

/// The routes of `hosts` that a path can select: those behind a prefix of their own prefix, which matches every such
/// path, never get one.
fn served<'a>(hosts: impl Iterator<Item = &'a Host>) -> impl Iterator<Item = CertificateRequest> {
    let mut before: Vec<&Route> = Vec::new();
    for route in hosts.flat_map(|host| &host.routes) {
        if !before.iter().any(|earlier| earlier.hides(route)) {
            before.push(route);
        }
    }
    before.into_iter().map(|route| route.head.certificate)
}

/// The common request of all; `Optional` if they differ, `None` if there are none.
fn together(mut all: impl Iterator<Item = CertificateRequest>) -> Option<CertificateRequest> {
    let first = all.next()?;
    Some(if all.all(|other| other == first) { first } else { CertificateRequest::Optional })
}

const fn request(verify: Verify) -> CertificateRequest {
    match verify {
        Verify::None => CertificateRequest::None,
        Verify::Optional => CertificateRequest::Optional,
        Verify::Required => CertificateRequest::Required,
    }
}

/// Whether `host` is an IP address; an IPv6 address has brackets.
pub(super) fn is_address(host: &str) -> bool {
    host.starts_with('[') || host.parse::<Ipv4Addr>().is_ok()
}

impl Route {
    fn matches(&self, path: &str) -> bool {
        let rest = path.strip_prefix(self.prefix.as_str());
        rest.is_some_and(|rest| rest.is_empty() || (rest.starts_with('/') && !self.is_exact))
            // `*` of an OPTIONS request is about the host as a whole.
            || (self.prefix.is_empty() && path == "*")
    }

    /// Whether a request with the right path meets its conditions.
    fn accepts(&self, head: &Head) -> bool {
        self.conditions.as_ref().is_none_or(|conditions| conditions.are_met_by(head))
    }

    /// Whether it matches, being before it, all that `other` could.
    fn hides(&self, other: &Self) -> bool {
        self.conditions.is_none() && (!self.is_exact || other.is_exact) && self.matches(&other.prefix)
    }

    /// Whether one of a path's readings matches.
    fn matches_reading(&self, reading: &[u8], ignore_case: bool) -> bool {
        let Some((start, rest)) = reading.split_at_checked(self.read_prefix.len()) else { return false };
        let same = if ignore_case { start.eq_ignore_ascii_case(&self.read_prefix) } else { start == self.read_prefix };
        same && (rest.is_empty() || (rest.starts_with(b"/") && !self.is_exact))
    }
}

/// The conditions of a route, with the names looked up.
#[derive(Debug, Clone)]
struct Conditions {
    methods: Vec<Method>,
    fields: Vec<(FieldName, Pattern)>,
    query: Vec<(String, Pattern)>,
    weight: config::Weight,
}

impl Conditions {
    fn new(conditions: &Match) -> Self {
        let fields = conditions.headers.iter().map(|(name, pattern)| (name.into(), pattern.clone()));
        Self {
            methods: conditions.methods.clone(),
            fields: fields.collect(),
            query: conditions.query.clone(),
            weight: conditions.weight(),
        }
    }

    fn are_met_by(&self, head: &Head) -> bool {
        let Self { methods, fields, query, weight: _ } = self;
        let parameters = || {
            let pairs = head.query().unwrap_or_default().split('&');
            pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")))
        };
        (methods.is_empty() || methods.contains(&head.method))
            && fields.iter().all(|(name, pattern)| head.fields.all(name.name()).any(|value| pattern.fits(value)))
            && query.iter().all(|(name, pattern)| {
                parameters().any(|(known, value)| known == name && pattern.fits(value.as_bytes()))
            })
    }
}

/// Lower case and without the root's dot, an IPv6 address as in RFC 5952, and an IPv4-mapped one as IPv4; copies only a
/// host that needs it.
fn normalized(host: &str) -> Cow<'_, str> {
    if let Some(address) = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')?.parse::<Ipv6Addr>().ok()) {
        return Cow::Owned(match address.to_ipv4_mapped() {
            Some(address) => address.to_string(),
            None => format!("[{address}]"),
        });
    }
    // `exchange::authority` accepts one.
    let host = if host.ends_with('.') { host.trim_end_matches('.') } else { host };
    if host.bytes().any(|byte| byte.is_ascii_uppercase()) {
        Cow::Owned(host.to_ascii_lowercase())
    } else {
        Cow::Borrowed(host)
    }
}

#[cfg(test)]
mod tests;
