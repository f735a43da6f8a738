//! Writes and reads Protocol Buffers, as far as OTLP needs them: fields are appended to a buffer, and responses are
//! read field by field. Pure.

/// Maximum length of a varint in bytes.
const MAX_VARINT: usize = 10;

/// Wire types of fields (Protocol Buffers, Encoding).
pub(super) const VARINT: u8 = 0;
const FIXED64: u8 = 1;
pub(super) const BYTES: u8 = 2;
const FIXED32: u8 = 5;

/// Appends `value` as a varint, in groups of seven bits.
#[inline]
pub(super) fn write_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    #[expect(clippy::cast_possible_truncation, reason = "it is below 128")]
    out.push(value as u8);
}

/// Number of bytes that [`write_varint`] appends.
pub(super) const fn varint_length(value: u64) -> usize {
    // Each seven bits take a byte, and zero takes one.
    (value | 1).ilog2() as usize / 7 + 1
}

/// Tag of a field with a number below 16.
#[expect(clippy::cast_possible_truncation, reason = "the number is below 16")]
pub(super) const fn small_tag(field: u32, wire: u8) -> u8 {
    (field << 3) as u8 | wire
}

#[inline]
fn write_tag(out: &mut Vec<u8>, field: u32, wire: u8) {
    if field < 16 {
        return out.push(small_tag(field, wire));
    }
    write_varint(out, u64::from(field) << 3 | u64::from(wire));
}

#[inline]
pub(super) fn write_number_field(out: &mut Vec<u8>, field: u32, value: u64) {
    write_tag(out, field, VARINT);
    write_varint(out, value);
}

#[inline]
pub(super) fn write_fixed64_field(out: &mut Vec<u8>, field: u32, value: u64) {
    write_tag(out, field, FIXED64);
    out.extend_from_slice(&value.to_le_bytes());
}

pub(super) fn write_fixed32_field(out: &mut Vec<u8>, field: u32, value: u32) {
    write_tag(out, field, FIXED32);
    out.extend_from_slice(&value.to_le_bytes());
}

/// Appends a field with a string, bytes, or an encoded message.
pub(super) fn write_bytes_field(out: &mut Vec<u8>, field: u32, value: &[u8]) {
    write_field_head(out, field, value.len());
    out.extend_from_slice(value);
}

/// Appends a field of bytes whose number is known at compile time.
#[inline]
pub(super) fn write_array_field<const N: usize>(out: &mut Vec<u8>, field: u32, value: &[u8; N]) {
    write_field_head(out, field, N);
    out.extend_from_slice(value);
}

/// Appends a field whose string is the concatenation of `parts`.
pub(super) fn write_joined_field(out: &mut Vec<u8>, field: u32, parts: &[&[u8]]) {
    write_field_head(out, field, parts.iter().map(|part| part.len()).sum());
    parts.iter().for_each(|part| out.extend_from_slice(part));
}

/// Appends the tag and length of a field with `length` bytes of a string, of bytes or of a message.
#[inline]
pub(super) fn write_field_head(out: &mut Vec<u8>, field: u32, length: usize) {
    write_tag(out, field, BYTES);
    write_varint(out, length as u64);
}

/// Length in bytes of a field with a number below 16 and `length` bytes of content.
pub(super) const fn field_length(length: usize) -> usize {
    1 + varint_length(length as u64) + length
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FieldValue<'a> {
    /// Value of a varint.
    Number(u64),
    /// Content of a string, of bytes or of a message.
    Bytes(&'a [u8]),
    /// Four or eight bytes, which are skipped.
    Fixed,
}

/// Iterator over the fields of a message, up to its end or the first invalid byte.
pub(super) struct FieldReader<'a>(pub(super) &'a [u8]);

impl<'a> FieldReader<'a> {
    fn read_varint(&mut self) -> Option<u64> {
        let mut value = 0_u64;
        for (n, byte) in self.0.iter().enumerate().take(MAX_VARINT) {
            value |= u64::from(byte & 0x7f).checked_shl(7 * u32::try_from(n).ok()?)?;
            if byte & 0x80 == 0 {
                self.0 = self.0.get(n.saturating_add(1)..)?;
                return Some(value);
            }
        }
        None
    }

    fn take_bytes(&mut self, length: u64) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(usize::try_from(length).ok()?)?;
        self.0 = rest;
        Some(taken)
    }
}

impl<'a> Iterator for FieldReader<'a> {
    type Item = (u64, FieldValue<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        let tag = self.read_varint()?;
        let value = match (tag & 7) as u8 {
            VARINT => FieldValue::Number(self.read_varint()?),
            BYTES => {
                let length = self.read_varint()?;
                FieldValue::Bytes(self.take_bytes(length)?)
            }
            FIXED64 => self.take_bytes(8).map(|_| FieldValue::Fixed)?,
            FIXED32 => self.take_bytes(4).map(|_| FieldValue::Fixed)?,
            _ => return None,
        };
        Some((tag >> 3, value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn written_fields_are_read_back(value: u64, text: Vec<u8>, small in 0u32..16) {
            let mut out = Vec::new();
            write_varint(&mut out, value);
            prop_assert_eq!(out.len(), varint_length(value));
            out.clear();
            write_number_field(&mut out, 100, value);
            write_bytes_field(&mut out, small + 1, &text);
            write_fixed64_field(&mut out, 3, value);
            write_fixed32_field(&mut out, 4, 7);
            let read: Vec<_> = FieldReader(&out).collect();
            let expected = [
                (100, FieldValue::Number(value)),
                (u64::from(small) + 1, FieldValue::Bytes(&text)),
                (3, FieldValue::Fixed),
                (4, FieldValue::Fixed),
            ];
            prop_assert_eq!(read, expected);
            let mut field = Vec::new();
            write_bytes_field(&mut field, 15, &text);
            prop_assert_eq!(field.len(), field_length(text.len()));
        }

        #[test]
        fn no_bytes_panic_or_read_without_end(bytes: Vec<u8>) {
            prop_assert!(FieldReader(&bytes).count() <= bytes.len());
        }
    }
}
