//! Tracks the validated address of a connection's client: that of the handshake, and after a migration the new one once
//! its path is validated (RFC 9000 §9.3).
//!
//! s2n-quic's own `remote_addr` belongs to the path in use, which a client changes with a single datagram. An attacker
//! that forges a source address could choose the address that the origin gets, and pass for a trusted proxy.
//!
//! Behind a load balancer that names clients by the PROXY protocol, a path's address is the balancer's, to which
//! packets are sent, and the client belongs to the path: the one that was named when the path began.

use std::{cell::Cell, net::SocketAddr};

thread_local! {
    /// Client that a load balancer names for the datagram that s2n-quic processes.
    static NAMED_CLIENT: Cell<Option<SocketAddr>> = const { Cell::new(None) };
}

/// s2n-quic processes a datagram for which a load balancer names `client` from now on, on this thread, or none.
pub(crate) fn set_named_client(client: Option<SocketAddr>) {
    NAMED_CLIENT.set(client);
}

/// Client of the datagram that s2n-quic processes, which came from `remote`.
pub(crate) fn datagram_client(remote: SocketAddr) -> SocketAddr {
    NAMED_CLIENT.get().unwrap_or(remote)
}

/// Addresses remembered of a connection: s2n-quic has no more paths.
const MAX_VALIDATED: usize = 5;

/// Addresses that one connection's client has validated.
#[derive(Debug, Default)]
pub(crate) struct ValidatedAddresses {
    pub(crate) current: Option<SocketAddr>,
    /// All validated addresses of paths: a client that returns to one need not validate it again.
    all: Vec<SocketAddr>,
    /// Addresses of paths whose client a load balancer named, each with the client.
    named: Vec<(SocketAddr, SocketAddr)>,
}

impl ValidatedAddresses {
    /// A datagram from the new path with the address `path` is processed.
    pub(crate) fn on_path_created(&mut self, path: SocketAddr) {
        let client = datagram_client(path);
        if client != path && self.named.len() < MAX_VALIDATED {
            self.named.push((path, client));
        }
    }

    /// Client of the path with the address `path`.
    pub(crate) fn path_client(&self, path: SocketAddr) -> SocketAddr {
        self.named.iter().find(|(named, _)| *named == path).map_or(path, |(_, client)| *client)
    }

    /// The client validated `address` of a path, which the connection uses if `active`.
    pub(crate) fn on_validated(&mut self, address: SocketAddr, active: bool) {
        if !self.all.contains(&address) && self.all.len() < MAX_VALIDATED {
            self.all.push(address);
        }
        if active {
            self.current = Some(self.path_client(address));
        }
    }

    /// The connection moves to `address`, which counts if it was validated.
    pub(crate) fn on_activated(&mut self, address: SocketAddr) {
        if self.all.contains(&address) {
            self.current = Some(self.path_client(address));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> SocketAddr {
        ([192, 0, 2, last], 4711).into()
    }

    fn started() -> ValidatedAddresses {
        let mut validated = ValidatedAddresses::default();
        validated.on_validated(address(1), true);
        validated
    }

    #[test]
    fn an_active_address_without_validation_does_not_count() {
        let mut validated = started();
        validated.on_activated(address(2));
        assert_eq!(validated.current, Some(address(1)));
        validated.on_validated(address(2), true);
        assert_eq!(validated.current, Some(address(2)));
    }

    #[test]
    fn an_address_validated_ahead_counts_once_active() {
        let mut validated = started();
        validated.on_validated(address(2), false);
        assert_eq!(validated.current, Some(address(1)));
        validated.on_activated(address(2));
        assert_eq!(validated.current, Some(address(2)));
        validated.on_activated(address(1));
        assert_eq!(validated.current, Some(address(1)));
    }

    #[test]
    fn a_path_has_the_client_that_was_named_when_it_began() {
        let (mut validated, balancer) = (ValidatedAddresses::default(), address(200));
        set_named_client(Some(address(1)));
        validated.on_path_created(balancer);
        validated.on_validated(balancer, true);
        set_named_client(Some(address(2)));
        validated.on_path_created(address(201));
        validated.on_validated(address(201), false);
        set_named_client(None);
        assert_eq!(validated.current, Some(address(1)));
        validated.on_activated(address(201));
        assert_eq!(validated.current, Some(address(2)));
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut validated = started();
        set_named_client(Some(address(255)));
        (0..100).for_each(|last| {
            validated.on_path_created(address(last));
            validated.on_validated(address(last), false);
        });
        set_named_client(None);
        assert_eq!((validated.all.len(), validated.named.len()), (MAX_VALIDATED, MAX_VALIDATED));
    }
}
