//! The integration tests: one binary, a module a subject.
#![cfg(test)]
mod config;
mod exchange;
mod layering;
mod requests;
mod resumption;
mod support;
