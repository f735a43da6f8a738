//! Reads the `Priority` field of a message.

use super::{PriorityParameters, parse_priority, parse_priority_values};
use crate::fields::{Fields, name};

/// Reads the `Priority` fields of a message (RFC 9218 §5). `None` if there is none, or they do not parse.
#[inline]
pub fn read_priority_field(fields: &Fields) -> Option<PriorityParameters> {
    // Most messages have no such field.
    if fields.contains(name::PRIORITY) { parse_priority_field(fields) } else { None }
}

fn parse_priority_field(fields: &Fields) -> Option<PriorityParameters> {
    match fields.sole_value(name::PRIORITY) {
        Some(value) => parse_priority(value),
        None => parse_priority_values(fields.all_values(name::PRIORITY)),
    }
}
