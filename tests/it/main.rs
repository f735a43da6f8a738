//! litequic from outside: one binary, a module a subject.

mod config;
