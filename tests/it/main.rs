//! litequic from outside: one binary, a module a subject.

#![expect(clippy::unwrap_used, reason = "a test says what it expects by failing")]

mod config;
