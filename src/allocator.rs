//! The program's allocator, and the function by which a worker returns freed memory. Tests and the laboratory keep the
//! system's allocator.
#![expect(unsafe_code, reason = "mimalloc's own interface has no other")]

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

unsafe extern "C" {
    /// mimalloc.h: frees memory that the calling thread freed and mimalloc retained; `force` returns it to the system.
    fn mi_collect(force: bool);
}

/// Returns to the system the memory that the calling thread has freed. mimalloc does so by itself only when that thread
/// allocates or frees again, which an idle thread does not.
pub(crate) fn release_thread_memory() {
    // SAFETY: mimalloc.h has the same signature; any thread may call it at any time.
    unsafe { mi_collect(true) }
}
