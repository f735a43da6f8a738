//! How much a client whose address is not validated can make litequic send (RFC 9000 §8.1), where s2n-quic allows too
//! much.
//!
//! s2n-quic lets every datagram that names a connection, whatever is in it, allow three times its size, and sends a
//! whole datagram while anything at all is left of that. A few bytes sent to the ID that a client chose for its first
//! Initial, which an attacker with a forged address also chooses, so allow 1200. No honest client sends them: until a
//! client has got a packet of litequic all of its datagrams are 1200 bytes or more (§14.1), and thereafter they go to
//! IDs that litequic has issued.
//!
//! That leaves s2n-quic's rounding: a datagram of 1201 bytes allows four of 1200.

use crate::quic::identity::{connection_id::OwnIds, retry_id::RetryIds};
use s2n_quic_core::{
    event::api::Subject,
    packet::interceptor::{Datagram, DecoderBufferMut, Interceptor},
};
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

/// Bytes of a datagram with an Initial at least: RFC 9000 §14.1 has a smaller one discarded.
const MIN_INITIAL_DATAGRAM: usize = 1200;
/// Bit of the first byte that marks a long header (RFC 9000 §17.2).
const LONG_HEADER: u8 = 0x80;
/// Offset of the length of the destination connection ID, behind the first byte and the version.
const ID_LEN_AT: usize = 5;

/// Discards datagrams that no honest client sends.
#[derive(Debug)]
pub(super) struct AmplificationGuard {
    ids: OwnIds,
    own: ToIssuedId,
    retry: RetryIds,
}

/// Whether the datagram at hand goes to an ID like those that litequic issues. A client's first Initial does not: with
/// such an ID, small datagrams would count as those of a client that got a packet of litequic.
#[derive(Debug, Clone, Default)]
pub(super) struct ToIssuedId(Arc<AtomicBool>);

impl ToIssuedId {
    /// To be called while s2n-quic processes a datagram's first packet.
    pub(super) fn get(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl AmplificationGuard {
    /// A guard for an endpoint that issues `ids`; sets `own` for each datagram, and records in `retry` where it goes.
    pub(super) fn new(ids: OwnIds, own: ToIssuedId, retry: RetryIds) -> Self {
        Self { ids, own, retry }
    }

    /// Whether a datagram is to be processed.
    fn admit(&self, datagram: &[u8]) -> bool {
        let Some(id) = long_header_id(datagram) else { return true };
        let own = self.ids.contain(id);
        self.own.0.store(own, Ordering::Relaxed);
        self.retry.address(id);
        own || datagram.len() >= MIN_INITIAL_DATAGRAM
    }
}

/// The destination connection ID in a long header.
fn long_header_id(datagram: &[u8]) -> Option<&[u8]> {
    let first = *datagram.first()?;
    if first & LONG_HEADER == 0 {
        return None;
    }
    let (length, rest) = datagram.get(ID_LEN_AT..)?.split_first()?;
    rest.get(..usize::from(*length))
}

impl Interceptor for AmplificationGuard {
    fn intercept_rx_datagram<'a>(
        &mut self,
        _: &Subject,
        _: &Datagram<'_>,
        payload: DecoderBufferMut<'a>,
    ) -> DecoderBufferMut<'a> {
        let datagram = payload.into_less_safe_slice();
        // An empty datagram is not a packet: s2n-quic drops it.
        let datagram = if self.admit(datagram) { datagram } else { &mut [] };
        DecoderBufferMut::new(datagram)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quic::identity::{IdScheme, connection_id::WorkerIndex};

    #[test]
    fn small_datagrams_go_to_ids_that_litequic_issued() {
        let own = ToIssuedId::default();
        let scheme = IdScheme::new(None, None, None).unwrap();
        let ids = OwnIds::new(&scheme, (9, Arc::default()), WorkerIndex(1), 4);
        let small = AmplificationGuard::new(ids, own.clone(), RetryIds::default());
        let datagram = |first: u8, id: &[u8], len: usize| {
            let mut datagram = [&[first, 0, 0, 0, 1, u8::try_from(id.len()).unwrap()], id].concat();
            datagram.resize(len, 0);
            datagram
        };
        let issued = [&[0xef, 9, 1][..], &[7; 13]].concat();
        let table = [
            ("a full Initial", datagram(0xc0, &[1; 8], 1200), true, false),
            ("a small Initial", datagram(0xc0, &[1; 8], 1199), false, false),
            ("a small Handshake to its own ID", datagram(0xe0, &[1; 8], 60), false, false),
            ("a small Handshake to ours", datagram(0xe0, &issued, 60), true, true),
            ("a full Initial to ours", datagram(0xc0, &issued, 1200), true, true),
            ("to another worker's", datagram(0xe0, &[&[0xef, 9, 2][..], &[7; 13]].concat(), 60), false, false),
            ("to one of another length", datagram(0xe0, &issued[..15], 60), false, false),
        ];
        for (what, datagram, admitted, is_own) in table {
            assert_eq!((small.admit(&datagram), own.get()), (admitted, is_own), "{what}");
        }
        for (what, datagram) in [("short", vec![0x40; 30]), ("nothing", vec![]), ("half a header", vec![0xc0; 7])] {
            assert!(small.admit(&datagram), "{what} is not for here to judge");
        }
    }
}
