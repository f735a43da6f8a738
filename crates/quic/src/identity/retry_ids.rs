//! Remembers connection IDs to which a Retry token is bound (RFC 9000 §8.1.2): s2n-quic adopts the ID of a valid token
//! as its own, and passes to the provider of tokens neither the Retry's ID nor that of the following Initial. Both are
//! known elsewhere in the same turn. They also distinguish a new ID from that of a packet without a connection, when a
//! stateless reset token is requested for it. Pure.

use parking_lot::Mutex;
use s2n_quic_core::connection::LocalId;
use std::sync::Arc;

/// [`RetryIds`] of one endpoint, whose providers run one after the other: the lock is never contended.
pub(crate) type SharedRetryIds = Arc<Mutex<RetryIds>>;

/// Connection IDs of one endpoint that concern the current token.
#[derive(Debug, Default)]
pub(crate) struct RetryIds {
    pub(crate) issued: Option<LocalId>,
    pub(crate) addressed: Option<LocalId>,
}

impl RetryIds {
    /// Records the destination connection ID of the current datagram; s2n-quic drops datagrams to IDs of fewer than 4
    /// bytes, and of more than 20.
    pub(crate) fn record_addressed(&mut self, id: &[u8]) {
        self.addressed = LocalId::try_from_bytes(id);
    }

    /// Whether `id`, for which a stateless reset token is requested, is new: the last issued one, or one adopted from a
    /// Retry. True once for each: a later token is for a packet without a connection.
    pub(crate) fn begin_id(&mut self, id: &[u8]) -> bool {
        let Self { issued, addressed } = self;
        let slot = [issued, addressed].into_iter().find(|slot| slot.is_some_and(|one| one.as_bytes() == id));
        slot.map(|slot| *slot = None).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_begins_to_be_used_once() {
        let mut ids = RetryIds::default();
        let id = |byte: u8| LocalId::try_from_bytes(&[byte; 16]).unwrap();
        ids.issued = Some(id(1));
        ids.record_addressed(&[2; 16]);
        for (byte, begins) in [(3, false), (1, true), (1, false), (2, true), (2, false)] {
            assert_eq!(ids.begin_id(&[byte; 16]), begins, "{byte}");
        }
    }
}
