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
    while let Some(0x20..0x40) = section.peek_byte() {
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
