//! Manages the buffers of a multishot receive, and the ring by which they are provided to the kernel
//! (io_uring_register(2), IORING_REGISTER_PBUF_RING).

use super::{
    super::mmsg::{CACHE_COLOUR, StableSlice},
    ring::{BUFFER_GROUP, RingState},
};
use io_uring::types::{BufRingEntry, CancelBuilder, Timespec};
use std::{
    io,
    mem::{ManuallyDrop, size_of},
    slice,
    sync::atomic::{AtomicU16, Ordering::Release},
    time::Duration,
};

/// Largest number of buffers: the kernel's limit for one ring.
pub(super) const MAX_BUFFERS: usize = 32_768;
/// Longest time that the kernel may take to stop receiving.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(1);

/// A line of a core's caches, the unit in which buffers are allocated.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct CacheLine([u8; 64]);

/// A page of memory: the ring of provided buffers must begin at one.
#[derive(Clone, Copy)]
#[repr(C, align(4096))]
struct MemoryPage([u8; 4096]);

/// Receive buffers of one size. The kernel owns a buffer from [`provide_buffer`](Self::provide_buffer) until a
/// completion names it.
pub(super) struct ProvidedBuffers {
    ring: ManuallyDrop<StableSlice<MemoryPage>>,
    bytes: ManuallyDrop<StableSlice<CacheLine>>,
    count: u16,
    /// Bytes of a buffer.
    len: u32,
    /// Bytes from one buffer to the next.
    stride: usize,
    tail: u16,
    /// The buffers are registered with the kernel.
    registered: bool,
}

// SAFETY: io_uring_register(2): the memory is this struct's own and belongs to no thread.
unsafe impl Send for ProvidedBuffers {}

impl ProvidedBuffers {
    /// Allocates at least `count` buffers of `len` bytes each, a power of two in number; not registered yet.
    pub(super) fn new(count: usize, len: usize) -> Self {
        let count = count.next_power_of_two().min(MAX_BUFFERS);
        let stride = (len + CACHE_COLOUR).next_multiple_of(size_of::<CacheLine>());
        let pages = (count * size_of::<BufRingEntry>()).div_ceil(size_of::<MemoryPage>());
        Self {
            ring: ManuallyDrop::new(StableSlice::new(vec![MemoryPage([0; 4096]); pages])),
            bytes: ManuallyDrop::new(StableSlice::new(vec![
                CacheLine([0; 64]);
                count * stride / size_of::<CacheLine>()
            ])),
            count: u16::try_from(count).unwrap_or(u16::MAX),
            len: u32::try_from(len).unwrap_or(u32::MAX),
            stride,
            tail: 0,
            registered: false,
        }
    }

    /// Registers the buffers with the kernel, and provides all of them.
    ///
    /// # Errors
    ///
    /// EINVAL before Linux 5.19, ENOMEM.
    pub(super) fn register_buffers(&mut self, inner: &RingState) -> io::Result<()> {
        let address = self.ring.element_address(0) as u64;
        // SAFETY: io_uring_register(2): the memory begins with a page, has room for `count` entries, and stays until it
        // was unregistered: `drop` sees to that.
        unsafe { inner.ring.submitter().register_buf_ring_with_flags(address, self.count, BUFFER_GROUP, 0)? };
        self.registered = true;
        for buffer in 0..self.count {
            self.provide_buffer(buffer);
        }
        self.publish_tail();
        Ok(())
    }

    /// Provides `buffer` to the kernel with the next [`publish_tail`](Self::publish_tail). The kernel must not own the
    /// buffer already.
    pub(super) fn provide_buffer(&mut self, buffer: u16) {
        let slot = usize::from(self.tail & (self.count - 1));
        let address = self.bytes.element_address(0).cast::<u8>().wrapping_add(usize::from(buffer) * self.stride);
        let entry = self.ring.element_address(0).cast::<BufRingEntry>().wrapping_add(slot);
        // SAFETY: io_uring_register(2): `slot` is below `count`, for which the ring has room, and the kernel reads it
        // only once the tail has gone by. The setters leave the bytes of the first entry alone that are the tail.
        let entry = unsafe { &mut *entry };
        entry.set_addr(address as u64);
        entry.set_len(self.len);
        entry.set_bid(buffer);
        self.tail = self.tail.wrapping_add(1);
    }

    /// Makes provided buffers visible to the kernel.
    pub(super) fn publish_tail(&mut self) {
        // SAFETY: io_uring_register(2): the tail lies in the first entry, aligned to two bytes; beside the kernel's
        // reads nothing touches it.
        unsafe {
            let tail = BufRingEntry::tail(self.ring.element_address(0).cast::<BufRingEntry>());
            AtomicU16::from_ptr(tail.cast_mut()).store(self.tail, Release);
        }
    }

    /// The bytes of `buffer`, which the kernel has filled.
    pub(super) fn buffer_bytes(&self, buffer: u16) -> Option<&[u8]> {
        let start = self.buffer_start(buffer)?;
        // SAFETY: the head of `ring`: the caller has it from a completion and has not provided it since, so there is no
        // writer.
        // `start` and `len` lie within the memory.
        Some(unsafe { slice::from_raw_parts(start, self.len as usize) })
    }

    /// The bytes of `buffer`, to write.
    pub(super) fn buffer_bytes_mut(&mut self, buffer: u16) -> Option<&mut [u8]> {
        let start = self.buffer_start(buffer)?;
        // SAFETY: as `get`; borrowed mutably.
        Some(unsafe { slice::from_raw_parts_mut(start, self.len as usize) })
    }

    fn buffer_start(&self, buffer: u16) -> Option<*mut u8> {
        (buffer < self.count)
            .then(|| self.bytes.element_address(0).cast::<u8>().wrapping_add(usize::from(buffer) * self.stride))
    }

    /// Has the kernel stop receiving and unregister the buffers. If the kernel does neither, `drop` leaks the memory,
    /// once for this socket, instead of freeing memory that the kernel may write to.
    pub(super) fn release_buffers(&mut self, inner: &mut RingState) {
        if !self.registered {
            return;
        }
        // The call returns ENOENT if the kernel receives no more.
        let _ = inner.ring.submitter().register_sync_cancel(Some(Timespec::from(CANCEL_TIMEOUT)), CancelBuilder::any());
        // This call completes the cancelled request, which holds the socket.
        let _ = inner.enter_kernel(0);
        inner.collect_completions();
        // Received messages are dropped with the buffers.
        inner.received.clear();
        inner.ended = None;
        // The kernel then finds no buffer for a new message, and is never within a message between two calls.
        if inner.ring.submitter().unregister_buf_ring(BUFFER_GROUP).is_ok() {
            self.registered = false;
        }
    }
}

impl Drop for ProvidedBuffers {
    fn drop(&mut self) {
        if !self.registered {
            // SAFETY: malloc(3): given back once; the kernel has unregistered them, or never registered.
            unsafe {
                ManuallyDrop::drop(&mut self.ring);
                ManuallyDrop::drop(&mut self.bytes);
            }
        }
    }
}
