//! From an encoded field section (RFC 9204 §4.5) to fields.

use super::{
    Field, FieldName, huffman,
    integer::{self, IntegerError},
    static_table,
};
use bytes::{Buf, Bytes, BytesMut};

/// What a field section may hold at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FieldLimits {
    /// Bytes, counted as RFC 9114 §4.2.2 does: name + value + 32 a field.
    pub bytes: usize,
    /// Fields.
    pub fields: usize,
}

/// What RFC 9114 §4.2.2 adds to each field's name and value.
const FIELD_OVERHEAD: usize = 32;

/// Fields that room is made for at once: more than a browser sends.
const USUAL_FIELDS: usize = 24;

/// Why a field section was not decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The connection is to be closed with QPACK_DECOMPRESSION_FAILED.
    #[error("the field section cannot be decompressed: {0}")]
    Failed(&'static str),
    /// More bytes than allowed: 431. As there is no dynamic table, the connection goes on.
    #[error("the field section has more bytes than allowed")]
    TooManyBytes,
    /// More fields than allowed: 431.
    #[error("the field section has more fields than allowed")]
    TooManyFields,
}

impl From<IntegerError> for DecodeError {
    fn from(error: IntegerError) -> Self {
        Self::Failed(match error {
            IntegerError::Cut => "cut integer",
            IntegerError::Overflow => "integer too large",
        })
    }
}

/// The fields of the field section `block`, in order.
///
/// Literals without Huffman are slices of `block`, entries of the static table are shared; all Huffman strings of a
/// section share one allocation.
///
/// # Errors
///
/// [`DecodeError::Failed`] for anything that refers to a dynamic table, too. A section that is both broken and too
/// large gives the error that comes first.
pub fn decode(block: Bytes, limits: &FieldLimits) -> Result<Vec<Field>, DecodeError> {
    let mut section = Section { rest: block, strings: BytesMut::new() };
    section.prefix()?;
    let mut fields = Vec::with_capacity(USUAL_FIELDS.min(limits.fields));
    let mut bytes = 0_usize;
    while let Some(&first) = section.rest.first() {
        if fields.len() >= limits.fields {
            return Err(DecodeError::TooManyFields);
        }
        let field = section.line(first)?;
        bytes = bytes.saturating_add(field.name.as_bytes().len() + field.value.len() + FIELD_OVERHEAD);
        if bytes > limits.bytes {
            return Err(DecodeError::TooManyBytes);
        }
        fields.push(field);
    }
    Ok(fields)
}

struct Section {
    rest: Bytes,
    /// Where Huffman strings are decoded to.
    strings: BytesMut,
}

impl Section {
    fn prefix(&mut self) -> Result<(), DecodeError> {
        if self.integer(8)? != 0 {
            return Err(DecodeError::Failed("refers to the dynamic table"));
        }
        // With a sign, Base would be negative (RFC 9204 §4.5.1.2).
        let sign = self.rest.first().is_some_and(|byte| byte & 0x80 != 0);
        self.integer(7)?;
        if sign { Err(DecodeError::Failed("negative base")) } else { Ok(()) }
    }

    fn line(&mut self, first: u8) -> Result<Field, DecodeError> {
        const DYNAMIC: DecodeError = DecodeError::Failed("refers to the dynamic table");
        match first {
            // Indexed, T = 1: static
            0xc0.. => self.static_field(6).cloned(),
            // Literal with name reference, T = 1: static; N says something to re-encoders alone
            0x40..0x80 if first & 0x10 != 0 => {
                let name = self.static_field(4)?.name.clone();
                Ok(Field { name, value: self.string(7)? })
            }
            // Literal with literal name
            0x20..0x40 => Ok(Field { name: FieldName::Raw(self.string(3)?), value: self.string(7)? }),
            // Indexed, literal with name reference, both also post-base
            _ => Err(DYNAMIC),
        }
    }

    fn static_field(&mut self, prefix: u32) -> Result<&'static Field, DecodeError> {
        let index = self.integer(prefix)?;
        static_table::field(index).ok_or(DecodeError::Failed("no such index in the static table"))
    }

    /// A string whose length has a prefix of `prefix` bits, with the Huffman flag above.
    fn string(&mut self, prefix: u32) -> Result<Bytes, DecodeError> {
        let huffman = self.rest.first().is_some_and(|byte| byte >> prefix & 1 != 0);
        let length = self.integer(prefix)?;
        let length = usize::try_from(length).ok().filter(|length| *length <= self.rest.len());
        let raw = self.rest.split_to(length.ok_or(DecodeError::Failed("cut string"))?);
        if !huffman {
            return Ok(raw);
        }
        if self.strings.capacity() == 0 {
            // Room for all strings that may follow: the shortest Huffman word has five bits.
            self.strings.reserve((raw.len() + self.rest.len()) * 8 / 5);
        }
        huffman::decode(&raw, &mut self.strings).map_err(|_| DecodeError::Failed("bad Huffman string"))?;
        Ok(self.strings.split().freeze())
    }

    fn integer(&mut self, prefix: u32) -> Result<u64, IntegerError> {
        let mut input = &*self.rest;
        let value = integer::decode(prefix, &mut input)?;
        let used = self.rest.len() - input.len();
        self.rest.advance(used);
        Ok(value)
    }
}
