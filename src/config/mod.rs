//! The configuration as the rest of litequic sees it: typed, checked, with every default filled in.
//!
//! [`parse`] turns TOML into it in one step and names every fault at once. Nothing below re-checks what a
//! [`Config`] holds.

mod access;
mod diff;
mod draft;
mod fault;
mod file;
mod keys;
mod limits;
mod names;
mod origin;
mod reference;
mod rules;
mod section;
mod source;
mod timeouts;
mod transport;
mod values;

pub use access::{AccessField, AccessFormat, AccessLog, AccessTarget, Share};
pub use diff::{Change, NEEDS_RESTART};
pub use draft::{Draft, Findings};
pub use fault::{Fault, Faults, Warning};
pub use file::{load, parse, schema};
pub use limits::{Limits, MemoryLimit};
pub use origin::{
    AmbiguousFields, Balance, Health, Origin, OriginAddress, OriginAddressError, Statuses, StatusesError,
};
pub use reference::reference;
pub use rules::{
    ErrorPages, Errors, HeaderRules, Part, RateLimit, RateLimitBy, Redirect, RouteTimeouts, Target, Template, Variable,
    media_type, request_field_fault, response_field_fault,
};
pub use timeouts::Timeouts;
pub use transport::{AckFrequency, Congestion, Io, LiteQuic};

use arc_swap::ArcSwap;
use std::{
    collections::BTreeMap,
    fmt,
    hash::{Hash, Hasher},
    net::{IpAddr, Ipv6Addr, SocketAddr},
    num::NonZeroU16,
    path::PathBuf,
    sync::Arc,
};

/// The configuration that is in force. A reload replaces it as a whole; workers read it without a lock.
pub type Live = Arc<ArcSwap<Config>>;

/// What litequic runs by.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// Where clients reach litequic.
    pub listen: Listen,
    /// At least one; the first is served to a client that names none of the others' names.
    pub certificates: Vec<CertificateFiles>,
    /// Whether and by whom clients' certificates are verified.
    pub client_certificates: ClientCertificates,
    /// In the order of the file; which one serves a request is decided by `proxy::routes`.
    pub routes: Vec<Route>,
    /// For the errors that a route has no page for, and for requests that no route takes.
    pub error_pages: ErrorPages,
    /// By name. Every route's origin is among them.
    pub origins: BTreeMap<String, Origin>,
    /// What a client may do at most.
    pub limits: Limits,
    /// What counts as one client of these limits, and which are free of them.
    pub sources: Sources,
    /// How long litequic waits.
    pub timeouts: Timeouts,
    /// How datagrams are received and sent.
    pub litequic: LiteQuic,
    /// Where the operator reaches litequic.
    pub admin: Admin,
    /// What is logged and how.
    pub log: Log,
    /// What is written of each request.
    pub access_log: AccessLog,
    /// Peers whose `Forwarded` and `X-Forwarded-*` fields are appended to instead of removed: networks as
    /// (address, prefix length).
    pub trusted_proxies: Vec<Network>,
}

impl Config {
    /// Whether a client may switch to another protocol on any route.
    pub fn has_tunnels(&self) -> bool {
        self.limits.max_tunnels > 0 && self.routes.iter().any(|route| !route.upgrade.is_empty())
    }

    /// The name under which `[origin]` is among [`Config::origins`].
    pub const ORIGIN: &str = "origin";

    /// What `address` counts as in pools that sources share; `None` if it is not limited: a trusted proxy stands for many.
    pub fn source(&self, address: IpAddr) -> Option<Network> {
        self.sources.source(address, &self.trusted_proxies)
    }

    /// What decides the congestion windows of connections to a UDP address of `listen.udp`.
    pub fn congestion(&self, listener: SocketAddr) -> Congestion {
        let own = self.listen.congestion.iter().find(|(address, _)| *address == listener);
        own.map_or(self.litequic.congestion, |(_, congestion)| *congestion)
    }

    /// To be followed by workers.
    pub fn live(self) -> Live {
        Arc::new(ArcSwap::from_pointee(self))
    }

