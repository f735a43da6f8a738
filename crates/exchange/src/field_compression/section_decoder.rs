//! Decodes the lines of a field section, within limits. HPACK and QPACK differ in how a line begins.

use super::{
    huffman,
    integer::{self, IntegerError},
    static_table::StaticTable,
};
use crate::{DecodedFields, DecodedLine, NameId, name, terms::FieldLimits};

/// Bytes that RFC 9113 §6.5.2 and RFC 9114 §4.2.2 add to name and value of each field.
const FIELD_OVERHEAD: usize = 32;

/// Number of fields for which memory is reserved: more than a browser sends, with those that the proxy adds.
const RESERVED_FIELDS: usize = 24;

/// Memory reserved beyond the section's own length, in bytes: for values of the static table, and for fields that the
/// proxy adds.
const RESERVED_TEXT: usize = 256;

/// The reason why a field section was not decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The connection is to be closed with QPACK_DECOMPRESSION_FAILED or COMPRESSION_ERROR.
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

/// Decoder of one field section.
#[derive(Debug)]
pub struct SectionDecoder<'a> {
    rest: &'a [u8],
    fields: DecodedFields,
}

impl<'a> SectionDecoder<'a> {
    /// Creates the decoder of the field section `block`.
    #[inline]
    pub fn new(block: &'a [u8]) -> Self {
        // The shortest Huffman word has five bits, and the decoder needs a byte more.
        let text = (block.len().saturating_mul(8) / 5).saturating_add(RESERVED_TEXT);
        Self { rest: block, fields: DecodedFields::with_capacity(RESERVED_FIELDS, text) }
    }

    /// Returns the next byte, which stays the next one.
    #[inline]
    pub fn peek_next_byte(&self) -> Option<u8> {
        self.rest.first().copied()
    }

    /// Decodes the rest of the section in the order of its lines: `decode_line` decodes one, which begins with the
    /// given byte.
    ///
    /// # Errors
    ///
    /// That of `decode_line`, or of the limits. A section that is both broken and too large gives the error that comes
    /// first.
    #[inline]
    pub fn decode_lines(
        mut self,
        limits: &FieldLimits,
        decode_line: impl Fn(&mut Self, u8) -> Result<(), DecodeError>,
    ) -> Result<DecodedFields, DecodeError> {
        let (mut bytes, mut counted) = (0_usize, None);
        while let Some(first) = self.peek_next_byte() {
            decode_line(&mut self, first)?;
            let fields = &self.fields;
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
        Ok(self.fields)
    }

    /// Decodes a line of which name and value are at an index of `table`. The index has a prefix of `prefix` bits.
    ///
    /// # Errors
    ///
    /// [`DecodeError::Failed`]
    #[inline]
    pub fn decode_indexed_line<const N: usize, const FIRST: u64>(
        &mut self,
        prefix: u32,
        table: &StaticTable<N, FIRST>,
    ) -> Result<(), DecodeError> {
        let index = self.read_integer(prefix)?;
        let (name, value) = table.entry(index).ok_or(NO_SUCH_INDEX)?;
        let at = self.fields.text.len();
        self.fields.text.extend_from_slice(value.as_bytes());
        self.fields.push_decoded_line(name, at, 0);
        Ok(())
    }

    /// Decodes a value whose name is at `index` of `table`.
    ///
    /// # Errors
    ///
    /// [`DecodeError::Failed`]
    #[inline]
    pub fn decode_named_line<const N: usize, const FIRST: u64>(
        &mut self,
        index: u64,
        table: &StaticTable<N, FIRST>,
    ) -> Result<(), DecodeError> {
        let (name, _) = table.entry(index).ok_or(NO_SUCH_INDEX)?;
        let at = self.fields.text.len();
        self.read_string(7)?;
        self.fields.push_decoded_line(name, at, 0);
        Ok(())
    }

    /// Decodes a name, whose length has a prefix of `prefix` bits, and a value.
    ///
    /// # Errors
    ///
    /// [`DecodeError::Failed`]
    #[inline]
    pub fn decode_literal_line(&mut self, prefix: u32) -> Result<(), DecodeError> {
        let at = self.fields.text.len();
        self.read_string(prefix)?;
        let text = &mut self.fields.text;
        let length = text.len().saturating_sub(at);
        match NameId::from_lower_case(text.get(at..).unwrap_or_default()) {
            NameId::OTHER => {
                self.read_string(7)?;
                self.fields.push_decoded_line(NameId::OTHER, at, length);
            }
            name => {
                text.truncate(at);
                self.read_string(7)?;
                self.fields.push_decoded_line(name, at, 0);
            }
        }
        Ok(())
    }

    /// Appends a string to the text. A length with a prefix of `prefix` bits precedes it, with the Huffman flag above
    /// the prefix.
    #[inline]
    fn read_string(&mut self, prefix: u32) -> Result<(), DecodeError> {
        let huffman = self.rest.first().is_some_and(|byte| byte >> prefix & 1 != 0);
        let length = self.read_integer(prefix)?;
        let split = usize::try_from(length).ok().and_then(|length| self.rest.split_at_checked(length));
        let (raw, rest) = split.ok_or(DecodeError::Failed("truncated string"))?;
        self.rest = rest;
        if huffman {
            huffman::decode_huffman(raw, &mut self.fields.text)
                .map_err(|_| DecodeError::Failed("invalid Huffman string"))
        } else {
            self.fields.text.extend_from_slice(raw);
            Ok(())
        }
    }

    /// Reads an integer with a prefix of `prefix` bits.
    ///
    /// # Errors
    ///
    /// [`DecodeError::Failed`]
    #[inline]
    pub fn read_integer(&mut self, prefix: u32) -> Result<u64, DecodeError> {
        Ok(integer::decode_integer(prefix, &mut self.rest)?)
    }
}

const NO_SUCH_INDEX: DecodeError = DecodeError::Failed("no such index in the static table");
