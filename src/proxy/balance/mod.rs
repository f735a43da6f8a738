//! Which server of an origin gets a request, and which is left out for a while. Pure: knows no socket, clock or task.
//!
//! What is known of a server comes from two sides: checks, made in one place for all workers (`health`), and a worker's
//! own requests (`ejection`). `choice` picks one among those that are well; `budget` bounds how many requests are sent
//! again, so that servers that fail do not get a second load for it.

mod budget;
mod choice;
mod ejection;
mod health;

pub(super) use budget::Budget;
pub(super) use choice::{Set, View, choose};
pub(super) use ejection::{Cause, Ejection, Rule};
pub(super) use health::Streak;
