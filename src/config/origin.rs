//! `[origin]`, `[origins.NAME]`: where requests go.

use super::{
    Share,
    names::{parse_host, parse_port, split_port},
};
use std::{fmt, ops::RangeInclusive, path::PathBuf, str::FromStr, time::Duration};

/// One origin: its servers, and how requests are spread over them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// Where its servers listen: from 1 to [`Origin::MAX_SERVERS`], no two alike.
    pub servers: Vec<OriginAddress>,
    /// Which of them gets the next request.
    pub balance: Balance,
    /// After how many failures in a row a server is left out for a while; never unless given.
    pub eject_after: Option<u32>,
    /// For how long, the first time.
    pub eject_time: Duration,
    /// Answers that count as failures.
    pub eject_statuses: Vec<Statuses>,
    /// How many of the servers may be left out at a time.
    pub max_ejected: Share,
    /// Requests sent again, by all that are sent.
    pub retry_share: Option<Share>,
    /// Requests that a worker may send again each second beyond that share.
    pub retry_minimum: u32,
    /// Whether connections begin with the client's address: the PROXY protocol's header, version 2.
    pub proxy_protocol: bool,
    /// How it is found out which servers are well, unless that is left to requests.
    pub health: Option<Health>,
    /// Connections a worker keeps to a server at most.
    pub max_connections: u32,
    /// Requests a worker lets wait for one of them; further ones are answered 503.
    pub max_queue: u32,
    /// Bytes of a request's body that are read before it gets a connection: the whole of shorter ones.
    pub request_buffer: u64,
    /// An idle connection is closed after that long.
    pub idle_timeout: Duration,
    /// A connection is not used again beyond this age.
    pub max_age: Option<Duration>,
    /// A name is looked up again after that long.
    pub dns_interval: Duration,
    /// What becomes of fields whose names the origin might take for others.
    pub ambiguous_fields: AmbiguousFields,
}

impl Origin {
    /// More are a list that nobody keeps by hand: a name stands for all of its addresses.
    pub const MAX_SERVERS: usize = 64;
    /// One or two failures are an accident, five in a row are a state.
    pub const EJECT_AFTER: Option<u32> = Some(5);
    /// A process that is started again is back by then.
    pub const EJECT_TIME: Duration = Duration::from_secs(10);
    /// What fails at most servers is the requests' or the network's fault, and fewer servers would not bear it better.
    pub const MAX_EJECTED: Share = Share(500_000);
    /// A server among five that is gone; much more would be a second load on servers that fail for the first.
    pub const RETRY_SHARE: Option<Share> = Some(Share(200_000));
    /// So that a share of little is not nothing.
    pub const RETRY_MINIMUM: u32 = 10;
    /// More than a server of one machine answers at once.
    pub const MAX_CONNECTIONS: u32 = 512;
    /// Twice the connections: a burst, not a backlog.
    pub const MAX_QUEUE: u32 = 1_024;
    /// nginx' `client_body_buffer_size` on 64-bit machines.
    pub const REQUEST_BUFFER: u64 = 16 * 1024;
    /// Below nginx' keepalive_timeout of 75 s and Go's 90 s, so that litequic closes first.
    pub const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
    /// So that a name's new addresses get traffic.
    pub const MAX_AGE: Option<Duration> = Some(Duration::from_secs(3600));
    /// What Kubernetes' DNS caches for.
    pub const DNS_INTERVAL: Duration = Duration::from_secs(30);

    /// An origin of one server at `address`, with every default.
    pub fn new(address: OriginAddress) -> Self {
        Self {
            servers: vec![address],
            balance: Balance::RoundRobin,
            eject_after: Self::EJECT_AFTER,
            eject_time: Self::EJECT_TIME,
            // What a server answers is often up to the client, who picks the URL.
            eject_statuses: Vec::new(),
            max_ejected: Self::MAX_EJECTED,
            retry_share: Self::RETRY_SHARE,
            retry_minimum: Self::RETRY_MINIMUM,
            proxy_protocol: false,
            health: None,
            max_connections: Self::MAX_CONNECTIONS,
            max_queue: Self::MAX_QUEUE,
            request_buffer: Self::REQUEST_BUFFER,
            idle_timeout: Self::IDLE_TIMEOUT,
            max_age: Self::MAX_AGE,
            dns_interval: Self::DNS_INTERVAL,
            ambiguous_fields: AmbiguousFields::default(),
        }
    }
}

/// `ambiguous_fields`: what becomes of request fields whose names have another character than letters, digits and `-`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum AmbiguousFields {
    /// The origin does not get them. What nginx does: no origin is misled that believes a field, whether a rule is about it
    /// or not, and no request fails.
    #[default]
    Drop,
    /// 400.
    Reject,
    /// The origin gets them.
    Pass,
}

impl AmbiguousFields {
    /// By the names of the file.
    pub const NAMES: &[(&str, Self)] = &[("drop", Self::Drop), ("reject", Self::Reject), ("pass", Self::Pass)];

