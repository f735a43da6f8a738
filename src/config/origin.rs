//! `[origin]`, `[origins.NAME]`: where requests go.

use super::names::{parse_host, split_port};
use std::{fmt, path::PathBuf, str::FromStr, time::Duration};

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

/// Why a text is no [`OriginAddress`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OriginAddressError {
    /// litequic does not encrypt what it sends to an origin.
    #[error("litequic speaks plaintext HTTP/1.1 to an origin, not https")]
    Https,
    /// Neither `http:` nor `unix:`.
    #[error("begins with neither \"http://\" nor \"unix:\"")]
    Scheme,
    /// `http://HOST/PATH`
    #[error("has a path, query or fragment: a request's own is sent")]
    Path,
    /// `http://USER@HOST`
    #[error("has a user name, which litequic does not send")]
    User,
    /// No host, or none that can be looked up.
    #[error("{0}")]
    Host(String),
    /// `http://HOST:x`
    #[error("not a port")]
    Port,
    /// `unix:` and nothing, or `unix://HOST/PATH`.
    #[error("no path of a socket after \"unix:\"")]
    Socket,
}

impl FromStr for OriginAddress {
    type Err = OriginAddressError;

    /// Reads `http://HOST[:PORT]` with or without a final `/`, `unix:PATH` or `unix:///PATH`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Some(path) = text.strip_prefix("unix:") {
            let path = path.strip_prefix("//").map_or(Some(path), |rest| rest.starts_with('/').then_some(rest));
            return path
                .filter(|path| !path.is_empty() && !path.contains('\0'))
                .map(|path| Self::Unix(path.into()))
                .ok_or(OriginAddressError::Socket);
        }
        let scheme = text.split_once("://").map(|(scheme, rest)| (scheme.to_ascii_lowercase(), rest));
        let authority = match &scheme {
            Some((scheme, rest)) if scheme == "http" => rest.strip_suffix('/').unwrap_or(rest),
            Some((scheme, _)) if scheme == "https" => return Err(OriginAddressError::Https),
            _ => return Err(OriginAddressError::Scheme),
        };
        if authority.contains(['/', '?', '#']) {
            return Err(OriginAddressError::Path);
        }
        if authority.contains('@') {
            return Err(OriginAddressError::User);
        }
        let (host, port) = split_port(authority);
        let host = parse_host(host).map_err(|wrong| OriginAddressError::Host(wrong.problem))?;
        let port = match port.map(str::parse) {
            None => 80,
            Some(Ok(port)) if port > 0 => port,
            Some(_) => return Err(OriginAddressError::Port),
        };
        let host = host.strip_prefix('[').and_then(|inner| inner.strip_suffix(']')).unwrap_or(&host).to_owned();
        Ok(Self::Tcp { host, port })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_address_is_read_and_shown() {
        for (text, shown) in [
            ("http://127.0.0.1:8080", "http://127.0.0.1:8080"),
            ("http://Origin.example", "http://origin.example:80"),
            ("HTTP://origin:8080/", "http://origin:8080"),
            ("http://[::1]:8080", "http://[::1]:8080"),
            ("http://[::1]", "http://[::1]:80"),
            ("unix:/run/app.sock", "unix:/run/app.sock"),
            ("unix:///run/app.sock", "unix:/run/app.sock"),
            ("unix:app.sock", "unix:app.sock"),
        ] {
            let address: OriginAddress = text.parse().unwrap();
            assert_eq!(address.to_string(), shown, "{text}");
            assert_eq!(shown.parse(), Ok(address), "{shown}");
        }
    }

    #[test]
    fn what_is_no_origin_address_says_why() {
        use OriginAddressError::{Host, Https, Path, Port, Scheme, Socket, User};
        for (text, error) in [
            ("https://origin", Https),
            ("127.0.0.1:8080", Scheme),
            ("localhost", Scheme),
            ("ftp://origin", Scheme),
            ("", Scheme),
            ("http://origin/app", Path),
            ("http://origin?", Path),
            ("http://user:password@origin", User),
            ("http://", Host("empty".into())),
            ("http://:80", Host("empty".into())),
            ("http://::1", Host("a host has no port".into())),
            ("http://a b", Host("not a host".into())),
            ("http://origin:", Port),
            ("http://origin:0", Port),
            ("http://origin:65536", Port),
            ("unix:", Socket),
            ("unix://run/app.sock", Socket),
        ] {
            assert_eq!(text.parse::<OriginAddress>(), Err(error), "{text}");
        }
    }
}
