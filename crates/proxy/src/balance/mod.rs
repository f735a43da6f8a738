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
pub(super) use choice::{Set, View, Wish, choose};
pub use cookie::CookieKey;
pub(super) use cookie::{Cookies, Shown};
pub(super) use ejection::{Ejection, EjectionCause, Rule};
pub(super) use hash::{HashKey, rendezvous};
pub(super) use health::{CheckResult, HealthState, Streak};
pub(super) use rotation::Rotation;
pub(super) use weight::weight;
