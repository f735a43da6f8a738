//! Connection IDs that a Retry token is bound to (RFC 9000 §8.1.2): s2n-quic adopts the ID that comes back with a valid
//! token as its own, and passes neither to the provider of tokens, that of the Retry nor that of the Initial which
//! answers it. Both are known elsewhere in the same turn. By both, an ID that begins to be used is told from that of a
//! packet of no connection, when a stateless reset token is requested for it. Pure.

use s2n_quic_core::connection::LocalId;

/// The connection IDs of one endpoint that concern the token at hand.
#[derive(Debug, Default)]
pub(crate) struct RetryIds {
    issued: Option<LocalId>,
    addressed: Option<LocalId>,
}

impl RetryIds {
    /// Records the ID that was issued last. s2n-quic takes a Retry's source connection ID right before it asks for the
    /// token.
    pub(crate) fn record_issued(&mut self, id: LocalId) {
        self.issued = Some(id);
    }

    /// The ID that was issued last.
    pub(crate) fn last_issued(&self) -> Option<LocalId> {
        self.issued
    }

    /// Records the destination connection ID of the datagram at hand; s2n-quic drops datagrams to IDs of fewer than 4
    /// bytes, and of more than 20.
    pub(crate) fn record_addressed(&mut self, id: &[u8]) {
        self.addressed = LocalId::try_from_bytes(id);
    }

    /// Whether the stateless reset token of `id` is for an ID that begins to be used: the one issued last, or one that
    /// was adopted from a Retry. Each is so once: a later token is for a packet of no connection.
    pub(crate) fn begin_id(&mut self, id: &[u8]) -> bool {
        let Self { issued, addressed } = self;
        let slot = [issued, addressed].into_iter().find(|slot| slot.is_some_and(|one| one.as_bytes() == id));
        slot.map(|slot| *slot = None).is_some()
    }

    /// The destination connection ID of the datagram at hand, if it has a long header.
    pub(crate) fn datagram_id(&self) -> Option<LocalId> {
        self.addressed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_begins_to_be_used_once() {
        let mut ids = RetryIds::default();
        let id = |byte: u8| LocalId::try_from_bytes(&[byte; 16]).unwrap();
        ids.record_issued(id(1));
        ids.record_addressed(&[2; 16]);
        for (byte, begins) in [(3, false), (1, true), (1, false), (2, true), (2, false)] {
            assert_eq!(ids.begin_id(&[byte; 16]), begins, "{byte}");
        }
    }
}
