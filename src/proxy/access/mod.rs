//! Who may use a route: rules for clients' addresses.

mod addresses;

pub(super) use addresses::AddressRules;
