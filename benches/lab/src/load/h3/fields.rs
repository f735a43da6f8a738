//! QPACK without a dynamic table (RFC 9204): the request's field section, and the two fields of a response that matter.
//! Our SETTINGS leave the table's capacity at 0, so that a server cannot use one. Pure.

use litequic_testkit::literal::{append_integer, append_string};

/// Indices of the static table (RFC 9204 Appendix A).
const AUTHORITY: u64 = 0;
const PATH: u64 = 1;
const CONTENT_LENGTH: u64 = 4;
const METHOD_GET: u64 = 17;
const METHOD_POST: u64 = 20;
const SCHEME_HTTPS: u64 = 23;
const STATUSES: [(u64, u16); 14] = [
    (24, 103),
    (25, 200),
    (26, 304),
    (27, 404),
    (28, 503),
    (63, 100),
    (64, 204),
    (65, 206),
    (66, 302),
    (67, 400),
    (68, 403),
    (69, 421),
    (70, 425),
    (71, 500),
];

/// What a browser sends with a request for an image, pseudo-fields aside: Huffman-coded, by ls-qpack.
pub(super) const BROWSER: &[u8] = include_bytes!("browser.section");

/// A GET, or a POST of `content_length` bytes, with `more` encoded fields behind.
pub(super) fn request(authority: &str, path: &str, content_length: Option<u64>, more: &[u8]) -> Vec<u8> {
    // Required Insert Count and Delta Base.
    let mut out = vec![0, 0];
    let method = if content_length.is_some() { METHOD_POST } else { METHOD_GET };
    // Indexed, static: 1 1 index(6).
    for index in [method, SCHEME_HTTPS] {
        append_integer(0b1100_0000, 6, index, &mut out);
    }
    literal(AUTHORITY, authority, &mut out);
    literal(PATH, path, &mut out);
    if let Some(length) = content_length {
        literal(CONTENT_LENGTH, &length.to_string(), &mut out);
    }
    out.extend_from_slice(more);
    out
}

/// Literal with a static name: 0 1 N=0 T=1 index(4), then the value, not Huffman-coded.
fn literal(name: u64, value: &str, out: &mut Vec<u8>) {
    append_integer(0b0101_0000, 4, name, out);
    append_string(0, 7, value, out);
}

/// An encoded `Priority` field (RFC 9218 §5), whose name is not in the static table.
pub(super) fn priority(value: &str) -> Vec<u8> {
    let mut out = Vec::new();
    // Literal with a literal name: 0 0 1 N=0 H=0 length(3), the name, then the value, neither Huffman-coded.
    append_string(0b0010_0000, 3, "priority", &mut out);
    append_string(0, 7, value, &mut out);
    out
}

/// The content of a response's field section.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Head {
    /// 0 in trailers.
    pub(super) status: u16,
    pub(super) content_length: Option<u64>,
}

/// Reads a field section.
///
/// # Errors
///
/// Describes what is malformed, or used although it was not offered.
pub(super) fn response(section: &[u8]) -> Result<Head, String> {
    let mut reader = Reader(section);
    if reader.integer(8)? != 0 {
        return Err("a field section uses the dynamic table".into());
    }
    reader.integer(7)?;
    let mut head = Head::default();
    while let Some(first) = reader.0.first().copied() {
        match first {
            // Indexed: 1 T index(6).
            0b1000_0000.. => {
                static_only(first, 0b0100_0000)?;
                let index = reader.integer(6)?;
                if let Some((_, status)) = STATUSES.iter().find(|(known, _)| *known == index) {
                    head.status = *status;
                } else if index == CONTENT_LENGTH {
                    head.content_length = Some(0);
                }
            }
            // Literal with name reference: 0 1 N T index(4).
            0b0100_0000.. => {
                static_only(first, 0b0001_0000)?;
                let index = reader.integer(4)?;
                let value = reader.string(7)?;
                if STATUSES.iter().any(|(known, _)| *known == index) {
                    head.status = number(value)?;
                } else if index == CONTENT_LENGTH {
                    head.content_length = Some(number(value)?);
                }
            }
            // Literal with literal name: 0 0 1 N H length(3).
            0b0010_0000.. => {
                let name = reader.string(3)?;
                let value = reader.string(7)?;
                match name {
                    (false, b":status") => head.status = number(value)?,
                    (false, b"content-length") => head.content_length = Some(number(value)?),
                    _ => {}
                }
            }
            // The rest counts from the end of the dynamic table.
            _ => return Err("a field line uses the dynamic table".into()),
        }
    }
    Ok(head)
}

fn static_only(first: u8, flag: u8) -> Result<(), String> {
    if first & flag == 0 { Err("a field line uses the dynamic table".into()) } else { Ok(()) }
}

