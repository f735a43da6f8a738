//! Advises on an address that cannot be bound.

use super::system::{self, PortHolder, SocketProtocol, WantedSocket};
use crate::app::StartError;
use litequic_config::Config;
use litequic_net::{BindError, ListenError};
use std::{
    io::{self, ErrorKind},
    net::{IpAddr, SocketAddr},
};

/// First port that needs no capability, unless the system has another boundary.
const DEFAULT_UNPRIVILEGED_START: u16 = 1024;
/// Maximum number of local addresses in an advice.
const MAX_ADDRESSES: usize = 8;
/// This program's name, as the kernel shows it.
const OWN_NAME: &str = "litequic";

/// Command that failed to bind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AdvisedCommand {
    Run,
    Demo,
}

/// Formats `error`, and adds the advice for this system, a line each.
pub(crate) fn with_advice(error: &StartError, config: &Config, command: AdvisedCommand) -> String {
    let mut text = error.to_string();
    for line in
        BindFailure::from_start_error(error, config).map_or_else(Vec::new, |trouble| trouble.advice_lines(command))
    {
        text.push_str("\n  ");
        text.push_str(&line);
    }
    text
}

/// An address that cannot be bound, and the reason.
struct BindFailure<'e> {
    protocol: SocketProtocol,
    /// Configuration key of the address.
    key: &'static str,
    address: SocketAddr,
    error: &'e io::Error,
}

impl<'e> BindFailure<'e> {
    fn from_start_error(error: &'e StartError, config: &Config) -> Option<Self> {
        let (protocol, key, address, error) = match error {
            StartError::Bind(BindError::Bind { address, source }) => {
                (SocketProtocol::Udp, "listen.udp", address, source)
            }
            StartError::Listen(ListenError { address, source }) => {
                let key = if config.listen.redirect.contains(address) { "listen.redirect" } else { "listen.tcp" };
                (SocketProtocol::Tcp, key, address, source)
            }
            StartError::Admin { key, address, source } => (SocketProtocol::Tcp, *key, address, source),
            _ => return None,
        };
        Some(Self { protocol, key, address: *address, error })
    }

    fn advice_lines(&self, command: AdvisedCommand) -> Vec<String> {
        let port = self.address.port();
        match self.error.kind() {
            ErrorKind::AddrInUse => self.port_in_use_advice(
                system::find_port_holder(WantedSocket { protocol: self.protocol, address: self.address }).as_ref(),
                command,
            ),
            ErrorKind::PermissionDenied => {
                vec![privileged_port_advice(
                    port,
                    system::unprivileged_port_start().unwrap_or(DEFAULT_UNPRIVILEGED_START),
                )]
            }
            ErrorKind::AddrNotAvailable => vec![local_address_advice(self.address, &system::local_addresses())],
            _ if self.error.raw_os_error() == Some(libc::EAFNOSUPPORT) && self.address.is_ipv6() => {
                vec![format!("this system has no IPv6; use 0.0.0.0:{port}")]
            }
            _ => Vec::new(),
        }
    }

    /// Advice about the process that has the address.
    fn port_in_use_advice(&self, holder: Option<&PortHolder>, command: AdvisedCommand) -> Vec<String> {
        let whose = match holder {
            Some(PortHolder { process: Some((process, name)), listens, .. }) => {
                format!("{name} (process {process}) {}", if *listens { "listens there" } else { "uses that port" })
            }
            Some(PortHolder { user, listens, .. }) => format!(
                "a process of the user {user} {} (as root: ss -lntup)",
                if *listens { "listens there" } else { "uses that port" }
            ),
            None => "to find the process that uses the port, run as root: ss -lntup".into(),
        };
        let is_litequic = holder.and_then(|holder| holder.process.as_ref()).is_some_and(|(_, name)| name == OWN_NAME);
        let next = match (self.key, command) {
            (_, AdvisedCommand::Demo) => "to use a free port: litequic demo --listen 127.0.0.1:0".into(),
            _ if is_litequic => {
                "to replace that process without losing a request, use the hot upgrade: SIGUSR2, see litequic-run(1)"
                    .into()
            }
            ("listen.tcp", _) => "to leave TCP to that process and serve HTTP/3 only, set tcp = [] in [listen], and \
                                  let that process send the header Alt-Svc"
                .into(),
            ("listen.udp", _) => {
                "only one process can serve HTTP/3 on a port: stop that process, or change udp in [listen]".into()
            }
            ("listen.redirect", _) => "to leave plain HTTP to that process, remove redirect from [listen]".into(),
            (key, _) => format!("to leave the port to that process, set another port in {key}"),
        };
        vec![whose, next]
    }
}

fn privileged_port_advice(port: u16, unprivileged: u16) -> String {
    if port < unprivileged {
        format!(
            "ports below {unprivileged} need CAP_NET_BIND_SERVICE (setcap cap_net_bind_service=+ep FILE), a lower \
             net.ipv4.ip_unprivileged_port_start, or another port and advertised_port in [listen]"
        )
    } else {
        "the port needs no privilege: SELinux, AppArmor or a seccomp filter refuses it".into()
    }
}

