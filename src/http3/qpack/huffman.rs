//! The Huffman code of RFC 7541 Appendix B, which QPACK shares with HPACK.
//!
//! The code is canonical: its words, ordered by length and then by symbol, count upwards. The lengths alone hold it.

/// The symbol that never stands in a string; padding is made of its first bits.
const EOS: usize = 256;

/// Bits of each symbol's word; the last is EOS.
#[rustfmt::skip]
const LENGTHS: [u8; EOS + 1] = [
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

const WORDS: [u32; EOS + 1] = words();
/// Each symbol's word and its bits, side by side, as the encoder wants them.
static CODES: [(u32, u8); EOS + 1] = codes();
const CHILDREN: [[u16; 2]; INNER_NODES] = children();
static SHORT: [Short; 1 << SHORT_BITS] = short();

/// A tree with 257 leaves has 256 inner nodes; 0 is the root.
const INNER_NODES: usize = 256;
/// Marks a leaf among [`CHILDREN`], which then holds its symbol.
const LEAF: u16 = 0x8000;

/// Bits that the decoder looks up at once: two words of nearly all pairs of characters in fields, in 16 KB of table.
const SHORT_BITS: u32 = 12;

/// The one or two symbols whose words some bits begin with.
#[derive(Clone, Copy)]
struct Short {
    symbols: [u8; 2],
    /// Bits of the first word; 0 if it is longer than what is looked up.
    first: u8,
    /// Bits of both words, or of the first alone if the second is longer than what is left.
    all: u8,
}

/// The string is not valid: EOS inside, or wrong padding (RFC 7541 §5.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct HuffmanError;

/// Appends the string that `input` encodes: at most 8 / 5 of its length.
///
/// # Errors
///
/// [`HuffmanError`]; nothing is appended.
pub(super) fn decode(input: &[u8], out: &mut Vec<u8>) -> Result<(), HuffmanError> {
    let start = out.len();
    // The shortest word has five bits. One byte more, as symbols are written in pairs.
    out.resize(start + input.len() * 8 / 5 + 1, 0);
    let decoded = decode_into(input, out.get_mut(start..).unwrap_or_default());
    out.truncate(start + decoded.unwrap_or(0));
    decoded.map(drop).ok_or(HuffmanError)
}

/// Returns the number of symbols. `out` has room for all of them, and for one more.
fn decode_into(mut input: &[u8], out: &mut [u8]) -> Option<usize> {
    let mut written = 0;
    // The first `count` bits, from the highest down, were taken from the input and not decoded; those behind them are
    // the input's next ones, or zeros.
    let (mut bits, mut count) = (0_u64, 0_u32);
    while let Some(eight) = input.first_chunk() {
        bits |= u64::from_be_bytes(*eight) >> count;
        let taken = (u64::BITS - 1 - count) / 8;
        input = input.get(taken as usize..)?;
        // At least 56 bits: more than the longest word has.
        count += taken * 8;
        while count >= SHORT_BITS {
            let short = SHORT.get((bits >> (u64::BITS - SHORT_BITS)) as usize)?;
            if short.first == 0 {
                let (symbol, length) = long(bits)?;
                if length > count {
                    break;
                }
                *out.get_mut(written)? = symbol;
                written += 1;
                bits <<= length;
                count -= length;
                continue;
            }
            out.get_mut(written..written + 2)?.copy_from_slice(&short.symbols);
            written += 1 + usize::from(short.all != short.first);
            bits <<= short.all;
            count -= u32::from(short.all);
        }
    }
    bits &= !(u64::MAX >> count);
    loop {
        while count <= u64::BITS - 8
            && let [byte, rest @ ..] = input
        {
            bits |= u64::from(*byte) << (u64::BITS - 8 - count);
            (count, input) = (count + 8, rest);
        }
        let short = SHORT.get((bits >> (u64::BITS - SHORT_BITS)) as usize)?;
        if short.first != 0 && u32::from(short.all) <= count {
            out.get_mut(written..written + 2)?.copy_from_slice(&short.symbols);
            written += 1 + usize::from(short.all != short.first);
            bits <<= short.all;
            count -= u32::from(short.all);
            continue;
        }
        let (symbol, length) = match short.first {
            0 => long(bits)?,
            length => (short.symbols[0], length.into()),
        };
        if length > count {
            // Padding, or a word that is cut.
            let ones = !(u64::MAX.checked_shr(count).unwrap_or(0));
            return (count < 8 && bits == ones).then_some(written);
        }
        *out.get_mut(written)? = symbol;
        written += 1;
        bits <<= length;
        count -= length;
    }
}

/// The symbol with whose word `bits` begin, and the word's bits; `None` for EOS.
fn long(bits: u64) -> Option<(u8, u32)> {
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

/// Encodes `input` into the beginning of `out` and returns the number of bytes, if they are fewer than those of
/// `input`; otherwise `None`, and the bytes of `out` are undefined. `out` is as long as `input`.
pub(super) fn encode_shorter(input: &[u8], out: &mut [u8]) -> Option<usize> {
    // At most 31 bits are left from word to word, and a word has at most 30.
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
    // At least one bit, as no word is empty, unless all were written. Ones fill the last byte (RFC 7541 §5.2).
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
const fn words() -> [u32; EOS + 1] {
    let mut words = [0; EOS + 1];
    let (mut word, mut length) = (0_u32, 1);
    while length <= 30 {
        let mut symbol = 0;
        while symbol <= EOS {
            if LENGTHS[symbol] == length {
                words[symbol] = word;
                word += 1;
            }
            symbol += 1;
        }
        word <<= 1;
        length += 1;
    }
    words
}

#[expect(clippy::indexing_slicing, reason = "runs in the compiler alone")]
const fn codes() -> [(u32, u8); EOS + 1] {
    let mut codes = [(0, 0); EOS + 1];
    let mut symbol = 0;
    while symbol <= EOS {
        codes[symbol] = (WORDS[symbol], LENGTHS[symbol]);
        symbol += 1;
    }
    codes
}

#[expect(clippy::indexing_slicing, clippy::cast_possible_truncation, reason = "runs in the compiler alone")]
const fn children() -> [[u16; 2]; INNER_NODES] {
    // The root is never a child, so that 0 means that there is none yet.
    let mut children = [[0; 2]; INNER_NODES];
    let mut nodes = 1;
    let mut symbol = 0;
    while symbol <= EOS {
        let mut node = 0;
        let mut bit = LENGTHS[symbol] as u32;
        while bit > 1 {
            bit -= 1;
            let side = (WORDS[symbol] >> bit & 1) as usize;
            if children[node][side] == 0 {
                children[node][side] = nodes;
                nodes += 1;
            }
            node = children[node][side] as usize;
        }
        children[node][(WORDS[symbol] & 1) as usize] = LEAF | symbol as u16;
        symbol += 1;
    }
    children
}

#[expect(clippy::indexing_slicing, clippy::cast_possible_truncation, reason = "runs in the compiler alone")]
const fn short() -> [Short; 1 << SHORT_BITS] {
    let mut short = [Short { symbols: [0; 2], first: 0, all: 0 }; 1 << SHORT_BITS];
    let mut symbol = 0;
    while symbol < EOS {
        let length = LENGTHS[symbol];
        if length as u32 <= SHORT_BITS {
            let rest = SHORT_BITS - length as u32;
            let mut index = (WORDS[symbol] << rest) as usize;
            let end = index + (1 << rest);
            while index < end {
                short[index] = Short { symbols: [symbol as u8, 0], first: length, all: length };
                index += 1;
            }
        }
        symbol += 1;
    }
    let mut index = 0;
    while index < short.len() {
        let first = short[index].first;
        // The bits behind the first word, with zeros behind them.
        let second = short[index << first & (short.len() - 1)];
        if first != 0 && second.first != 0 && (first + second.first) as u32 <= SHORT_BITS {
            short[index].symbols[1] = second.symbols[0];
            short[index].all = first + second.first;
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
        decode(input, &mut out).map(|()| out)
    }

    fn encode(input: &[u8]) -> Option<Vec<u8>> {
        let mut out = vec![0; input.len()];
        let length = encode_shorter(input, &mut out)?;
        out.truncate(length);
        Some(out)
    }

    /// Bit by bit, comparing with every word.
    fn oracle(input: &[u8]) -> Result<Vec<u8>, HuffmanError> {
        let (mut out, mut word, mut length) = (Vec::new(), 0_u32, 0_u8);
        for bit in input.iter().flat_map(|byte| (0..8).rev().map(move |bit| byte >> bit & 1)) {
            word = word << 1 | u32::from(bit);
            length += 1;
            if let Some(symbol) = (0..=EOS).find(|symbol| (WORDS[*symbol], LENGTHS[*symbol]) == (word, length)) {
                out.push(u8::try_from(symbol).map_err(|_| HuffmanError)?);
                (word, length) = (0, 0);
            }
        }
        if length <= 7 && word == (1 << length) - 1 { Ok(out) } else { Err(HuffmanError) }
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
    fn words_have_the_values_of_the_rfc() {
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
            assert_eq!((WORDS[symbol], LENGTHS[symbol]), (word, length), "symbol {symbol}");
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
            let bits: usize = text.bytes().map(|byte| usize::from(LENGTHS[usize::from(byte)])).sum();
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
