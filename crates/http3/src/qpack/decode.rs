//! Decodes an encoded field section (RFC 9204 §4.5).

use super::{
    huffman,
    integer::{self, IntegerError},
    static_table,
};
use litequic_exchange::{DecodedFields, DecodedLine, NameId, name, terms::FieldLimits};

/// Bytes that RFC 9114 §4.2.2 adds to name and value of each field.
const FIELD_OVERHEAD: usize = 32;

/// Number of fields for which memory is reserved: more than a browser sends, with those that the proxy adds.
const RESERVED_FIELDS: usize = 24;

/// Memory reserved beyond the section's own length, in bytes: for values of the static table, and for fields that the
/// proxy adds.
const RESERVED_TEXT: usize = 256;

/// The reason why a field section was not decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The connection is to be closed with QPACK_DECOMPRESSION_FAILED.
    #[error("the field section cannot be decompressed: {0}")]
    Failed(&'static str),
    /// More bytes than allowed, which is answered 431. As there is no dynamic table, the connection stays usable.
    #[error("the field section has more bytes than allowed")]
    TooManyBytes,
    /// More fields than allowed, which is answered 431.
    #[error("the field section has more fields than allowed")]
    TooManyFields,
}

impl From<IntegerError> for DecodeError {
    fn from(error: IntegerError) -> Self {
        Self::Failed(match error {
            IntegerError::Cut => "truncated integer",
            IntegerError::Overflow => "integer too large",
        })
    }
}

/// Decodes the field section `block`, in the order of its lines.
///
/// # Errors
///
/// [`DecodeError::Failed`] for anything that refers to a dynamic table, too. A section that is both broken and too
/// large gives the error that comes first.
pub fn decode_section(block: &[u8], limits: &FieldLimits) -> Result<DecodedFields, DecodeError> {
    // The shortest Huffman word has five bits, and the decoder needs a byte more.
    let text = (block.len().saturating_mul(8) / 5).saturating_add(RESERVED_TEXT);
    let mut section = SectionDecoder { rest: block, fields: DecodedFields::with_capacity(RESERVED_FIELDS, text) };
    section.read_section_prefix()?;
    let (mut bytes, mut counted) = (0_usize, None);
    while let Some(&first) = section.rest.first() {
        section.decode_line(first)?;
        let fields = &section.fields;
        // Names matter only once there are more lines than fields are allowed.
        if fields.len() > limits.fields {
            let counted = match &mut counted {
                None => counted.insert(fields.iter().fold(FieldCount::default(), FieldCount::count_field)),
                Some(counted) => {
                    *counted = fields.iter().next_back().into_iter().fold(*counted, FieldCount::count_field);
                    counted
                }
            };
            if counted.fields > limits.fields {
                return Err(DecodeError::TooManyFields);
            }
        }
        let size = |line: DecodedLine<'_>| line.name.len().saturating_add(line.value.len());
        bytes = bytes.saturating_add(fields.iter().next_back().map_or(0, size)).saturating_add(FIELD_OVERHEAD);
        if bytes > limits.bytes {
            return Err(DecodeError::TooManyBytes);
        }
    }
    Ok(section.fields)
}

/// A count of fields, as [`FieldLimits::fields`] defines it.
#[derive(Default, Clone, Copy)]
struct FieldCount {
    fields: usize,
    has_cookie: bool,
}

impl FieldCount {
    fn count_field(self, line: DecodedLine<'_>) -> Self {
        let Self { fields, has_cookie } = self;
        let is_cookie = line.id == name::COOKIE.id();
        let counts = !line.name.starts_with(b":") && line.id != name::HOST.id() && !(is_cookie && has_cookie);
        Self { fields: fields.saturating_add(counts.into()), has_cookie: has_cookie || is_cookie }
    }
}

struct SectionDecoder<'a> {
    rest: &'a [u8],
    fields: DecodedFields,
}

