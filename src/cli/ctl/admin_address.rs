//! Parses the address of a running litequic that `--admin` names, or searches for one.

use super::super::{exit::Exit, user::user_name};
use super::{
    CtlRequest,
    exchange::{answered_process, begin_exchange, build_request},
    failure::CtlFailure,
};
use futures_util::future::join_all;
use litequic_admin as admin;
use std::{
    ffi::OsString,
    fmt::{self, Write as _},
    fs,
    io::{self, ErrorKind},
    net::{IpAddr, Ipv4Addr, SocketAddr},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    str::FromStr,
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpStream, UnixStream},
    time::timeout,
};

/// `admin.listen` of examples and packages: tried if no socket answers.
const DEFAULT_ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9443);
/// Timeout of the question to each of several processes who it is.
const IDENTIFY_TIMEOUT: Duration = Duration::from_secs(2);
/// Valid forms of an address, for messages.
const EXPECTED: &str = "a path, ADDRESS:PORT, :PORT, localhost:PORT or http://ADDRESS:PORT";

/// Address at which a litequic answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum AdminAddress {
    /// The socket of `admin.socket`.
    Socket(PathBuf),
    /// Host and port of `admin.listen`.
    Tcp(String),
}

impl FromStr for AdminAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            return Ok(Self::Socket(path.into()));
        }
        let authority = match text.split_once("://") {
            Some(("http", rest)) => match rest.strip_suffix('/').unwrap_or(rest) {
                authority if !authority.contains('/') => authority,
                _ => return Err(format!("has a path; expected {EXPECTED}")),
            },
            Some(("https", _)) => return Err("admin.listen is plain HTTP: http://ADDRESS:PORT".into()),
            Some(_) => return Err(format!("unknown scheme; expected {EXPECTED}")),
            None if text.contains('/') => return Ok(Self::Socket(text.into())),
            None => text,
        };
        let (host, port) = authority.rsplit_once(':').ok_or_else(|| format!("has no port; expected {EXPECTED}"))?;
        let is_number =
            port.parse::<u16>().is_ok_and(|port| port > 0) && port.bytes().all(|byte| byte.is_ascii_digit());
        let is_bracketed = host.starts_with('[') && host.ends_with(']');
        match host {
            _ if !is_number => Err(format!("not a port; expected {EXPECTED}")),
            "" => Ok(Self::Tcp(format!("{}:{port}", DEFAULT_ADDRESS.ip()))),
            _ if host.contains(':') && !is_bracketed => Err("an IPv6 address needs brackets: [::1]:9443".into()),
            _ if is_bracketed && authority.parse::<SocketAddr>().is_err() => Err("not an IPv6 address".into()),
            _ => Ok(Self::Tcp(authority.into())),
        }
    }
}

impl fmt::Display for AdminAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Socket(path) => path.display().fmt(f),
            Self::Tcp(authority) => f.write_str(authority),
        }
    }
}

/// Connection to an admin address, over TCP or to a Unix socket.
pub(super) trait AdminStream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> AdminStream for S {}

impl AdminAddress {
    /// Connects to the address.
    ///
    /// # Errors
    ///
    /// The kernel's, or those of a name lookup.
    pub(super) async fn connect_admin(&self) -> io::Result<Box<dyn AdminStream>> {
        match self {
            Self::Socket(path) => Ok(Box::new(UnixStream::connect(path).await?)),
            Self::Tcp(authority) => Ok(Box::new(TcpStream::connect(authority).await?)),
        }
    }

    /// `Host` of a request.
    pub(super) fn host_header(&self) -> &str {
        match self {
            Self::Socket(_) => "localhost",
            Self::Tcp(authority) => authority,
        }
    }

    /// Returns whether a token is sent with requests: a socket needs none, and gets none.
    pub(super) fn takes_token(&self) -> bool {
        matches!(self, Self::Tcp(_))
    }

    /// Failure of a connection to this address, with advice.
    pub(super) fn connect_failure(&self, error: io::Error) -> CtlFailure {
        not_found_failure(&[FailedAttempt { place: self.clone(), error }])
    }
}

/// Address at which no litequic answered, and the reason.
pub(super) struct FailedAttempt {
    place: AdminAddress,
    error: io::Error,
}

/// Address of a litequic, and those that were tried before it.
pub(super) struct FoundAdmin {
    pub(super) place: AdminAddress,
    pub(super) missed: Vec<FailedAttempt>,
}

/// A default socket that a litequic serves.
struct ServedSocket {
    path: PathBuf,
    /// Process ID and configuration file, if it answered.
    process: Option<String>,
}

