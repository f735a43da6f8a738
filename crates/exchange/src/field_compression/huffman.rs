//! Encodes and decodes the Huffman code of RFC 7541 Appendix B, which QPACK shares with HPACK.
//!
//! The code is canonical: its words, ordered by length and then by symbol, count upwards. So the lengths alone define
//! the code.

/// The end-of-string symbol, which is invalid in a string. Padding consists of its first bits.
const EOS: usize = 256;

/// Number of bits of each symbol's word; the last is EOS.
#[rustfmt::skip]
const WORD_LENGTHS: [u8; EOS + 1] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28,
    28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28,
    6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6,
    5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10,
    13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
    7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6,
    15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5,
    6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28,
    20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23,
    24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24,
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23,
    21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25,
    19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27,
    20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23,
    26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26,
    30, // EOS
];

/// Each symbol's word and its number of bits.
const CODES: [(u32, u8); EOS + 1] = build_codes();
const CHILDREN: [[u16; 2]; INNER_NODES] = build_children();
static SHORT_WORDS: [ShortWords; 1 << SHORT_BITS] = build_short_words();

/// A tree with 257 leaves has 256 inner nodes; 0 is the root.
const INNER_NODES: usize = 256;
/// Marks a leaf among [`CHILDREN`], which then holds its symbol.
const LEAF: u16 = 0x8000;

/// Number of bits that the decoder looks up at once. They hold two words of nearly all pairs of characters in fields;
/// the table takes 16 KB.
const SHORT_BITS: u32 = 12;
/// Number of lookups between two checks of the position: four words are within the 57 bits that are left of eight bytes
/// at any position in a byte, and their symbols fill eight bytes.
const LOOKUPS: usize = 4;

/// One or two symbols whose words begin some bits: in the lower half the symbols, the first lowest; above them one byte
/// with the number of bits of the words, and one with that of the symbols. 0 if the first word is longer than
/// [`SHORT_BITS`].
type ShortWords = u32;

/// An invalid Huffman string: EOS inside, or wrong padding (RFC 7541 §5.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct HuffmanError;

/// Appends the string that `input` encodes, which has at most 8 / 5 of its length. Meanwhile `out` is longer by
/// [`WRITE_LEN`].
///
/// # Errors
///
/// [`HuffmanError`]; nothing is appended.
// Inlined into its caller, a request with a browser's fields takes 1.2 % more instructions (benches/gate.sh, browser).
#[inline(never)]
pub(super) fn decode_huffman(input: &[u8], out: &mut Vec<u8>) -> Result<(), HuffmanError> {
    let start = out.len();
    // The shortest word has five bits.
    out.resize(start + input.len() * 8 / 5 + WRITE_LEN, 0);
    let decoded = decode_into(input, out.get_mut(start..).unwrap_or_default());
    out.truncate(start + decoded.unwrap_or(0));
    decoded.map(drop).ok_or(HuffmanError)
}

/// Number of bytes that the decoder writes at once.
pub(super) const WRITE_LEN: usize = 8;

/// Decodes `input` and returns the number of symbols. `out` has room for all symbols, and for [`WRITE_LEN`] more.
fn decode_into(input: &[u8], out: &mut [u8]) -> Option<usize> {
    let end = u32::try_from(input.len()).ok()?.checked_mul(8)?;
    let last = last_eight(input);
    let (mut at, mut written) = (0_u32, 0_usize);
    loop {
        let left = end.checked_sub(at)?;
        // Padding is less than a byte of ones. Only the word of EOS consists of ones.
        if left < 8 && (!last).unbounded_shl(u64::BITS - left) == 0 {
            return Some(written);
        }
        // The next bits of the input: at least 57, or all that are left with ones behind.
        let mut bits = match input.get((at / 8) as usize..).and_then(<[u8]>::first_chunk) {
            Some(eight) => u64::from_be_bytes(*eight) << (at % 8),
            None => !(!last).unbounded_shl(u64::BITS - left),
        };
        // The symbols, and the sum of the upper halves of their table entries.
        let (mut symbols, mut lengths) = (0_u64, 0_u32);
        for _ in 0..LOOKUPS {
            let short = *SHORT_WORDS.get((bits >> (u64::BITS - SHORT_BITS)) as usize)?;
            symbols |= u64::from(short & 0xffff).wrapping_shl(lengths >> 8);
            bits = bits.wrapping_shl(short >> 16);
            lengths += short >> 16;
        }
        if lengths == 0 {
            let (symbol, length) = decode_long_word(bits)?;
            (symbols, lengths) = (symbol.into(), 8 << 8 | length);
        }
        out.get_mut(written..written + WRITE_LEN)?.copy_from_slice(&symbols.to_le_bytes());
        written += (lengths >> 8) as usize / 8;
        at += lengths & 0xff;
    }
}

