//! What several tests need: programs from outside, and litequic itself as a process.

pub(crate) mod demo;
pub(crate) mod needs;
pub(crate) mod process;
