//! The configuration as the rest of litequic sees it: typed, checked, with every default filled in.
//!
//! [`parse`] turns TOML into it in one step and names every fault at once. Nothing below re-checks what a
//! [`Config`] holds.

mod access;
mod diff;
mod fault;
mod file;
mod keys;
mod limits;
mod names;
mod origin;
mod section;
mod source;
mod timeouts;
mod transport;
mod values;

pub use access::{AccessField, AccessFormat, AccessLog, AccessTarget, Share};
pub use diff::{Change, NEEDS_RESTART};
pub use fault::{Fault, Faults};
pub use file::{load, parse, schema};
pub use limits::Limits;
pub use origin::{Origin, OriginAddress, OriginAddressError};
pub use timeouts::Timeouts;
pub use transport::{AckFrequency, Io, LiteQuic};

use arc_swap::ArcSwap;
use std::{
    collections::BTreeMap,
    net::{Ipv6Addr, SocketAddr},
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
    /// By name. Every route's origin is among them.
    pub origins: BTreeMap<String, Origin>,
    /// What a client may do at most.
    pub limits: Limits,
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
    /// The name under which `[origin]` is among [`Config::origins`].
    pub const ORIGIN: &str = "origin";

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
            origins: BTreeMap::from([(Self::ORIGIN.into(), Origin::new(origin))]),
            limits: Limits::default(),
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
    /// The port at which clients reach litequic, where it is another than the one it listens at.
    pub advertised_port: Option<NonZeroU16>,
    /// How many worker threads.
    pub workers: Workers,
    /// What tokens are made with, so that those of one process are good in another; without it they die with theirs.
    pub secret_file: Option<PathBuf>,
}

impl Listen {
    /// All of HTTP at one address, by as many workers as there are cores.
    pub fn at(address: SocketAddr) -> Self {
        Self {
            udp: vec![address],
            tcp: vec![address],
            redirect: Vec::new(),
            advertised_port: None,
            workers: Workers::Auto,
            secret_file: None,
        }
    }

    /// No privileged port is needed, and a port above 1024 is what a Service or a balancer maps 443 to.
    pub const UDP: SocketAddr = SocketAddr::new(std::net::IpAddr::V6(Ipv6Addr::UNSPECIFIED), 8443);
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
    /// The name of one of [`Config::origins`].
    pub origin: String,
    /// What the origin gets as `Host`, instead of `:authority`.
    pub rewrite_host: Option<String>,
    /// Instead of [`Limits::max_body_bytes`].
    pub max_body_bytes: Option<u64>,
    /// Instead of [`ClientCertificates::verify`].
    pub client_certificate: Option<Verify>,
}

impl Route {
    /// What logs and metrics call it: its host, or `*` for any, and its prefix.
    pub fn name(&self) -> String {
        format!("{}{}", self.host.as_deref().unwrap_or("*"), self.path_prefix)
    }

    /// Every request to `origin`.
    pub fn catch_all(origin: &str) -> Self {
        Self {
            host: None,
            path_prefix: "/".into(),
            origin: origin.into(),
            rewrite_host: None,
            max_body_bytes: None,
            client_certificate: None,
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
    /// Whether `/readyz` also asks that an origin be reachable.
    pub ready_needs_origin: bool,
    /// The file with what whoever asks `listen` has to show.
    pub token_file: Option<PathBuf>,
    /// The environment variable with that, instead.
    pub token_env: Option<String>,
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

/// Addresses with a common prefix, in CIDR notation (RFC 4632).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    /// The network's address; bits past the prefix are zero.
    pub address: std::net::IpAddr,
    /// The prefix's length in bits: at most 32 or 128.
    pub prefix: u8,
}
