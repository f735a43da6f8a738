//! Bounds the errors that a receiver ignores.

/// Consecutive receive errors before a socket counts as broken. A single one may come from a shortage of memory that
/// passes.
pub(super) const MAX_RECEIVE_ERRORS: u32 = 1000;
