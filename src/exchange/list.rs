//! Fields whose value is a list (RFC 9110 §5.6.1). Pure.

use http::{HeaderMap, HeaderName};

/// The members of the combined list of all lines named `name`, without blanks around them; empty ones too.
pub fn members(fields: &HeaderMap, name: HeaderName) -> impl Iterator<Item = &[u8]> {
    let lines = fields.get_all(name).into_iter();
    lines.flat_map(|line| line.as_bytes().split(|byte| *byte == b',')).map(<[u8]>::trim_ascii)
}
