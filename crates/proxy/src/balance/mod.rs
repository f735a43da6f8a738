//! Load balancing, health and outlier ejection of an origin's servers. Pure: uses no socket, clock or task.
//!
//! The state of a server comes from two sources: health checks, made in one place for all workers (`health`), and a
//! worker's own requests (`ejection`). `choice` selects a healthy one: the one on which its client is to stay, by a
//! `cookie` or a `hash`, or one by `rotation` and `weight`. `budget` bounds retries, so that failing servers do not
//! cause a second load.

mod budget;
mod choice;
mod cookie;
mod ejection;
mod hash;
mod health;
mod rotation;
mod weight;

pub(super) use budget::RetryBudget;
pub(super) use choice::{Affinity, ServerSet, ServerView, choose_server};
pub use cookie::CookieKey;
pub(super) use cookie::{RequestCookie, StickyCookies};
pub(super) use ejection::{Ejection, EjectionCause, EjectionRule};
pub(super) use hash::{HashKey, rendezvous_server};
pub(super) use health::{CheckResult, HealthState, HealthStreak};
pub(super) use rotation::Rotation;
pub(super) use weight::effective_weight;
