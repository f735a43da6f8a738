//! The `Priority` field of a message.

use super::{Parameters, parse, parse_all};
use crate::fields::{Fields, name};

/// Reads the `Priority` fields of a message (RFC 9218 §5). `None` if there is none, or if they do not parse.
#[inline]
pub fn priority_parameters(fields: &Fields) -> Option<Parameters> {
    // Most messages have none.
    if fields.contains(name::PRIORITY) { read(fields) } else { None }
}

fn read(fields: &Fields) -> Option<Parameters> {
    match fields.sole(name::PRIORITY) {
        Some(value) => parse(value),
        None => parse_all(fields.all(name::PRIORITY)),
    }
}
