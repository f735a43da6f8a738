//! Holds a body that was received whole with its message's header, in one allocation. A front end writes its own header
//! in front of the body, where the HTTP/1.1 header was, so that the body is not copied again.

use bytes::Bytes;
use litequic_base::free_list::{FreeList, keep_free, take_free};
use std::{cell::RefCell, mem};

/// A short body, with room in front for a header.
#[derive(Debug, Default)]
pub struct WholeBody {
    memory: PooledBuffer,
    /// Offset of the body in the buffer.
    start: usize,
}

/// Capacity of buffers that are kept for reuse, in bytes.
const POOLED_CAPACITY: usize = 2048;
/// A buffer for fewer bytes has exactly their size, and is not reused.
const MIN_POOLED_LEN: usize = POOLED_CAPACITY / 4;

thread_local! {
    static FREE_BUFFERS: FreeList<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// A buffer that is reused if its capacity is [`POOLED_CAPACITY`].
#[derive(Debug, Default)]
struct PooledBuffer(Vec<u8>);

impl PooledBuffer {
    /// An empty buffer for `length` bytes.
    fn with_capacity(length: usize) -> Self {
        let is_kept = (MIN_POOLED_LEN..=POOLED_CAPACITY).contains(&length);
        let free = if is_kept { take_free(&FREE_BUFFERS) } else { None };
        Self(free.unwrap_or_else(|| Vec::with_capacity(if is_kept { POOLED_CAPACITY } else { length })))
    }
}

impl Drop for PooledBuffer {
    fn drop(&mut self) {
        if self.0.capacity() != POOLED_CAPACITY {
            return;
        }
        let mut memory = mem::take(&mut self.0);
        memory.clear();
        keep_free(&FREE_BUFFERS, memory);
    }
}

impl AsRef<[u8]> for WholeBody {
    fn as_ref(&self) -> &[u8] {
        self.memory.0.get(self.start..).unwrap_or_default()
    }
}

impl WholeBody {
    /// Copies all of `bytes`. The header in front of the body is still to be [skipped](Self::skip_front).
    pub fn from_received(bytes: &[u8]) -> Self {
        Self::with_header_room(&[], bytes, 0)
    }

    /// Copies `body`, behind the last bytes of `before`, at most `room`: a front end writes its own header over these.
    pub fn with_header_room(before: &[u8], body: &[u8], room: usize) -> Self {
        let room = before.len().min(room);
        let mut memory = PooledBuffer::with_capacity(room.saturating_add(body.len()));
        memory.0.extend_from_slice(before.get(before.len().saturating_sub(room)..).unwrap_or_default());
        memory.0.extend_from_slice(body);
        Self { memory, start: room }
    }

    /// Removes the first `bytes`, which belong to the header.
    pub fn skip_front(&mut self, bytes: usize) {
        self.start = self.start.saturating_add(bytes).min(self.memory.0.len());
    }

    /// Returns the length of the body, in bytes.
    pub fn len(&self) -> usize {
        self.as_ref().len()
    }

    /// Whether the body has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the body.
    pub fn into_bytes(self) -> Bytes {
        if self.is_empty() { Bytes::new() } else { Bytes::from_owner(self) }
    }

    /// Returns the body with `header` in front.
    pub fn prepend_header(mut self, header: &[u8]) -> Bytes {
        let start = self.start.checked_sub(header.len());
        match start.and_then(|start| self.memory.0.get_mut(start..self.start)) {
            Some(room) => {
                room.copy_from_slice(header);
                self.start = self.start.saturating_sub(header.len());
                self.into_bytes()
            }
            None => Self::from_received(&[header, self.as_ref()].concat()).into_bytes(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_replaces_the_earlier_one_or_the_body_is_copied() {
        for size in [0, 1, MIN_POOLED_LEN, POOLED_CAPACITY - 20, POOLED_CAPACITY, POOLED_CAPACITY * 3] {
            for header in [0, 1, 19, 20, 21, 100] {
                let (body, header) = (vec![b'b'; size], vec![b'h'; header]);
                let mut whole = WholeBody::from_received(&[vec![b'-'; 20], body.clone()].concat());
                whole.skip_front(20);
                assert_eq!((whole.len(), whole.is_empty(), whole.as_ref()), (size, size == 0, &*body));
                assert_eq!(whole.prepend_header(&header), [header, body].concat());
            }
        }
    }

    #[test]
    fn memory_of_the_usual_size_is_used_again() {
        let body = |bytes: usize| WholeBody::from_received(&vec![1; bytes]);
        let first = body(MIN_POOLED_LEN).into_bytes();
        let place = first.as_ptr();
        let (second, part) = (first.clone(), first.slice(1..));
        drop((first, second));
        // The buffer is reused once its last part is dropped.
        assert_ne!(body(MIN_POOLED_LEN).into_bytes().as_ptr(), place);
        drop(part);
        assert_eq!(body(POOLED_CAPACITY).into_bytes().as_ptr(), place);
        assert_eq!(body(POOLED_CAPACITY + 1).memory.0.capacity(), POOLED_CAPACITY + 1);
        assert_eq!(body(MIN_POOLED_LEN - 1).memory.0.capacity(), MIN_POOLED_LEN - 1);
    }
}
