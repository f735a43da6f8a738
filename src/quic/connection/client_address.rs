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
pub(in crate::quic) struct Addresses;

/// One connection's.
#[derive(Debug, Default)]
pub(in crate::quic) struct Validated {
    current: Option<SocketAddr>,
    /// All that were validated: a client that returns to one need not validate it again.
    all: Vec<SocketAddr>,
}

/// The last validated address of the client of `connection`; `None` if the connection is gone.
pub fn client_address(connection: &Handle) -> Option<SocketAddr> {
    connection.query_event_context(|validated: &Validated| validated.current).ok().flatten()
}

impl Validated {
    /// The client validated `address`, which its connection uses if `active`.
    fn prove(&mut self, address: SocketAddr, active: bool) {
        if !self.all.contains(&address) && self.all.len() < MAX_VALIDATED {
            self.all.push(address);
        }
        if active {
            self.current = Some(address);
        }
    }

    /// The connection uses `address` from now on.
    fn activate(&mut self, address: SocketAddr) {
        if self.all.contains(&address) {
            self.current = Some(address);
        }
    }
}

impl Subscriber for Addresses {
    type ConnectionContext = Validated;

    fn create_connection_context(&mut self, _: &ConnectionMeta, _: &ConnectionInfo<'_>) -> Validated {
        Validated::default()
    }

    /// No client completes a handshake, before which there is no request, without having got its answers.
    fn on_connection_started(&mut self, validated: &mut Validated, _: &ConnectionMeta, event: &ConnectionStarted<'_>) {
        validated.prove((&event.path.remote_addr).into(), true);
    }

    fn on_path_challenge_updated(
        &mut self,
        validated: &mut Validated,
        _: &ConnectionMeta,
        event: &PathChallengeUpdated<'_>,
    ) {
        if matches!(event.path_challenge_status, PathChallengeStatus::Validated { .. }) {
            validated.prove((&event.path.remote_addr).into(), event.path.is_active);
        }
    }

    fn on_active_path_updated(&mut self, validated: &mut Validated, _: &ConnectionMeta, event: &ActivePathUpdated<'_>) {
        validated.activate((&event.active.remote_addr).into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> SocketAddr {
        ([192, 0, 2, last], 4711).into()
    }

    fn started() -> Validated {
        let mut validated = Validated::default();
        validated.prove(address(1), true);
        validated
    }

    #[test]
    fn an_address_that_is_used_without_proof_counts_for_nothing() {
        let mut validated = started();
        validated.activate(address(2));
        assert_eq!(validated.current, Some(address(1)));
        validated.prove(address(2), true);
        assert_eq!(validated.current, Some(address(2)));
    }

    #[test]
    fn an_address_proved_ahead_counts_once_it_is_used() {
        let mut validated = started();
        validated.prove(address(2), false);
        assert_eq!(validated.current, Some(address(1)));
        validated.activate(address(2));
        assert_eq!(validated.current, Some(address(2)));
        validated.activate(address(1));
        assert_eq!(validated.current, Some(address(1)));
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut validated = started();
        (0..100).for_each(|last| validated.prove(address(last), false));
        assert_eq!(validated.all.len(), MAX_VALIDATED);
    }
}