/// A string: whether it is Huffman-coded, and its bytes.
type Text<'a> = (bool, &'a [u8]);

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn byte(&mut self) -> Result<u8, String> {
        let (first, rest) = self.0.split_first().ok_or("a field section ends early")?;
        self.0 = rest;
        Ok(*first)
    }

    fn integer(&mut self, bits: u32) -> Result<u64, String> {
        let limit = (1u64 << bits) - 1;
        let mut value = u64::from(self.byte()?) & limit;
        if value < limit {
            return Ok(value);
        }
        for shift in (0..56).step_by(7) {
            let byte = self.byte()?;
            value += u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err("an integer in a field section is too large".into())
    }

    /// The bit above the `bits` of the length: Huffman.
    fn string(&mut self, bits: u32) -> Result<Text<'a>, String> {
        let huffman = self.0.first().is_some_and(|first| first >> bits & 1 == 1);
        let length = usize::try_from(self.integer(bits)?).unwrap_or(usize::MAX);
        let (text, rest) = self.0.split_at_checked(length).ok_or("a field section ends early")?;
        self.0 = rest;
        Ok((huffman, text))
    }
}

fn number<T: TryFrom<u64>>((huffman, text): Text<'_>) -> Result<T, String> {
    let digits = if huffman { huffman_digits(text) } else { Some(text.to_vec()) };
    digits
        .and_then(|digits| String::from_utf8(digits).ok()?.parse::<u64>().ok())
        .and_then(|value| T::try_from(value).ok())
        .ok_or_else(|| "a field that is a number has another value".into())
}

/// Huffman-coded digits (RFC 7541 Appendix B): 0 to 2 are 00000 to 00010, 3 to 9 are 011001 to 011111. Nothing else is
/// ever needed.
fn huffman_digits(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut digits = Vec::new();
    let mut bits = bytes.iter().flat_map(|byte| (0..8).rev().map(move |shift| byte >> shift & 1));
    loop {
        let mut code = 0;
        for length in 1..=6 {
            let Some(bit) = bits.next() else {
                // Padding: fewer than eight ones.
                return (code == (1 << (length - 1)) - 1).then_some(digits);
            };
            code = code << 1 | bit;
            match (length, code) {
                (5, 0..=2) => {
                    digits.push(b'0' + code);
                    break;
                }
                (6, 0b01_1001..=0b01_1111) => {
                    digits.push(b'3' + code - 0b01_1001);
                    break;
                }
                // Six ones can only be padding, and at most one more follows.
                (6, 0b11_1111) => {
                    let rest: Vec<u8> = bits.collect();
                    return (rest.len() < 2 && rest.iter().all(|bit| *bit == 1)).then_some(digits);
                }
                (6, _) => return None,
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes of text in ones and zeros.
    fn packed(bits: &str) -> Vec<u8> {
        let byte = |bits| u8::from_str_radix(std::str::from_utf8(bits).unwrap(), 2).unwrap();
        bits.as_bytes().chunks(8).map(byte).collect()
    }

    #[test]
    fn a_request_is_encoded_with_the_static_table_alone() {
        let section = request("localhost", "/a", None, &[]);
        assert_eq!(section, b"\x00\x00\xd1\xd7\x50\x09localhost\x51\x02/a");
        let section = request("localhost:443", "/", Some(1000), &[]);
        assert_eq!(section, b"\x00\x00\xd4\xd7\x50\x0dlocalhost:443\x51\x01/\x54\x041000");
    }

    #[test]
    fn a_priority_has_its_name_as_a_literal() {
        assert_eq!(priority("u=0"), b"\x27\x01priority\x03u=0");
    }

    #[test]
    fn status_and_length_are_found_however_they_are_coded() {
        let expect = |status, length| Ok(Head { status, content_length: length });
        assert_eq!(response(b"\x00\x00\xd9"), expect(200, None));
        assert_eq!(response(b"\x00\x00\xd9\xc4"), expect(200, Some(0)));
        assert_eq!(response(b"\x00\x00\xd9\x54\x03512"), expect(200, Some(512)));
        // Literal status by name reference 24 = 15 + 9; literal names.
        assert_eq!(response(b"\x00\x00\x5f\x09\x03201"), expect(201, None));
        assert_eq!(response(b"\x00\x00\x27\x00:status\x03418"), expect(418, None));
        // 1048576 in Huffman code: 00001 00000 011010 011110 011011 011101 011100 + padding.
        let bits = "0000100000011010011110011011011101011100";
        let bytes = packed(bits);
        let mut section = b"\x00\x00\xd9\x54".to_vec();
        section.push(0x80 | u8::try_from(bytes.len()).unwrap());
        section.extend(bytes);
        assert_eq!(response(&section), expect(200, Some(1_048_576)));
    }

    #[test]
    fn huffman_padding_of_every_length_ends_a_number() {
        // 1 to 8 digits of five bits each leave every padding from 0 to 7.
        for count in 1..=8 {
            let mut bits = "00001".repeat(count);
            while bits.len() % 8 != 0 {
                bits.push('1');
            }
            assert_eq!(huffman_digits(&packed(&bits)), Some(vec![b'1'; count]), "{count}");
        }
        assert_eq!(huffman_digits(&[0xff; 2]), None);
    }

    #[test]
    fn a_damaged_section_is_an_error() {
        for section in [
            &b""[..],
            b"\x01\x00",
            b"\x00\x00\x54\x09short",
            b"\x00\x00\x80",
            b"\x00\x00\x10",
            b"\x00\x00\x54\x01x",
            b"\x00\x00\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
        ] {
            assert!(response(section).is_err(), "{section:02x?}");
        }
    }
}