impl ServedSocket {
    /// Asks the process at `path` who it is, over the connection `stream`.
    async fn identify((path, stream): (PathBuf, Option<UnixStream>)) -> Self {
        let request = build_request(&AdminAddress::Socket(path.clone()), &CtlRequest::read("/healthz"), None);
        let answer = async { answered_process(begin_exchange(stream?, request.ok()?).await.ok()?.headers()) };
        Self { process: timeout(IDENTIFY_TIMEOUT, answer).await.ok().flatten(), path }
    }

    /// Whether the process runs by the configuration `file`.
    fn has_config(&self, file: &Path) -> bool {
        let own = self.process.as_ref().and_then(|process| process.split_once(", ")).map(|(_, own)| Path::new(own));
        let resolved = |path: &Path| fs::canonicalize(path).ok();
        own.is_some_and(|own| {
            std::path::absolute(file).is_ok_and(|file| file == own)
                || resolved(own).is_some_and(|own| resolved(file) == Some(own))
        })
    }
}

/// Searches for a running litequic: at the default sockets of the environment, then at [`DEFAULT_ADDRESS`]; only for
/// that of the configuration `file`, if there is one.
///
/// # Errors
///
/// There is none, there are several, or this user may not reach it.
pub(super) async fn find_admin(
    variable: impl Fn(&str) -> Option<OsString>,
    file: Option<&Path>,
) -> Result<FoundAdmin, CtlFailure> {
    let (mut found, mut missed) = (Vec::new(), Vec::new());
    for path in admin::default_socket_directories(variable).iter().flat_map(|directory| admin::sockets_in(directory)) {
        match UnixStream::connect(&path).await {
            Ok(stream) => found.push((path, Some(stream))),
            // The backlog is full, which the request reports.
            Err(error) if error.kind() == ErrorKind::WouldBlock => found.push((path, None)),
            // A process was killed, and its socket is left.
            Err(_) if !path.ends_with(admin::SOCKET_NAME) => {}
            Err(error) => missed.push(FailedAttempt { place: AdminAddress::Socket(path), error }),
        }
    }
    if found.len() > 1 || file.is_some() {
        let served = join_all(found.into_iter().map(ServedSocket::identify)).await;
        return select_socket(served, missed, file);
    }
    if let Some((path, _)) = found.pop() {
        return Ok(FoundAdmin { place: AdminAddress::Socket(path), missed });
    }
    let usual = AdminAddress::Tcp(DEFAULT_ADDRESS.to_string());
    match usual.connect_admin().await {
        Ok(_) => Ok(FoundAdmin { place: usual, missed }),
        Err(error) => {
            missed.push(FailedAttempt { place: usual, error });
            Err(not_found_failure(&missed))
        }
    }
}

/// Selects the only one of `served` that runs by the configuration `file`, or the only one.
fn select_socket(
    served: Vec<ServedSocket>,
    missed: Vec<FailedAttempt>,
    file: Option<&Path>,
) -> Result<FoundAdmin, CtlFailure> {
    let (mut meant, others): (Vec<_>, Vec<_>) =
        served.into_iter().partition(|socket| file.is_none_or(|file| socket.has_config(file)));
    let (exit, mut why, listed) = match (meant.len(), file) {
        (1, _) => {
            let place = AdminAddress::Socket(meant.remove(0).path);
            return Ok(FoundAdmin { place, missed });
        }
        (0, Some(file)) => {
            let why = format!("no litequic with a default socket runs by {}", file.display());
            (Exit::Unavailable, why, others)
        }
        _ => {
            let why = "several litequic processes run; select one with --config FILE or --admin PATH:".to_owned();
            (Exit::Usage, why, meant)
        }
    };
    for ServedSocket { path, process } in listed {
        let process = process.as_deref().unwrap_or("unknown");
        // Writing to a String cannot fail.
        let _ = write!(why, "\n  {}: process {process}", path.display());
    }
    Err(CtlFailure { exit, why })
}

impl fmt::Display for FailedAttempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { place, error } = self;
        match error.kind() {
            ErrorKind::NotFound => write!(f, "{place} (no such file)"),
            ErrorKind::ConnectionRefused => write!(f, "{place} (nothing listens)"),
            ErrorKind::PermissionDenied => write!(f, "{place} (permission denied)"),
            _ => write!(f, "{place} ({error})"),
        }
    }
}

