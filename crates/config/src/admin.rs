//! Defines `[admin]`: the administration interface.

use super::listen::Listen;
use crate::reading::name_kinds::{address_kind, admin_host_kind, path_kind};
use crate::reading::section::ConfigSection;
use crate::reading::table::{KeyTable as _, custom_key, file_key, keys, list_key, optional_key};
use crate::reading::value_kinds::{ValueKind, boolean_kind, text_kind};
use std::{
    net::{IpAddr, SocketAddr},
    path::{Path, PathBuf},
};

keys! {
    /// Administration interface.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Admin {
        /// Address of the whole admin interface: status, metrics and control. An address that is not on the loopback
        /// interface needs a token. Without the key there is no such address.
        listen: Option<SocketAddr> = None, optional_key(address_kind(), "none"), restart;

        /// Unix socket of the whole admin interface, for processes of the same user and of root: the kernel reports the
        /// user of each client, so no token is needed. `auto` is `admin.sock` in `$RUNTIME_DIRECTORY` (systemd),
        /// otherwise in `$XDG_RUNTIME_DIR/litequic`, otherwise, as root, in `/run/litequic`; if another process has
        /// that socket, it is `admin-PID.sock` there. `""` is none. `litequic ctl` looks at the same paths.
        socket: AdminSocket = AdminSocket::Auto, custom_key(read_admin_socket, AdminSocket::format_admin_socket), restart;

        /// Address for `/healthz`, `/readyz` and `/metrics` only, for probes and scrapers of other machines. Without
        /// the key there is no such address.
        probes: Option<SocketAddr> = None, optional_key(address_kind(), "none"), restart;

        /// Whether `/readyz` also requires a healthy server of each origin that a route uses.
        ready_needs_origin: bool = false, boolean_kind();

        /// The file with the token that requests to `admin.listen` need: 16 to 1024 printable characters without
        /// blanks.
        token_file: Option<PathBuf> = None, file_key(path_kind("the path of a file with a token")), restart;

        /// Names by which `/metrics`, `/status` and `/config` may be requested without a token, besides IP addresses
        /// and `localhost`: for example the name of a Service or of a container. Requests by other names get 403,
        /// because a web page could read these resources by a name that an attacker controls, in the browser of an
        /// operator (DNS rebinding).
        names: Vec<String> = Vec::new(), list_key(admin_host_kind(), 0..=Self::MAX_ADMIN_NAMES), restart;

        /// Unix socket at which a new process takes over from a running one (hot upgrade). Without it, only the process
        /// that `SIGUSR2` starts takes over, at a socket beside the admin socket, and none if there is no admin socket.
        handover: Option<PathBuf> = None,
            file_key(path_kind("the path of a Unix socket").with_length(1..=Self::MAX_SOCKET_BYTES)), restart;
    }
}

impl Admin {
    /// Number of names: the host of each request is compared with all of them.
    pub const MAX_ADMIN_NAMES: usize = 16;
    /// Bytes of [`Admin::handover`] and [`Admin::socket`]: sockaddr_un holds 107 (unix(7)), and the socket's temporary
    /// name with the process ID takes eleven more.
    pub const MAX_SOCKET_BYTES: usize = 96;
}

/// Path of the admin socket: `admin.socket`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AdminSocket {
    /// A socket in the default directory for this process and user.
    Auto,
    /// No admin socket.
    None,
    /// A socket at this path.
    At(PathBuf),
}

impl AdminSocket {
    const AUTO: &str = "auto";

    fn format_admin_socket(&self) -> String {
        match self {
            Self::Auto => Self::AUTO.into(),
            Self::None => String::new(),
            Self::At(path) => path.display().to_string(),
        }
    }

    /// Returns the configured path, if there is one.
    pub fn configured_path(&self) -> Option<&Path> {
        if let Self::At(path) = self { Some(path) } else { None }
    }
}

/// Reads `admin.socket`, relative to the folder of the configuration file.
fn read_admin_socket(section: &mut ConfigSection<'_>, key: &str, about: &str) -> AdminSocket {
    let parse = |text: String| {
        Ok(match text.as_str() {
            "" => AdminSocket::None,
            AdminSocket::AUTO => AdminSocket::Auto,
            _ => AdminSocket::At(text.into()),
        })
    };
    let kind: ValueKind<AdminSocket> =
        text_kind("\"auto\", the path of a Unix socket, or \"\" for none", parse, AdminSocket::format_admin_socket);
    match section.value_or_default(key, kind.with_length(0..=Admin::MAX_SOCKET_BYTES), AdminSocket::Auto, about) {
        AdminSocket::At(path) => AdminSocket::At(section.base_directory().join(path)),
        other => other,
    }
}

/// Reads `[admin]`, and checks its addresses against those of `clients`.
pub(super) fn read_admin(section: &mut ConfigSection<'_>, clients: &Listen) -> Admin {
    let admin = Admin::read_table(section);
    if let (Some(listen), Some(probes)) = (admin.listen, admin.probes)
        && addresses_overlap(&listen, &probes)
    {
        section.note_fault("probes", "is already used by admin.listen");
    }
    for (key, address) in [("listen", admin.listen), ("probes", admin.probes)] {
        for (of, taken) in [("tcp", &clients.tcp), ("redirect", &clients.redirect)] {
            if let Some(taken) =
                taken.iter().find(|taken| address.is_some_and(|address| addresses_overlap(&address, taken)))
            {
                section.note_fault(key, format!("is already used by {taken} of listen.{of}"));
            }
        }
    }
    for (key, path) in [("handover", admin.handover.as_deref()), ("socket", admin.socket.configured_path())] {
        if path.is_some_and(|path| path.as_os_str().len() > Admin::MAX_SOCKET_BYTES) {
            section.note_fault_expecting(key, "is too long for a Unix socket", "96 bytes at most, with the folder");
        }
    }
    if admin.handover.is_some() && admin.handover.as_deref() == admin.socket.configured_path() {
        section.note_fault("socket", "is already used by admin.handover");
    }
    // An invalid token has a fault of its own.
    if !section.has_key("token_file") && admin.listen.is_some_and(|listen| !listen.ip().to_canonical().is_loopback()) {
        let expected = "a loopback address, or admin.token_file as well";
        section.note_fault_expecting("listen", "is reachable from other machines, and no token is set", expected);
    }
    admin
}

/// Whether two sockets without SO_REUSEPORT cannot be bound: a wildcard address includes the others (ip(7)).
pub fn addresses_overlap(one: &SocketAddr, other: &SocketAddr) -> bool {
    let (one_ip, other_ip) = (one.ip().to_canonical(), other.ip().to_canonical());
    let takes = |any: IpAddr, of: IpAddr| any.is_unspecified() && (any.is_ipv6() || of.is_ipv4());
    one.port() == other.port() && (one_ip == other_ip || takes(one_ip, other_ip) || takes(other_ip, one_ip))
}