    /// Its name.
    pub fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(_, known)| *known == self).map_or("", |(name, _)| name)
    }
}

/// `balance`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Balance {
    /// One after the other.
    RoundRobin,
    /// The one on which the fewest requests of this worker are open; in turn where several are.
    LeastRequests,
}

impl Balance {
    /// By the names of the file.
    pub const NAMES: &[(&str, Self)] = &[("round-robin", Self::RoundRobin), ("least-requests", Self::LeastRequests)];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::RoundRobin => "round-robin",
            Self::LeastRequests => "least-requests",
        }
    }
}

/// `[origin.health]`: a request that each server is asked now and then.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Health {
    /// What it is for; with a query if need be.
    pub path: String,
    /// Its `Host`; the server's own address unless given.
    pub host: Option<String>,
    /// From the end of one to the next, a tenth more or less.
    pub interval: Duration,
    /// It has failed after that long.
    pub timeout: Duration,
    /// How many in a row have to go well before a server that is not well counts as well again.
    pub healthy: u32,
    /// How many in a row have to fail before a server that is well counts as not well.
    pub unhealthy: u32,
    /// Which statuses are well.
    pub statuses: Vec<Statuses>,
}

impl Health {
    /// A dead server is found within a quarter of a minute, by few requests.
    pub const INTERVAL: Duration = Duration::from_secs(5);
    /// Slower than any answer that needs no work.
    pub const TIMEOUT: Duration = Duration::from_secs(2);
    /// One might be an accident.
    pub const HEALTHY: u32 = 2;
    /// The same, and a server that is wrongly left out costs more.
    pub const UNHEALTHY: u32 = 3;
    /// A redirect is no sign of life: a proxy before the application sends one as well.
    pub const STATUSES: Statuses = Statuses { first: 200, last: 299 };
    /// What a list of them has at most.
    pub const MAX_STATUSES: usize = 16;

    /// Whether an answer with `status` is well.
    pub fn accepts(&self, status: u16) -> bool {
        self.statuses.iter().any(|statuses| statuses.contain(status))
    }
}

/// Statuses from one to another, both included: `200` or `"200-299"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Statuses {
    /// From 200 on.
    pub first: u16,
    /// At most 599, not below the first.
    pub last: u16,
}

impl Statuses {
    /// All that a final response may have.
    pub const ALL: RangeInclusive<u16> = 200..=599;

    /// Whether `status` is one of them.
    pub const fn contain(self, status: u16) -> bool {
        self.first <= status && status <= self.last
    }
}

impl fmt::Display for Statuses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self { first, last } if first == last => write!(f, "{first}"),
            Self { first, last } => write!(f, "{first}-{last}"),
        }
    }
}

/// Why a text is no [`Statuses`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum StatusesError {
    /// No digits, or more than one range.
    #[error("neither a status nor two with a - between")]
    Form,
    /// Below 200 or above 599.
    #[error("is not the status of a final response, from 200 to 599")]
    Final,
    /// `299-200`
    #[error("ends before it begins")]
    Order,
}

impl FromStr for Statuses {
    type Err = StatusesError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let status = |text: &str| {
            let digits = text.len() == 3 && text.bytes().all(|byte| byte.is_ascii_digit());
            let status = text.parse::<u16>().ok().filter(|_| digits).ok_or(StatusesError::Form)?;
            Some(status).filter(|status| Self::ALL.contains(status)).ok_or(StatusesError::Final)
        };
        let (first, last) = (status(first)?, status(last)?);
        if first <= last { Ok(Self { first, last }) } else { Err(StatusesError::Order) }
    }
}

/// Where a server of an origin listens.
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
        let port = match port.map(parse_port) {
            None => 80,
            Some(Some(port)) => port,
            Some(None) => return Err(OriginAddressError::Port),
        };
        let host = host.strip_prefix('[').and_then(|inner| inner.strip_suffix(']')).unwrap_or(&host).to_owned();
        Ok(Self::Tcp { host, port })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_are_one_or_from_one_to_another() {
        use StatusesError::{Final, Form, Order};
        for (text, expected) in [
            ("200", Ok((200, 200))),
            ("200-299", Ok((200, 299))),
            ("404-404", Ok((404, 404))),
            ("100", Err(Final)),
            ("200-600", Err(Final)),
            ("299-200", Err(Order)),
            ("2xx", Err(Form)),
            ("200-", Err(Form)),
            ("+20", Err(Form)),
            ("200-250-299", Err(Form)),
            ("", Err(Form)),
        ] {
            let expected = expected.map(|(first, last)| Statuses { first, last });
            assert_eq!(text.parse(), expected, "{text}");
            if let Ok(statuses) = expected {
                assert_eq!(statuses.to_string().parse(), expected, "{text}");
            }
        }
    }

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
            ("http://origin:+80", Port),
            ("http://origin:65536", Port),
            ("unix:", Socket),
            ("unix://run/app.sock", Socket),
        ] {
            assert_eq!(text.parse::<OriginAddress>(), Err(error), "{text}");
        }
    }
}
