//! The integration tests: one binary, a module a subject.
#![cfg(test)]

mod aioquic;
mod browser;
mod cli;
mod config;
mod docs;
mod drain;
mod exchange;
mod failures;
mod io;
mod layering;
mod load;
mod nginx;
mod reload;
mod requests;
mod resumption;
mod support;
mod tls;
mod workers;
