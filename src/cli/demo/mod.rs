//! Runs `litequic demo`: HTTP/3 to try out on a laptop, with nothing to set up.

mod command;
mod meter;
pub mod origin;
mod printer;

pub use command::{DemoArguments, run_demo};