/// Returns the last eight bytes of `input`, or all of a shorter one.
fn last_eight(input: &[u8]) -> u64 {
    if let Some(last) = input.last_chunk() {
        return u64::from_be_bytes(*last);
    }
    input.iter().fold(0, |bits, byte| bits << 8 | u64::from(*byte))
}

/// Returns the symbol whose word `bits` begin with, and the word's number of bits; `None` for EOS.
fn decode_long_word(bits: u64) -> Option<(u8, u32)> {
    let (mut node, mut length) = (0, 0);
    loop {
        let side = (bits >> (u64::BITS - 1 - length) & 1) as usize;
        let child = *CHILDREN.get(usize::from(node))?.get(side)?;
        length += 1;
        if child & LEAF != 0 {
            return Some((u8::try_from(child & !LEAF).ok()?, length));
        }
        node = child;
    }
}

/// Encodes `input` into the beginning of `out`, which is as long as `input`. Returns the number of bytes if they are
/// fewer than those of `input`; otherwise `None`, and the bytes of `out` are undefined.
pub fn encode_if_shorter(input: &[u8], out: &mut [u8]) -> Option<usize> {
    // At most 31 bits remain from word to word, and a word has at most 30.
    let (mut bits, mut count, mut written) = (0_u64, 0_u32, 0);
    for byte in input {
        let (word, length) = *CODES.get(usize::from(*byte))?;
        bits = bits << length | u64::from(word);
        count += u32::from(length);
        if count >= 32 {
            count -= 32;
            #[expect(clippy::cast_possible_truncation, reason = "the lower bits of what was shifted out")]
            let four = (bits >> count) as u32;
            out.get_mut(written..written + 4)?.copy_from_slice(&four.to_be_bytes());
            written += 4;
        }
    }
    // At least one bit remains, as no word is empty, unless all were written. Ones fill the last byte (RFC 7541 §5.2).
    let (padded, rest) = (bits << 32 | u64::from(u32::MAX), count.div_ceil(8) as usize);
    let length = written + rest;
    if length >= input.len() {
        return None;
    }
    let last = (padded << (32 - count)).to_be_bytes();
    out.get_mut(written..length)?.copy_from_slice(last.get(..rest)?);
    Some(length)
}

#[expect(clippy::indexing_slicing, reason = "runs in the compiler alone")]
const fn build_codes() -> [(u32, u8); EOS + 1] {
    let mut codes = [(0, 0); EOS + 1];
    let (mut word, mut length) = (0_u32, 1);
    while length <= 30 {
        let mut symbol = 0;
        while symbol <= EOS {
            if WORD_LENGTHS[symbol] == length {
                codes[symbol] = (word, length);
                word += 1;
            }
            symbol += 1;
        }
        word <<= 1;
        length += 1;
    }
    codes
}

#[expect(clippy::indexing_slicing, clippy::cast_possible_truncation, reason = "runs in the compiler alone")]
const fn build_children() -> [[u16; 2]; INNER_NODES] {
    // The root is never a child, so that 0 means that there is none yet.
    let mut children = [[0; 2]; INNER_NODES];
    let mut nodes = 1;
    let mut symbol = 0;
    while symbol <= EOS {
        let mut node = 0;
        let mut bit = WORD_LENGTHS[symbol] as u32;
        while bit > 1 {
            bit -= 1;
            let side = (CODES[symbol].0 >> bit & 1) as usize;
            if children[node][side] == 0 {
                children[node][side] = nodes;
                nodes += 1;
            }
            node = children[node][side] as usize;
        }
        children[node][(CODES[symbol].0 & 1) as usize] = LEAF | symbol as u16;
        symbol += 1;
    }
    children
}

