//! Defines a datagram's path for s2n-quic: the addresses of both ends, and what s2n-quic has no place for.
//!
//! - The interface of link-local addresses: each link has the same ones (RFC 4007 §6).
//! - litequic's rule on migrations: a client's new address must reach at least as far as the old one. s2n-quic's rule,
//!   that both have one scope, drops a client that leaves a private network, and its provider for another rule is not
//!   public. But s2n-quic reads the addresses that it compares from paths. While it examines a datagram, a path from
//!   which the client may move to the datagram's address returns another port of that address: a new port of a NAT,
//!   which s2n-quic admits.

use s2n_quic_core::{
    inet::{SocketAddress, ip::UnicastScope},
    path::{Handle, LocalAddress, RemoteAddress, Tuple},
};
use std::{cell::Cell, net::SocketAddr};

thread_local! {
    /// Path of the datagram that s2n-quic examines.
    static EXAMINED_PATH: Cell<Option<NetworkPath>> = const { Cell::new(None) };
}

/// Path of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NetworkPath {
    /// Addresses of both ends.
    pub addresses: Tuple,
    /// Index of the interface if an address is an IPv6 link-local one, else 0.
    pub interface: u32,
}

impl NetworkPath {
    /// Address to send to, with the interface of a link-local one.
    pub(crate) fn destination(&self) -> SocketAddr {
        let mut destination = self.addresses.remote_address.into();
        if let SocketAddr::V6(v6) = &mut destination {
            v6.set_scope_id(self.interface);
        }
        destination
    }

    /// s2n-quic examines a datagram of this path from now on, on this thread: whether it belongs to a known path of its
    /// connection, or whether the client may have moved. Until [`end_migration_check`], other paths return addresses
    /// that serve only for this.
    pub fn begin_migration_check(self) {
        EXAMINED_PATH.set(Some(self));
    }

    /// Address of this path for the comparison with a datagram of `examined`.
    fn compared_address(&self, examined: Self) -> RemoteAddress {
        let (own, mut new) = (self.addresses.remote_address, examined.addresses.remote_address);
        let is_same = own == new && self.interface == examined.interface;
        if !is_same && AddressReach::of_address(&own) <= AddressReach::of_address(&new) {
            // Both ports are below 1024, or none, as s2n-quic requires.
            let other_port = new.port() ^ 1;
            new.set_port(other_port);
            return new;
        }
        own
    }
}

/// From now on each [`NetworkPath`] returns its own addresses, on this thread. To be called before s2n-quic processes
/// an authenticated packet.
pub fn end_migration_check() {
    EXAMINED_PATH.set(None);
}

impl From<Tuple> for NetworkPath {
    /// A path without IPv6 link-local addresses.
    fn from(addresses: Tuple) -> Self {
        Self { addresses, interface: 0 }
    }
}

/// Networks that an address belongs to, the smallest first. A client that moves to one of less reach may have forged
/// it, to direct packets at a host that the client itself cannot reach (RFC 9000 §21.5.6).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum AddressReach {
    Loopback,
    LinkLocal,
    /// Private, shared (RFC 6598) and unique local addresses.
    Private,
    /// Addresses for documentation, benchmarks and protocols. s2n-quic admits no migration to them.
    Reserved,
    Global,
}

impl AddressReach {
    fn of_address(address: &SocketAddress) -> Self {
        match address.unicast_scope() {
            Some(UnicastScope::Loopback) => Self::Loopback,
            Some(UnicastScope::LinkLocal) => Self::LinkLocal,
            Some(UnicastScope::Private) => Self::Private,
            None => Self::Reserved,
            Some(UnicastScope::Global) => Self::Global,
        }
    }
}

impl Handle for NetworkPath {
    fn from_remote_address(remote: RemoteAddress) -> Self {
        Tuple::from_remote_address(remote).into()
    }

    fn remote_address(&self) -> RemoteAddress {
        match EXAMINED_PATH.get() {
            None => self.addresses.remote_address,
            Some(examined) => self.compared_address(examined),
        }
    }

    fn set_remote_address(&mut self, address: RemoteAddress) {
        self.addresses.remote_address = address;
    }

    fn local_address(&self) -> LocalAddress {
        self.addresses.local_address
    }

