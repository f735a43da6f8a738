//! The configuration of a process as a whole.

use super::access_log::AccessLog;
use super::acme::Acme;
use super::admin::Admin;
use super::certificates::{CertificateFiles, ClientCertificates};
use super::laboratory::Laboratory;
use super::limits::{Limits, Sources};
use super::listen::Listen;
use super::log::LogConfig;
use super::origin::{OriginAddress, OriginConfig};
use super::reload::ReloadConfig;
use super::route::RouteConfig;
use super::rules::{ErrorPages, HeaderRules};
use super::timeouts::Timeouts;
use super::traces::Traces;
use super::transport::LiteQuic;
use arc_swap::ArcSwap;
use litequic_base::network::Network;
use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv6Addr, SocketAddr},
    path::PathBuf,
    sync::Arc,
};

/// The configuration that is in force. A reload replaces it as a whole; workers read it without a lock.
pub type LiveConfig = Arc<ArcSwap<Config>>;

/// The configuration of a process.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// The listeners for clients.
    pub listen: Listen,
    /// The first is served to a client that names none of the others' names. At least one, unless there is `acme`.
    pub certificates: Vec<CertificateFiles>,
    /// Hosts whose certificates litequic obtains by itself.
    pub acme: Vec<Acme>,
    /// Whether and by which authorities clients' certificates are verified.
    pub client_certificates: ClientCertificates,
    /// In the order of the file; which one serves a request is decided by `proxy::routes`.
    pub routes: Vec<RouteConfig>,
    /// For requests to every origin; a route's own come first.
    pub request_headers: HeaderRules,
    /// For responses of every route, and for answers without one; a route's own come first.
    pub response_headers: HeaderRules,
    /// For the errors that a route has no page for, and for requests that match no route.
    pub error_pages: ErrorPages,
    /// By name. Every route's origin is among them.
    pub origins: BTreeMap<String, OriginConfig>,
    /// Limits for clients.
    pub limits: Limits,
    /// What counts as one client of these limits, and which are exempt.
    pub sources: Sources,
    /// Timeouts.
    pub timeouts: Timeouts,
    /// How datagrams are received and sent.
    pub litequic: LiteQuic,
    /// Administration interface.
    pub admin: Admin,
    /// What a changed file does by itself.
    pub reload: ReloadConfig,
    /// The log.
    pub log: LogConfig,
    /// The access log.
    pub access_log: AccessLog,
    /// Spans of requests, and the collector that gets them.
    pub traces: Traces,
    /// Peers whose `Forwarded` and `X-Forwarded-*` fields are appended to instead of removed: networks as
    /// (address, prefix length).
    pub trusted_proxies: Vec<Network>,
    /// What experiments have set; the values stand in the places of the constants.
    pub laboratory: Laboratory,
}

impl Config {
    /// Whether a client may switch to another protocol on any route.
    pub fn permits_tunnels(&self) -> bool {
        self.limits.max_tunnels > 0 && self.routes.iter().any(|route| !route.upgrade.is_empty())
    }

    /// The name under which `[origin]` is among [`Config::origins`].
    pub const ORIGIN_NAME: &str = "origin";

    /// The source of `address`, in pools that sources share; `None` if it is not limited: a trusted proxy stands for
    /// many.
    pub fn source_of_client(&self, address: IpAddr) -> Option<Network> {
        self.sources.source_of_address(address, &self.trusted_proxies)
    }

    /// Whether the responses on a connection from `address` are sent in the order of their priorities. A trusted proxy
    /// forwards those of many users, and one must not hold back another's.
    pub fn orders_responses(&self, address: IpAddr) -> bool {
        self.litequic.priorities && !self.trusted_proxies.iter().any(|network| network.contains_address(address))
    }

    /// To be followed by workers.
    pub fn into_live(self) -> LiveConfig {
        Arc::new(ArcSwap::from_pointee(self))
    }

    /// A public site: one origin, certificates of `acme` for its hosts, and the ports of https and http. What needs no
    /// file.
    pub fn for_site(acme: Acme, origin: OriginAddress) -> Self {
        let port = |port| SocketAddr::from((Ipv6Addr::UNSPECIFIED, port));
        let mut config = Self::with_defaults(port(443), origin, PathBuf::new(), PathBuf::new());
        config.listen.redirect = vec![port(80)];
        Self { certificates: Vec::new(), acme: vec![acme], ..config }
    }

    /// One origin, one certificate, and every default: what needs no file.
    pub fn with_defaults(listen: SocketAddr, origin: OriginAddress, cert: PathBuf, key: PathBuf) -> Self {
        Self {
            listen: Listen::at_address(listen),
            certificates: vec![CertificateFiles { cert, key }],
            acme: Vec::new(),
            client_certificates: ClientCertificates::default(),
            routes: vec![RouteConfig::catch_all(Self::ORIGIN_NAME)],
            request_headers: HeaderRules::default(),
            response_headers: HeaderRules::default(),
            error_pages: ErrorPages::default(),
            origins: BTreeMap::from([(Self::ORIGIN_NAME.into(), OriginConfig::new(origin))]),
            limits: Limits::default(),
            sources: Sources::default(),
            timeouts: Timeouts::default(),
            litequic: LiteQuic::default(),
            admin: Admin::default(),
            reload: ReloadConfig::default(),
            log: LogConfig::default(),
            access_log: AccessLog::default(),
            traces: Traces::default(),
            trusted_proxies: Vec::new(),
            laboratory: Laboratory::default(),
        }
    }
}
