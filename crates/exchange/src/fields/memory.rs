//! The memory of fields that were dropped, which the next ones on the same thread use: a request has two sets of
//! fields, and each has two pieces of memory.

use super::line::Line;
use std::{cell::RefCell, mem};

/// Sets that are kept at most: some 100 KB of usual ones.
const KEPT: usize = 128;
/// Bytes of text of a set that is kept at most: more than those of nearly all headers.
const KEPT_TEXT: usize = 2048;
/// Lines of a set that is kept at most.
const KEPT_LINES: usize = 64;

type Set = (Vec<u8>, Vec<Line>);

thread_local! {
    static FREE: RefCell<Vec<Set>> = const { RefCell::new(Vec::new()) };
}

/// Memory for `lines` lines and `bytes` bytes of text.
pub(super) fn take(lines: usize, bytes: usize) -> Set {
    let kept = FREE.try_with(|free| free.borrow_mut().pop()).ok().flatten();
    let (mut text, mut all) = kept.unwrap_or_default();
    text.reserve(bytes);
    all.reserve(lines);
    (text, all)
}

/// Keeps the memory of fields that are dropped.
pub(super) fn give_back(text: &mut Vec<u8>, lines: &mut Vec<Line>) {
    let is_usual = (1..=KEPT_TEXT).contains(&text.capacity()) && (1..=KEPT_LINES).contains(&lines.capacity());
    if !is_usual {
        return;
    }
    let (mut text, mut lines) = (mem::take(text), mem::take(lines));
    text.clear();
    lines.clear();
    // A thread that ends keeps nothing.
    let _ = FREE.try_with(|free| {
        let mut free = free.borrow_mut();
        if free.len() < KEPT {
            free.push((text, lines));
        }
    });
}
