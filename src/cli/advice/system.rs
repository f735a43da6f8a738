//! Reads the sockets of this system from procfs, and its addresses. Each question may have no answer: in a container,
//! or as another user, much of /proc is hidden.

use super::super::user::user_name;
use if_addrs::Interface;
use litequic_config::addresses_overlap;
use procfs_core::{
    ExplicitSystemInfo, FromBufReadSI,
    net::{TcpNetEntries, TcpState, UdpNetEntries},
};
use std::{
    fs::{self, File},
    io::{BufReader, Read},
    net::{IpAddr, SocketAddr},
    os::unix::ffi::OsStrExt,
    path::Path,
    time::{Duration, Instant},
};

/// Bytes of a socket table that are read: some 100,000 sockets.
const MAX_TABLE_BYTES: u64 = 16 << 20;
/// Timeout of the search for a process.
const SEARCH_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum number of characters of a process's name (TASK_COMM_LEN).
const MAX_NAME_CHARS: usize = 16;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SocketProtocol {
    Tcp,
    Udp,
}

/// Address that could not be bound.
#[derive(Debug, Clone, Copy)]
pub(super) struct WantedSocket {
    pub(super) protocol: SocketProtocol,
    pub(super) address: SocketAddr,
}

/// Holder of an address: process and user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PortHolder {
    /// Number and name of the process, if this user may see them.
    pub(super) process: Option<(u32, String)>,
    pub(super) user: String,
    /// Whether the socket listens; otherwise it is a connection.
    pub(super) listens: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct SocketRow {
    address: SocketAddr,
    listens: bool,
    user: u32,
    inode: u64,
}

/// Finds the holder of the address of `wanted` in this network namespace, as far as visible.
pub(super) fn find_port_holder(wanted: WantedSocket) -> Option<PortHolder> {
    let rows = socket_rows(wanted.protocol);
    let taken = |row: &&SocketRow| row.inode != 0 && addresses_overlap(&row.address, &wanted.address);
    let row = rows.iter().filter(taken).max_by_key(|row| row.listens)?;
    Some(PortHolder { process: find_socket_process(row.inode), user: user_name(row.user), listens: row.listens })
}

/// All sockets of this network namespace. `/proc/net` would be a link to the same directory, which a service that
/// cannot see other processes lacks.
fn socket_rows(protocol: SocketProtocol) -> Vec<SocketRow> {
    let system = ExplicitSystemInfo {
        boot_time_secs: 0,
        ticks_per_second: 0,
        page_size: 0,
        is_little_endian: cfg!(target_endian = "little"),
    };
    let table = |name: &str| {
        File::open(Path::new("/proc/self/net").join(name)).map(|file| BufReader::new(file.take(MAX_TABLE_BYTES)))
    };
    match protocol {
        SocketProtocol::Tcp => ["tcp", "tcp6"]
            .into_iter()
            .filter_map(|name| TcpNetEntries::from_buf_read(table(name).ok()?, &system).ok())
            .flat_map(|TcpNetEntries(all)| all)
            .map(|row| SocketRow {
                address: row.local_address,
                listens: row.state == TcpState::Listen,
                user: row.uid,
                inode: row.inode,
            })
            .collect(),
        SocketProtocol::Udp => ["udp", "udp6"]
            .into_iter()
            .filter_map(|name| UdpNetEntries::from_buf_read(table(name).ok()?, &system).ok())
            .flat_map(|UdpNetEntries(all)| all)
            .map(|row| SocketRow {
                address: row.local_address,
                listens: row.remote_address.port() == 0,
                user: row.uid,
                inode: row.inode,
            })
            .collect(),
    }
}

