//! Checks of text: documents, charts and sources. One fast binary that starts no server; `.ci/run`
//! runs it first.
#![cfg(test)]

mod charts;
mod doc_comments;
mod docs;
mod libraries;
mod names;
mod packaging;
mod sources;
mod words;