    /// One origin, one certificate, and every default: what needs no file.
    pub fn simple(listen: SocketAddr, origin: OriginAddress, cert: PathBuf, key: PathBuf) -> Self {
        Self {
            listen: Listen::at(listen),
            certificates: vec![CertificateFiles { cert, key }],
            client_certificates: ClientCertificates::default(),
            routes: vec![Route::catch_all(Self::ORIGIN)],
            error_pages: ErrorPages::default(),
            origins: BTreeMap::from([(Self::ORIGIN.into(), Origin::new(origin))]),
            limits: Limits::default(),
            sources: Sources::default(),
            timeouts: Timeouts::default(),
            litequic: LiteQuic::default(),
            admin: Admin::default(),
            log: Log::default(),
            access_log: AccessLog::default(),
            trusted_proxies: Vec::new(),
        }
    }
}

/// `[listen]`
#[derive(Debug, Clone, PartialEq)]
pub struct Listen {
    /// UDP addresses for HTTP/3, at least one. `[::]:PORT` takes IPv4 as well.
    pub udp: Vec<SocketAddr>,
    /// TCP addresses for HTTP/1.1 and HTTP/2. Port 0 becomes the number that UDP got at the same IP address.
    pub tcp: Vec<SocketAddr>,
    /// TCP addresses for plain HTTP, where every request is sent on to https.
    pub redirect: Vec<SocketAddr>,
    /// Peers whose TCP connections begin with a PROXY protocol header.
    pub proxy_protocol_from: Vec<Network>,
    /// The port at which clients reach litequic, where it is another than the one it listens at.
    pub advertised_port: Option<NonZeroU16>,
    /// How many worker threads.
    pub workers: Workers,
    /// What tokens are made with, so that those of one process are good in another; without it they die with theirs.
    pub secret_file: Option<PathBuf>,
    /// `litequic.congestion` of some of the UDP addresses.
    pub congestion: Vec<(SocketAddr, Congestion)>,
}

impl Listen {
    /// All of HTTP at one address, by as many workers as there are cores.
    pub fn at(address: SocketAddr) -> Self {
        Self {
            udp: vec![address],
            tcp: vec![address],
            redirect: Vec::new(),
            proxy_protocol_from: Vec::new(),
            advertised_port: None,
            workers: Workers::Auto,
            secret_file: None,
            congestion: Vec::new(),
        }
    }

    /// No privileged port is needed, and a port above 1024 is what a Service or a balancer maps 443 to.
    pub const UDP: SocketAddr = SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), 8443);
    /// Each address is a socket a worker.
    pub const MAX_ADDRESSES: usize = 16;
    /// What fits into the octet of a connection ID that names the worker.
    pub const MAX_WORKERS: u16 = 256;
}

/// `workers`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Workers {
    /// One a core that this process may use: its affinity mask, bounded by its cgroup's CPU quota.
    Auto,
    /// That many.
    Count(NonZeroU16),
}

/// One `[[certificates]]`: PEM files, absolute or relative to the working directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateFiles {
    /// The chain, leaf first.
    pub cert: PathBuf,
    /// The leaf's private key.
    pub key: PathBuf,
}

/// `[client_certificates]`. Paths are absolute or relative to the working directory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClientCertificates {
    /// Whom litequic believes: PEM. Without it no client is asked for a certificate.
    pub ca: Option<PathBuf>,
    /// What those have revoked: PEM.
    pub crl: Option<PathBuf>,
    /// For requests whose route does not say.
    pub verify: Verify,
    /// Whether the origin also gets the certificates that came with a client's own.
    pub chain: bool,
}

/// Whether a client has to show a certificate.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Verify {
    /// It is not asked.
    #[default]
    None,
    /// It is asked, and may have none; one that does not hold is refused.
    Optional,
    /// It is refused without one.
    Required,
}

