//! From fields to an encoded field section (RFC 9204 §4.5) that refers to the static table alone.

use super::{
    huffman, integer,
    static_table::{self, Found},
};
use bytes::{BufMut, BytesMut};

/// Appends what begins a field section: Required Insert Count 0, Base 0.
pub fn encode_prefix(out: &mut BytesMut) {
    out.put_slice(&[0, 0]);
}

/// Appends a field. `name` is lower case. A `sensitive` value is never put into a table, here or further on
/// (RFC 9204 §7.1.3): the N bit says so.
pub fn encode_field(name: &str, value: &[u8], sensitive: bool, out: &mut BytesMut) {
    match static_table::find(name, value) {
        Some(Found::Field(index)) if !sensitive => integer::encode(6, 0xc0, index, out),
        Some(Found::Field(index) | Found::Name(index)) => {
            integer::encode(4, if sensitive { 0x70 } else { 0x50 }, index, out);
            string(7, 0, value, out);
        }
        None => {
            string(3, if sensitive { 0x30 } else { 0x20 }, name.as_bytes(), out);
            string(7, 0, value, out);
        }
    }
}

/// Appends `:status`.
pub fn encode_status(status: http::StatusCode, out: &mut BytesMut) {
    encode_field(":status", status.as_str().as_bytes(), false, out);
}

/// Appends a string in the shorter of its two forms, its length with a prefix of `prefix` bits, the Huffman flag and
/// `flags` above.
fn string(prefix: u32, flags: u8, value: &[u8], out: &mut BytesMut) {
    let encoded = huffman::encoded_len(value);
    if encoded < value.len() {
        integer::encode(prefix, flags | 1 << prefix, encoded as u64, out);
        huffman::encode(value, out);
    } else {
        integer::encode(prefix, flags, value.len() as u64, out);
        out.put_slice(value);
    }
}
