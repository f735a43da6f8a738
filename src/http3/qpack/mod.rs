//! Field compression (RFC 9204) without a dynamic table: static table, literals and Huffman strings. litequic
//! advertises a capacity of zero, so that no field section waits for another stream and no peer can fill memory.

mod decode;
mod encode;
mod huffman;
mod instructions;
mod integer;
mod static_table;

pub use crate::terms::FieldLimits;
pub use decode::{DecodeError, decode};
pub use encode::{encode_field, encode_prefix, encode_status};
pub use instructions::{DecoderStream, EncoderStream};

use bytes::Bytes;
use http::HeaderName;

/// A pseudo-header field (RFC 9114 §4.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pseudo {
    /// `:authority`
    Authority,
    /// `:method`
    Method,
    /// `:path`
    Path,
    /// `:protocol` (RFC 9220)
    Protocol,
    /// `:scheme`
    Scheme,
    /// `:status`
    Status,
}

impl Pseudo {
    /// The pseudo-header with this name, colon included.
    pub fn from_name(name: &[u8]) -> Option<Self> {
        Some(match name {
            b":authority" => Self::Authority,
            b":method" => Self::Method,
            b":path" => Self::Path,
            b":protocol" => Self::Protocol,
            b":scheme" => Self::Scheme,
            b":status" => Self::Status,
            _ => return None,
        })
    }

    /// The name, colon included.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Authority => ":authority",
            Self::Method => ":method",
            Self::Path => ":path",
            Self::Protocol => ":protocol",
            Self::Scheme => ":scheme",
            Self::Status => ":status",
        }
    }
}

/// A field's name as it came out of a field section.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FieldName {
    /// A pseudo-header.
    Pseudo(Pseudo),
    /// A name of the static table.
    Known(HeaderName),
    /// A literal that is not checked yet.
    Raw(Bytes),
}

impl FieldName {
    /// The name's bytes.
    pub fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Pseudo(pseudo) => pseudo.name().as_bytes(),
            Self::Known(name) => name.as_str().as_bytes(),
            Self::Raw(name) => name,
        }
    }
}

/// A field as it came out of a field section; its value is not checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    /// The name.
    pub name: FieldName,
    /// The value.
    pub value: Bytes,
}