/// One `[[routes]]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// Lower case, without port and trailing dot; `*.example.com` matches one or more labels before it. `None`
    /// matches every host.
    pub host: Option<String>,
    /// Starts with `/`; matches whole segments.
    pub path_prefix: String,
    /// Where its requests go.
    pub target: Target,
    /// What stands in the path in place of `path_prefix`, for the origin or the redirect.
    pub rewrite_prefix: Option<String>,
    /// What the origin gets as `Host`, instead of `:authority`.
    pub rewrite_host: Option<String>,
    /// Instead of [`Limits::max_body_bytes`].
    pub max_body_bytes: Option<u64>,
    /// Instead of [`ClientCertificates::verify`].
    pub client_certificate: Option<Verify>,
    /// What becomes of the origin's header.
    pub request_headers: HeaderRules,
    /// What becomes of the client's, also where litequic answers by itself.
    pub response_headers: HeaderRules,
    /// Instead of [`Config::timeouts`].
    pub timeouts: RouteTimeouts,
    /// How often it may be asked.
    pub rate_limit: Option<RateLimit>,
    /// Before those of [`Config::error_pages`].
    pub error_pages: ErrorPages,
    /// Whether pages also stand in for the origin's errors.
    pub intercept_errors: bool,
    /// Protocols to which a client and the origin may switch (RFC 9110 §7.8), in lower case.
    pub upgrade: Vec<String>,
    /// What its origin may read a path as that is another than the path's bytes.
    pub path_reading: PathReading,
}

/// `path_reading`: how an origin reads paths, as far as litequic knows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum PathReading {
    /// In any way that origins are known to. The default: who does not know can only be too strict.
    #[default]
    Any,
    /// In any of them, but upper and lower case are two.
    CaseSensitive,
    /// As its bytes are.
    Raw,
}

impl PathReading {
    /// By the names of the file.
    pub const NAMES: &[(&str, Self)] =
        &[("any", Self::Any), ("case-sensitive", Self::CaseSensitive), ("raw", Self::Raw)];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Any => "any",
            Self::CaseSensitive => "case-sensitive",
            Self::Raw => "raw",
        }
    }
}

impl Route {
    /// What users of other proxies are used to have without asking for it.
    pub const UPGRADE: &str = "websocket";
    /// Each is compared with what a request asks for.
    pub const MAX_UPGRADES: usize = 16;

    /// What logs and metrics call it: its host, or `*` for any, and its prefix.
    pub fn name(&self) -> String {
        format!("{}{}", self.host.as_deref().unwrap_or("*"), self.path_prefix)
    }

    /// Every request to `origin`.
    pub fn catch_all(origin: &str) -> Self {
        Self {
            host: None,
            path_prefix: "/".into(),
            target: Target::Origin(origin.into()),
            rewrite_prefix: None,
            rewrite_host: None,
            max_body_bytes: None,
            client_certificate: None,
            request_headers: HeaderRules::default(),
            response_headers: HeaderRules::default(),
            timeouts: RouteTimeouts::default(),
            rate_limit: None,
            error_pages: ErrorPages::default(),
            intercept_errors: false,
            upgrade: vec![Self::UPGRADE.into()],
            path_reading: PathReading::default(),
        }
    }

    /// The name of one of [`Config::origins`], unless it redirects.
    pub fn origin(&self) -> Option<&str> {
        match &self.target {
            Target::Origin(name) => Some(name),
            Target::Redirect(_) => None,
        }
    }
}

/// `[admin]`
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Admin {
    /// Everything that the operator may see and do.
    pub listen: Option<SocketAddr>,
    /// `/healthz`, `/readyz` and `/metrics` alone.
    pub probes: Option<SocketAddr>,
    /// Whether `/readyz` also asks that a server of each origin be well.
    pub ready_needs_origin: bool,
    /// The file with what whoever asks `listen` has to show.
    pub token_file: Option<PathBuf>,
    /// The environment variable with that, instead.
    pub token_env: Option<String>,
    /// Hosts, in lower case, by which requests may ask for metrics and the like, besides IP addresses and `localhost`.
    pub names: Vec<String>,
    /// The Unix socket at which a new process takes over from this one, absolute or relative to the working directory.
    pub handover: Option<PathBuf>,
}

