//! Advises on an address that cannot be bound: the process that has it, the missing capability, or the local addresses.
//! Printed below the error of a process that does not start.

mod bind_failure;
mod system;

pub(super) use bind_failure::{AdvisedCommand, with_advice};
