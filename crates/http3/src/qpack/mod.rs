//! Compresses fields (RFC 9204) without a dynamic table: static table, literals and Huffman strings. litequic
//! advertises a capacity of zero, so that no field section waits for another stream and no peer can fill memory.

mod decode;
mod encode;
mod instructions;
mod static_table;

pub use decode::decode_section;
pub use encode::{encode_field, encode_line, encode_prefix, encode_status};
pub use instructions::{DecoderStream, check_encoder_stream};
pub use litequic_exchange::{field_compression::DecodeError, terms::FieldLimits};
