//! Limits amplification towards an address that is not validated (RFC 9000 §8.1), where s2n-quic allows too much.
//!
//! s2n-quic allows three times the size of every datagram that names a connection, whatever its content, and sends a
//! whole datagram while any of that is left. So a few bytes sent to the ID that a client chose for its first Initial,
//! which an attacker with a forged address also chooses, allow 1200. No honest client sends them: before a client has
//! received a packet from litequic, all of its datagrams have 1200 bytes or more (§14.1), and later ones go to IDs that
//! litequic has issued.
//!
//! s2n-quic's rounding is unchanged: a datagram of 1201 bytes allows four of 1200. Pure.

/// Smallest datagram with an Initial, bytes: RFC 9000 §14.1 has a smaller one discarded.
const MIN_INITIAL_DATAGRAM: usize = 1200;

/// Whether to process a datagram of `len` bytes with a long header, whose destination litequic issued if
/// `to_issued_id`.
pub(super) fn admits_datagram_size(len: usize, to_issued_id: bool) -> bool {
    to_issued_id || len >= MIN_INITIAL_DATAGRAM
}
