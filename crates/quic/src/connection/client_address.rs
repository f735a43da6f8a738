//! Tracks the validated address of a connection's client: that of the handshake, and after a migration the new one once
//! its path is validated (RFC 9000 §9.3).
//!
//! s2n-quic's own `remote_addr` belongs to the path in use, which a client changes with a single datagram. An attacker
//! that forges a source address could choose the address that the origin gets, and pass for a trusted proxy.

use std::net::SocketAddr;

/// Addresses remembered of a connection: s2n-quic has no more paths.
const MAX_VALIDATED: usize = 5;

/// Addresses that one connection's client has validated.
#[derive(Debug, Default)]
pub(crate) struct ValidatedAddresses {
    current: Option<SocketAddr>,
    /// All validated addresses: a client that returns to one need not validate it again.
    all: Vec<SocketAddr>,
}

impl ValidatedAddresses {
    /// Validated address of the path in use, or of the last validated path that was in use.
    pub(crate) fn current_address(&self) -> Option<SocketAddr> {
        self.current
    }

    /// The client validated `address`, which the connection uses if `active`.
    pub(crate) fn on_validated(&mut self, address: SocketAddr, active: bool) {
        if !self.all.contains(&address) && self.all.len() < MAX_VALIDATED {
            self.all.push(address);
        }
        if active {
            self.current = Some(address);
        }
    }

    /// The connection moves to `address`, which counts if it was validated.
    pub(crate) fn on_activated(&mut self, address: SocketAddr) {
        if self.all.contains(&address) {
            self.current = Some(address);
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
    fn what_is_remembered_is_bounded() {
        let mut validated = started();
        (0..100).for_each(|last| validated.on_validated(address(last), false));
        assert_eq!(validated.all.len(), MAX_VALIDATED);
    }
}
