//! Why a message is neither forwarded nor repaired.

use http::StatusCode;

/// Why a message is rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Rejection {
    /// A malformed message (RFC 9114 §4.1.2): the stream is to be reset with H3_MESSAGE_ERROR.
    #[error("malformed message: {0}")]
    Malformed(&'static str),
    /// A well-formed message that gets this answer.
    #[error("{1} ({0})")]
    Status(StatusCode, &'static str),
}
