//! How much a client whose address is not validated can make litequic send (RFC 9000 §8.1), where s2n-quic allows too
//! much.
//!
//! s2n-quic lets every datagram that names a connection, whatever is in it, allow three times its size, and sends a
//! whole datagram while anything at all is left of that. A few bytes sent to the ID that a client chose for its first
//! Initial, which an attacker with a forged address also chooses, so allow 1200. No honest client sends them: until a
//! client has got a packet of litequic all of its datagrams are 1200 bytes or more (§14.1), and thereafter they go to
//! IDs that litequic has issued.
//!
//! s2n-quic's rounding is left as it is: a datagram of 1201 bytes allows four of 1200. Pure.

/// Bytes of a datagram with an Initial at least: RFC 9000 §14.1 has a smaller one discarded.
const MIN_INITIAL_DATAGRAM: usize = 1200;
/// Bit of the first byte that marks a long header (RFC 9000 §17.2).
const LONG_HEADER: u8 = 0x80;
/// Offset of the length of the destination connection ID, behind the first byte and the version.
const ID_LEN_AT: usize = 5;

/// Whether a datagram of `len` bytes with a long header is to be processed, which goes to an ID that litequic issued or
/// to another.
pub(super) fn admits_datagram_size(len: usize, to_issued_id: bool) -> bool {
    to_issued_id || len >= MIN_INITIAL_DATAGRAM
}

/// The destination connection ID in a long header; `None` of another datagram, which is not judged here.
pub(super) fn long_header_id(datagram: &[u8]) -> Option<&[u8]> {
    let first = *datagram.first()?;
    if first & LONG_HEADER == 0 {
        return None;
    }
    let (length, rest) = datagram.get(ID_LEN_AT..)?.split_first()?;
    rest.get(..usize::from(*length))
}
