//! How much memory the process may use.

use litequic_config::MemoryLimit;
use litequic_resources::memory::{Limit, Usage, installed};

/// Memory of a machine that does not tell how much it has: a small server's.
const UNKNOWN: u64 = 1 << 30;

/// Bytes that the process may use: the least of what is `configured` and of its memory cgroups. `None` without a limit.
pub(super) fn allowed(configured: MemoryLimit) -> Option<u64> {
    Usage::of_this_process().limit(limit(configured))
}

/// Bytes that the process may use, by [`allowed`] or by the machine's memory, whichever is less.
pub(super) fn available(configured: MemoryLimit) -> u64 {
    let (allowed, installed) = (allowed(configured), installed());
    allowed.into_iter().chain(installed).min().unwrap_or(UNKNOWN)
}

pub(super) fn limit(configured: MemoryLimit) -> Limit {
    match configured {
        MemoryLimit::Cgroup => Limit::Cgroup,
        MemoryLimit::Bytes(bytes) => Limit::Bytes(bytes),
        MemoryLimit::None => Limit::None,
    }
}
