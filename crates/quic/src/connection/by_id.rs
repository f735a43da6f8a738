//! Maps the consecutive numbers that s2n-quic gives connections. No client chooses them, so hashing needs no key, and
//! costs a multiplication a packet.

use std::{
    collections::HashMap,
    hash::{BuildHasherDefault, Hasher},
};

/// A map by s2n-quic's internal ID of a connection, which is unique within its endpoint.
pub(super) type ByConnectionId<T> = HashMap<u64, T, BuildHasherDefault<MultiplicativeHasher>>;

/// 2^64 divided by the golden ratio: spreads numbers in a row over all bits (Knuth's multiplicative hashing).
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// Multiplicative hash of one integer.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct MultiplicativeHasher(u64);

impl Hasher for MultiplicativeHasher {
    fn write_u64(&mut self, id: u64) {
        self.0 = id.wrapping_mul(GOLDEN);
    }

    /// Hashes keys of other types, which no map has.
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(GOLDEN);
        }
    }

    /// Rotates the best bits to the ends: hashbrown takes the place from the lowest bits, and compares the highest
    /// first.
    fn finish(&self) -> u64 {
        self.0.rotate_left(32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{collections::HashSet, hash::Hash};

    #[test]
    fn consecutive_numbers_are_spread_over_places_and_tags() {
        let hashes: Vec<u64> = (0..1024u64)
            .map(|id| {
                let mut spread = MultiplicativeHasher::default();
                id.hash(&mut spread);
                spread.finish()
            })
            .collect();
        let places: HashSet<u64> = hashes.iter().map(|hash| hash & 1023).collect();
        let marks: HashSet<u64> = hashes.iter().map(|hash| hash >> 57).collect();
        assert!(places.len() > 600, "{}", places.len());
        assert_eq!(marks.len(), 128);
    }

    #[test]
    fn values_are_found_by_their_number() {
        let mut kept = ByConnectionId::default();
        kept.extend((0..10_000).map(|id| (id, id)));
        assert!((0..10_000).all(|id| kept.remove(&id) == Some(id)));
        assert!(kept.is_empty());
    }
}
