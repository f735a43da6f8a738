//! The integration tests: one binary, a module a subject.
#![cfg(test)]
#![expect(clippy::unwrap_used, reason = "a test says what it expects by failing")]

mod config;
mod layering;