    fn set_local_address(&mut self, address: LocalAddress) {
        self.addresses.local_address = address;
    }

    fn unmapped_eq(&self, other: &Self) -> bool {
        self.strict_eq(other)
    }

    fn strict_eq(&self, other: &Self) -> bool {
        self == other
    }

    fn maybe_update(&mut self, other: &Self) {
        self.addresses.maybe_update(&other.addresses);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use s2n_quic_core::{
        connection::{LocalId, PeerId},
        event::{IntoEvent as _, builder},
        path::migration::{AttemptBuilder, Outcome, PacketInfoBuilder, Validator as _, default::Validator},
    };

    fn path(client: &str) -> NetworkPath {
        let client = SocketAddress::from(client.parse::<SocketAddr>().unwrap());
        Tuple { remote_address: client.unmap().into(), local_address: SocketAddress::default().into() }.into()
    }

    /// Whether s2n-quic, whose connection is on the path `before`, admits a datagram of the path `after`.
    fn is_admitted(before: &str, after: &str) -> bool {
        let (before, after) = (path(before), path(after));
        after.begin_migration_check();
        let (remote_address, local_address) = (after.remote_address(), after.local_address());
        assert_eq!(remote_address, after.addresses.remote_address);
        let known_address = before.remote_address();
        if known_address == remote_address {
            assert_eq!(before, after);
            return true;
        }
        let (local_cid, remote_cid) =
            (LocalId::try_from_bytes(&[1; 8]).unwrap(), PeerId::try_from_bytes(&[1; 8]).unwrap());
        let active_path = builder::Path {
            local_addr: local_address.into_event(),
            local_cid: local_cid.into_event(),
            remote_addr: known_address.into_event(),
            remote_cid: remote_cid.into_event(),
            id: 0,
            is_active: true,
        };
        let packet = PacketInfoBuilder { remote_address: &remote_address, local_address: &local_address };
        let attempt = AttemptBuilder { active_path: active_path.into_event(), packet: packet.into() };
        let outcome = Validator.on_migration_attempt(&attempt.into());
        end_migration_check();
        assert_eq!(before.remote_address(), before.addresses.remote_address);
        outcome == Outcome::Allow
    }

    #[test]
    fn clients_move_to_addresses_that_reach_as_far() {
        const RESERVED: usize = 3;
        let ranks: [&[&str]; 5] = [
            &["127.0.0.1:5000", "127.0.0.2:700", "[::1]:5000"],
            &["169.254.1.1:5000", "[fe80::1]:5000", "[fe80::2]:80"],
            &["10.0.0.2:5000", "192.168.7.7:60000", "172.16.0.1:1000", "100.64.1.1:5000", "[fd00::1]:5000"],
            &["198.18.0.1:5000", "203.0.113.5:5000", "[2001:db8::1]:5000"],
            &["8.0.0.5:5000", "8.0.0.6:1023", "8.0.0.6:1024", "[2600::1]:5000", "[::ffff:8.0.0.7]:5000"],
        ];
        let all = || ranks.iter().enumerate().flat_map(|(rank, rows)| rows.iter().map(move |row| (rank, *row)));
        for (old, before) in all() {
            for (new, after) in all() {
                let expected = before == after || new >= old && new != RESERVED;
                assert_eq!(is_admitted(before, after), expected, "from {before} to {after}");
            }
        }
    }

    #[test]
    fn no_client_moves_to_a_port_of_reflected_attacks() {
        for port in [0, 17, 53, 123, 161, 389, 500] {
            assert!(!is_admitted("8.0.0.5:5000", &format!("8.0.0.5:{port}")), "{port}");
            assert!(!is_admitted("10.0.0.2:5000", &format!("8.0.0.5:{port}")), "{port}");
        }
    }

    #[test]
    fn the_same_address_on_another_interface_is_another_path() {
        let on = |interface| NetworkPath { interface, ..path("[fe80::1]:5000") };
        on(2).begin_migration_check();
        assert_eq!(on(2).remote_address(), on(2).addresses.remote_address);
        assert_ne!(on(3).remote_address(), on(2).remote_address());
        end_migration_check();
        assert!(!on(3).strict_eq(&on(2)));
        assert_eq!(on(3).destination(), "[fe80::1%3]:5000".parse().unwrap());
    }
}
