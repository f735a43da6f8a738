//! Who may use a route: rules for clients' addresses, and another server's decision. Pure. `Proxy::serve` has the order
//! of the steps, docs/adr/0047-who-may-come-in.md the reasons.

mod addresses;
mod auth;

pub(super) use addresses::AddressRules;
pub(super) use auth::{AuthDecision, AuthRule, MAX_BODY, pass_on};