impl Admin {
    /// Each is compared with what a request asks for.
    pub const MAX_NAMES: usize = 16;
    /// Octets of [`Admin::handover`]: a sockaddr_un holds 107 (unix(7)), of which the socket's first name, with the
    /// process' number, takes eleven more.
    pub const MAX_HANDOVER_LEN: usize = 96;
}

/// `[log]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Log {
    /// The least severe level that is written.
    pub level: Level,
    /// How it is written.
    pub format: LogFormat,
}

impl Default for Log {
    /// What an operator wants to know of a healthy proxy, in the form that the reader can use.
    fn default() -> Self {
        Self { level: Level::Info, format: LogFormat::Auto }
    }
}

/// `[log] level`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Level {
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

/// `[log] format`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// Human on a terminal, JSON otherwise.
    Auto,
    /// For people.
    Human,
    /// For machines, an object a line.
    Json,
}

/// `limits.by_source` and what belongs to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sources {
    /// Whether a source may have an eighth of a pool that is over half full, and no more.
    pub limited: bool,
    /// The length of the prefix that IPv4 addresses of one source share.
    pub ipv4_prefix: u8,
    /// The same of IPv6.
    pub ipv6_prefix: u8,
    /// Networks that are not limited.
    pub exempt: Vec<Network>,
}

impl Sources {
    /// One address is one client, or many behind one translator.
    pub const IPV4_PREFIX: u8 = 32;
    /// Any machine has 2^64 addresses (RFC 7934 §6.1).
    pub const IPV6_PREFIX: u8 = 64;

    /// [`Config::source`].
    pub fn source(&self, address: IpAddr, trusted_proxies: &[Network]) -> Option<Network> {
        let is_in = |networks: &[Network]| networks.iter().any(|network| network.contains(address));
        let free = !self.limited || is_in(&self.exempt) || is_in(trusted_proxies);
        (!free).then(|| self.of(address))
    }

    /// The source of `address`.
    fn of(&self, address: IpAddr) -> Network {
        match address.to_canonical() {
            IpAddr::V4(address) => {
                let prefix = self.ipv4_prefix.min(32);
                let mask = u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0);
                Network { address: IpAddr::V4((address.to_bits() & mask).into()), prefix }
            }
            IpAddr::V6(address) => {
                let prefix = self.ipv6_prefix.min(128);
                let mask = u128::MAX.checked_shl(128 - u32::from(prefix)).unwrap_or(0);
                Network { address: IpAddr::V6((address.to_bits() & mask).into()), prefix }
            }
        }
    }
}

impl Default for Sources {
    fn default() -> Self {
        let (ipv4_prefix, ipv6_prefix) = (Self::IPV4_PREFIX, Self::IPV6_PREFIX);
        Self { limited: true, ipv4_prefix, ipv6_prefix, exempt: Vec::new() }
    }
}

/// Addresses with a common prefix, in CIDR notation (RFC 4632).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    /// The network's address; bits past the prefix are zero.
    pub address: IpAddr,
    /// The prefix's length in bits: at most 32 or 128.
    pub prefix: u8,
}

/// By the address's bits, in one piece: it is hashed for every request. Those of one pool have one prefix a family.
impl Hash for Network {
    fn hash<H: Hasher>(&self, state: &mut H) {
        match self.address {
            IpAddr::V4(address) => state.write_u32(address.to_bits()),
            IpAddr::V6(address) => state.write_u128(address.to_bits()),
        }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

impl Network {
    /// Whether `address` is in it; an IPv4-mapped IPv6 address counts as IPv4.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(network), IpAddr::V4(address)) => {
                let shift = 32_u32.saturating_sub(u32::from(self.prefix));
                u32::from(network).checked_shr(shift) == u32::from(address).checked_shr(shift)
            }
            (IpAddr::V6(network), IpAddr::V6(address)) => {
                let shift = 128_u32.saturating_sub(u32::from(self.prefix));
                u128::from(network).checked_shr(shift) == u128::from(address).checked_shr(shift)
            }
            _ => false,
        }
    }
}