#[expect(clippy::indexing_slicing, clippy::cast_possible_truncation, reason = "runs in the compiler alone")]
const fn build_short_words() -> [ShortWords; 1 << SHORT_BITS] {
    // The number of bits of the first word, and its symbol.
    let mut first = [(0_u32, 0_u32); 1 << SHORT_BITS];
    let mut symbol = 0;
    while symbol < EOS {
        let length = WORD_LENGTHS[symbol] as u32;
        if length <= SHORT_BITS {
            let rest = SHORT_BITS - length;
            let mut index = (CODES[symbol].0 << rest) as usize;
            let end = index + (1 << rest);
            while index < end {
                first[index] = (length, symbol as u32);
                index += 1;
            }
        }
        symbol += 1;
    }
    let mut short = [0; 1 << SHORT_BITS];
    let mut index = 0;
    while index < short.len() {
        let (length, symbol) = first[index];
        if length != 0 {
            // The bits behind the first word, filled with zeros.
            let (second, next) = first[index << length & (short.len() - 1)];
            short[index] = if second != 0 && length + second <= SHORT_BITS {
                16 << 24 | (length + second) << 16 | next << 8 | symbol
            } else {
                8 << 24 | length << 16 | symbol
            };
        }
        index += 1;
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// RFC 7541 C.4 and C.6
    const VECTORS: [(&str, &str); 11] = [
        ("www.example.com", "f1e3c2e5f23a6ba0ab90f4ff"),
        ("no-cache", "a8eb10649cbf"),
        ("custom-key", "25a849e95ba97d7f"),
        ("custom-value", "25a849e95bb8e8b4bf"),
        ("302", "6402"),
        ("private", "aec3771a4b"),
        ("Mon, 21 Oct 2013 20:13:21 GMT", "d07abe941054d444a8200595040b8166e082a62d1bff"),
        ("https://www.example.com", "9d29ad171863c78f0b97c8e9ae82ae43d3"),
        ("307", "640eff"),
        ("gzip", "9bd9ab"),
        (
            "foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1",
            "94e7821dd7f2e6c7b335dfdfcd5b3960d5af27087f3672c1ab270fb5291f9587316065c003ed4ee5b1063d5007",
        ),
    ];

    fn hex(text: &str) -> Vec<u8> {
        (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
    }

    fn decoded(input: &[u8]) -> Result<Vec<u8>, HuffmanError> {
        let mut out = Vec::new();
        decode_huffman(input, &mut out).map(|()| out)
    }

    fn encode(input: &[u8]) -> Option<Vec<u8>> {
        let mut out = vec![0; input.len()];
        let length = encode_if_shorter(input, &mut out)?;
        out.truncate(length);
        Some(out)
    }

    /// A decoder that compares bit by bit with every word.
    fn oracle(input: &[u8]) -> Result<Vec<u8>, HuffmanError> {
        let (mut out, mut word, mut length) = (Vec::new(), 0_u32, 0_u8);
        for bit in input.iter().flat_map(|byte| (0..8).rev().map(move |bit| byte >> bit & 1)) {
            word = word << 1 | u32::from(bit);
            length += 1;
            if let Some(symbol) = (0..=EOS).find(|symbol| CODES[*symbol] == (word, length)) {
                out.push(u8::try_from(symbol).map_err(|_| HuffmanError)?);
                (word, length) = (0, 0);
            }
        }
        if length <= 7 && word == (1 << length) - 1 { Ok(out) } else { Err(HuffmanError) }
    }

    /// Encodes `symbols` with padding, even if the result is longer.
    fn encode_all(symbols: &[usize]) -> Vec<u8> {
        let bits = symbols.iter().flat_map(|symbol| {
            let (word, length) = CODES[*symbol];
            (0..length).rev().map(move |bit| word >> bit & 1 != 0)
        });
        let bits: Vec<bool> = bits.collect();
        let byte = |bits: &[bool]| (0..8).fold(0, |byte, at| byte << 1 | u8::from(*bits.get(at).unwrap_or(&true)));
        bits.chunks(8).map(byte).collect()
    }

    #[test]
    fn every_code_decodes_at_every_bit_and_after_every_other() {
        for symbol in 0..EOS {
            // "0" has five bits, so that the symbol begins at each bit of a byte, and in each of the words of one
            // lookup.
            for before in 0..40 {
                for after in [0, 1, 13] {
                    let symbols = [vec![48; before], vec![symbol], vec![48; after]].concat();
                    let text: Vec<u8> = symbols.iter().map(|symbol| u8::try_from(*symbol).unwrap()).collect();
                    assert_eq!(decoded(&encode_all(&symbols)), Ok(text), "{symbol} behind {before}, {after} behind");
                }
            }
            for next in 0..EOS {
                let text = [symbol, next].map(|symbol| u8::try_from(symbol).unwrap());
                assert_eq!(decoded(&encode_all(&[symbol, next])), Ok(text.to_vec()), "{symbol}, {next}");
            }
            // EOS, in whatever place.
            let before = [vec![48; symbol % 40], vec![symbol]].concat();
            assert_eq!(decoded(&encode_all(&[before, vec![EOS]].concat())), Err(HuffmanError), "{symbol}");
        }
    }

    #[test]
    fn strings_of_two_bytes_decode_as_bit_by_bit() {
        for bytes in (0..=u16::MAX).step_by(7) {
            let input = bytes.to_be_bytes();
            assert_eq!(decoded(&input), oracle(&input), "{input:02x?}");
        }
    }

    #[test]
    fn the_examples_of_rfc_7541_encode_and_decode() {
        for (text, encoded) in VECTORS {
            let encoded = hex(encoded);
            let shorter = (encoded.len() < text.len()).then(|| encoded.clone());
            assert_eq!(encode(text.as_bytes()), shorter, "{text}");
            assert_eq!(decoded(&encoded), Ok(text.as_bytes().to_vec()));
        }
    }

    #[test]
    fn codes_have_the_values_of_rfc_7541() {
        // From the table in RFC 7541 Appendix B: first, last and odd ones.
        let table = [
            (0, 0x1ff8, 13),
            (10, 0x3fff_fffc, 30),
            (32, 0x14, 6),
            (48, 0x0, 5),
            (57, 0x1f, 6),
            (92, 0x7fff0, 19),
            (122, 0x7b, 7),
            (127, 0x0fff_fffc, 28),
            (207, 0x01ff_ffed, 25),
            (255, 0x3ff_ffee, 26),
            (EOS, 0x3fff_ffff, 30),
        ];
        for (symbol, word, length) in table {
            assert_eq!(CODES[symbol], (word, length), "symbol {symbol}");
        }
    }

    #[test]
    fn end_of_string_and_wrong_padding_are_refused() {
        let table: [(&[u8], bool); 8] = [
            (&[], true),
            (&[0b0000_0111], true),             // "0" and three ones
            (&[0b0000_0110], false),            // padding with a zero
            (&[0b0000_0000], false),            // the same
            (&[0xff], false),                   // eight bits of padding
            (&[0b0000_0111, 0xff], false),      // eleven
            (&[0xff, 0xff, 0xff, 0xff], false), // EOS
            (&[0xff, 0xff, 0xff, 0xfc], false), // EOS and then zeros
        ];
        for (input, allowed) in table {
            assert_eq!(decoded(input).is_ok(), allowed, "{input:02x?}");
        }
    }

    proptest! {
        #[test]
        fn every_string_decodes_as_encoded_if_that_is_shorter(text in "[ -~]{0,40}|\\PC{0,20}") {
            let bits: usize = text.bytes().map(|byte| usize::from(WORD_LENGTHS[usize::from(byte)])).sum();
            let encoded = encode(text.as_bytes());
            prop_assert_eq!(encoded.is_some(), bits.div_ceil(8) < text.len());
            if let Some(encoded) = encoded {
                prop_assert_eq!(encoded.len(), bits.div_ceil(8));
                prop_assert_eq!(decoded(&encoded), Ok(text.into_bytes()));
            }
        }

        #[test]
        fn any_bytes_decode_as_bit_by_bit(input: Vec<u8>, ones in 0_usize..6) {
            let input = [input, vec![0xff; ones]].concat();
            let expected = oracle(&input);
            if let Ok(text) = &expected {
                prop_assert!(text.len() <= input.len() * 8 / 5);
            }
            prop_assert_eq!(decoded(&input), expected);
        }
    }
}
