//! What tests and the laboratory write and read by hand, as bytes: of hostile clients, attackers and the load generator.
//! Of no crate of litequic's: it shares no mistake with what is tested and measured. Pure.

pub mod h2;
pub mod h3;
pub mod literal;
pub mod varint;

/// The pseudo-headers of a request for `path` at localhost.
pub fn pseudo<'a>(method: &'a str, path: &'a str) -> Vec<(&'static str, &'a str)> {
    vec![(":method", method), (":scheme", "https"), (":authority", "localhost"), (":path", path)]
}
