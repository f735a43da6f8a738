//! The memory of fields that were dropped, which the next ones on the same thread use: a request has two sets of
//! fields, and each has two pieces of memory.

use super::field_line::StoredLine;
use std::{cell::RefCell, mem};

/// Sets that are kept at most: some 100 KB of usual ones.
const MAX_FREE_SETS: usize = 128;
/// Bytes of text of a set that is kept at most: more than those of nearly all headers.
const MAX_FREE_TEXT: usize = 2048;
/// Lines of a set that is kept at most.
const MAX_FREE_LINES: usize = 64;

type FieldMemory = (Vec<u8>, Vec<StoredLine>);

thread_local! {
    static FREE_SETS: RefCell<Vec<FieldMemory>> = const { RefCell::new(Vec::new()) };
}

/// Memory for `lines` lines and `bytes` bytes of text.
pub(super) fn take_memory(lines: usize, bytes: usize) -> FieldMemory {
    let kept = FREE_SETS.try_with(|free| free.borrow_mut().pop()).ok().flatten();
    let (mut text, mut all) = kept.unwrap_or_default();
    text.reserve(bytes);
    all.reserve(lines);
    (text, all)
}

/// Keeps the memory of fields that are dropped.
pub(super) fn recycle_memory(text: &mut Vec<u8>, lines: &mut Vec<StoredLine>) {
    let is_usual = (1..=MAX_FREE_TEXT).contains(&text.capacity()) && (1..=MAX_FREE_LINES).contains(&lines.capacity());
    if !is_usual {
        return;
    }
    let (mut text, mut lines) = (mem::take(text), mem::take(lines));
    text.clear();
    lines.clear();
    // A thread that ends keeps nothing.
    let _ = FREE_SETS.try_with(|free| {
        let mut free = free.borrow_mut();
        if free.len() < MAX_FREE_SETS {
            free.push((text, lines));
        }
    });
}
