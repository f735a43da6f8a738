//! The integration tests: one binary, a module a subject.
#![cfg(test)]

mod aioquic;
mod browser;
mod config;
mod docs;
mod exchange;
mod layering;
mod nginx;
mod requests;
mod support;