fn local_address_advice(address: SocketAddr, local: &[IpAddr]) -> String {
    let any = if address.is_ipv4() { "0.0.0.0" } else { "[::]" };
    let all = format!("for all addresses use {any}:{}", address.port());
    // Addresses of the same family come first.
    let (same, other): (Vec<&IpAddr>, Vec<&IpAddr>) = local.iter().partition(|ip| ip.is_ipv4() == address.is_ipv4());
    let shown: Vec<_> = same.iter().chain(&other).take(MAX_ADDRESSES).map(ToString::to_string).collect();
    let more = match local.len().saturating_sub(shown.len()) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    if shown.is_empty() { all } else { format!("this machine has {}{more}; {all}", shown.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trouble<'e>(key: &'static str, error: &'e io::Error) -> BindFailure<'e> {
        let protocol = if key == "listen.udp" { SocketProtocol::Udp } else { SocketProtocol::Tcp };
        BindFailure { protocol, key, address: ([0, 0, 0, 0], 443).into(), error }
    }

    #[test]
    fn the_process_with_the_address_is_named_with_advice() {
        let error = ErrorKind::AddrInUse.into();
        let named = |name: &str| PortHolder { process: Some((812, name.into())), user: "root".into(), listens: true };
        let hidden = PortHolder { process: None, user: "www-data".into(), listens: true };
        let passing = PortHolder { process: Some((7, "curl".into())), user: "root".into(), listens: false };
        let upgrade = "to replace that process without losing a request, use the hot upgrade: SIGUSR2, see \
                       litequic-run(1)";
        let beside = "to leave TCP to that process and serve HTTP/3 only, set tcp = [] in [listen], and let that process send \
             the header Alt-Svc";
        for (key, holder, command, expected) in [
            ("listen.tcp", Some(named("nginx")), AdvisedCommand::Run, ["nginx (process 812) listens there", beside]),
            (
                "listen.tcp",
                Some(hidden.clone()),
                AdvisedCommand::Run,
                ["a process of the user www-data listens there (as root: ss -lntup)", beside],
            ),
            (
                "listen.tcp",
                None,
                AdvisedCommand::Run,
                ["to find the process that uses the port, run as root: ss -lntup", beside],
            ),
            (
                "listen.udp",
                Some(named(OWN_NAME)),
                AdvisedCommand::Run,
                ["litequic (process 812) listens there", upgrade],
            ),
            (
                "listen.udp",
                Some(named("nginx")),
                AdvisedCommand::Run,
                [
                    "nginx (process 812) listens there",
                    "only one process can serve HTTP/3 on a port: stop that process, or change udp in [listen]",
                ],
            ),
            (
                "listen.redirect",
                Some(named("caddy")),
                AdvisedCommand::Run,
                [
                    "caddy (process 812) listens there",
                    "to leave plain HTTP to that process, remove redirect from [listen]",
                ],
            ),
            (
                "admin.listen",
                Some(passing),
                AdvisedCommand::Run,
                [
                    "curl (process 7) uses that port",
                    "to leave the port to that process, set another port in admin.listen",
                ],
            ),
            (
                "listen.udp",
                Some(named(OWN_NAME)),
                AdvisedCommand::Demo,
                ["litequic (process 812) listens there", "to use a free port: litequic demo --listen 127.0.0.1:0"],
            ),
        ] {
            assert_eq!(trouble(key, &error).port_in_use_advice(holder.as_ref(), command), expected, "{key} {holder:?}");
        }
    }

    #[test]
    fn a_privileged_port_is_reported_with_the_missing_capability() {
        let expected = "ports below 1024 need CAP_NET_BIND_SERVICE (setcap cap_net_bind_service=+ep FILE), a lower \
                        net.ipv4.ip_unprivileged_port_start, or another port and advertised_port in [listen]";
        assert_eq!(privileged_port_advice(443, 1024), expected);
        let expected = "the port needs no privilege: SELinux, AppArmor or a seccomp filter refuses it";
        assert_eq!(privileged_port_advice(8443, 1024), expected);
        assert_eq!(privileged_port_advice(443, 80), expected);
    }

    #[test]
    fn a_foreign_address_is_reported_with_the_local_ones() {
        let local: Vec<IpAddr> = ["::1", "127.0.0.1", "192.0.2.7"].iter().map(|ip| ip.parse().unwrap()).collect();
        let v4: SocketAddr = "198.51.100.1:443".parse().unwrap();
        let expected = "this machine has 127.0.0.1, 192.0.2.7, ::1; for all addresses use 0.0.0.0:443";
        assert_eq!(local_address_advice(v4, &local), expected);
        assert_eq!(local_address_advice("[2001:db8::1]:443".parse().unwrap(), &[]), "for all addresses use [::]:443");
        let many: Vec<IpAddr> = (0..10).map(|last| IpAddr::from([10, 0, 0, last])).collect();
        assert!(local_address_advice(v4, &many).contains("10.0.0.7 and 2 more; "));
    }
}
