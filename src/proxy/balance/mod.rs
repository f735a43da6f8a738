//! Which server of an origin gets a request, and which is left out for a while. Pure: knows no socket, clock or task.
//!
//! What is known of a server comes from two sides: checks, made in one place for all workers (`health`), and a worker's
//! own requests (`ejection`). `choice` picks one among those that are well: the one on which its client is to stay, which a `cookie`
//! or a `hash` tells, or one by `rotation` and `weight`. `budget` bounds how many requests are sent again, so that servers that fail do
//! not get a second load for it.

mod budget;
mod choice;
mod cookie;
mod ejection;
mod hash;
mod health;
mod rotation;
mod weight;

pub(super) use budget::Budget;
pub(super) use choice::{Set, View, Wish, choose};
pub use cookie::CookieKey;
pub(super) use cookie::{Cookies, Shown};
pub(super) use ejection::{Cause, Ejection, Rule};
pub(super) use hash::{Key, rendezvous};
pub(super) use health::Streak;
pub(super) use rotation::Rotation;
pub(super) use weight::weight;
