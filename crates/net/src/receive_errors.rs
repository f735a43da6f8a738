//! How many errors of its kernel calls a receiver ignores.

/// Consecutive errors before a socket counts as broken. One may come of a shortage of memory, and passes.
pub(super) const MAX_RECEIVE_ERRORS: u32 = 1000;
