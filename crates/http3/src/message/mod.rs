//! Encodes and decodes requests, responses and trailers by the rules of RFC 9114 §4 and RFC 9110.
//!
//! A message conforms to the rules, or it is rejected. None is repaired and forwarded that the next hop might read
//! differently.
// Numbers here come from clients: none may wrap, and none may panic in builds with overflow checks.
#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]

mod encode;
mod request;

pub use encode::{EncodeError, encode_request, encode_response, encode_trailers};
pub use litequic_exchange::well_formed::{DecodedResponse, decode_response, decode_trailers};
pub use request::{DecodedRequest, Rejection, decode_request};

#[cfg(test)]
pub(super) mod test_support {
    use super::Rejection;
    use crate::qpack::{FieldLimits, decode_section};
    use litequic_exchange::{DecodedFields, NameId};

    /// Decoded fields of literals.
    pub(crate) fn literal_fields(all: &[(&str, &str)]) -> DecodedFields {
        let mut fields = DecodedFields::default();
        all.iter().for_each(|(name, value)| push_literal(&mut fields, name.as_bytes(), value.as_bytes()));
        fields
    }

    /// Adds a field as a literal.
    pub(crate) fn push_literal(fields: &mut DecodedFields, name: &[u8], value: &[u8]) {
        let at = fields.text.len();
        match NameId::from_lower_case(name) {
            NameId::OTHER => {
                fields.text.extend_from_slice(&[name, value].concat());
                fields.push_decoded_line(NameId::OTHER, at, name.len());
            }
            id => {
                fields.text.extend_from_slice(value);
                fields.push_decoded_line(id, at, 0);
            }
        }
    }

    /// The pseudo-headers of a valid request.
    pub(crate) fn well_formed_pseudo() -> &'static [(&'static str, &'static str)] {
        &[(":method", "GET"), (":scheme", "https"), (":authority", "example.com:8443"), (":path", "/a/b?c=d")]
    }

    /// Decodes the field section `lines`, which has no prefix.
    pub(crate) fn decode_literal_section(lines: &[u8]) -> DecodedFields {
        let limits = FieldLimits { bytes: usize::MAX, fields: usize::MAX };
        decode_section(&[&[0, 0], lines].concat(), &limits).unwrap()
    }

    pub(crate) fn is_malformed_result<T>(result: &Result<T, Rejection>) -> bool {
        matches!(result, Err(Rejection::Malformed(_)))
    }
}