/// Process with the lowest number that has the socket `inode` open: the parent of a server with several processes.
fn find_socket_process(inode: u64) -> Option<(u32, String)> {
    let began = Instant::now();
    let link = format!("socket:[{inode}]");
    let mut processes: Vec<u32> = fs::read_dir("/proc")
        .ok()?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .take_while(|_: &u32| began.elapsed() < SEARCH_TIMEOUT)
        .collect();
    processes.sort_unstable();
    let process = processes.into_iter().take_while(|_| began.elapsed() < SEARCH_TIMEOUT).find(|process| {
        let open = fs::read_dir(format!("/proc/{process}/fd")).into_iter().flatten();
        open.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok())
            .any(|target| target.as_os_str().as_bytes() == link.as_bytes())
    })?;
    let name = fs::read(format!("/proc/{process}/comm")).unwrap_or_default();
    // Any process chooses its name, which is printed on a terminal.
    let name = String::from_utf8_lossy(&name).chars().filter(char::is_ascii_graphic).take(MAX_NAME_CHARS).collect();
    Some((process, name))
}

/// First port that needs no capability (ip(7)).
pub(super) fn unprivileged_port_start() -> Option<u16> {
    fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start").ok()?.trim().parse().ok()
}

/// Addresses of this network namespace, without link-local ones of IPv6, which need an interface's name.
pub(super) fn local_addresses() -> Vec<IpAddr> {
    let is_link_local = |ip: &IpAddr| matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local());
    let mut addresses: Vec<IpAddr> = if_addrs::get_if_addrs().unwrap_or_default().iter().map(Interface::ip).collect();
    addresses.retain(|ip| !is_link_local(ip));
    addresses.sort_unstable();
    addresses.dedup();
    addresses
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};

    #[test]
    fn this_process_is_found_by_its_sockets() {
        let own = std::process::id();
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let udp = UdpSocket::bind("[::1]:0").or_else(|_| UdpSocket::bind("127.0.0.1:0")).unwrap();
        let (tcp_address, udp_address) = (tcp.local_addr().unwrap(), udp.local_addr().unwrap());
        for (protocol, address) in [(SocketProtocol::Tcp, tcp_address), (SocketProtocol::Udp, udp_address)] {
            let holder = find_port_holder(WantedSocket { protocol, address }).unwrap();
            assert_eq!((holder.process.as_ref().unwrap().0, holder.listens), (own, true), "{holder:?}");
            assert_eq!(holder.user, user_name(rustix::process::geteuid().as_raw()));
        }
        let wildcard = SocketAddr::from((Ipv4Addr::UNSPECIFIED, tcp_address.port()));
        assert!(find_port_holder(WantedSocket { protocol: SocketProtocol::Tcp, address: wildcard }).is_some());
        // This socket is a connection, whose listener is gone.
        let stream = TcpStream::connect(tcp_address).unwrap();
        let _accepted = tcp.accept().unwrap();
        drop(tcp);
        let address = stream.local_addr().unwrap();
        let connection = find_port_holder(WantedSocket { protocol: SocketProtocol::Tcp, address }).unwrap();
        assert_eq!((connection.process.unwrap().0, connection.listens), (own, false));
    }

    #[test]
    fn an_address_conflicts_with_any_address_of_its_port() {
        for (one, other, expected) in [
            ("0.0.0.0:443", "127.0.0.1:443", true),
            ("[::]:443", "0.0.0.0:443", true),
            ("[::]:443", "127.0.0.1:443", true),
            ("[::ffff:127.0.0.1]:443", "127.0.0.1:443", true),
            ("0.0.0.0:443", "[::1]:443", false),
            ("127.0.0.1:443", "127.0.0.2:443", false),
            ("127.0.0.1:443", "127.0.0.1:8443", false),
        ] {
            let (one, other) = (one.parse().unwrap(), other.parse().unwrap());
            assert_eq!(
                (addresses_overlap(&one, &other), addresses_overlap(&other, &one)),
                (expected, expected),
                "{one} {other}"
            );
        }
    }

    #[test]
    fn local_addresses_are_those_that_can_be_bound() {
        let addresses = local_addresses();
        assert!(addresses.contains(&IpAddr::V4(Ipv4Addr::LOCALHOST)), "{addresses:?}");
        assert!(addresses.is_sorted() && addresses.iter().all(|ip| UdpSocket::bind((*ip, 0)).is_ok()), "{addresses:?}");
    }
}
