//! Encodes fields into a field section (RFC 9204 §4.5) with references to the static table alone.

use super::static_table::STATIC_TABLE;
use litequic_exchange::{
    FieldLine, FieldNameRef, NameId,
    field_compression::{TableMatch, encode_if_shorter, encode_integer, prefix_mask},
    field_syntax::has_blank_edge,
    name,
};

/// Appends a field section's prefix: Required Insert Count 0, Base 0.
pub fn encode_prefix(out: &mut Vec<u8>) {
    out.extend_from_slice(&[0, 0]);
}

/// Appends a field. A `sensitive` value has the N bit, so that no hop puts it into a table (RFC 9204 §7.1.3).
pub fn encode_field(name: FieldNameRef<'_>, value: &[u8], sensitive: bool, out: &mut Vec<u8>) {
    encode_named(name.id(), || name.as_str().as_bytes(), value, sensitive, out);
}

/// Appends a line, without blanks around its value. The value of a rule may have some, which HTTP/3 forbids.
pub fn encode_line(line: &FieldLine<'_>, out: &mut Vec<u8>) {
    let (id, value) = (line.id(), line.value);
    let value = if has_blank_edge(value) { value.trim_ascii() } else { value };
    encode_named(id, || line.name_bytes(), value, id.is_sensitive(), out);
}

/// Appends a line with the name `name`, or `text` if the name has no number.
fn encode_named<'t>(name: NameId, text: impl FnOnce() -> &'t [u8], value: &[u8], sensitive: bool, out: &mut Vec<u8>) {
    match STATIC_TABLE.find_entry(name, value) {
        Some(TableMatch::Field(index)) if !sensitive => encode_integer(6, 0xc0, index, out),
        Some(TableMatch::Field(index) | TableMatch::Name(index)) => {
            encode_integer(4, if sensitive { 0x70 } else { 0x50 }, index, out);
            encode_string(7, 0, value, out);
        }
        None => {
            encode_string(3, if sensitive { 0x30 } else { 0x20 }, text(), out);
            encode_string(7, 0, value, out);
        }
    }
}

/// Appends the pseudo-header `:status`.
pub fn encode_status(status: http::StatusCode, out: &mut Vec<u8>) {
    encode_field(name::STATUS, status.as_str().as_bytes(), false, out);
}

/// Appends a string in the shorter of its two forms. The length has a prefix of `prefix` bits, with the Huffman flag
/// and `flags` above.
fn encode_string(prefix: u32, flags: u8, value: &[u8], out: &mut Vec<u8>) {
    let start = out.len();
    // The length mostly takes one byte; the text is encoded behind it before its length is known.
    out.resize(start + 1 + value.len(), 0);
    let encoded = out.get_mut(start + 1..).and_then(|text| encode_if_shorter(value, text));
    match encoded {
        Some(length) if length < prefix_mask(prefix).into() => {
            out.truncate(start + 1 + length);
            if let Some(first) = out.get_mut(start) {
                // The length is below the mask, which has eight bits at most.
                *first = flags | 1 << prefix | u8::try_from(length).unwrap_or_default();
            }
        }
        Some(length) => {
            let text = out.split_off(start + 1);
            out.truncate(start);
            encode_integer(prefix, flags | 1 << prefix, length as u64, out);
            out.extend_from_slice(text.get(..length).unwrap_or_default());
        }
        None => {
            out.truncate(start);
            encode_integer(prefix, flags, value.len() as u64, out);
            out.extend_from_slice(value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_field_takes_its_shortest_form_and_secrets_are_never_indexed() {
        let table: [(&str, &str, bool, &[u8]); 10] = [
            (":status", "200", false, &[0xd9]),
            (":status", "500", false, &[0xff, 0x08]),
            (":status", "418", false, b"\x5f\x09\x03418"),
            ("content-type", "text/plain", false, &[0xf5]),
            ("cookie", "a=b", true, b"\x75\x03a=b"),
            // an exact hit, too, stays a literal
            ("authorization", "", true, &[0x7f, 0x45, 0x00]),
            ("x-a", "gzip", false, b"\x23x-a\x83\x9b\xd9\xab"),
            ("x-a", "\u{1}", true, b"\x33x-a\x01\x01"),
            ("gzip", "", false, &[0x2b, 0x9b, 0xd9, 0xab, 0x00]),
            // A Huffman string whose length takes two bytes of the prefix of three bits.
            ("0000000000000", "", false, b"\x2f\x02\0\0\0\0\0\0\0\0\x7f\0"),
        ];
        for (name, value, sensitive, expected) in table {
            let mut out = Vec::new();
            encode_field(FieldNameRef::from_lower_case_token(name), value.as_bytes(), sensitive, &mut out);
            assert_eq!(out, expected, "{name}: {value} gives {out:02x?}");
        }
    }
}
