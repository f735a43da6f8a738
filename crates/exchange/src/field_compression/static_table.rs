//! Defines static tables (RFC 7541 Appendix A, RFC 9204 Appendix A), for decoding by index and for encoding by name.

use crate::NameId;

/// A static table of `N` fields, whose indices begin at `FIRST`.
#[derive(Debug)]
pub struct StaticTable<const N: usize, const FIRST: u64> {
    entries: [(NameId, &'static str); N],
    /// First entry of each name, by the name's number.
    first_entries: [u8; NameId::COUNT],
    /// Next entry with the same name, by entry.
    next_entries: [u8; N],
}

/// Match of a field in a table, with the index of its entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TableMatch {
    /// Name and value match.
    Field(u64),
    /// The name matches, the value does not.
    Name(u64),
}

/// Marks the absence of an entry, beyond a table's end.
const NO_ENTRY: u8 = u8::MAX;

impl<const N: usize, const FIRST: u64> StaticTable<N, FIRST> {
    /// Creates the table of these names and values while compiling. Each name has a number.
    #[expect(clippy::indexing_slicing, clippy::cast_possible_truncation, reason = "runs in the compiler alone")]
    pub const fn new(fields: &[(&str, &'static str); N]) -> Self {
        let mut entries = [(NameId::OTHER, ""); N];
        let (mut first_entries, mut next_entries) = ([NO_ENTRY; NameId::COUNT], [NO_ENTRY; N]);
        let mut at = N;
        while at > 0 {
            at -= 1;
            let name = NameId::from_const_name(fields[at].0);
            assert!(name.is_known(), "a name without a number");
            entries[at] = (name, fields[at].1);
            next_entries[at] = first_entries[name.table_index()];
            first_entries[name.table_index()] = at as u8;
        }
        Self { entries, first_entries, next_entries }
    }

    /// Returns name and value at `index`.
    #[inline]
    pub fn entry(&self, index: u64) -> Option<(NameId, &'static str)> {
        self.entries.get(usize::try_from(index.checked_sub(FIRST)?).ok()?).copied()
    }

    /// Looks up a field.
    #[inline]
    pub fn find_entry(&self, name: NameId, value: &[u8]) -> Option<TableMatch> {
        let first = *self.first_entries.get(name.table_index()).filter(|first| **first != NO_ENTRY)?;
        let mut at = first;
        while let Some((_, known)) = self.entries.get(usize::from(at)) {
            if known.as_bytes() == value {
                return Some(TableMatch::Field(u64::from(at) + FIRST));
            }
            at = *self.next_entries.get(usize::from(at))?;
        }
        Some(TableMatch::Name(u64::from(first) + FIRST))
    }
}
