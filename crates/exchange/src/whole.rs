//! A body that has come whole with its message's header, in one piece of memory. A front end writes its own header in
//! front of the body, where the header of HTTP/1.1 was: so that neither is copied again.

use bytes::Bytes;
use std::{cell::RefCell, mem};

/// A short body, and room in front of it.
#[derive(Debug, Default)]
pub struct WholeBody {
    memory: Memory,
    /// Where the body begins.
    at: usize,
}

/// Capacity that is kept for another body.
const SIZE: usize = 2048;
/// Shorter ones have memory of exactly their size.
const LEAST: usize = SIZE / 4;
/// Pieces of memory that are kept at most.
const KEPT: usize = 128;

thread_local! {
    static FREE: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// Memory that is used again if it has [`SIZE`] bytes.
#[derive(Debug, Default)]
struct Memory(Vec<u8>);

impl Memory {
    fn of(bytes: &[u8]) -> Self {
        let is_kept = (LEAST..=SIZE).contains(&bytes.len());
        let free = if is_kept { FREE.try_with(|free| free.borrow_mut().pop()).ok().flatten() } else { None };
        let mut memory = free.unwrap_or_else(|| Vec::with_capacity(if is_kept { SIZE } else { bytes.len() }));
        memory.extend_from_slice(bytes);
        Self(memory)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if self.0.capacity() != SIZE {
            return;
        }
        let mut memory = mem::take(&mut self.0);
        memory.clear();
        // A thread that ends keeps nothing.
        let _ = FREE.try_with(|free| {
            let mut free = free.borrow_mut();
            if free.len() < KEPT {
                free.push(memory);
            }
        });
    }
}

impl AsRef<[u8]> for WholeBody {
    fn as_ref(&self) -> &[u8] {
        self.memory.0.get(self.at..).unwrap_or_default()
    }
}

impl WholeBody {
    /// All of `bytes`, for now: what is in front of the body is still to be [skipped](Self::skip).
    pub fn of(bytes: &[u8]) -> Self {
        Self { memory: Memory::of(bytes), at: 0 }
    }

    /// The first `bytes` are not of the body.
    pub fn skip(&mut self, bytes: usize) {
        self.at = self.at.saturating_add(bytes).min(self.memory.0.len());
    }

    /// Bytes of the body.
    pub fn len(&self) -> usize {
        self.as_ref().len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The body.
    pub fn into_bytes(self) -> Bytes {
        if self.is_empty() { Bytes::new() } else { Bytes::from_owner(self) }
    }

    /// The body behind `header`.
    pub fn behind(mut self, header: &[u8]) -> Bytes {
        let start = self.at.checked_sub(header.len());
        match start.and_then(|start| self.memory.0.get_mut(start..self.at)) {
            Some(room) => {
                room.copy_from_slice(header);
                self.at = self.at.saturating_sub(header.len());
                self.into_bytes()
            }
            None => Self::of(&[header, self.as_ref()].concat()).into_bytes(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_written_where_the_other_was_or_the_body_is_copied() {
        for size in [0, 1, LEAST, SIZE - 20, SIZE, SIZE * 3] {
            for header in [0, 1, 19, 20, 21, 100] {
                let (body, header) = (vec![b'b'; size], vec![b'h'; header]);
                let mut whole = WholeBody::of(&[vec![b'-'; 20], body.clone()].concat());
                whole.skip(20);
                assert_eq!((whole.len(), whole.is_empty(), whole.as_ref()), (size, size == 0, &*body));
                assert_eq!(whole.behind(&header), [header, body].concat());
            }
        }
    }

    #[test]
    fn memory_of_the_usual_size_is_used_again() {
        let body = |bytes: usize| WholeBody::of(&vec![1; bytes]);
        let first = body(LEAST).into_bytes();
        let place = first.as_ptr();
        let (second, part) = (first.clone(), first.slice(1..));
        drop((first, second));
        // The last one that has a part of it.
        assert_ne!(body(LEAST).into_bytes().as_ptr(), place);
        drop(part);
        assert_eq!(body(SIZE).into_bytes().as_ptr(), place);
        assert_eq!(body(SIZE + 1).memory.0.capacity(), SIZE + 1);
        assert_eq!(body(LEAST - 1).memory.0.capacity(), LEAST - 1);
    }
}
