//! Stores the lines of a header or of trailers, with lookup and editing.

use super::field_line::{FieldLine, Span, StoredLine};
use super::memory_pool;
use super::name_table::{FieldNameRef, NameId, NameSet};
use crate::field_syntax::is_alphanumeric_name;
use std::fmt;

/// Fields of a message. Names are tokens in lower case, and values have no control characters but tabs; the caller that
/// adds a line has checked both.
#[derive(Clone, Default)]
pub struct Fields {
    pub(super) text: Vec<u8>,
    pub(super) lines: Vec<StoredLine>,
    /// Names of the lines.
    pub names: NameSet,
}

const _: () = assert!(size_of::<Fields>() <= 64);

impl Fields {
    /// Creates an empty list of fields.
    pub const fn new() -> Self {
        Self { text: Vec::new(), lines: Vec::new(), names: NameSet::EMPTY }
    }

    /// Creates an empty list with memory for `lines` lines, and for `bytes` bytes of values and of names without a
    /// number.
    pub fn with_capacity(lines: usize, bytes: usize) -> Self {
        let (text, lines) = memory_pool::take_memory(lines, bytes);
        Self { text, lines, names: NameSet::EMPTY }
    }

    /// Reserves memory for `lines` more lines with `bytes` bytes.
    pub fn reserve(&mut self, lines: usize, bytes: usize) {
        self.lines.reserve(lines);
        self.text.reserve(bytes);
    }

    /// Returns the number of lines.
    pub const fn len(&self) -> usize {
        self.lines.len()
    }

    /// Whether the section has no field line.
    pub const fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// Whether a line has the name `name`.
    pub fn contains(&self, name: FieldNameRef<'_>) -> bool {
        self.names.contains_id(name.id) && (name.id.is_known() || self.get(name).is_some())
    }

    /// Returns an upper bound of the bytes of all names and values.
    pub fn max_text_bytes(&self) -> usize {
        self.text.len().saturating_add(self.lines.len().saturating_mul(NameId::MAX_LEN))
    }

