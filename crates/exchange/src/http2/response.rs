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
pub fn read_trailers(block: &[u8], limits: &FieldLimits) -> Result<Fields, HeadFault> {
    let mut decoded = hpack::decode_block(block, limits)?;
    decoded.trim_values();
    Ok(well_formed::decode_trailers(decoded)?)
}