/// Failure to find a litequic at any of `missed`.
fn not_found_failure(missed: &[FailedAttempt]) -> CtlFailure {
    let denied = missed.iter().find_map(|missed| match (&missed.place, missed.error.kind()) {
        (AdminAddress::Socket(path), ErrorKind::PermissionDenied) => Some(path),
        _ => None,
    });
    if let Some(path) = denied {
        return forbidden_failure(
            path,
            socket_owner(path).map(user_name),
            &user_name(rustix::process::geteuid().as_raw()),
        );
    }
    let tried: Vec<_> = missed.iter().map(|missed| format!("not at {missed}")).collect();
    let why = format!(
        "no running litequic was found: {}\n  is it running? systemctl status litequic\n  in another container or as \
         another user: litequic ctl --admin ADDRESS status, with admin.listen in its configuration",
        tried.join(", ")
    );
    CtlFailure { exit: Exit::Unavailable, why }
}

fn forbidden_failure(path: &Path, owner: Option<String>, user: &str) -> CtlFailure {
    let (path, command) = (path.display(), "litequic ctl status");
    let why = match owner {
        Some(owner) if owner == "root" => {
            format!("{path}: permission denied: only root may use it, and this is user {user}\n  sudo {command}")
        }
        Some(owner) if owner != user => format!(
            "{path}: permission denied: only user {owner} and root may use it, and this is user {user}\n  sudo \
             {command}"
        ),
        _ => format!("{path}: permission denied to user {user}\n  sudo {command}"),
    };
    CtlFailure { exit: Exit::Unavailable, why }
}

/// Owner of the socket at `path`, or of the directory that hides it.
fn socket_owner(path: &Path) -> Option<u32> {
    path.ancestors().find_map(|path| fs::metadata(path).ok()).map(|found| found.uid())
}

/// Failure for another program that answers at `place`; others were `missed` before.
pub(super) fn not_litequic_failure(place: &AdminAddress, missed: &[FailedAttempt]) -> CtlFailure {
    let mut why = format!("{place} answers, but is not litequic");
    if missed.iter().any(|missed| missed.error.kind() == ErrorKind::PermissionDenied) {
        return not_found_failure(missed);
    }
    for missed in missed {
        // Writing to a String cannot fail.
        let _ = write!(why, "\n  no litequic was found at {missed}");
    }
    CtlFailure { exit: Exit::Unavailable, why }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_admin_address_is_a_path_or_host_and_port() {
        let tcp = |authority: &str| Ok(AdminAddress::Tcp(authority.into()));
        let socket = |path: &str| Ok(AdminAddress::Socket(path.into()));
        let expected = |problem: &str| Err(format!("{problem}; expected {EXPECTED}"));
        for (text, place) in [
            ("127.0.0.1:9443", tcp("127.0.0.1:9443")),
            ("[::1]:9443", tcp("[::1]:9443")),
            (":9443", tcp("127.0.0.1:9443")),
            ("localhost:9443", tcp("localhost:9443")),
            ("http://127.0.0.1:9443", tcp("127.0.0.1:9443")),
            ("http://localhost:9443/", tcp("localhost:9443")),
            ("/run/litequic/admin.sock", socket("/run/litequic/admin.sock")),
            ("./admin.sock", socket("./admin.sock")),
            ("unix:admin.sock", socket("admin.sock")),
            ("http://localhost:9443/status", expected("has a path")),
            ("https://localhost:9443", Err("admin.listen is plain HTTP: http://ADDRESS:PORT".into())),
            ("ftp://localhost:9443", expected("unknown scheme")),
            ("", expected("has no port")),
            ("localhost", expected("has no port")),
            ("9443", expected("has no port")),
            ("localhost:", expected("not a port")),
            ("localhost:0", expected("not a port")),
            ("localhost:+1", expected("not a port")),
            ("localhost:65536", expected("not a port")),
            ("::1:9443", Err("an IPv6 address needs brackets: [::1]:9443".into())),
            ("[::x]:9443", Err("not an IPv6 address".into())),
        ] {
            assert_eq!(text.parse::<AdminAddress>(), place, "{text}");
        }
    }

    #[test]
    fn a_forbidden_socket_is_reported_with_its_owner() {
        let why =
            |owner: Option<&str>| forbidden_failure(Path::new("/run/a.sock"), owner.map(str::to_owned), "alice").why;
        let expected = "/run/a.sock: permission denied: only user litequic and root may use it, and this is user alice\n  \
                        sudo litequic ctl status";
        assert_eq!(why(Some("litequic")), expected);
        for owner in [None, Some("alice")] {
            assert_eq!(why(owner), "/run/a.sock: permission denied to user alice\n  sudo litequic ctl status");
        }
    }
}
