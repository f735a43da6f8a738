//! Decides which clients may use a route: rules for addresses, users with passwords, the decision of an auth server,
//! and rate limits. Pure but for the threads that verify passwords. `handler::stages` has the order of the steps,
//! docs/adr/0047-who-may-come-in.md the reasons.

mod address_rules;
mod auth;
mod rate_limiter;
mod users;

pub(super) use address_rules::{AddressRules, AddressSet};
pub(super) use auth::{AuthDecision, AuthFields, AuthRule, MAX_AUTH_BODY, build_auth_response};
pub(super) use rate_limiter::{RateLimiter, TakenPermit, client_key};
pub(super) use users::{Credentials, PasswordCheck, PasswordChecker, UsersRule};
pub use users::{Users, UsersError, create_user_line};
