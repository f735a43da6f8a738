//! Reads the header and the trailers of a response from their field blocks (RFC 9113 §8.1 to §8.3).

use super::hpack;
use crate::{
    Fields,
    field_compression::DecodeError,
    terms::FieldLimits,
    well_formed::{self, DecodedResponse, Malformed},
};

/// The reason why a response's field block is rejected. It is always the server's fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HeadFault {
    /// A connection error of type COMPRESSION_ERROR: the block cannot be decompressed. Others end their stream alone.
    #[error("the response's header cannot be decompressed: {0}")]
    Compression(&'static str),
    /// More bytes or fields than allowed.
    #[error("the response's header is too large")]
    TooLarge,
    /// A stream error of type PROTOCOL_ERROR.
    #[error("the response's header is invalid: {0}")]
    Malformed(&'static str),
}

impl From<DecodeError> for HeadFault {
    fn from(error: DecodeError) -> Self {
        match error {
            DecodeError::Failed(reason) => Self::Compression(reason),
            DecodeError::TooManyBytes | DecodeError::TooManyFields => Self::TooLarge,
        }
    }
}

impl From<Malformed> for HeadFault {
    fn from(Malformed(reason): Malformed) -> Self {
        Self::Malformed(reason)
    }
}

/// Reads a response's header, interim or final, from its whole field block. Blanks around values are cut, as in
/// HTTP/1.1: some servers send them, though RFC 9113 §8.2.1 forbids it. The fields have memory for those that the proxy
/// adds.
///
/// # Errors
///
/// [`HeadFault`]
pub fn read_response_head(block: &[u8], limits: &FieldLimits) -> Result<DecodedResponse, HeadFault> {
    let mut decoded = hpack::decode_block(block, limits)?;
    decoded.trim_values();
    Ok(well_formed::decode_response(decoded)?)
}

/// Reads a response's trailers from their whole field block, as [`read_response_head`] reads a header. Fields that may
/// not be trailers are dropped.
///
/// # Errors
///
/// [`HeadFault`]
pub fn read_response_trailers(block: &[u8], limits: &FieldLimits) -> Result<Fields, HeadFault> {
    let mut decoded = hpack::decode_block(block, limits)?;
    decoded.trim_values();
    Ok(well_formed::decode_trailers(decoded)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FieldNameRef;
    use http::StatusCode;

    #[test]
    fn the_three_faults_of_a_response_are_told_apart() {
        let limits = FieldLimits { bytes: 100, fields: 1 };
        for (block, fault) in [
            (&b"\xbe"[..], HeadFault::Compression("no such index in the static table")),
            (b"\x88\xa1\xa1", HeadFault::TooLarge),
            (b"\x88\x88\x88", HeadFault::TooLarge),
            (b"", HeadFault::Malformed("no :status")),
            (b"\x88\x88", HeadFault::Malformed("duplicate :status")),
            (b"\x88\0\x01A\0", HeadFault::Malformed("field name is not a token in lower case")),
        ] {
            assert_eq!(read_response_head(block, &limits), Err(fault), "{block:?}");
        }
        assert_eq!(read_response_trailers(b"\x88", &limits), Err(HeadFault::Malformed("pseudo-header in trailers")));
        assert_eq!(read_response_trailers(b"\x21", &limits), Err(HeadFault::Compression("table size above 0")));
    }

    #[test]
    fn blanks_around_values_are_cut() {
        let block = b"\x88\x0f\x27\x05 a\tb \0\x01x\x04\t c \0\x01y\x03 \t \0\x01z\x01d";
        let fields = [("server", "a\tb"), ("x", "c"), ("y", ""), ("z", "d")];
        let fields: Fields =
            fields.iter().map(|(name, value)| (FieldNameRef::from_lower_case_token(name), value.as_bytes())).collect();
        let head = read_response_head(block, &FieldLimits::NONE).unwrap();
        assert_eq!((head.status, &head.fields), (StatusCode::OK, &fields));
        assert_eq!(read_response_trailers(&block[1..], &FieldLimits::NONE), Ok(fields));
        // A status is no other field.
        let status = read_response_head(b"\x08\x04200 ", &FieldLimits::NONE);
        assert_eq!(status, Err(HeadFault::Malformed(":status is not three digits")));
    }
}
