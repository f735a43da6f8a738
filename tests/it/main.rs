//! The integration tests: one binary, a module a subject.
#![cfg(test)]
mod cli;
mod config;
mod drain;
mod exchange;
mod layering;
mod load;
mod process;
mod requests;
mod support;
mod tls;
mod workers;
