//! The layout of the connection IDs that litequic issues: they name the process and the worker, so that every packet of
//! a connection reaches it after any migration of its client; with `[listen.server_id]` the server too, for load
//! balancers (draft-ietf-quic-load-balancers; docs/adr/0043-server-ids.md).
//!
//! ```text
//!                first byte              then                                            last two bytes
//! no server ID   0xef                    generation, worker, 13 random bytes
//! without key    rotation, length − 1    server ID, unique bytes                         generation, worker: masked
//! with key       rotation, length − 1    E(server ID, generation, worker, counter)       generation, worker: masked
//! ```
//!
//! Rotation has three bits and the length five. The rotation of IDs without a server ID is 0b111, which tells balancers
//! to route by the 4-tuple. Generation and worker are a byte each. A classic BPF program steers by them, which can
//! compute a hash and cannot decrypt: the mask is HalfSipHash-1-3 of the bytes between the server ID and the last two,
//! or of the whole ciphertext, under a key that all processes on a port share. No one without it can tell that two IDs
//! are of one worker.

use litequic_base::half_sip_hash::{SipHashKey, half_sip_hash};
use litequic_config::{ServerId, ServerIdShape};
use std::{fmt, ops::Range};

/// Bytes of an ID without server ID.
pub(super) const UNROUTABLE_LEN: usize = 16;
/// First byte of an ID without server ID: "this ID cannot be routed", and its length.
pub(super) const UNROUTABLE: u8 = 0b111 << 5 | 15;
/// RFC 9000 §17.2: a connection ID has 20 bytes at most.
pub(super) const MAX_CONNECTION_ID_LEN: usize = 20;
/// RFC 9000 §17.2: the header's form, in a packet's first byte.
const LONG_HEADER: u8 = 0x80;
/// Bits of an ID's first byte that have the length behind it.
const LENGTH_BITS: u8 = 0x1f;
/// Bits below the rotation in an ID's first byte.
pub(super) const ROTATION_SHIFT: u8 = 5;
/// Bytes of generation and worker.
pub(super) const ISSUER_LEN: usize = 2;

/// The layout of an ID: the same for all workers of a process, and for all processes that share a port.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct IdLayout(Option<ServerIdShape>);

impl IdLayout {
    /// The layout of IDs with the server ID that is configured, or without one.
    pub fn from_server_id(server_id: Option<&ServerId>) -> Self {
        Self(server_id.map(ServerId::id_shape))
    }

    /// The layout of IDs whose parts have the lengths of `shape`; without a server ID where there is none.
    pub const fn new(shape: Option<ServerIdShape>) -> Self {
        Self(shape)
    }

    /// The lengths of the parts; `None` of IDs without a server ID.
    pub fn layout_shape(&self) -> Option<ServerIdShape> {
        self.0
    }

    /// Bytes of every ID.
    pub fn id_len(&self) -> usize {
        self.0.map_or(UNROUTABLE_LEN, |shape| shape.id_len())
    }

    /// The bits of the first byte that are the same in every ID, and their value: rotations change.
    pub fn first_byte(&self) -> (u8, u8) {
        // At most 19: five bits hold it.
        let length = u8::try_from(self.id_len() - 1).unwrap_or(LENGTH_BITS);
        if self.0.is_some() { (LENGTH_BITS, length) } else { (u8::MAX, UNROUTABLE) }
    }

    /// The place of generation and worker.
    pub fn issuer_offset(&self) -> usize {
        if self.0.is_some() { self.id_len() - ISSUER_LEN } else { 1 }
    }

    /// The bytes whose hash masks generation and worker. `None` where they are not masked.
    pub fn hashed_range(&self) -> Option<Range<usize>> {
        let shape = self.0?;
        let begin = if shape.encrypted { 1 } else { 1 + usize::from(shape.server_id) };
        Some(begin..self.issuer_offset())
    }

    /// What identifies the connection of a datagram with a short header: the last bytes of its destination connection
    /// ID. They are random; with a server ID they have all that is unique of the shortest nonce, and of a longer one
    /// as many pseudo-random bits. `None` of a long header, and of a datagram that is too short.
    pub(crate) fn connection_key(&self, datagram: &[u8]) -> Option<u64> {
        let (first, rest) = datagram.split_first()?;
        let id = rest.get(..self.id_len())?;
        (first & LONG_HEADER == 0).then_some(u64::from_le_bytes(*id.last_chunk()?))
    }

    /// Whether `id` begins like one with this layout.
    fn has_first_byte(&self, id: &[u8]) -> bool {
        let (bits, value) = self.first_byte();
        id.first().is_some_and(|first| first & bits == value)
    }

    /// Generation and worker of the process and the worker that issued `id`, under the `mask` key. `None` of an ID with
    /// another layout; others' IDs have any.
    pub(super) fn read_issuer(&self, mask: SipHashKey, id: &[u8]) -> Option<[u8; ISSUER_LEN]> {
        let issuer: [u8; ISSUER_LEN] = *id.get(self.issuer_offset()..)?.first_chunk()?;
        self.has_first_byte(id).then_some(())?;
        Some(match self.hashed_range() {
            None => issuer,
            Some(hashed) => mask_issuer(issuer, mask, id.get(hashed)?),
        })
    }
}

/// `16 bytes: server ID 8, nonce 7, no key`
impl fmt::Display for IdLayout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(shape) => shape.fmt(f),
            None => write!(f, "{UNROUTABLE_LEN} bytes: no server ID"),
        }
    }
}

/// Masks generation and worker, or undoes that.
pub(super) fn mask_issuer([generation, worker]: [u8; ISSUER_LEN], mask: SipHashKey, hashed: &[u8]) -> [u8; ISSUER_LEN] {
    let [.., high, low] = half_sip_hash(mask, hash_words(hashed)).to_be_bytes();
    [generation ^ high, worker ^ low]
}

/// Words in network order, of 4 bytes at least; the last one overlaps the one before.
fn hash_words(bytes: &[u8]) -> impl Iterator<Item = u32> + '_ {
    let (whole, rest) = bytes.as_chunks::<4>();
    let last = bytes.last_chunk().filter(|_| !rest.is_empty());
    whole.iter().chain(last).map(|word| u32::from_be_bytes(*word))
}

/// An ID that is being written.
#[derive(Debug, Default)]
pub(super) struct IdBytes {
    bytes: [u8; MAX_CONNECTION_ID_LEN],
    len: usize,
}

impl IdBytes {
    /// Appends `part`, up to the longest ID.
    pub(super) fn push_part(&mut self, part: &[u8]) {
        let free = self.bytes.iter_mut().skip(self.len);
        self.len += free.zip(part).map(|(byte, value)| *byte = *value).count();
    }

    /// The bytes from `begin` on.
    pub(super) fn bytes_from(&mut self, begin: usize) -> &mut [u8] {
        self.bytes.get_mut(begin..self.len).unwrap_or_default()
    }

    pub(super) fn get(&self, range: Range<usize>) -> &[u8] {
        self.bytes.get(range).unwrap_or_default()
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        self.get(0..self.len)
    }
}
