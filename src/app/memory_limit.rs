//! Computes the memory that the process may use.

use litequic_config::MemoryLimit;
use litequic_resources::memory::{MemoryUsage, installed_memory};

/// Bytes of memory assumed for a machine that does not report its size: those of a small server.
const FALLBACK_INSTALLED_BYTES: u64 = 1 << 30;

/// Bytes that the process may use: the smaller of `configured` and of its memory cgroups. `None` without a limit.
pub(super) fn allowed_memory(configured: MemoryLimit) -> Option<u64> {
    MemoryUsage::open_own_files().smallest_limit(configured)
}

/// Bytes that the process may use, by [`allowed_memory`] or by the machine's memory, whichever is less.
pub(super) fn available_memory(configured: MemoryLimit) -> u64 {
    let (allowed, installed) = (allowed_memory(configured), installed_memory());
    allowed.into_iter().chain(installed).min().unwrap_or(FALLBACK_INSTALLED_BYTES)
}
