//! Provides what HPACK (RFC 7541) and QPACK (RFC 9204) build field sections of: integers, Huffman strings, static
//! tables, and the lines of a section. QPACK takes the first two from HPACK (RFC 9204 §4.1). Pure.

mod huffman;
mod integer;
mod section_decoder;
mod static_table;

pub use huffman::encode_if_shorter;
pub use integer::{IntegerError, add_continuation, encode_integer, prefix_mask};
pub use section_decoder::{DecodeError, SectionDecoder};
pub use static_table::{StaticTable, TableMatch};
