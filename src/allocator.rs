//! The program's allocator, and how a worker has it give memory back. Tests and the laboratory keep the system's.
#![expect(unsafe_code, reason = "mimalloc's own interface has no other")]

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

unsafe extern "C" {
    /// mimalloc.h: frees what the calling thread has freed and mimalloc has kept; `force` returns it to the system.
    fn mi_collect(force: bool);
}

/// Returns to the system the memory that the calling thread has freed. mimalloc does so by itself only when that thread
/// allocates or frees again, which an idle one does not.
pub(crate) fn release_thread_memory() {
    // SAFETY: mimalloc.h has the same signature; any thread may call it at any time.
    unsafe { mi_collect(true) }
}
