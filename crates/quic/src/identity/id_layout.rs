//! Defines the layout of litequic's connection IDs: they name the process and the worker, so that every packet of a
//! connection arrives there after any migration of its client; with `[listen.server_id]` also the server, for load
//! balancers (draft-ietf-quic-load-balancers; docs/adr/0043-server-ids.md).
//!
//! ```text
//!                first byte              then                                            last two bytes
//! no server ID   0xef                    generation, worker, 13 random bytes
//! without key    rotation, length − 1    server ID, unique bytes                         generation, worker: masked
//! with key       rotation, length − 1    E(server ID, generation, worker, counter)       generation, worker: masked
//! ```
//!
//! Rotation has three bits and the length five. IDs without a server ID have rotation 0b111, which tells balancers to
//! route by the 4-tuple. Generation and worker are a byte each. A classic BPF program steers by them, which can compute
//! a hash and cannot decrypt: the mask is HalfSipHash-1-3 of the bytes between the server ID and the last two, or of
//! the whole ciphertext, under a key that all processes on a port share. Without the key an observer cannot tell
//! that two IDs are of one worker.

use litequic_base::half_sip_hash::{SipHashKey, half_sip_hash};
use litequic_config::{ServerId, ServerIdShape};
use std::{fmt, ops::Range};

/// Bytes of an ID without a server ID.
pub(super) const UNROUTABLE_LEN: usize = 16;
/// First byte of an ID without a server ID: the rotation for "not routable", and the length.
pub(super) const UNROUTABLE: u8 = 0b111 << 5 | 15;
/// Header form bit of a packet's first byte (RFC 9000 §17.2).
const LONG_HEADER: u8 = 0x80;
/// Bits of an ID's first byte that hold the length of the other bytes.
const LENGTH_BITS: u8 = 0x1f;
/// Bits below the rotation in an ID's first byte.
pub(super) const ROTATION_SHIFT: u8 = 5;
/// Bytes of generation and worker.
pub(super) const ISSUER_LEN: usize = 2;

/// Layout of connection IDs by the lengths of their parts, or without a server ID; the same for all workers of a
/// process, and for all processes that share a port.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct IdLayout(pub Option<ServerIdShape>);

impl IdLayout {
    /// Layout of IDs with the configured server ID, or without one.
    pub fn from_server_id(server_id: Option<&ServerId>) -> Self {
        Self(server_id.map(ServerId::id_shape))
    }

    /// Bytes of every ID.
    pub fn id_len(&self) -> usize {
        self.0.map_or(UNROUTABLE_LEN, |shape| shape.id_len())
    }

    /// Mask and value of the first byte's bits that are equal in every ID; rotations change.
    pub fn first_byte(&self) -> (u8, u8) {
        // The length is at most 19, which five bits hold.
        let length = u8::try_from(self.id_len() - 1).unwrap_or(LENGTH_BITS);
        if self.0.is_some() { (LENGTH_BITS, length) } else { (u8::MAX, UNROUTABLE) }
    }

    /// Offset of generation and worker.
    pub fn issuer_offset(&self) -> usize {
        if self.0.is_some() { self.id_len() - ISSUER_LEN } else { 1 }
    }

    /// Range of the bytes whose hash masks generation and worker; `None` without a mask.
    pub fn hashed_range(&self) -> Option<Range<usize>> {
        let shape = self.0?;
        let begin = if shape.encrypted { 1 } else { 1 + usize::from(shape.server_id) };
        Some(begin..self.issuer_offset())
    }

    /// Key of the connection of a datagram with a short header: the last bytes of the destination connection ID. They
    /// are random; with a server ID they include all unique bytes of the shortest nonce, and of a longer one as many
    /// pseudo-random bits. `None` for a long header, and for a datagram that is too short.
    pub(crate) fn connection_key(&self, datagram: &[u8]) -> Option<u64> {
        let (first, rest) = datagram.split_first()?;
        let id = rest.get(..self.id_len())?;
        (first & LONG_HEADER == 0).then_some(u64::from_le_bytes(*id.last_chunk()?))
    }

    /// Whether the first byte of `id` has this layout.
    fn has_first_byte(&self, id: &[u8]) -> bool {
        let (bits, value) = self.first_byte();
        id.first().is_some_and(|first| first & bits == value)
    }

    /// Generation and worker that issued `id`, unmasked by the key `mask`; `None` for an ID with another layout.
    pub(super) fn read_issuer(&self, mask: SipHashKey, id: &[u8]) -> Option<[u8; ISSUER_LEN]> {
        let issuer: [u8; ISSUER_LEN] = *id.get(self.issuer_offset()..)?.first_chunk()?;
        self.has_first_byte(id).then_some(())?;
        Some(match self.hashed_range() {
            None => issuer,
            Some(hashed) => mask_issuer(issuer, mask, id.get(hashed)?),
        })
    }
}

/// For example `16 bytes: server ID 8, nonce 7, no key`.
impl fmt::Display for IdLayout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(shape) => shape.fmt(f),
            None => write!(f, "{UNROUTABLE_LEN} bytes: no server ID"),
        }
    }
}

/// Masks generation and worker, or removes the mask.
pub(super) fn mask_issuer([generation, worker]: [u8; ISSUER_LEN], mask: SipHashKey, hashed: &[u8]) -> [u8; ISSUER_LEN] {
    let [.., high, low] = half_sip_hash(mask, hash_words(hashed)).to_be_bytes();
    [generation ^ high, worker ^ low]
}

/// Splits at least 4 bytes into words in network order; the last one may overlap the one before.
fn hash_words(bytes: &[u8]) -> impl Iterator<Item = u32> + '_ {
    let (whole, rest) = bytes.as_chunks::<4>();
    let last = bytes.last_chunk().filter(|_| !rest.is_empty());
    whole.iter().chain(last).map(|word| u32::from_be_bytes(*word))
}
