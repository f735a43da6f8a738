//! Decodes an encoded field section (RFC 9204 §4.5).

use super::static_table::STATIC_TABLE;
use litequic_exchange::{
    DecodedFields,
    field_compression::{DecodeError, SectionDecoder},
    terms::FieldLimits,
};

const DYNAMIC: DecodeError = DecodeError::Failed("refers to the dynamic table");

/// Decodes the field section `block`, in the order of its lines.
///
/// # Errors
///
/// [`DecodeError::Failed`] for anything that refers to a dynamic table, too. A section that is both broken and too
/// large gives the error that comes first.
pub fn decode_section(block: &[u8], limits: &FieldLimits) -> Result<DecodedFields, DecodeError> {
    let mut section = SectionDecoder::new(block);
    if section.read_integer(8)? != 0 {
        return Err(DYNAMIC);
    }
    // With the sign bit, Base would be negative (RFC 9204 §4.5.1.2).
    let sign = section.peek_next_byte().is_some_and(|byte| byte & 0x80 != 0);
    section.read_integer(7)?;
    if sign {
        return Err(DecodeError::Failed("negative base"));
    }
    section.decode_lines(limits, |section, first| match first {
        // Indexed, T = 1: static
        0xc0.. => section.decode_indexed_line(6, &STATIC_TABLE),
        // Literal with name reference, T = 1: static; N concerns re-encoders only
        0x40..0x80 if first & 0x10 != 0 => {
            let index = section.read_integer(4)?;
            section.decode_named_line(index, &STATIC_TABLE)
        }
        // Literal with literal name
        0x20..0x40 => section.decode_literal_line(3),
        // Indexed, literal with name reference, both also post-base
        _ => Err(DYNAMIC),
    })
}

#[cfg(test)]
mod tests {
    use super::super::{encode_field, encode_prefix};
    use super::*;
    use litequic_exchange::{DecodedLine, FieldNameRef, NameId, name};
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
