//! Balances load over an origin's servers, and keeps their health and ejections. Pure: uses no socket, clock or task.
//!
//! The state of a server comes from two sources: health checks, made in one place for all workers (`health`), and a
//! worker's own requests (`ejection`). `server_choice` selects a healthy one: the one on which its client is to stay,
//! by `sticky_cookie` or `rendezvous`, or one by `rotation` and `weight`. `retry_budget` bounds retries, so that
//! failing servers do not cause a second load.

mod ejection;
mod health;
mod rendezvous;
mod retry_budget;
mod rotation;
mod server_choice;
mod sticky_cookie;
mod weight;

pub(super) use ejection::{Ejection, EjectionCause, EjectionRule};
pub(super) use health::{CheckResult, HealthState, HealthStreak};
pub(super) use rendezvous::{HashKey, rendezvous_server};
pub(super) use retry_budget::RetryBudget;
pub(super) use rotation::Rotation;
pub(super) use server_choice::{Affinity, ServerSet, ServerView, choose_equal_server, choose_server};
pub use sticky_cookie::CookieKey;
pub(super) use sticky_cookie::{RequestCookie, StickyCookies};
pub(super) use weight::effective_weight;
