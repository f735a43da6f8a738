//! Finds the addresses of an origin's server and connects to one: lookup of the name, order of the addresses, failed
//! addresses, and attempts that overlap.

mod address_order;
mod lookup;
mod race;
mod resolver;

pub(crate) use address_order::{Blame, PROCESS_FAILURES, order_addresses};
pub(crate) use lookup::PROCESS_LOOKUPS;
pub(crate) use race::{RaceWinner, race_addresses};
pub(crate) use resolver::Resolver;

#[cfg(test)]
pub(crate) use lookup::tests::set_known_name as resolve_for_tests;
