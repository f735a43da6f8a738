//! What to do about an address that cannot be bound: who has it, which right is missing, which addresses there are.
//! Said below the error of a process that does not start.

mod bind_failure;
mod system;

pub(super) use bind_failure::{AdvisedCommand, with_advice};
