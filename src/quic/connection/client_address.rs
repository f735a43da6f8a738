//! The validated address of a connection's client: that of the handshake, and after a migration the new one once its
//! path is validated (RFC 9000 §9.3).
//!
//! s2n-quic's own `remote_addr` is that of the path in use, which a client changes with a single datagram. An attacker
//! that forges a source address could choose the address that the origin gets, and pass for a trusted proxy.

use s2n_quic::{
    connection::Handle,
    provider::event::{
        ConnectionInfo, ConnectionMeta, Subscriber,
        events::{ActivePathUpdated, ConnectionStarted, PathChallengeStatus, PathChallengeUpdated},
    },
};
use std::net::SocketAddr;

/// Addresses remembered a connection: s2n-quic has no more paths.
const MAX_VALIDATED: usize = 5;

/// Subscribes to paths, which change a few times in a connection's life at most.
#[derive(Debug)]
pub(in crate::quic) struct ClientAddressSubscriber;

/// Addresses that one connection's client has validated.
#[derive(Debug, Default)]
pub(in crate::quic) struct ValidatedAddresses {
    current: Option<SocketAddr>,
    /// All addresses that were validated: a client that returns to one need not validate it again.
    all: Vec<SocketAddr>,
}

/// The last validated address of the client of `connection`; `None` if the connection is gone.
pub fn client_address(connection: &Handle) -> Option<SocketAddr> {
    connection.query_event_context(|validated: &ValidatedAddresses| validated.current).ok().flatten()
}

impl ValidatedAddresses {
    /// The client validated `address`, which its connection uses if `active`.
    fn on_validated(&mut self, address: SocketAddr, active: bool) {
        if !self.all.contains(&address) && self.all.len() < MAX_VALIDATED {
            self.all.push(address);
        }
        if active {
            self.current = Some(address);
        }
    }

    /// The connection uses `address` from now on.
    fn on_activated(&mut self, address: SocketAddr) {
        if self.all.contains(&address) {
            self.current = Some(address);
        }
    }
}

impl Subscriber for ClientAddressSubscriber {
    type ConnectionContext = ValidatedAddresses;

    fn create_connection_context(&mut self, _: &ConnectionMeta, _: &ConnectionInfo<'_>) -> ValidatedAddresses {
        ValidatedAddresses::default()
    }

    /// A new connection's address counts as validated: no client completes a handshake, before which there is no
    /// request, without having got litequic's packets.
    fn on_connection_started(
        &mut self,
        validated: &mut ValidatedAddresses,
        _: &ConnectionMeta,
        event: &ConnectionStarted<'_>,
    ) {
        validated.on_validated((&event.path.remote_addr).into(), true);
    }

    fn on_path_challenge_updated(
        &mut self,
        validated: &mut ValidatedAddresses,
        _: &ConnectionMeta,
        event: &PathChallengeUpdated<'_>,
    ) {
        if matches!(event.path_challenge_status, PathChallengeStatus::Validated { .. }) {
            validated.on_validated((&event.path.remote_addr).into(), event.path.is_active);
        }
    }

    fn on_active_path_updated(
        &mut self,
        validated: &mut ValidatedAddresses,
        _: &ConnectionMeta,
        event: &ActivePathUpdated<'_>,
    ) {
        validated.on_activated((&event.active.remote_addr).into());
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
    fn an_address_that_is_used_without_proof_counts_for_nothing() {
        let mut validated = started();
        validated.on_activated(address(2));
        assert_eq!(validated.current, Some(address(1)));
        validated.on_validated(address(2), true);
        assert_eq!(validated.current, Some(address(2)));
    }

    #[test]
    fn an_address_proved_ahead_counts_once_it_is_used() {
        let mut validated = started();
        validated.on_validated(address(2), false);
        assert_eq!(validated.current, Some(address(1)));
        validated.on_activated(address(2));
        assert_eq!(validated.current, Some(address(2)));
        validated.on_activated(address(1));
        assert_eq!(validated.current, Some(address(1)));
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut validated = started();
        (0..100).for_each(|last| validated.on_validated(address(last), false));
        assert_eq!(validated.all.len(), MAX_VALIDATED);
    }
}
