//! Encodes and decodes field blocks by HPACK (RFC 7541) with the static table alone: litequic's
//! SETTINGS_HEADER_TABLE_SIZE is 0, and it inserts nothing into a peer's table.

use crate::{
    DecodedFields, FieldNameRef, NameSet,
    field_compression::{DecodeError, SectionDecoder, StaticTable, TableMatch, encode_integer},
    field_syntax::has_blank_edge,
    name,
    terms::FieldLimits,
    well_formed::CONNECTION_SPECIFIC,
};

/// Memory reserved for a request's field block, in bytes. Most are shorter.
const BLOCK_CAPACITY: usize = 512;

/// Fields that no request has: `:authority` is the host (RFC 9113 §8.3.1).
const FORBIDDEN_IN_REQUESTS: NameSet = CONNECTION_SPECIFIC.union(NameSet::from_names(&[name::HOST]));

/// Appends the field block of a request.
///
/// A path that begins with its query, or is empty, gets a `/`. These fields are left out: connection-specific ones,
/// `Host`, and any `TE` other than `trailers`; blanks around values are cut. Fields that `Connection` names are the
/// caller's to remove.
pub fn write_request<'f>(
    out: &mut Vec<u8>,
    method: &str,
    scheme: &str,
    authority: &[u8],
    path: &[u8],
    fields: impl IntoIterator<Item = (FieldNameRef<'f>, &'f [u8])>,
) {
    out.reserve(BLOCK_CAPACITY);
    write_field(out, name::METHOD, method.as_bytes());
    write_field(out, name::SCHEME, scheme.as_bytes());
    write_field(out, name::AUTHORITY, authority);
    if matches!(path.first(), Some(b'/' | b'*')) {
        write_field(out, name::PATH, path);
    } else {
        write_field(out, name::PATH, &[b"/", path].concat());
    }
    write_field_block(out, fields);
}

/// Appends the field block of a request's trailers, or the rest of its header, without the fields that
/// [`write_request`] leaves out.
pub fn write_field_block<'f>(out: &mut Vec<u8>, fields: impl IntoIterator<Item = (FieldNameRef<'f>, &'f [u8])>) {
    for (name, value) in fields {
        let value = if has_blank_edge(value) { value.trim_ascii() } else { value };
        let is_other_te = name.id() == name::TE.id() && !value.eq_ignore_ascii_case(b"trailers");
        if !FORBIDDEN_IN_REQUESTS.contains_id(name.id()) && !is_other_te {
            write_field(out, name, value);
        }
    }
}

/// Appends a field in its shortest form without Huffman strings. A secret is never indexed (RFC 7541 §7.1.3), others
/// are literals without indexing.
fn write_field(out: &mut Vec<u8>, name: FieldNameRef<'_>, value: &[u8]) {
    let secret = name.id().is_sensitive();
    let flags = if secret { 0x10 } else { 0 };
    match STATIC_TABLE.find_entry(name.id(), value) {
        Some(TableMatch::Field(index)) if !secret => return encode_integer(7, 0x80, index, out),
        Some(TableMatch::Field(index) | TableMatch::Name(index)) => encode_integer(4, flags, index, out),
        None => {
            out.push(flags);
            write_string(out, name.as_str().as_bytes());
        }
    }
    write_string(out, value);
}

fn write_string(out: &mut Vec<u8>, text: &[u8]) {
    encode_integer(7, 0, text.len() as u64, out);
    out.extend_from_slice(text);
}

/// Decodes a field block, in the order of its lines. An entry that is to be indexed does not fit into the table, and
/// empties it (RFC 7541 §4.4).
///
/// # Errors
///
/// [`DecodeError::Failed`], a COMPRESSION_ERROR, also for whatever needs a dynamic table. A block that is both broken
/// and too large gives the error that comes first.
pub fn decode_block(block: &[u8], limits: &FieldLimits) -> Result<DecodedFields, DecodeError> {
    let mut section = SectionDecoder::new(block);
    // Updates of the table's size are at the beginning (RFC 7541 §4.2).
    while let Some(0x20..0x40) = section.peek_next_byte() {
        if section.read_integer(5)? != 0 {
            return Err(DecodeError::Failed("table size above 0"));
        }
    }
    section.decode_lines(limits, |section, first| match first {
        0x80.. => section.decode_indexed_line(7, &STATIC_TABLE),
        0x20..0x40 => Err(DecodeError::Failed("table size update behind a field")),
        // With incremental indexing, without indexing, never indexed.
        _ => match section.read_integer(if first < 0x40 { 4 } else { 6 })? {
            0 => {
                // The length of the name follows.
                section.decode_literal_line(7)
            }
            index => section.decode_named_line(index, &STATIC_TABLE),
        },
    })
}

/// Names and values by index (RFC 7541 Appendix A).
static STATIC_TABLE: StaticTable<61, 1> = StaticTable::new(&FIELDS);

