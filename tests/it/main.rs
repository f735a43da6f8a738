//! The integration tests: one binary, a module a subject.
#![cfg(test)]

mod access_log;
mod ack_frequency;
mod acknowledgements;
mod admin;
mod aioquic;
mod browser;
mod cli;
mod client_certificates;
mod config;
mod crash;
mod docs;
mod drain;
mod exchange;
mod failures;
mod faults;
mod floods;
mod initial_flood;
mod io;
mod layering;
mod limits;
mod link;
mod load;
mod migration;
mod nginx;
mod panics;
mod recovery;
mod reload;
mod requests;
mod resumption;
mod streams;
mod support;
mod tcp;
mod timeouts;
mod tls;
mod workers;
