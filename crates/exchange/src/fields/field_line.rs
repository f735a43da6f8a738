//! Defines one line of a field section, and the place of its text.

use super::name_table::{FieldNameRef, NameId};

/// A line as stored. The text of a name without a number stands before the value.
#[derive(Debug, Clone, Copy)]
pub(super) struct StoredLine {
    pub(super) name: NameId,
    /// The name consists of letters, digits and `-` alone.
    pub(super) is_plain: bool,
    pub(super) name_len: u16,
    pub(super) at: u32,
    pub(super) value_len: u32,
}

const _: () = assert!(size_of::<StoredLine>() == 12);

/// A range of bytes in the text of [`Fields`](super::Fields).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Span {
    pub(super) at: u32,
    pub(super) len: u32,
}

/// A line of [`Fields`](super::Fields).
#[derive(Debug, Clone, Copy)]
pub struct FieldLine<'a> {
    pub(super) id: NameId,
    /// The name consists of letters, digits and `-` alone.
    pub is_plain: bool,
    pub(super) name: &'a [u8],
    /// Value of the line.
    pub value: &'a [u8],
}

impl<'a> FieldLine<'a> {
    /// Returns the number of the name.
    pub const fn id(&self) -> NameId {
        self.id
    }

    /// Returns the name in lower case.
    pub fn name_str(&self) -> &'a str {
        // A token is ASCII.
        if self.id.is_known() { self.id.as_str() } else { str::from_utf8(self.name).unwrap_or_default() }
    }

    /// Returns the bytes of [`Self::name_str`].
    pub fn name_bytes(&self) -> &'a [u8] {
        if self.id.is_known() { self.id.as_str().as_bytes() } else { self.name }
    }

    /// Returns the name, for a lookup.
    pub fn name_ref(&self) -> FieldNameRef<'a> {
        FieldNameRef { id: self.id, text: self.name_str() }
    }

    /// Whether the line has this `name`.
    pub fn is_named(&self, name: FieldNameRef<'_>) -> bool {
        self.id == name.id && (self.id.is_known() || self.name == name.text.as_bytes())
    }
}

impl StoredLine {
    pub(super) fn resolve_line<'a>(&self, text: &'a [u8]) -> FieldLine<'a> {
        let at = self.at as usize;
        let value = at.saturating_add(usize::from(self.name_len));
        let end = value.saturating_add(self.value_len as usize);
        FieldLine {
            id: self.name,
            is_plain: self.is_plain,
            name: text.get(at..value).unwrap_or_default(),
            value: text.get(value..end).unwrap_or_default(),
        }
    }
}
