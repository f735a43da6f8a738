//! Defines the reason why a response cannot be sent.

/// The reason why nothing more can be sent on a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum StreamSendError {
    /// The client sent STOP_SENDING, or the connection is gone.
    #[error("the client cancelled the response")]
    Stopped,
    /// The client read no bytes for `timeouts.send`.
    #[error("timed out waiting for the client to read")]
    TimedOut,
    /// The client read fewer bytes a second than `limits.min_rate`.
    #[error("the client read too slowly")]
    TooSlow,
}
