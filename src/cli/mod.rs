//! Runs the command line: one file a command.
#![expect(clippy::disallowed_types, reason = "hyper and h2 have their fields in it")]

mod advice;
pub mod certificate;
pub mod check;
mod command_line;
pub mod completions;
mod confinement;
pub mod ctl;
pub mod demo;
pub mod example;
pub mod exit;
pub mod get;
mod https_record;
pub mod manual;
mod panic;
pub mod password;
pub mod probe;
mod reexec;
pub mod reference;
pub mod run;
pub mod schema;
mod user;
mod version;

pub use command_line::main;
