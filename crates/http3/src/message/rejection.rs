//! Defines the reason why a message is neither forwarded nor repaired.

use http::StatusCode;
use litequic_exchange::well_formed;

/// The reason why a message is rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Rejection {
    /// A malformed message (RFC 9114 §4.1.2): the stream is to be reset with H3_MESSAGE_ERROR.
    #[error("malformed message: {0}")]
    Malformed(&'static str),
    /// A well-formed message, which is answered with this status for this reason.
    #[error("{1} ({0})")]
    Status(StatusCode, &'static str),
}

impl From<well_formed::Malformed> for Rejection {
    fn from(well_formed::Malformed(reason): well_formed::Malformed) -> Self {
        Self::Malformed(reason)
    }
}