impl SectionDecoder<'_> {
    fn read_section_prefix(&mut self) -> Result<(), DecodeError> {
        if self.read_integer(8)? != 0 {
            return Err(DecodeError::Failed("refers to the dynamic table"));
        }
        // With the sign bit, Base would be negative (RFC 9204 §4.5.1.2).
        let sign = self.rest.first().is_some_and(|byte| byte & 0x80 != 0);
        self.read_integer(7)?;
        if sign { Err(DecodeError::Failed("negative base")) } else { Ok(()) }
    }

    fn decode_line(&mut self, first: u8) -> Result<(), DecodeError> {
        const DYNAMIC: DecodeError = DecodeError::Failed("refers to the dynamic table");
        let at = self.fields.text_buffer().len();
        match first {
            // Indexed, T = 1: static
            0xc0.. => {
                let (name, value) = self.read_static_field(6)?;
                self.fields.text_buffer().extend_from_slice(value.as_bytes());
                self.fields.end_line(name, at);
            }
            // Literal with name reference, T = 1: static; N concerns re-encoders only
            0x40..0x80 if first & 0x10 != 0 => {
                let (name, _) = self.read_static_field(4)?;
                self.read_string(7)?;
                self.fields.end_line(name, at);
            }
            // Literal with literal name
            0x20..0x40 => {
                self.read_string(3)?;
                let text = self.fields.text_buffer();
                let length = text.len().saturating_sub(at);
                match NameId::from_lower_case(text.get(at..).unwrap_or_default()) {
                    NameId::OTHER => {
                        self.read_string(7)?;
                        self.fields.end_other_line(at, length);
                    }
                    name => {
                        text.truncate(at);
                        self.read_string(7)?;
                        self.fields.end_line(name, at);
                    }
                }
            }
            // Indexed, literal with name reference, both also post-base
            _ => return Err(DYNAMIC),
        }
        Ok(())
    }

    fn read_static_field(&mut self, prefix: u32) -> Result<(NameId, &'static str), DecodeError> {
        let index = self.read_integer(prefix)?;
        static_table::static_entry(index).ok_or(DecodeError::Failed("no such index in the static table"))
    }

    /// Appends a string to the text. A length with a prefix of `prefix` bits precedes it, with the Huffman flag above
    /// the prefix.
    fn read_string(&mut self, prefix: u32) -> Result<(), DecodeError> {
        let huffman = self.rest.first().is_some_and(|byte| byte >> prefix & 1 != 0);
        let length = self.read_integer(prefix)?;
        let split = usize::try_from(length).ok().and_then(|length| self.rest.split_at_checked(length));
        let (raw, rest) = split.ok_or(DecodeError::Failed("truncated string"))?;
        self.rest = rest;
        if huffman {
            huffman::decode_huffman(raw, self.fields.text_buffer())
                .map_err(|_| DecodeError::Failed("invalid Huffman string"))
        } else {
            self.fields.text_buffer().extend_from_slice(raw);
            Ok(())
        }
    }

    fn read_integer(&mut self, prefix: u32) -> Result<u64, IntegerError> {
        integer::decode_integer(prefix, &mut self.rest)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{encode_field, encode_prefix};
    use super::*;
    use litequic_exchange::FieldNameRef;
    use proptest::prelude::*;

    const LIMITS: FieldLimits = FieldLimits { bytes: 1024, fields: 16 };

    fn decoded(block: &[u8]) -> Result<Vec<(String, String)>, DecodeError> {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let fields = decode_section(block, &LIMITS)?;
        Ok(fields.iter().map(|line| (text(line.name), text(line.value))).collect())
    }

    /// Name, field section, and fields.
    type Case<'a> = (&'a str, &'a [u8], &'a [(&'a str, &'a str)]);

    #[test]
    fn each_representation_without_dynamic_table_decodes() {
        let table: [Case<'_>; 8] = [
            ("nothing", &[0, 0], &[]),
            ("RFC 9204 B.1", b"\x00\x00\x51\x0b/index.html", &[(":path", "/index.html")]),
            ("indexed", &[0, 0, 0xd1, 0xd7], &[(":method", "GET"), (":scheme", "https")]),
            ("indexed above the prefix", &[0, 0, 0xff, 0x23], &[("x-frame-options", "sameorigin")]),
            ("name reference, never indexed", b"\x00\x00\x75\x03a=b", &[("cookie", "a=b")]),
            ("literal name", b"\x00\x00\x23abc\x01d", &[("abc", "d")]),
            ("Huffman", b"\x00\x00\x2b\x9b\xd9\xab\x83\x9b\xd9\xab", &[("gzip", "gzip")]),
            ("a base without use", &[0, 0x05, 0xd1], &[(":method", "GET")]),
        ];
        for (what, block, fields) in table {
            let fields = fields.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            assert_eq!(decoded(block), Ok(fields), "{what}");
        }
    }

    #[test]
    fn dynamic_table_references_and_truncated_sections_fail() {
        let table: [(&str, &[u8]); 18] = [
            ("no bytes", &[]),
            ("no base", &[0]),
            ("insert count", &[1, 0]),
            ("insert count, RFC 9204 B.2", &[0x03, 0x81, 0x10, 0x11]),
            ("negative base", &[0, 0x80]),
            ("indexed, dynamic", &[0, 0, 0x80]),
            ("name reference, dynamic", &[0, 0, 0x40, 0x00]),
            ("indexed, post-base", &[0, 0, 0x10]),
            ("name reference, post-base", &[0, 0, 0x00, 0x00]),
            ("static index 99", &[0, 0, 0xff, 0x24]),
            ("name at static index 99", &[0, 0, 0x5f, 0x54, 0x00]),
            ("cut index", &[0, 0, 0xff]),
            ("cut name", &[0, 0, 0x23, b'a']),
            ("no value", &[0, 0, 0x21, b'a']),
            ("cut value", &[0, 0, 0x51, 0x02, b'/']),
            ("value of 2^62 bytes", &[0, 0, 0x51, 0x7f, 0x80, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x3f]),
            ("Huffman with EOS", &[0, 0, 0x51, 0x84, 0xff, 0xff, 0xff, 0xff]),
            ("Huffman with wrong padding", &[0, 0, 0x51, 0x81, 0x00]),
        ];
        for (what, block) in table {
            assert!(matches!(decoded(block), Err(DecodeError::Failed(_))), "{what}: {:?}", decoded(block));
        }
    }

    #[test]
    fn limits_hold_to_the_byte_and_to_the_field() {
        // `:method: GET` counts 7 + 3 + 32 = 42 bytes, `abc: d` 36, `cookie: a=b` 41.
        let (pseudo, regular, cookies) =
            (&[0, 0, 0xd1, 0xd1][..], &b"\0\0\x23abc\x01d\x23abc\x01d"[..], &b"\0\0\x75\x03a=b\x75\x03a=b"[..]);
        for (block, bytes, fields, expected) in [
            (pseudo, 84, 0, Ok(2)),
            (pseudo, 83, 2, Err(DecodeError::TooManyBytes)),
            (regular, 72, 2, Ok(2)),
            (regular, 71, 2, Err(DecodeError::TooManyBytes)),
            (regular, 72, 1, Err(DecodeError::TooManyFields)),
            (regular, 0, 0, Err(DecodeError::TooManyFields)),
            (cookies, 82, 1, Ok(2)),
            (cookies, 81, 1, Err(DecodeError::TooManyBytes)),
            (cookies, 82, 0, Err(DecodeError::TooManyFields)),
        ] {
            let count = decode_section(block, &FieldLimits { bytes, fields }).map(|fields| fields.len());
            assert_eq!(count, expected, "{block:?}: {bytes} bytes, {fields} fields");
        }
    }

    #[test]
    fn names_from_static_table_and_literals_have_the_same_number() {
        let fields =
            decode_section(b"\x00\x00\xd1\x27\x00:method\x03GET\x24host\x01a\x22:x\x00\x22TE\x00", &LIMITS).unwrap();
        let ids: Vec<_> = fields.iter().map(|line| line.id).collect();
        assert_eq!(ids, [name::METHOD.id(), name::METHOD.id(), name::HOST.id(), NameId::OTHER, NameId::OTHER]);
    }

    proptest! {
        #[test]
        fn fields_decode_as_encoded(
            fields in proptest::collection::vec(("[a-z:-]{0,12}|cookie|:status|content-type", "[ -~]{0,40}|200"), 0..16),
            sensitive: bool,
        ) {
            let mut out = Vec::new();
            encode_prefix(&mut out);
            for (name, value) in &fields {
                encode_field(FieldNameRef::from_lower_case_token(name), value.as_bytes(), sensitive, &mut out);
            }
            prop_assert_eq!(decoded(&out), Ok(fields));
        }

        #[test]
        fn no_section_bytes_panic_or_exceed_the_limits(tail: Vec<u8>, bytes in 0_usize..300, fields in 0_usize..6) {
            let block = [vec![0, 0], tail].concat();
            if let Ok(decoded) = decode_section(&block, &FieldLimits { bytes, fields }) {
                let size: usize = decoded.iter().map(|line| line.name.len() + line.value.len() + 32).sum();
                let name = |line: DecodedLine<'_>| line.name.to_vec();
                let counted = decoded.iter().map(name).filter(|name| !name.starts_with(b":") && name != b"host");
                let (cookies, others): (Vec<_>, Vec<_>) = counted.partition(|name| name == b"cookie");
                prop_assert!(size <= bytes && others.len() + cookies.len().min(1) <= fields);
            }
        }
    }
}
