//! Computes HalfSipHash (the 32-bit variant of SipHash, Aumasson and Bernstein), by which connection IDs hide their
//! issuer: `quic` masks them, and a program of the kernel from `net` undoes that. It needs 32-bit additions, XORs and
//! rotations alone, which classic BPF has.

/// Key of 64 bits.
pub type SipHashKey = [u32; 2];

/// Constants of the state (`tedbytes`, `lygenera`).
const CONSTANTS: [u32; 2] = [0x6c79_6765, 0x7465_6462];
/// Marks the end of the message.
pub const FINALIZATION: u32 = 0xff;
/// Rounds for each word of the message, of HalfSipHash-1-3.
pub const ROUNDS: usize = 1;
/// Rounds after the last word, of HalfSipHash-1-3.
pub const FINAL_ROUNDS: usize = 3;

/// State of HalfSipHash before the first word.
// Inlined in other crates: 7 of 250 instructions of a packet with a masked connection ID (benches/gate.sh, server_hdr).
#[inline]
pub fn initial_state([k0, k1]: SipHashKey) -> [u32; 4] {
    let [c0, c1] = CONSTANTS;
    [k0, k1, c0 ^ k0, c1 ^ k1]
}

/// Computes HalfSipHash-1-3 of `words` under `key`. All messages under one key must have the same length, as the length
/// is not appended.
#[inline]
pub fn half_sip_hash(key: SipHashKey, words: impl IntoIterator<Item = u32>) -> u32 {
    hash::<ROUNDS, FINAL_ROUNDS>(key, words)
}

#[inline]
fn hash<const C: usize, const D: usize>(key: SipHashKey, words: impl IntoIterator<Item = u32>) -> u32 {
    let mut state = initial_state(key);
    for word in words {
        let [_, _, _, v3] = &mut state;
        *v3 ^= word;
        (0..C).for_each(|_| sip_round(&mut state));
        let [v0, ..] = &mut state;
        *v0 ^= word;
    }
    let [_, _, v2, _] = &mut state;
    *v2 ^= FINALIZATION;
    (0..D).for_each(|_| sip_round(&mut state));
    let [_, v1, _, v3] = state;
    v1 ^ v3
}

#[inline]
fn sip_round([v0, v1, v2, v3]: &mut [u32; 4]) {
    *v0 = v0.wrapping_add(*v1);
    *v1 = v1.rotate_left(5) ^ *v0;
    *v0 = v0.rotate_left(16);
    *v2 = v2.wrapping_add(*v3);
    *v3 = v3.rotate_left(8) ^ *v2;
    *v0 = v0.wrapping_add(*v3);
    *v3 = v3.rotate_left(7) ^ *v0;
    *v2 = v2.wrapping_add(*v1);
    *v1 = v1.rotate_left(13) ^ *v2;
    *v2 = v2.rotate_left(16);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The published vectors are of HalfSipHash-2-4 under the key 00 to 07, which appends the length to the last word.
    #[test]
    fn the_rounds_are_those_of_the_published_vectors() {
        let key = [u32::from_le_bytes([0, 1, 2, 3]), u32::from_le_bytes([4, 5, 6, 7])];
        let table: &[(&[u32], [u8; 4])] = &[(&[0], [0xa9, 0x35, 0x9f, 0x5b]), (&[1 << 24], [0x27, 0x47, 0x5a, 0xb8])];
        for (words, expected) in table {
            assert_eq!(hash::<2, 4>(key, words.iter().copied()).to_le_bytes(), *expected, "{words:x?}");
        }
    }

    #[test]
    fn every_bit_of_key_and_message_changes_the_hash() {
        let (key, message) = ([0x0123_4567, 0x89ab_cdef], [1, 2, 3]);
        let before = half_sip_hash(key, message);
        for bit in 0..32 {
            for word in 0..3 {
                let mut other = message;
                other[word] ^= 1 << bit;
                assert_ne!(half_sip_hash(key, other), before);
            }
            for word in 0..2 {
                let mut other = key;
                other[word] ^= 1 << bit;
                assert_ne!(half_sip_hash(other, message), before);
            }
        }
    }
}
