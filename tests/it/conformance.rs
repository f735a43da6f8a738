//! The rules that RFC 9000, 9001, 9114 and 9204 attach an error code to: a client breaks one after the other, each on a
//! connection of its own, and a table has litequic's answer, and the reason if that is not the RFC's.
//!
//! `transport`, `tls`, `http3` and `qpack` are the tables, `row` what they are made of, `attempt` how a row is tried,
//! `document` what the documents show of them.

mod attempt;
mod document;
mod http3;
mod qpack;
mod row;
mod tls;
mod transport;
