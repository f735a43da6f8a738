//! The integration tests: one binary, a module a subject.
#![cfg(test)]
mod config;
mod exchange;
mod failures;
mod layering;
mod requests;
mod support;
