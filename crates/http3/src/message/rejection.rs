//! Defines the reason why a message is neither forwarded nor repaired.

use http::StatusCode;

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