const FIELDS: [(&str, &str); 61] = [
    (":authority", ""), // 1
    (":method", "GET"),
    (":method", "POST"),
    (":path", "/"),
    (":path", "/index.html"), // 5
    (":scheme", "http"),
    (":scheme", "https"),
    (":status", "200"),
    (":status", "204"),
    (":status", "206"), // 10
    (":status", "304"),
    (":status", "400"),
    (":status", "404"),
    (":status", "500"),
    ("accept-charset", ""), // 15
    ("accept-encoding", "gzip, deflate"),
    ("accept-language", ""),
    ("accept-ranges", ""),
    ("accept", ""),
    ("access-control-allow-origin", ""), // 20
    ("age", ""),
    ("allow", ""),
    ("authorization", ""),
    ("cache-control", ""),
    ("content-disposition", ""), // 25
    ("content-encoding", ""),
    ("content-language", ""),
    ("content-length", ""),
    ("content-location", ""),
    ("content-range", ""), // 30
    ("content-type", ""),
    ("cookie", ""),
    ("date", ""),
    ("etag", ""),
    ("expect", ""), // 35
    ("expires", ""),
    ("from", ""),
    ("host", ""),
    ("if-match", ""),
    ("if-modified-since", ""), // 40
    ("if-none-match", ""),
    ("if-range", ""),
    ("if-unmodified-since", ""),
    ("last-modified", ""),
    ("link", ""), // 45
    ("location", ""),
    ("max-forwards", ""),
    ("proxy-authenticate", ""),
    ("proxy-authorization", ""),
    ("range", ""), // 50
    ("referer", ""),
    ("refresh", ""),
    ("retry-after", ""),
    ("server", ""),
    ("set-cookie", ""), // 55
    ("strict-transport-security", ""),
    ("transfer-encoding", ""),
    ("user-agent", ""),
    ("vary", ""),
    ("via", ""), // 60
    ("www-authenticate", ""),
];

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LIMITS: FieldLimits = FieldLimits { bytes: 1024, fields: 16 };

    fn decoded(block: &[u8]) -> Result<Vec<(String, String)>, DecodeError> {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let fields = decode_block(block, &LIMITS)?;
        Ok(fields.iter().map(|line| (text(line.name), text(line.value))).collect())
    }

    fn hex(text: &str) -> Vec<u8> {
        let digits: Vec<u8> = text.bytes().filter(|byte| *byte != b' ').collect();
        digits.chunks(2).map(|two| u8::from_str_radix(str::from_utf8(two).unwrap(), 16).unwrap()).collect()
    }

    fn encoded(fields: &[(&str, &str)]) -> Vec<u8> {
        let mut out = Vec::new();
        let line = fields.iter().map(|(name, value)| (FieldNameRef::from_lower_case_token(name), value.as_bytes()));
        write_field_block(&mut out, line);
        out
    }

    /// Name, block, and fields.
    type Case<'a> = (&'a str, &'a str, &'a [(&'a str, &'a str)]);

    #[test]
    fn the_examples_of_rfc_7541_without_dynamic_references_decode() {
        let request = [(":method", "GET"), (":scheme", "http"), (":path", "/"), (":authority", "www.example.com")];
        let response = [
            (":status", "302"),
            ("cache-control", "private"),
            ("date", "Mon, 21 Oct 2013 20:13:21 GMT"),
            ("location", "https://www.example.com"),
        ];
        let table: [Case<'_>; 8] = [
            (
                "C.2.1",
                "400a 6375 7374 6f6d 2d6b 6579 0d63 7573 746f 6d2d 6865 6164 6572",
                &[("custom-key", "custom-header")],
            ),
            ("C.2.2", "040c 2f73 616d 706c 652f 7061 7468", &[(":path", "/sample/path")]),
            ("C.2.3", "1008 7061 7373 776f 7264 0673 6563 7265 74", &[("password", "secret")]),
            ("C.2.4", "82", &[(":method", "GET")]),
            ("C.3.1", "8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d", &request),
            ("C.4.1", "8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff", &request),
            (
                "C.5.1",
                "4803 3330 3258 0770 7269 7661 7465 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 \
                 3120 474d 546e 1768 7474 7073 3a2f 2f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
                &response,
            ),
            (
                "C.6.1",
                "4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 82a6 2d1b ff6e 919d 29ad \
                 1718 63c7 8f0b 97c8 e9ae 82ae 43d3",
                &response,
            ),
        ];
        for (what, block, fields) in table {
            let fields = fields.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            assert_eq!(decoded(&hex(block)), Ok(fields), "{what}");
        }
    }

    #[test]
    fn a_table_of_size_zero_may_be_announced_first() {
        for (block, count) in [("", 0), ("20", 0), ("20 82", 1), ("20 20 82 84", 2), ("00 0161 00", 1), ("bd", 1)] {
            assert_eq!(decoded(&hex(block)).map(|fields| fields.len()), Ok(count), "{block}");
        }
    }

    #[test]
    fn dynamic_references_and_truncated_blocks_fail() {
        for (what, block) in [
            ("index 0", "80"),
            ("first dynamic index", "be"),
            ("RFC 7541 C.3.2", "8286 84be 5808 6e6f 2d63 6163 6865"),
            ("name at a dynamic index, indexed", "7e 0161"),
            ("name at a dynamic index, literal", "0f2f 0161"),
            ("name at a dynamic index, never indexed", "1f2f 0161"),
            ("table size 1", "21"),
            ("table size 4096", "3fe11f"),
            ("table size behind a field", "82 20"),
            ("cut table size", "3f"),
            ("cut index", "ff"),
            ("endless index", "ff80 8080 8080 8080 8080 8080 8000"),
            ("index above 62 bits", "ffff ffff ffff ffff ffff ffff 7f"),
            ("no name", "00"),
            ("cut name", "0002 61"),
            ("no value", "0001 61"),
            ("cut value", "0402 2f"),
            ("value of 2^62 bytes", "047f 80ff ffff ffff ffff ff3f"),
            ("Huffman with EOS", "0484 ffff ffff"),
            ("Huffman with eight bits of padding", "0482 07ff"),
            ("Huffman with a zero in its padding", "0481 06"),
        ] {
            let outcome = decoded(&hex(block));
            assert!(matches!(outcome, Err(DecodeError::Failed(_))), "{what}: {outcome:?}");
        }
    }

    #[test]
    fn limits_hold_to_the_byte_and_to_the_field() {
        // `:status: 200` counts 7 + 3 + 32 = 42 bytes, `abc: d` 36.
        let (status, regular) = (&[0x88, 0x88][..], &b"\0\x03abc\x01d\0\x03abc\x01d"[..]);
        for (block, bytes, fields, expected) in [
            (status, 84, 0, Ok(2)),
            (status, 83, 2, Err(DecodeError::TooManyBytes)),
            (regular, 72, 2, Ok(2)),
            (regular, 71, 2, Err(DecodeError::TooManyBytes)),
            (regular, 72, 1, Err(DecodeError::TooManyFields)),
        ] {
            let count = decode_block(block, &FieldLimits { bytes, fields }).map(|fields| fields.len());
            assert_eq!(count, expected, "{block:?}: {bytes} bytes, {fields} fields");
        }
    }

    #[test]
    fn each_field_takes_its_shortest_form_and_secrets_are_never_indexed() {
        for (name, value, expected) in [
            ("accept-encoding", "gzip, deflate", &b"\x90"[..]),
            ("accept-encoding", "br", b"\x0f\x01\x02br"),
            ("accept", "*/*", b"\x0f\x04\x03*/*"),
            ("age", "", b"\x95"),
            ("x-a", " b\t", b"\x00\x03x-a\x01b"),
            ("te", "trailers", b"\x00\x02te\x08trailers"),
            ("te", "Trailers ", b"\x00\x02te\x08Trailers"),
            ("authorization", "", b"\x1f\x08\x00"),
            ("cookie", "a=b", b"\x1f\x11\x03a=b"),
            ("proxy-authorization", "x", b"\x1f\x22\x01x"),
            // Fields that no request of HTTP/2 has.
            ("te", "gzip", b""),
            ("host", "a", b""),
            ("connection", "close", b""),
            ("keep-alive", "timeout=5", b""),
            ("proxy-connection", "keep-alive", b""),
            ("transfer-encoding", "chunked", b""),
            ("upgrade", "h2c", b""),
        ] {
            let out = encoded(&[(name, value)]);
            assert_eq!(out, expected, "{name}: {value} gives {out:02x?}");
        }
    }

    #[test]
    fn a_request_begins_with_its_pseudo_header_fields() {
        for (method, scheme, authority, path, expected) in [
            ("GET", "http", "a:80", "/", &b"\x82\x86\x01\x04a:80\x84"[..]),
            ("POST", "https", "a", "/b?c", b"\x83\x87\x01\x01a\x04\x04/b?c"),
            ("HEAD", "https", "", "?c", b"\x02\x04HEAD\x87\x81\x04\x03/?c"),
            ("OPTIONS", "https", "a", "*", b"\x02\x07OPTIONS\x87\x01\x01a\x04\x01*"),
            ("GET", "https", "a", "", b"\x82\x87\x01\x01a\x84"),
        ] {
            let mut out = Vec::new();
            write_request(&mut out, method, scheme, authority.as_bytes(), path.as_bytes(), []);
            assert_eq!(out, expected, "{method} {path} gives {out:02x?}");
        }
    }

    proptest! {
        #[test]
        fn hpack_fields_decode_as_encoded(
            fields in proptest::collection::vec(("x[a-z-]{0,12}|cookie|accept|content-type", "[!-~]{0,200}"), 0..3),
        ) {
            let lines: Vec<_> = fields.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
            prop_assert_eq!(decoded(&encoded(&lines)), Ok(fields));
        }

        #[test]
        fn no_block_bytes_panic_or_exceed_the_limits(block: Vec<u8>, bytes in 0_usize..300, fields in 0_usize..6) {
            if let Ok(decoded) = decode_block(&block, &FieldLimits { bytes, fields }) {
                let size: usize = decoded.iter().map(|line| line.name.len() + line.value.len() + 32).sum();
                prop_assert!(size <= bytes);
            }
        }
    }
}
