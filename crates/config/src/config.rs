//! Defines the configuration of a process as a whole.

use super::access_log::AccessLog;
use super::acme::Acme;
use super::admin::Admin;
use super::certificates::{CertificateFiles, ClientCertificates};
use super::laboratory::Laboratory;
use super::limits::{Limits, Sources};
use super::listen::Listen;
use super::log::LogConfig;
use super::origin::{OriginAddress, OriginConfig, OriginServer};
use super::reload::ReloadConfig;
use super::route::RouteConfig;
use super::rules::{ErrorPages, HeaderRules};
use super::timeouts::Timeouts;
use super::traces::Traces;
use super::transport::LiteQuic;
use arc_swap::ArcSwap;
use litequic_base::network::Network;
use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv6Addr, SocketAddr},
    path::PathBuf,
    sync::Arc,
};

/// The configuration in force. A reload replaces it as a whole; workers read it without a lock.
pub type LiveConfig = Arc<ArcSwap<Config>>;

/// The configuration of a process. The default has neither a certificate nor an origin.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Config {
    /// Listeners for clients.
    pub listen: Listen,
    /// Certificates from files. The first is the default, for clients without a matching name. At least one, unless
    /// there is `acme`.
    pub certificates: Vec<CertificateFiles>,
    /// Hosts whose certificates litequic obtains by itself.
    pub acme: Vec<Acme>,
    /// Verification of clients' certificates.
    pub client_certificates: ClientCertificates,
    /// Routes in the order of the file; `proxy::routing` selects one for each request.
    pub routes: Vec<RouteConfig>,
    /// Header rules for all requests; a route's own rules have precedence.
    pub request_headers: HeaderRules,
    /// Header rules for all responses, including those without a route; a route's own rules have precedence.
    pub response_headers: HeaderRules,
    /// Error pages for requests without a route, and for statuses without a page of the route.
    pub error_pages: ErrorPages,
    /// Origins by name, including every route's origin.
    pub origins: BTreeMap<String, OriginConfig>,
    /// Limits for clients.
    pub limits: Limits,
    /// Definition of a client for these limits, and exempt networks.
    pub sources: Sources,
    /// Timeouts for clients, origins and drains.
    pub timeouts: Timeouts,
    /// Receiving and sending of datagrams.
    pub litequic: LiteQuic,
    /// The administration interface.
    pub admin: Admin,
    /// Automatic reloads after changes of files.
    pub reload: ReloadConfig,
    /// The error log.
    pub log: LogConfig,
    /// The access log.
    pub access_log: AccessLog,
    /// Spans of requests, and their collector.
    pub traces: Traces,
    /// Peers whose `Forwarded` and `X-Forwarded-*` fields are extended instead of removed.
    pub trusted_proxies: Vec<Network>,
    /// Values set for experiments, in place of constants.
    pub laboratory: Laboratory,
}

impl Config {
    /// Whether any route permits a protocol upgrade.
    pub fn permits_tunnels(&self) -> bool {
        self.routes.iter().any(|route| !route.upgrade.is_empty())
    }

    /// Whether a route sends requests to the origin `name`, or has it decide about them (`auth`).
    pub fn uses_origin(&self, name: &str) -> bool {
        let uses = |route: &RouteConfig| {
            route.target_origin() == Some(name) || route.auth.as_ref().is_some_and(|auth| auth.origin == name)
        };
        self.routes.iter().any(uses)
    }

    /// Returns the names of the fields that clients may not send on routes to each origin, by its name: litequic sets
    /// them on a route to one of the same servers, and `origin.reserved_fields` does not exclude them.
    pub fn withheld_fields(&self) -> BTreeMap<&str, BTreeSet<&str>> {
        let setters: Vec<_> = self.routes.iter().filter(|route| route.identity_fields().next().is_some()).collect();
        let of_origin = |origin: &OriginConfig| {
            let is_shared = |server: &OriginServer| origin.servers.iter().any(|own| own.address == server.address);
            let shares = |setter: &&&RouteConfig| {
                let other = setter.target_origin().and_then(|name| self.origins.get(name));
                other.is_some_and(|other| other.servers.iter().any(is_shared))
            };
            let fields = setters.iter().filter(shares).flat_map(|setter| setter.identity_fields());
            fields.filter(|name| !origin.reserved_fields.excludes_name(name)).collect()
        };
        self.origins.iter().map(|(name, origin)| (name.as_str(), of_origin(origin))).collect()
    }

    /// Name of `[origin]` among [`Config::origins`].
    pub const ORIGIN_NAME: &str = "origin";

    /// Returns the source of `address` in limits shared between sources; `None` if unlimited, such as a trusted proxy,
    /// which represents many clients.
    pub fn source_of_client(&self, address: IpAddr) -> Option<Network> {
        let mut exempt = self.sources.exempt.iter().chain(&self.trusted_proxies);
        self.sources.source_of_address(address, || exempt.any(|network| network.contains_address(address)))
    }

    /// Whether responses on a connection from `address` are sent by their priorities. A trusted proxy forwards the
    /// responses of many users, and one user's must not delay another's.
    pub fn orders_responses(&self, address: IpAddr) -> bool {
        self.litequic.priorities && !self.trusted_proxies.iter().any(|network| network.contains_address(address))
    }

    /// Makes the configuration replaceable, for workers.
    pub fn into_live(self) -> LiveConfig {
        Arc::new(ArcSwap::from_pointee(self))
    }

    /// Configures a public site without a file: one origin, certificates of `acme`, and the ports of https and http.
    pub fn for_site(acme: Acme, origin: OriginAddress) -> Self {
        let port = |port| SocketAddr::from((Ipv6Addr::UNSPECIFIED, port));
        let mut config = Self::with_defaults(port(443), origin, PathBuf::new(), PathBuf::new());
        config.listen.redirect = vec![port(80)];
        Self { certificates: Vec::new(), acme: vec![acme], ..config }
    }

    /// Configures one origin and one certificate, and defaults for all other keys.
    pub fn with_defaults(listen: SocketAddr, origin: OriginAddress, cert: PathBuf, key: PathBuf) -> Self {
        Self {
            listen: Listen::at_address(listen),
            certificates: vec![CertificateFiles { cert, key }],
            routes: vec![RouteConfig::catch_all(Self::ORIGIN_NAME)],
            origins: BTreeMap::from([(Self::ORIGIN_NAME.into(), OriginConfig::new(origin))]),
            ..Self::default()
        }
    }
}