    /// Returns the lines in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = FieldLine<'_>> {
        self.lines.iter().map(|line| line.resolve_line(&self.text))
    }

    /// Returns the values of the lines with the name `name`, in order.
    pub fn all_values<'a>(&'a self, name: FieldNameRef<'a>) -> impl DoubleEndedIterator<Item = &'a [u8]> {
        let lines = if self.names.contains_id(name.id) { self.lines.as_slice() } else { &[] };
        let named = lines.iter().filter(move |line| line.name == name.id).map(|line| line.resolve_line(&self.text));
        named.filter(move |line| line.is_named(name)).map(|line| line.value)
    }

    /// Returns the value of the line with the name `name`, which has a number, if there is exactly one.
    pub fn sole_value(&self, name: FieldNameRef<'_>) -> Option<&[u8]> {
        debug_assert!(name.id.is_known(), "another name would be compared");
        let mut lines = self.lines.iter();
        let sole = lines.find(|line| line.name == name.id)?;
        if lines.any(|line| line.name == name.id) { None } else { Some(sole.resolve_line(&self.text).value) }
    }

    /// Returns the value of the first line with the name `name`.
    pub fn get<'a>(&'a self, name: FieldNameRef<'a>) -> Option<&'a [u8]> {
        self.all_values(name).next()
    }

    /// Returns the members of the combined list of all lines with the name `name`, without blanks around them. Empty
    /// members are included (RFC 9110 §5.6.1).
    pub fn list_members<'a>(&'a self, name: FieldNameRef<'a>) -> impl Iterator<Item = &'a [u8]> {
        self.all_values(name).flat_map(|line| line.split(|byte| *byte == b',')).map(<[u8]>::trim_ascii)
    }

    /// Adds a line at the end.
    pub fn append(&mut self, name: FieldNameRef<'_>, value: &[u8]) {
        debug_assert!(crate::field_syntax::is_field_value(value), "a value without control characters");
        if name.id.is_known() {
            self.push_field_line(name.id, true, &[], value);
        } else {
            self.push_field_line(name.id, is_alphanumeric_name(name.text.as_bytes()), name.text.as_bytes(), value);
        }
    }

    /// Adds a line at the end, whose name is a token in any case.
    pub fn append_any_case(&mut self, name: &[u8], value: &[u8]) {
        match NameId::from_any_case(name) {
            NameId::OTHER => {
                let at = self.text.len();
                debug_assert!(crate::field_syntax::is_field_value(value), "a value without control characters");
                self.push_field_line(NameId::OTHER, is_alphanumeric_name(name), name, value);
                if let Some(name) = self.text.get_mut(at..at.saturating_add(name.len())) {
                    name.make_ascii_lowercase();
                }
            }
            id => self.push_field_line(id, true, &[], value),
        }
    }

    /// Adds a line whose name is in the table.
    #[inline]
    fn push_field_line(&mut self, id: NameId, is_plain: bool, name: &[u8], value: &[u8]) {
        // A line that could not be addressed is left out. Limits of headers are far below.
        let (Ok(at), Ok(name_len), Ok(value_len)) =
            (u32::try_from(self.text.len()), u16::try_from(name.len()), u32::try_from(value.len()))
        else {
            return;
        };
        self.text.extend_from_slice(name);
        self.text.extend_from_slice(value);
        self.lines.push(StoredLine { name: id, is_plain, name_len, at, value_len });
        self.names.insert_id(id, !is_plain);
    }

    /// Adds the lines of `other` at the end, at once.
    pub fn append_fields(&mut self, other: &Self) {
        let end = self.text.len().saturating_add(other.text.len());
        // Lines that could not be addressed are left out, as in `push_field_line`.
        let (Ok(base), Ok(_)) = (u32::try_from(self.text.len()), u32::try_from(end)) else { return };
        self.text.extend_from_slice(&other.text);
        let moved = |line: &StoredLine| StoredLine { at: line.at.saturating_add(base), ..*line };
        self.lines.extend(other.lines.iter().map(moved));
        self.names = self.names.union(other.names);
    }

    /// Replaces all lines with the name `name` by one at the end.
    pub fn set_field(&mut self, name: FieldNameRef<'_>, value: &[u8]) {
        self.remove_field(name);
        self.append(name, value);
    }

    /// Sets a field as [`Self::set_field`] does, to the text in `span`, which is not copied. The name is in the table.
    pub(crate) fn set_span(&mut self, name: FieldNameRef<'_>, span: Span) {
        self.remove_field(name);
        if name.id.is_known() {
            self.lines.push(StoredLine {
                name: name.id,
                is_plain: true,
                name_len: 0,
                at: span.at,
                value_len: span.len,
            });
            self.names.insert_id(name.id, false);
        }
    }

    /// Sets the field `name` to a decimal number.
    pub fn set_number_field(&mut self, name: FieldNameRef<'_>, number: u64) {
        self.set_field(name, number.to_string().as_bytes());
    }

    /// Removes the lines with the name `name`. Returns whether there was one.
    pub fn remove_field(&mut self, name: FieldNameRef<'_>) -> bool {
        if !self.names.contains_id(name.id) {
            return false;
        }
        let (before, text) = (self.lines.len(), &self.text);
        self.lines.retain(|line| line.name != name.id || !line.resolve_line(text).is_named(name));
        if name.id.is_known() {
            self.names.remove_id(name.id);
        }
        self.lines.len() != before
    }

    /// Removes the lines for which `keeps` returns false.
    pub fn retain(&mut self, mut keeps: impl FnMut(FieldLine<'_>) -> bool) {
        let (text, mut names) = (&self.text, NameSet::EMPTY);
        self.lines.retain(|line| {
            let kept = keeps(line.resolve_line(text));
            if kept {
                names.insert_id(line.name, !line.is_plain);
            }
            kept
        });
        self.names = names;
    }

    /// Appends bytes that belong to no line, and returns their place.
    pub(crate) fn append_raw_text(&mut self, bytes: &[u8]) -> Span {
        let at = self.text.len();
        match (u32::try_from(at), u32::try_from(bytes.len())) {
            (Ok(at), Ok(len)) => {
                self.text.extend_from_slice(bytes);
                Span { at, len }
            }
            _ => Span::default(),
        }
    }

    /// Returns the text in `span`, which [`Fields`] or their decoder have returned.
    pub fn span_text(&self, span: Span) -> &[u8] {
        let at = span.at as usize;
        self.text.get(at..at.saturating_add(span.len as usize)).unwrap_or_default()
    }
}

impl Drop for Fields {
    fn drop(&mut self) {
        memory_pool::recycle_memory(&mut self.text, &mut self.lines);
    }
}

impl<'a> FromIterator<(FieldNameRef<'a>, &'a [u8])> for Fields {
    fn from_iter<I: IntoIterator<Item = (FieldNameRef<'a>, &'a [u8])>>(lines: I) -> Self {
        let mut fields = Self::new();
        lines.into_iter().for_each(|(name, value)| fields.append(name, value));
        fields
    }
}

/// Fields are equal if they have equal lines in the same order.
impl PartialEq for Fields {
    fn eq(&self, other: &Self) -> bool {
        self.iter().map(|line| (line.name_str(), line.value)).eq(other.iter().map(|line| (line.name_str(), line.value)))
    }
}

impl Eq for Fields {}

impl fmt::Debug for Fields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let secret = |line: &FieldLine<'_>| line.id.is_sensitive();
        let value = |line: &FieldLine<'_>| {
            if secret(line) { "…".into() } else { String::from_utf8_lossy(line.value).into_owned() }
        };
        f.debug_list().entries(self.iter().map(|line| (line.name_str(), value(&line)))).finish()
    }
}

#[cfg(test)]
mod tests;
