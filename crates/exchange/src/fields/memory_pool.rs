//! Reuses the memory of dropped fields on the same thread: a request has two sets of fields, and each has two
//! allocations.

use super::field_line::StoredLine;
use litequic_base::free_list::{FreeList, keep_free, take_free};
use std::{cell::RefCell, mem};

/// Largest text of a set kept for reuse, in bytes: more than nearly all headers have.
const MAX_FREE_TEXT: usize = 2048;
/// Largest number of lines of a set kept for reuse.
const MAX_FREE_LINES: usize = 64;

type FieldMemory = (Vec<u8>, Vec<StoredLine>);

thread_local! {
    static FREE_SETS: FreeList<FieldMemory> = const { RefCell::new(Vec::new()) };
}

/// Returns memory for `lines` lines and `bytes` bytes of text.
pub(super) fn take_memory(lines: usize, bytes: usize) -> FieldMemory {
    let kept = take_free(&FREE_SETS);
    let (mut text, mut all) = kept.unwrap_or_default();
    text.reserve(bytes);
    all.reserve(lines);
    (text, all)
}

/// Keeps the memory of dropped fields for reuse.
pub(super) fn recycle_memory(text: &mut Vec<u8>, lines: &mut Vec<StoredLine>) {
    let is_usual = (1..=MAX_FREE_TEXT).contains(&text.capacity()) && (1..=MAX_FREE_LINES).contains(&lines.capacity());
    if !is_usual {
        return;
    }
    let (mut text, mut lines) = (mem::take(text), mem::take(lines));
    text.clear();
    lines.clear();
    keep_free(&FREE_SETS, (text, lines));
}
