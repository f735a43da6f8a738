//! Stores fields as a decoder produces them, unchecked.

use super::{Fields, NameId, NameSet, Span, field_line::StoredLine, memory_pool};
use crate::field_syntax::{has_blank_edge, is_alphanumeric_name};
use std::mem;

/// Decoded lines of a field section, pseudo-header fields included.
#[derive(Debug, Clone, Default)]
pub struct DecodedFields {
    /// Text of all lines, to which the next line is appended.
    pub text: Vec<u8>,
    lines: Vec<StoredLine>,
}

/// A line of [`DecodedFields`].
#[derive(Debug, Clone, Copy)]
pub struct DecodedLine<'a> {
    /// Number of the name.
    pub id: NameId,
    /// Name of the field.
    pub name: &'a [u8],
    /// Value of the field.
    pub value: &'a [u8],
    /// Place of the value in the text, also in the [`Fields`] that are made of the lines.
    pub span: Span,
}

impl DecodedFields {
    /// Creates an empty list with memory for `lines` lines and `bytes` bytes of text.
    pub fn with_capacity(lines: usize, bytes: usize) -> Self {
        let (text, lines) = memory_pool::take_memory(lines, bytes);
        Self { text, lines }
    }

    /// Ends a line whose text begins at `at`: a value, behind `name_len` bytes of a name that is not known.
    pub fn push_decoded_line(&mut self, name: NameId, at: usize, name_len: usize) {
        let value_len = self.text.len().saturating_sub(at).saturating_sub(name_len);
        // A name that is too long is stored as an empty one, which is invalid. Sections are shorter than 4 GiB by their
        // limits.
        let length = u16::try_from(name_len).unwrap_or(0);
        let (at, value_len) = (u32::try_from(at).unwrap_or(u32::MAX), u32::try_from(value_len).unwrap_or(u32::MAX));
        self.lines.push(StoredLine { name, is_plain: true, name_len: length, at, value_len });
    }

    /// Returns the number of lines.
    pub const fn len(&self) -> usize {
        self.lines.len()
    }

    /// Whether no field line is decoded.
    pub const fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// Returns the lines in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = DecodedLine<'_>> {
        self.lines.iter().map(|line| to_decoded_line(line, &self.text))
    }

    /// Cuts spaces and tabs at the edges of values, other than those of pseudo-header fields.
    pub fn trim_values(&mut self) {
        for line in self.lines.iter_mut().filter(|line| !line.name.is_pseudo()) {
            let value = line.resolve_line(&self.text).value;
            if has_blank_edge(value) {
                let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t');
                let start = value.iter().position(|byte| !is_blank(byte)).unwrap_or(value.len());
                let blanks = value.iter().rev().take_while(|byte| is_blank(byte)).count();
                let length = value.len().saturating_sub(start).saturating_sub(blanks);
                // The text of a name stays in front of the value.
                let at = (line.at as usize).saturating_add(line.name_len.into());
                let from = at.saturating_add(start);
                self.text.copy_within(from..from.saturating_add(length), at);
                line.value_len = u32::try_from(length).unwrap_or_default();
            }
        }
    }

    /// Converts the lines for which `keeps` returns true to fields.
    ///
    /// # Errors
    ///
    /// The first error that `keeps` returns.
    pub fn into_fields<E>(mut self, mut keeps: impl FnMut(DecodedLine<'_>) -> Result<bool, E>) -> Result<Fields, E> {
        let (text, mut lines) = (mem::take(&mut self.text), mem::take(&mut self.lines));
        let (mut names, mut error) = (NameSet::EMPTY, None);
        lines.retain_mut(|line| {
            if error.is_some() {
                return false;
            }
            let found = to_decoded_line(line, &text);
            match keeps(found) {
                Ok(kept) => {
                    if kept {
                        line.is_plain = line.name.is_known() || is_alphanumeric_name(found.name);
                        names.insert_id(line.name, !line.is_plain);
                    }
                    kept
                }
                Err(found) => {
                    error = Some(found);
                    false
                }
            }
        });
        // Built in any case, so that its memory is kept for reuse.
        let fields = Fields { text, lines, names };
        error.map_or(Ok(fields), Err)
    }
}

impl Drop for DecodedFields {
    fn drop(&mut self) {
        memory_pool::recycle_memory(&mut self.text, &mut self.lines);
    }
}

fn to_decoded_line<'a>(line: &StoredLine, text: &'a [u8]) -> DecodedLine<'a> {
    let found = line.resolve_line(text);
    let span = Span { at: line.at.saturating_add(line.name_len.into()), len: line.value_len };
    let name = if line.name.is_known() { line.name.as_str().as_bytes() } else { found.name };
    DecodedLine { id: line.name, name, value: found.value, span }
}
