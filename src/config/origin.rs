//! `[origin]`, `[origins.NAME]`: where requests go.

use std::{fmt, path::PathBuf, time::Duration};

/// One origin and its connection pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// Where it listens.
    pub address: OriginAddress,
    /// Connections a worker keeps to it at most.
    pub max_connections: u32,
    /// Requests a worker lets wait for one of them; further ones are answered 503.
    pub max_queue: u32,
    /// An idle connection is closed after that long.
    pub idle_timeout: Duration,
    /// A connection is not used again beyond this age.
    pub max_age: Option<Duration>,
    /// A name is looked up again after that long.
    pub dns_interval: Duration,
}

impl Origin {
    /// More than an origin of one machine answers at once.
    pub const MAX_CONNECTIONS: u32 = 512;
    /// Twice the connections: a burst, not a backlog.
    pub const MAX_QUEUE: u32 = 1_024;
    /// Below nginx' keepalive_timeout of 75 s and Go's 90 s, so that litequic closes first.
    pub const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
    /// So that a name's new addresses get traffic.
    pub const MAX_AGE: Option<Duration> = Some(Duration::from_secs(3600));
    /// What Kubernetes' DNS caches for.
    pub const DNS_INTERVAL: Duration = Duration::from_secs(30);

    /// An origin at `address` with every default.
    pub const fn new(address: OriginAddress) -> Self {
        Self {
            address,
            max_connections: Self::MAX_CONNECTIONS,
            max_queue: Self::MAX_QUEUE,
            idle_timeout: Self::IDLE_TIMEOUT,
            max_age: Self::MAX_AGE,
            dns_interval: Self::DNS_INTERVAL,
        }
    }
}

/// Where an origin listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OriginAddress {
    /// `http://HOST[:PORT]`
    Tcp {
        /// A name, or an IP address without brackets.
        host: String,
        /// 80 unless given.
        port: u16,
    },
    /// `unix:/PATH`
    Unix(PathBuf),
}

impl fmt::Display for OriginAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } if host.contains(':') => write!(f, "http://[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "http://{host}:{port}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}
