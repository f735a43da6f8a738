//! Who may use a route: rules for clients' addresses, users with passwords, another server's decision, and rate limits.
//! Pure but for the threads that verify passwords. `handler::stages` has the order of the steps,
//! docs/adr/0047-who-may-come-in.md the reasons.

mod addresses;
mod auth;
mod limit;
mod users;

pub(super) use addresses::AddressRules;
pub(super) use auth::{AuthDecision, AuthRule, MAX_BODY, pass_on};
pub(super) use limit::{RateLimiter, TakenPermit};
pub(super) use users::{Credentials, PasswordCheck, Passwords, UsersRule};
pub use users::{Users, UsersError, user_line};
