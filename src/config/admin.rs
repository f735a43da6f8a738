//! `[admin]`: where the operator reaches litequic.

use super::{
    Listen,
    names::{address, host, path},
    section::Section,
    table::{Table as _, file, keys, list, optional},
    values::{boolean, text},
};
use std::{
    net::{IpAddr, SocketAddr},
    path::PathBuf,
};

keys! {
    /// Where the operator reaches litequic.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Admin {
        /// Everything that the operator may see and do. One that is not on the loopback interface takes a token. Without it there is
        /// none.
        listen: Option<SocketAddr> = None, optional(address(), "none"), restart;

        /// `/healthz`, `/readyz` and `/metrics` alone: for what probes and scrapes from outside. Without it there is none.
        probes: Option<SocketAddr> = None, optional(address(), "none"), restart;

        /// Whether `/readyz` also asks that a server of each origin be well that a route leads to.
        ready_needs_origin: bool = false, boolean();

        /// The file with what requests to `admin.listen` have to show: 16 to 1024 printable characters without blanks.
        token_file: Option<PathBuf> = None, file(path("the path of a file with a token")), restart;

        /// The environment variable with that, instead of a file.
        token_env: Option<String> = None,
            optional(text("the name of an environment variable", Ok, Clone::clone), "none"), restart;

        /// Names by which `/metrics`, `/status` and `/config` may be asked for without a token, besides IP addresses and `localhost`,
        /// such as that of a Service or of a container: a name that an attacker controls would make these readable for a web page in the
        /// browser of an operator (DNS rebinding). 403 for others.
        names: Vec<String> = Vec::new(), list(host(), 0..=Self::MAX_NAMES), restart;

        /// Where a new process takes over from a running one; without it there is no such way.
        handover: Option<PathBuf> = None,
            file(path("the path of a Unix socket").of_length(1..=Self::MAX_HANDOVER_LEN)), restart;
    }
}

impl Admin {
    /// Each is compared with what a request asks for.
    pub const MAX_NAMES: usize = 16;
    /// Bytes of [`Admin::handover`]: a sockaddr_un holds 107 (unix(7)), of which the socket's first name, with the
    /// process' number, takes eleven more.
    pub const MAX_HANDOVER_LEN: usize = 96;
}

/// Reads `[admin]`, whose addresses are none of `clients`.
pub(super) fn read(section: &mut Section<'_>, clients: &Listen) -> Admin {
    let admin = Admin::read(section);
    if let (Some(listen), Some(probes)) = (admin.listen, admin.probes)
        && overlap(&listen, &probes)
    {
        section.fault("probes", "is already used by admin.listen", None, None);
    }
    for (key, address) in [("listen", admin.listen), ("probes", admin.probes)] {
        for (of, taken) in [("tcp", &clients.tcp), ("redirect", &clients.redirect)] {
            if let Some(taken) = taken.iter().find(|taken| address.is_some_and(|address| overlap(&address, taken))) {
                section.fault(key, &format!("is already used by {taken} of listen.{of}"), None, None);
            }
        }
    }
    if admin.token_file.is_some() && admin.token_env.is_some() {
        section.fault("token_env", "admin.token_file is also set", None, None);
    }
    if admin.handover.as_ref().is_some_and(|path| path.as_os_str().len() > Admin::MAX_HANDOVER_LEN) {
        section.fault("handover", "is too long for a Unix socket", Some("96 bytes at most, with the folder"), None);
    }
    // A token that is there but wrong has its own fault.
    let has_token = section.has("token_file") || section.has("token_env");
    if !has_token && admin.listen.is_some_and(|listen| !listen.ip().to_canonical().is_loopback()) {
        let expected = "a loopback address, or admin.token_file as well";
        section.fault("listen", "is reachable from other machines, and no token is set", Some(expected), None);
    }
    admin
}

/// Whether a socket by itself cannot be bound beside another: an address is taken by "any address", too (ip(7)).
fn overlap(one: &SocketAddr, other: &SocketAddr) -> bool {
    let (one_ip, other_ip) = (one.ip().to_canonical(), other.ip().to_canonical());
    let takes = |any: IpAddr, of: IpAddr| any.is_unspecified() && (any.is_ipv6() || of.is_ipv4());
    one.port() == other.port() && (one_ip == other_ip || takes(one_ip, other_ip) || takes(other_ip, one_ip))
}
