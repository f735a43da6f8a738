//! The integration tests: one binary, a module a subject.
#![cfg(test)]
mod cli;
mod config;
mod drain;
mod layering;
mod process;
mod support;
