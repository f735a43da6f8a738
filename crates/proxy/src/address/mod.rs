//! The addresses of an origin's server: lookup of its name, order of the addresses, those that failed, and attempts
//! that overlap.

mod addresses;
mod lookup;
mod race;
mod resolve;

pub(crate) use addresses::{Blame, Failures, order};
pub(crate) use lookup::Lookups;
pub(crate) use race::{Won, race};
pub(crate) use resolve::Resolver;

#[cfg(test)]
pub(crate) use lookup::tests::resolve as resolve_for_tests;
